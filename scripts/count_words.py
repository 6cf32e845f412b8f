"""Print how the source reads, for each distribution: names, docstrings, comments, and what pages import.

No test asserts these figures; what they should come to is in docs/adr/0048-three-distributions.md.
"""

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {path.name: path for path in sorted(ROOT.glob("packages/*/src/flatwater*"))}
IRREGULAR = frozenset(
    re.split(
        r"\s+",
        "begun bound built chosen drawn driven found given gone grown held hidden kept known laid led left lent lost "
        "made meant met paid put read run said seen sent set shown sold spent split spread stood taken taught told "
        "thrown understood weighed won written",
    )
)
"""Participles that do not end in -ed."""
NOUNS = frozenset(
    re.split(
        r"\s+",
        "read run set split spread put left found need seed feed speed embed red bed shed",
    )
)
"""Words of these forms that are a verb or a noun as well."""
INSIDE = re.compile(r"(\.\.\.|Of |As |Where |The same|Whose |Which |In which |And |Or |Those |What )")
"""Beginning of a docstring that is no sentence of its own."""
DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|pragma|ruff:)")


def is_participle(name: str) -> bool:
    """Return whether a function's name is a participle alone."""
    word = name.strip("_")
    return "_" not in word and word not in NOUNS and (word in IRREGULAR or word.endswith("ed"))


def function_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names of all functions and methods but Python's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            yield node.name


def find_docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield all docstrings, also those of fields and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value.strip()


def count_comments(path: Path) -> int:
    """Count the lines with a comment that is no directive to a tool."""
    with path.open("rb") as file:
        # By tokens: a # within a text is no comment.
        found = [token for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]
    return sum(not DIRECTIVE.match(token.string) for token in found)


def count_code_lines(tree: ast.Module, text: str) -> int:
    """Count the lines that are neither blank, nor a comment alone, nor a docstring."""
    said = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            said |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and at not in said for at, line in lines)


def find_page_imports() -> set[str]:
    """Find the modules below a face that pages and examples import from."""
    pages = (*ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md"), *ROOT.glob("docs/**/*.md"))
    programs = (*ROOT.glob("docs/**/*.ipynb"), *ROOT.glob("examples/**/*.py"))
    texts = [path.read_text() for path in (*pages, *programs)]
    return {name for text in texts for name in re.findall(r"(?:from|import) (flatwater\w*\.[\w.]+)", text)}


def distribution_row(package: Path) -> tuple[str, ...]:
    """Return the figures of one distribution, in the order of the titles below."""
    paths = sorted(package.rglob("*.py"))
    trees = {path: ast.parse(path.read_text()) for path in paths}
    names = [name for tree in trees.values() for name in function_names(tree)]
    classes = Counter(
        node.name.lstrip("_") for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    said = [text for tree in trees.values() for text in find_docstrings(tree)]
    code = sum(count_code_lines(tree, path.read_text()) for path, tree in trees.items())
    return (
        package.name,
        f"{sum(len(path.read_text().splitlines()) for path in paths):,}",
        f"{code:,}",
        f"{sum(map(is_participle, names)):,} of {len(names):,}",
        str(sum(count > 1 for count in classes.values())),
        f"{sum(bool(INSIDE.match(text)) for text in said) / len(said):.1%}",
        f"{100 * sum(map(count_comments, paths)) / code:.1f}",
    )


def main() -> None:
    """Print the table of all distributions."""
    titles = ("", "lines", "code", "participles", "classes twice", "fragments", "comments/100")
    rows = [titles, *(distribution_row(package) for package in PACKAGES.values())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        print("  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
    print(f"modules that pages and examples import from, besides the three faces: {len(find_page_imports())}")


if __name__ == "__main__":
    main()
