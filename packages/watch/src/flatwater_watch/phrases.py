"""Phrases of English: counts with their nouns, and lists."""

from collections.abc import Sequence

DISTRIBUTIONS = {
    "ale_py": "ale-py",
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Name for pip of the package that has a module of another name."""


def install_command(module: str | None) -> str:
    """Return the command that installs the package of a module, such as `pip install ale-py` for a module of ale_py."""
    package = (module or "").partition(".")[0]
    return f"pip install {DISTRIBUTIONS.get(package, package)}"


def noun_form(count: float | str, noun: str) -> str:
    """Return the noun behind a count: in the plural for all counts but 1."""
    return noun if count == 1 else f"{noun}{'es' if noun.endswith(('s', 'ch')) else 's'}"


def unit_plural(unit: str) -> str:
    """Return the plural of a unit of growth, such as `updates`."""
    return {"batch": "batches"}.get(unit, f"{unit}s")


def count_phrase(count: int, noun: str) -> str:
    """Return a count with its noun: `1 agent`, `1,500 agents`."""
    return f"{count:,} {noun_form(count, noun)}"


def stack_lines(title: str, lines: Sequence[str]) -> str:
    """Return lines below each other after a title: commands fit into 80 columns so, and can be copied one by one."""
    return f"\n{' ' * len(title)}".join([f"{title}{lines[0]}", *lines[1:]])


def list_phrase(names: Sequence[str], maximum: int = 20) -> str:
    """Return the first names of a list, and how many more there are: `AAPL, GOOG and 3 more`."""
    ending = f" and {len(names) - maximum} more" if len(names) > maximum else ""
    return ", ".join(names[:maximum]) + ending
