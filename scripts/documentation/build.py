"""Build the site: the pages of the repository, the reference of the commands, and that of the API.

    python scripts/documentation/build.py [--out build/site]

A warning is an error: a link that leads nowhere, a page that nothing leads to, a block that cannot be read. What Sphinx
reads is written to build/pages, and only where it has changed, so that a second build reads little anew.
"""

import argparse
import re
import shutil
import sys
from pathlib import Path

import api_reference
import command_reference
from pages import ROOT, Site, collect_pages_, page_title
from sphinx.cmd.build import build_main

READ = ROOT / "build" / "pages"
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)
ITEM = re.compile(r"^- \[([^\]]*)\]\(([^)#]+)\)", re.MULTILINE)
WRITTEN_HERE = ("adr/index.md", "notes/index.md", "commands/index.md", "api/index.md")
"""Pages that are made for the site, and have a list of pages below them."""
LISTED = {
    "adr": (
        "Decisions",
        "What was decided, why, what it costs, and when to think again, in the order of the decisions.",
    ),
    "notes": ("Lab notes", "What was measured, how, when, and what else was tried, as it was written then."),
}
"""Folder of pages -> heading of the page that lists them, and a sentence."""
REFERENCE = """\
- [Commands](commands/index.md): every option
- [API](api/index.md): every public name
"""
"""Entries that the site adds to the section `Reference` of docs/index.md."""


def assemble_site() -> Site:
    """Collect all pages of the site."""
    site = Site()
    collect_pages_(site)
    site.pages |= command_reference.pages() | api_reference.pages(ROOT / "packages")
    site.pages |= {f"{folder}/index.md": list_page(site, folder, *head) for folder, head in LISTED.items()}
    for name in WRITTEN_HERE:
        folder = name.removesuffix("index.md")
        below = [page for page in site.pages if page.startswith(folder) and page != name]
        site.pages[name] += hidden_toctree([page.removeprefix(folder) for page in below])
    site.pages["index.md"] = navigation_page(site)
    return site


def list_page(site: Site, folder: str, heading: str, said: str) -> str:
    """Return the page that lists the pages of a folder."""
    rows = [
        f"- [{page_title(page)}]({Path(name).name})"
        for name, page in site.pages.items()
        if name.startswith(f"{folder}/")
    ]
    return "\n".join((f"# {heading}", "", said, "", *rows, ""))


def navigation_page(site: Site) -> str:
    """Return docs/index.md with its lists as the site's navigation: a section is a group, and its links are the pages.

    A page that it does not name stands under a heading of its own, so that a new page is never lost.
    """
    front, *rest = SECTION.split(site.pages["index.md"])
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    sections["Reference"] = sections["Reference"].rstrip() + "\n" + REFERENCE
    named = {page for section in sections.values() for _, page in ITEM.findall(section)}
    below = tuple(name.removesuffix("index.md") for name in WRITTEN_HERE)
    lost = [name for name in site.pages if name not in named and not name.startswith(("files/", *below))]
    lost = [name for name in lost if name != "index.md"]
    if lost:
        sections["Further pages"] = (
            "\n\n" + "\n".join(f"- [{page_title(site.pages[name])}]({name})" for name in lost) + "\n"
        )
    listed = {name: [f"{said} <{page}>" for said, page in ITEM.findall(text)] for name, text in sections.items()}
    return front + "".join(
        f"## {name}{text}{hidden_toctree(listed[name], caption=name)}\n" for name, text in sections.items()
    )


def hidden_toctree(entries: list[str], caption: str = "") -> str:
    """Return a toctree of pages, each `page` or `title <page>`, for the navigation and not shown on the page itself."""
    options = [":hidden:", f":caption: {caption}" if caption else ":maxdepth: 1"]
    return "\n".join(("", "```{toctree}", *options, "", *entries, "```", ""))


def write_pages(site: Site, folder: Path) -> None:
    """Write the pages that have changed, and remove files that are no page any more."""
    for old in folder.rglob("*.md"):
        if old.relative_to(folder).as_posix() not in site.pages:
            old.unlink()
    for name, text in site.pages.items():
        path = folder / name
        # Sphinx goes by the time of writing: a page that is the same must keep it.
        if not path.is_file() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    shutil.copytree(ROOT / "docs" / "pictures", folder / "pictures", dirs_exist_ok=True)


def main() -> int:
    """Build the site. Returns the exit code of Sphinx."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    options = parser.parse_args()
    write_pages(assemble_site(), READ)
    strict = ["-q", "-W", "--keep-going", "-j", "auto"]
    places = ["-c", str(ROOT / "docs"), "-d", str(READ.with_name("doctrees")), str(READ), str(options.out)]
    code = build_main([*strict, "-b", "html", *places])
    if code == 0:
        print(f"the site is in {options.out}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
