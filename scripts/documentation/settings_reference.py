"""The settings of a recipe, section by section, for the page of the site on which `<!-- settings of NAME -->` stands.

What stands below that line is for those who read the page in the repository: the site has the sections instead.
"""

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from flatwater.config.toml import dumps_config
from flatwater.recipe import find_installed_recipe

MARKER = re.compile(r"^<!-- settings of (\w+) -->\n.*", re.MULTILINE | re.DOTALL)
TOP = "The run as a whole"
FIRST = "erl"
"""The recipe of docs/trading/configuration.md."""
SHARED = ("wandb", "checkpoints")
"""Sections that are alike in every run: they stand on that page alone."""


def complete_page(page: str) -> str:
    """Complete a page with the settings of the recipe that it names; any other page stays as it is."""
    return MARKER.sub(lambda found: recipe_sections(found[1]), page)


def recipe_sections(name: str) -> str:
    """Return each section of a shipped recipe with its settings and defaults, below links to all sections."""
    recipe = find_installed_recipe(name)
    assert recipe is not None, f"{name} is no recipe that ships"
    config = recipe.config()
    settings = settings_by_section(config)
    shared = () if name == FIRST else SHARED
    shown = {path: node for path, node in walk_configs(config, "") if path not in shared}
    kinds = Counter(type(node) for node in shown.values())
    told = {
        path: field_docstring(config, path) if kinds[type(node)] > 1 else first_paragraph(node)
        for path, node in shown.items()
    }
    links = [f"[{section_title(path)}](#{heading_anchor(section_title(path))})" for path in told]
    links += [
        f"[{section_title(path)}](../trading/configuration.md#{heading_anchor(section_title(path))})" for path in shared
    ]
    contents = " ·\n".join(" · ".join(links[at : at + 6]) for at in range(0, len(links), 6))
    parts = [f"## {section_title(path)}\n\n{text}\n\n```toml\n{settings[path]}\n```" for path, text in told.items()]
    return "\n\n".join([contents, *parts]) + "\n"


def walk_configs(config: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield path and value of the configuration and of every one below it, in the order of a dumped file."""
    assert is_dataclass(config)
    yield path, config
    for f in fields(config):
        below = getattr(config, f.name)
        if is_dataclass(below):
            yield from walk_configs(below, f"{path}.{f.name}" if path else f.name)


def settings_by_section(config: object) -> dict[str, str]:
    """Return the lines of each section of the dumped default configuration, heading included, by dotted path."""
    found: dict[str, list[str]] = {"": []}
    path, waiting = "", list[str]()
    for line in dumps_config(config).splitlines():
        if line.startswith("["):
            path, waiting = line.strip("[]"), []  # the comment above a heading is the field's; the class says more
            found[path] = [line]
        elif line.startswith("#") or not line:
            waiting.append(line)
            if line.startswith("#") and line.endswith(" ="):
                found[path] += waiting
                waiting = []
        else:
            found[path] += [*waiting, line]
            waiting = []
    return {name: "\n".join(lines).strip("\n") for name, lines in found.items()}


def field_docstring(config: object, path: str) -> str:
    """Return the field's docstring for a section: the class's would be the same in several sections."""
    lines = dumps_config(config).splitlines()
    at = lines.index(f"[{path}]")
    first = next(number for number in range(at, -1, -1) if not lines[number - 1].startswith("#"))
    return " ".join(line.removeprefix("# ") for line in lines[first:at])


def first_paragraph(config: object) -> str:
    """Return the first paragraph of the class's docstring, on one line."""
    text = inspect.getdoc(type(config)) or ""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())


def section_title(path: str) -> str:
    """Return a section's heading."""
    return f"`[{path}]`" if path else TOP


def heading_anchor(heading: str) -> str:
    """Return the fragment that Markdown viewers make of a heading: lower case, no punctuation, spaces as hyphens."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")
