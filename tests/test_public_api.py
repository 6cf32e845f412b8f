"""The public face is written down in `api/public.txt`, so that a change of it shows in a diff.

`make api` writes the file anew. Public is what a package with an `__init__.pyi` declares there: classes with their
public members, functions with their signatures, constants and types with their values, and of a module its public
functions and classes. Every other name may change between two versions.
"""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {"flatwater_watch": "watch", "flatwater": "flatwater", "flatwater_trading": "trading"}
PUBLIC = [
    ".".join(stub.parent.relative_to(ROOT / "packages" / folder / "src").parts)
    for folder in SOURCES.values()
    for stub in sorted((ROOT / "packages" / folder / "src").rglob("__init__.pyi"))
]
"""The three faces, and below each the packages that have names for users."""
LISTING = ROOT / "tests" / "api" / "public.txt"


def source_of(package: str) -> Path:
    return ROOT / "packages" / SOURCES[package.partition(".")[0]] / "src"


def face(offered: str) -> dict[str, tuple[Path, str]]:
    """Name that a package offers -> the file that defines it, and its name there; none where it is a whole module.

    Of a package that is offered the file is its stub, whose names have a paragraph of their own.
    """
    found = dict[str, tuple[Path, str]]()
    stub = source_of(offered).joinpath(*offered.split("."), "__init__.pyi")
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                where = str(node.module)
                package = source_of(where).joinpath(*where.split("."))
                modules = (package / f"{alias.name}.py", package / alias.name / "__init__.pyi")
                module = next((path for path in modules if path.is_file()), None)
                found[alias.asname or alias.name] = (module, "") if module else (package.with_suffix(".py"), alias.name)
    return found


def module_beside(package: str, name: str) -> Path:
    """Where a module of the package lies, if it offers one of its own as a whole."""
    return source_of(package).joinpath(*package.split("."), f"{name}.py")


def listing() -> str:
    """The faces, a name and what belongs to it in a paragraph."""
    parts = []
    for package in PUBLIC:
        parts.append(f"import {package}")
        for name, (path, inside) in sorted(face(package).items()):
            lines = [line for node in ast.parse(path.read_text()).body for line in node_lines(node, inside)]
            head = [] if inside else [f"module {name}"]
            parts.append("\n".join([*head, *(lines if inside else (f"  {line}" for line in lines))]))
    return "\n\n".join(parts) + "\n"


def node_lines(node: ast.stmt, wanted: str) -> Iterator[str]:
    """A definition of a module, where it is the one that is wanted, or all are and it is public."""
    if isinstance(node, ast.Assign | ast.AnnAssign) and name_of(node) == wanted:
        yield ast.unparse(node)
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and (node.name == wanted if wanted else is_public(node.name)):
        yield from class_lines(node) if isinstance(node, ast.ClassDef) else [signature(node)]


def name_of(node: ast.Assign | ast.AnnAssign) -> str:
    return ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])


def class_lines(node: ast.ClassDef) -> Iterator[str]:
    marks = [ast.unparse(mark) for mark in [*node.decorator_list, *node.bases]]
    yield f"class {node.name}" + (f" ({', '.join(marks)})" if marks else "")
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and is_public(ast.unparse(member.target)):
            yield f"  {ast.unparse(member)}"
        elif isinstance(member, ast.FunctionDef) and (
            is_public(member.name) or member.name in {"__init__", "__call__"}
        ):
            yield f"  {signature(member)}"


def signature(node: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


def is_public(name: str) -> bool:
    return not name.startswith("_")


def test_the_public_face_is_the_one_written_down() -> None:
    assert listing().splitlines() == LISTING.read_text().splitlines(), "run `make api` and read the diff"


@pytest.mark.parametrize("package", PUBLIC)
def test_what_is_declared_is_what_is_offered(package: str) -> None:
    module = importlib.import_module(package)
    assert sorted(face(package)) == sorted(name for name in dir(module) if is_public(name))
    for name, (path, inside) in face(package).items():
        assert getattr(module, name) is not None
        assert path.is_file()
        assert not inside or name == inside


@pytest.mark.parametrize("package", PUBLIC)
def test_no_name_is_that_of_a_module_beside_it(package: str) -> None:
    """Python puts an imported module into its package, and the name would be lost: `state` was."""
    folder = source_of(package).joinpath(*package.split("."))
    for name, (_, inside) in face(package).items():
        beside = [folder / f"{name}.py", folder / name / "__init__.py"]
        assert not inside or not any(each.exists() for each in beside), name


def test_importing_a_public_package_imports_no_library() -> None:
    program = f"""
import sys
for package in {PUBLIC}:
    __import__(package)
print(*{{"torch", "numpy", "rich", "msgspec", "gymnasium", "polars", "typing"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() in ([], ["typing"])  # start-up files of an environment may import it


@pytest.mark.long
def test_the_reference_of_the_site_begins_with_these_names_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "documentation")
    pages: dict[str, str] = importlib.import_module("api_reference").pages(ROOT / "packages")
    for package in PUBLIC:
        text = pages[f"api/{package}.md"]
        own, *modules = re.split(rf"^## `{re.escape(package)}\.(\w+)`$", text, flags=re.MULTILINE)
        shown = re.findall(r"^`{3,4}\{py:(?:class|function|data|type)\} (\w+)", own, re.MULTILINE)
        assert shown == sorted(name for name, (_, inside) in face(package).items() if inside)
        whole = {name: path for name, (path, inside) in face(package).items() if not inside}
        beside = [name for name, path in whole.items() if path == module_beside(package, name)]
        described = [name for name, path in whole.items() if path.suffix == ".py" and name not in beside]
        assert modules[::2] == sorted(described)
        packages = [name for name, path in whole.items() if path.suffix == ".pyi"]
        links = [f"{package}.{name}.md" for name in packages] + [f"{package}.modules.md" for _ in beside]
        assert all(f"]({link})" in own for link in links)
        for text in modules[1::2]:
            assert "{py:function}" in text
            assert "{py:data}" not in text
    first, may_change = pages["api/index.md"].split("## What may change")
    assert re.findall(r"\((.*?)\.md\)", first) == PUBLIC
    faces = {f"api/{package}.md" for package in PUBLIC}
    assert {f"api/{name}.md" for name in re.findall(r"\((.*?)\.md\)", may_change)} == {*pages} - faces - {
        "api/index.md"
    }


if __name__ == "__main__":
    LISTING.write_text(listing())
