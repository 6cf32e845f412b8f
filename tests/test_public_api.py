"""The public interface is written down in `api/public.txt`, so that a change of it shows in a diff.

`make api` writes the file anew. Public is what has no leading underscore, in modules that have none.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "flatwater"
LISTING = ROOT / "tests" / "api" / "public.txt"


def module_lines(path: Path) -> Iterator[str]:
    """The module's public names, one a line, indented under their class."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and is_public(node.name):
            yield f"  {signature(node)}"
        elif isinstance(node, ast.ClassDef) and is_public(node.name):
            yield from class_lines(node)


def class_lines(node: ast.ClassDef) -> Iterator[str]:
    marks = [ast.unparse(mark) for mark in [*node.decorator_list, *node.bases]]
    yield f"  class {node.name}" + (f" ({', '.join(marks)})" if marks else "")
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and is_public(ast.unparse(member.target)):
            yield f"    {ast.unparse(member)}"
        elif isinstance(member, ast.FunctionDef) and (
            is_public(member.name) or member.name in {"__init__", "__call__"}
        ):
            yield f"    {signature(member)}"


def signature(node: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


def is_public(name: str) -> bool:
    return not name.startswith("_")


def listing() -> str:
    lines = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        found = list(module_lines(path))
        if found and all(is_public(part) for part in module.split(".")):
            lines += [module, *found, ""]
    return "\n".join(lines)


def test_the_public_interface_is_the_one_written_down() -> None:
    assert listing().splitlines() == LISTING.read_text().splitlines(), "run `make api` and read the diff"


if __name__ == "__main__":
    LISTING.write_text(listing())
