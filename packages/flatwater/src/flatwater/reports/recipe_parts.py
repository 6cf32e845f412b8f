"""Parts of a page that its recipe draws, without an import of recipes that are not installed.

Parts of an installed recipe are made from the run's records by its own functions. Those of any other recipe were
written into the run's folder as data (`sections.json`) while the run trained, in a process that had the recipe at hand.
"""

import json
from collections.abc import Iterable, Mapping

from flatwater.plugins import group_rows, load_named_object
from flatwater.recipe import Recipe, find_installed_recipe
from flatwater.reports.learning_charts import course_picture, course_sections
from flatwater.reports.records import RunRecords, read_run
from flatwater.rundir.layout import RunFolder
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.json_values import parse_json
from flatwater_watch.files.regular_files import read_regular
from flatwater_watch.pages.block_json import from_plain, to_plain
from flatwater_watch.pages.blocks import Block, Paragraph, Piece
from flatwater_watch.pages.chart import Picture
from flatwater_watch.sanitize import short_repr
from flatwater_watch.units import format_bytes

MAXIMUM_BYTES = 8 << 20
"""Most bytes of `sections.json`: a page with more would hardly open."""
MAXIMUM_PARTS, MAXIMUM_TITLE = 32, 80
REWRITE_ADVICE = "Rewrite them with `flatwater resume`."


def own_parts(run: RunRecords) -> dict[str, Iterable[Block]]:
    """Return the recipe's parts of the page as blocks by title.

    An installed recipe makes its parts; those of another recipe are read from the folder, or are the default parts.
    """
    installed_recipe = find_installed_recipe(run.recipe.name)
    if installed_recipe is not None:
        return dict(installed_recipe.sections(run))
    if not run.recipe.own_parts:  # the recipe has only the parts that all recipes have
        return dict(course_sections(run))
    # The recipe's code is not imported here: the run wrote the parts while it trained.
    return dict(_read_saved_parts(RunFolder(run.path)) or course_sections(run))


def installed_parts(run: RunRecords) -> dict[str, Iterable[Block]]:
    """Return the parts that installed packages add to the page of any run, as blocks by title.

    In the place of a part that cannot be made there is a paragraph with the error.
    """
    blocks_by_title: dict[str, Iterable[Block]] = {}
    # Functions that installed packages register in the group `sections`: import paths by name.
    for name, import_path in group_rows("sections").items():
        try:
            package_blocks: Mapping[str, Iterable[Block]] = load_named_object(import_path)(run)
            # Listed within the `try`: blocks may be a generator, which fails only when it is read.
            blocks_by_title |= {title: list(blocks) for title, blocks in package_blocks.items()}
        except Exception as error:  # noqa: BLE001  (the edge to other people's packages: the page is drawn without it)
            message = f"{type(error).__name__}: {error}"
            blocks_by_title[name] = [Paragraph((Piece(import_path), f" cannot draw this part: {message}"), "missing")]
    return blocks_by_title


def _read_saved_parts(folder: RunFolder) -> Mapping[str, Iterable[Block]]:
    """Return the parts that the run wrote to `sections.json`, as blocks by title.

    Without the file there are none; if it is damaged there is one, with the reason.
    """
    try:
        content = parse_json(read_regular(folder.sections, MAXIMUM_BYTES, follow_links=False))
        if not isinstance(content, list) or not 0 < len(content) <= MAXIMUM_PARTS:
            raise ValueError(f"expected 1 to {MAXIMUM_PARTS} parts")  # noqa: TRY301  (caught below, where the file is named)
        return dict(_parse_part(entry) for entry in content)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        sentence = (Piece(folder.sections.name), f" cannot be read as parts of a page: {reason}. ", REWRITE_ADVICE)
        return {"Learning": [Paragraph(sentence, "missing")]}  # the title of the first part in most recipes


def _parse_part(content: object) -> tuple[str, list[Block]]:
    """Return title and blocks of a part in a run's sections.json.

    Raises:
        ValueError: the part has no blocks, or they do not fit.
    """
    if not isinstance(content, dict) or not isinstance(content.get("blocks"), list):
        raise ValueError(f"{short_repr(content)}: expected a title and blocks")  # noqa: TRY004  (told as any other misfit)
    title = from_plain(content.get("title"), str)[:MAXIMUM_TITLE]  # the folder may come from anybody
    return title, [from_plain(block) for block in content["blocks"]]


def own_picture(run: RunRecords, recipe: Recipe | None = None) -> Picture:
    """Return the rows of charts of `result.png`.

    Args:
        run: records of the run.
        recipe: the recipe that has just trained it; None if the folder is only read.
    """
    installed_recipe = find_installed_recipe(run.recipe.name) if recipe is None else recipe
    return course_picture(run) if installed_recipe is None else installed_recipe.picture(run)


def write_parts(folder: RunFolder, recipe: Recipe) -> None:
    """Write the page's parts of a recipe that is not installed into a run's folder, as they are now.

    A run calls it while it trains (`runs.recipe_parts`), and pays for reading some hundred lines of its records. Parts
    of more than `MAXIMUM_BYTES` are replaced by a paragraph that says so.

    Raises:
        RunError: the folder cannot be written, or a file of the run is damaged.
        TypeError: an object that the recipe gives is not a block.
    """
    sections = recipe.sections(read_run(folder.root))
    parts = [(str(title), [to_plain(block) for block in blocks]) for title, blocks in sections.items()]
    content = json.dumps([{"title": title, "blocks": blocks} for title, blocks in parts]).encode()
    if len(content) > MAXIMUM_BYTES:
        size, most_text = format_bytes(len(content)), format_bytes(MAXIMUM_BYTES)
        sentence = f"The parts of this recipe have {size}, and a page shows {most_text} at most."
        first_title, _ = parts[0]
        content = json.dumps([{"title": first_title, "blocks": [to_plain(Paragraph(sentence, "missing"))]}]).encode()
    write_object(folder.sections, content + b"\n")
