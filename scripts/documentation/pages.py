"""Pages of the site from the Markdown pages of the repository: their places, and the targets of their links.

Pages are written to be read where they are, so their links name files of the repository. On the site a link to a page
leads to that page, a link to any other file to a page that shows it.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from posixpath import relpath

from notebooks import as_page, read_notebook
from settings_reference import complete_page

ROOT = Path(__file__).parents[2]
NOTEBOOK = ".ipynb"
MOVED = {
    "README.md": "index.md",
    "docs/adr": "adr/index.md",
    "benchmarks/notes": "notes/index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "benchmarks/RESULTS.md": "project/results.md",
}
"""File or folder of the repository -> page of the site. Files in docs/ are found below the same name."""
NOTES = "benchmarks/notes"
LANGUAGES = {".py": "python", ".toml": "toml", ".md": "markdown", ".json": "json"}
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)\s]+)(\))")
DOCTEST = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)


@dataclass
class Site:
    """Pages by their path on the site, and the files that they link to."""

    root: Path = ROOT
    pages: dict[str, str] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    """Files of the repository that pages link to."""


def collect_pages_(site: Site) -> None:
    """Take all pages of the repository in, and a page for each file that they link to."""
    for source in written_pages(site.root):
        name = source.relative_to(site.root).as_posix()
        text = as_page(read_notebook(source)) if source.suffix == NOTEBOOK else complete_page(source.read_text())
        site.pages[site_path(name)] = rewrite_links_(site, name, text)
    for name in sorted(site.shown):
        site.pages[f"files/{name}.md"] = listing_page(name, (site.root / name).read_text())


def written_pages(root: Path) -> Iterator[Path]:
    """Yield the pages that people wrote. README.md stands in for docs/index.md in the repository, so it is left out."""
    yield from (path for path in sorted((root / "docs").rglob("*.md")) if path.name != "README.md")
    yield from sorted((root / "docs").rglob(f"*{NOTEBOOK}"))
    yield from (root / name for name in MOVED if name.endswith(".md") and name != "README.md")
    yield from sorted((root / NOTES).glob("*.md"))


def site_path(name: str) -> str:
    """Return the page of the site on which a page of the repository stands."""
    page = name.removesuffix(NOTEBOOK) + ".md" if name.endswith(NOTEBOOK) else name
    return MOVED.get(page, page.removeprefix("docs/").removeprefix("benchmarks/"))


def rewrite_links_(site: Site, name: str, text: str) -> str:
    """Return a page's text with its links as they are on the site, and note the files that must be shown.

    Args:
        site: to note them in.
        name: the page, from the root of the repository.
        text: as it is written.
    """

    def link(found: re.Match[str]) -> str:
        before, target, after = found.groups()
        return before + site_target_(site, name, target) + after

    return DOCTEST.sub("```pycon\n", change_outside_code(lambda prose: LINK.sub(link, prose), text))


def site_target_(site: Site, name: str, target: str) -> str:
    """Return the target of a page's link on the site, and note a file that must be shown.

    Raises:
        ValueError: there is no such file in the repository.
    """
    path, _, fragment = target.partition("#")
    if "://" in target or not path:
        return target
    there = (site.root / name).parent.joinpath(path).resolve()
    linked = there.relative_to(site.root).as_posix()
    if not there.exists():
        raise ValueError(f"{name}: {target} leads nowhere")
    known = linked in MOVED or (
        linked.startswith(("docs/", f"{NOTES}/")) and (there.suffix in {".md", NOTEBOOK} or "pictures" in there.parts)
    )
    if not known and there.is_dir():
        raise ValueError(f"{name}: {target} is a folder; link to a file in it")
    if not known:
        site.shown.add(linked)
    page = site_path(linked) if known else f"files/{linked}.md"
    return relpath(page, PurePosixPath(site_path(name)).parent.as_posix()) + (f"#{fragment}" if fragment else "")


def change_outside_code(change: Callable[[str], str], text: str) -> str:
    """Change a text everywhere but in fenced blocks; spans of code in the text of a link stay part of it."""
    blocks = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(block if block.startswith("```") else change(block) for block in blocks)


def listing_page(name: str, text: str) -> str:
    """Return a page that shows a file of the repository; it is reached by links alone."""
    language = LANGUAGES.get(Path(name).suffix, "text")
    return f"---\norphan: true\n---\n\n# `{name}`\n\n````{language}\n{text.rstrip()}\n````\n"


def page_title(page: str) -> str:
    """Return the first heading of a page."""
    return next(line for line in page.splitlines() if line.startswith("# ")).removeprefix("# ")


def escape_text(text: str) -> str:
    """Escape plain text for Markdown; text between backticks stays code."""
    spans = re.split(r"(`[^`]*`)", text)
    return "".join(span if span.startswith("`") else re.sub(r"([\\*_<\[\]|])", r"\\\1", span) for span in spans)
