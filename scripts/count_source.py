"""Print the size of the source by folder, beside that of an earlier revision: `python scripts/count_source.py [REV]`.

No test asserts these numbers; docs/adr/0041-size-of-the-house.md says what they were and why.
"""

import ast
import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"(?:packages/\w+/)?src/(flatwater\w*)/(.+\.py)")
"""Place of a source, now and before there were three distributions."""
SMALL = 60
"""Lines of a file that is hardly worth its door."""


def read_working_tree() -> dict[str, str]:
    """Return the text of every source of the working tree, by package and path below it."""
    paths = {path.relative_to(ROOT).as_posix(): path for path in ROOT.glob("packages/*/src/**/*.py")}
    places = {path: PLACE.fullmatch(name) for name, path in paths.items()}
    return {"/".join(place.groups()): path.read_text() for path, place in places.items() if place}


def read_revision(revision: str) -> dict[str, str]:
    """Return the text of every source of a revision, by package and path below it."""
    packed = subprocess.run(
        # An archive and no checkout: the working tree stays as it is.
        ["git", "archive", revision],  # noqa: S607  (whichever git the developer has)
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        for member in files.getmembers():
            place = PLACE.fullmatch(member.name)
            if place is not None and (file := files.extractfile(member)) is not None:
                found["/".join(place.groups())] = file.read().decode()
    return found


def count_lines_by_folder(texts: Mapping[str, str]) -> Counter[str]:
    """Count lines by folder, and of each package as a whole; modules beside its folders are one row."""
    lines = Counter[str]()
    for path, text in texts.items():
        package, *inside = path.split("/")
        lines[package] += len(text.splitlines())
        lines[f"  {package}/{inside[0] if inside[1:] else '(modules)'}"] += len(text.splitlines())
    return lines


def count_docstring_lines(text: str) -> int:
    """Count the lines of the docstrings of a module, its classes and functions."""
    found = 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            first = node.body[0]
            found += (first.end_lineno or first.lineno) - first.lineno + 1
    return found


def describe_size(texts: Mapping[str, str]) -> str:
    """Summarise lines and files, and how many of the files are small."""
    # Without __init__.py: a package's docstring would count as a small file.
    sizes = [len(text.splitlines()) for path, text in texts.items() if not path.endswith("__init__.py")]
    small = sum(size <= SMALL for size in sizes)
    lines = sum(len(text.splitlines()) for text in texts.values())
    written = sum(map(count_docstring_lines, texts.values()))
    blank = sum(not line.strip() for text in texts.values() for line in text.splitlines())
    return (
        f"{lines:,} lines ({written:,} of docstrings, {blank:,} blank), {len(texts)} files; without __init__.py "
        f"{len(sizes)}, {small} of them ({small / len(sizes):.0%}) of at most {SMALL} lines"
    )


def main() -> None:
    """Print the table by folder, then a summary of each column."""
    columns = {"now": read_working_tree()} | {revision: read_revision(revision) for revision in sys.argv[1:2]}
    counts = [count_lines_by_folder(texts) for texts in columns.values()]
    print(f"{'':<34}" + "".join(f"{name:>10}" for name in columns))
    for folder in sorted(set().union(*counts), key=lambda name: -counts[0][name]):
        print(f"{folder:<34}" + "".join(f"{count[folder]:>10,}" for count in counts))
    for name, texts in columns.items():
        print(f"{name}: {describe_size(texts)}")


if __name__ == "__main__":
    main()
