"""Write the settings in docs/ anew from the dataclasses; what stands above the marker of a page is kept.

    python scripts/write_configuration_page.py

`tests/test_docs.py` compares the pages with `page`, so a setting cannot change without them.
"""

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

from flatwater.config.toml import dumps_config
from flatwater.recipes.erl.config import ErlRunConfig
from flatwater.recipes.evolve.config import EvolveRunConfig
from flatwater.recipes.grow.config import GrowRunConfig
from flatwater.recipes.ppo.config import PpoRunConfig
from flatwater.recipes.teach.config import TeachRunConfig

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    DOCS / "configuration.md": ErlRunConfig,
    DOCS / "growing-configuration.md": GrowRunConfig,
    DOCS / "teaching-configuration.md": TeachRunConfig,
    DOCS / "evolve-configuration.md": EvolveRunConfig,
    DOCS / "ppo-configuration.md": PpoRunConfig,
}
MARKER = "<!-- From here on written by scripts/write_configuration_page.py; a test compares it with the code. -->"
TOP = "The run as a whole"
SHARED = ("wandb", "checkpoints")
"""Sections that are alike in every run: they stand on the first page alone."""


def page(written: str, config: object) -> str:
    """A page's text: the head of the one written before, then each section with its settings and their defaults."""
    head = written.split(MARKER, maxsplit=1)[0] + MARKER
    settings = settings_by_section(config)
    shared = () if isinstance(config, ErlRunConfig) else SHARED
    sections = {path: node for path, node in walk(config, "") if path not in shared}
    kinds = Counter(type(node) for node in sections.values())
    told = {path: of_field(config, path) if kinds[type(node)] > 1 else said(node) for path, node in sections.items()}
    links = [f"[{title(path)}](#{anchor(title(path))})" for path in told]
    links += [f"[{title(path)}](configuration.md#{anchor(title(path))})" for path in shared]
    contents = " ·\n".join(" · ".join(links[at : at + 6]) for at in range(0, len(links), 6))
    parts = [f"## {title(path)}\n\n{text}\n\n```toml\n{settings[path]}\n```" for path, text in told.items()]
    return "\n\n".join([head, contents, *parts]) + "\n"


def walk(config: object, path: str) -> Iterator[tuple[str, object]]:
    """Dotted path and value of the configuration and of every one below it, in the order of a dumped file."""
    assert is_dataclass(config)
    yield path, config
    for f in fields(config):
        below = getattr(config, f.name)
        if is_dataclass(below):
            yield from walk(below, f"{path}.{f.name}" if path else f.name)


def settings_by_section(config: object) -> dict[str, str]:
    """Dotted path -> the section's lines of the dumped default configuration, heading included."""
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


def of_field(config: object, path: str) -> str:
    """What the field of a section says: of several sections of one class, the class could only say the same."""
    lines = dumps_config(config).splitlines()
    at = lines.index(f"[{path}]")
    first = next(number for number in range(at, -1, -1) if not lines[number - 1].startswith("#"))
    return " ".join(line.removeprefix("# ") for line in lines[first:at])


def said(config: object) -> str:
    """The first paragraph of the class's docstring, on one line."""
    text = inspect.getdoc(type(config)) or ""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())


def title(path: str) -> str:
    """A section's heading."""
    return f"`[{path}]`" if path else TOP


def anchor(heading: str) -> str:
    """The fragment that Markdown viewers make of a heading: lower case, without punctuation, spaces as hyphens."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


if __name__ == "__main__":
    for path, config in PAGES.items():
        path.write_text(page(path.read_text(), config()))
