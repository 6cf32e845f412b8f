"""The reference of the API: a page of each public face, such as `import flatwater`, then one for each package below.

It is read from the source by Python's own parser and nothing is imported: the site needs neither torch nor any of the
extras. Types in signatures are named in full, so that they link to where they are defined.
"""

import ast
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pages import escape_text

SECTION = re.compile(r"^(Args|Returns|Raises|Yields):$")
ITEM = re.compile(r"^ {4}(\S[^:]*): (.*)$")
FIELDS = {"Args": "param", "Raises": "raises", "Returns": "returns", "Yields": "returns"}
DISTRIBUTIONS = ("flatwater_watch", "flatwater", "flatwater_trading")
STUB = "__init__.pyi"
"""Stub of a package; the names in it are promised."""
BY_COMMAND = tuple(f"{name}.cli" for name in DISTRIBUTIONS)
"""Packages that have the reference of the commands instead."""
TOP = "Modules that lie in the package itself."
LONG = 100
"""Characters from which on the value of a constant is not shown: a table is read in its source."""


Module = tuple[ast.Module, Mapping[str, str]]
"""The tree of a module, and the origin of each name in it."""


class FullNameTransformer(ast.NodeTransformer):
    """A transformer that writes the names of an annotation as `module.name`, where their origin is known."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replace a name by its full name."""
        return ast.parse(self.names.get(node.id, node.id), mode="eval").body


def pages(root: Path) -> dict[str, str]:
    """Return the pages by their path on the site: one of all packages, one of each public face, one for each package.

    Args:
        root: the folder `packages` of the repository.
    """
    sources = {path.name: path for path in root.glob("*/src/*") if path.name in DISTRIBUTIONS}
    faces = [".".join(path.parts) for name in DISTRIBUTIONS for path in public_packages(sources[name])]
    found: dict[str, list[str]] = {}
    trees: dict[str, Module] = {}
    errors = find_full_names(
        "flatwater_watch.errors", ast.parse((sources["flatwater_watch"] / "errors.py").read_text())
    )
    for source in map(sources.__getitem__, DISTRIBUTIONS):
        for path in sorted(source.rglob("*.py")):
            name, tree = ".".join(path.relative_to(source.parent).with_suffix("").parts), ast.parse(path.read_text())
            names = errors | find_full_names(name, tree)  # a docstring may name an error that is raised further below
            trees[name] = (tree, names)
            text = "" if name.startswith(BY_COMMAND) else module_text(name, tree, names)
            if text and all(map(is_public, name.split("."))):
                found.setdefault(name.rpartition(".")[0], []).append(text)
    said = {name: package_docstring(sources[name.partition(".")[0]].parent, name) for name in sorted(found)}
    said |= {name: package_docstring(sources[name.partition(".")[0]].parent, name) for name in faces}
    written = {f"api/{name}.md": package_page(name, said[name], found[name]) for name in said if name not in faces}
    for name in faces:
        if name in found:
            written[f"api/{name}.modules.md"] = package_page(f"{name}.modules", TOP, found[name])
        stub = ast.parse(sources[name.partition(".")[0]].parent.joinpath(*name.split("."), STUB).read_text())
        written[f"api/{name}.md"] = face_page(name, stub, trees, said[name])
    below = {f"{name}.modules": TOP for name in faces if name in found}
    others = below | {name: text for name, text in said.items() if name not in faces}
    return {"api/index.md": index_page({name: said[name] for name in faces}, others)} | written


def public_packages(source: Path) -> Iterator[Path]:
    """Yield the packages of a distribution that promise names, the outermost first, from the folder of sources."""
    yield from (stub.parent.relative_to(source.parent) for stub in sorted(source.rglob(STUB)))


def face_page(package_name: str, stub: ast.Module, trees: Mapping[str, Module], said: str) -> str:
    """Return the page of the names that importing a package offers, and of no others.

    Args:
        package_name: of the package.
        stub: `__init__.pyi`, which says where each name is.
        trees: by module.
        said: what the package says of itself.
    """
    shown = {
        alias.name: node.module or "" for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    parts = {name: f"{where}.{name}" for name, where in shown.items() if f"{where}.{name}" in trees}
    packages = {name for name, where in shown.items() if f"{where}.{name}.__init__" in trees}
    beside = {name for name, path in parts.items() if path == f"{package_name}.{name}"}  # described on a page already
    own = [
        dict(public_definitions(*trees[where]))[name]
        for name, where in sorted(shown.items())
        if name not in parts and name not in packages
    ]
    links = [
        f"[`{package_name}.{name}`]({package_name}.{name if name in packages else 'modules'}.md)"
        for name in sorted(packages | beside)
    ]
    linked = [f"In it: {', '.join(links)}"] if links else []
    below = [
        module_text(f"{package_name}.{name}", *trees[path], constants=False)
        for name, path in sorted(parts.items())
        if name not in beside
    ]
    head = f"```{{py:module}} {package_name}\n```"
    promised = "These names are promised: what changes them stands in the release notes, under what to change."
    return (
        "\n\n".join([f"# `import {package_name}`", head, *convert_paragraphs(said), promised, *linked, *own, *below])
        + "\n"
    )


def is_public(name: str) -> bool:
    """Return whether a name is meant for others."""
    return not name.startswith("_")


def package_docstring(root: Path, name: str) -> str:
    """Return the docstring of a package; empty where it has none."""
    return ast.get_docstring(ast.parse(Path(root, *name.split("."), "__init__.py").read_text())) or ""


def package_page(name: str, said: str, parts: list[str]) -> str:
    """Return the page of a package."""
    return "\n\n".join([f"# `{name}`", *convert_paragraphs(said), *parts]) + "\n"


def index_page(faces: Mapping[str, str], others: Mapping[str, str]) -> str:
    """Return the page of all packages.

    Args:
        faces: packages that promise names, with what they say of themselves.
        others: all other packages, the same.
    """
    promised = "These packages have the names that programs use: they are promised."
    offered = [
        f"| [`import {name}`]({name}.md) | {escape_text(' '.join(text.split()))} |" for name, text in faces.items()
    ]
    rows = [f"| [`{name}`]({name}.md) | {escape_text(' '.join(text.split()))} |" for name, text in others.items()]
    head = "Every other public name, with signature and docstring, from the source. They may change from one version to"
    tail = "the next. Functions whose name ends in `_` change their first argument in place; all others are pure."
    table = ("| package | |", "|---|---|")
    heads = ("# API", "", promised, "", *table, *offered, "", "## What may change", "", head, tail, "", *table)
    return "\n".join((*heads, *rows, ""))


def module_text(name: str, tree: ast.Module, names: Mapping[str, str], *, constants: bool = True) -> str:
    """Return a module's heading, docstring and public definitions; empty where it defines nothing public."""
    called = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    public = [text for each, text in public_definitions(tree, names) if constants or each in called]
    head = f"## `{name}`\n\n```{{py:module}} {name}\n```"
    return "\n\n".join([head, *convert_paragraphs(ast.get_docstring(tree) or ""), *public]) if public else ""


def public_definitions(tree: ast.Module, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each public name that a module defines, with its text."""
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef) and is_public(node.name):
            if not is_overload(node):
                yield node.name, function_directive(node, names)
        elif isinstance(node, ast.ClassDef) and is_public(node.name):
            yield node.name, class_directive(node, names)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and is_public(assigned_names(node)) and not is_variable(node):
            directive = "py:type" if is_alias(node) else "py:data"
            yield assigned_names(node), attribute_directive(node, after, names, directive=directive)


def is_overload(node: ast.FunctionDef) -> bool:
    """Return whether a definition is an overload: the function itself follows it."""
    return any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list)


def assigned_names(node: ast.Assign | ast.AnnAssign) -> str:
    """Return the names that are assigned, with commas between them."""
    return ", ".join(map(ast.unparse, node.targets if isinstance(node, ast.Assign) else [node.target]))


def is_alias(node: ast.Assign | ast.AnnAssign) -> bool:
    """Return whether an assignment names a type: `Metrics = Mapping[str, float]`."""
    name = assigned_names(node)
    return name[0].isupper() and not name.isupper() and not isinstance(node.value, ast.Call)


def is_variable(node: ast.Assign | ast.AnnAssign) -> bool:
    """Return whether an assignment makes a variable of types, which means nothing by itself."""
    return isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in {"TypeVar", "ParamSpec"}


def find_full_names(name: str, tree: ast.Module) -> dict[str, str]:
    """Return the full names of what a module defines or imports, by the names in it."""
    found = {node.name: f"{name}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_alias(node):
            found[assigned_names(node)] = f"{name}.{assigned_names(node)}"
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("flatwater"):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def unparse_in_full(node: ast.expr, names: Mapping[str, str]) -> str:
    """Return an annotation or a value as text on one line, its names in full."""
    # Parsed anew: the transformer changes a tree in place, and this one is read again.
    return ast.unparse(FullNameTransformer(names).visit(ast.parse(ast.unparse(node), mode="eval")))


def annotation_text(node: ast.expr, names: Mapping[str, str]) -> str:
    """Return an annotation as text; quotes around it in the source are dropped."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    return unparse_in_full(node, names)


def directive_option(name: str, text: str) -> str:
    """Return an option of a directive, whatever is in its text."""
    return f"\n:{name}: {json.dumps(text, ensure_ascii=False)}"


def function_directive(node: ast.FunctionDef, names: Mapping[str, str], *, directive: str = "py:function") -> str:
    """Return the directive of a function or a method."""
    arguments = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    for argument in ast.walk(arguments.args):
        if isinstance(argument, ast.arg) and argument.annotation:
            argument.annotation = FullNameTransformer(names).visit(argument.annotation)
    returns = f" -> {annotation_text(node.returns, names)}" if node.returns else ""
    signature = f"{node.name}({ast.unparse(arguments.args)}){returns}"
    return write_directive(directive, signature, convert_docstring(ast.get_docstring(node) or "", names))


def class_directive(node: ast.ClassDef, names: Mapping[str, str]) -> str:
    """Return the directive of a class, with its public fields and methods."""
    marks = [unparse_in_full(mark, names) for mark in [*node.decorator_list, *node.bases]]
    kinds = ["*" + ", ".join(f"`{mark.rpartition('.')[2] if '(' not in mark else mark}`" for mark in marks) + "*"]
    body = [*(kinds if marks else ()), *convert_docstring(ast.get_docstring(node) or "", names)]
    for member, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(member, ast.AnnAssign) and is_public(ast.unparse(member.target)):
            body.append(attribute_directive(member, after, names))
        elif isinstance(member, ast.FunctionDef) and (
            is_public(member.name) or member.name in {"__init__", "__call__"}
        ):
            is_property = any(ast.unparse(mark) == "property" for mark in member.decorator_list)
            body.append(
                property_directive(member, names)
                if is_property
                else function_directive(member, names, directive="py:method")
            )
    return write_directive("py:class", node.name, body, fence="````")


def attribute_directive(
    node: ast.Assign | ast.AnnAssign,
    after: ast.stmt | None,
    names: Mapping[str, str],
    *,
    directive: str = "py:attribute",
) -> str:
    """Return the directive of a field, a constant or a named type, with the docstring that stands after it."""
    head = assigned_names(node)
    if isinstance(node, ast.AnnAssign):
        head += directive_option("type", annotation_text(node.annotation, names))
    value = unparse_in_full(node.value, names) if node.value else ""
    if 0 < len(value) < LONG:
        head += directive_option("canonical" if directive == "py:type" else "value", value)
    said = ""
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
        said = inspect.cleandoc(after.value.value)
    return write_directive(directive, head, convert_paragraphs(said))


def property_directive(node: ast.FunctionDef, names: Mapping[str, str]) -> str:
    """Return the directive of a property."""
    kind = directive_option("type", annotation_text(node.returns, names)) if node.returns else ""
    return write_directive("py:property", node.name + kind, convert_docstring(ast.get_docstring(node) or "", names))


def write_directive(directive: str, head: str, body: Iterator[str] | list[str], fence: str = "```") -> str:
    """Write a directive in MyST's fences; a body with fences of its own needs longer ones around it."""
    text = "\n\n".join(body)
    return f"{fence}{{{directive}}} {head}\n\n{text}\n{fence}" if text else f"{fence}{{{directive}}} {head}\n{fence}"


def convert_docstring(text: str, names: Mapping[str, str]) -> Iterator[str]:
    """Convert a docstring in Google's style: paragraphs, then the sections as fields."""
    section, held = "", list[str]()
    # A heading behind the last line, by which the last section is given out as the others.
    for line in [*text.splitlines(), "Args:"]:
        found = SECTION.match(line)
        if not found:
            held.append(line)
            continue
        yield from convert_section(section, held, names) if section else convert_paragraphs("\n".join(held))
        section, held = found[1], []


def convert_section(section: str, lines: list[str], names: Mapping[str, str]) -> Iterator[str]:
    """Convert a section's entries to a list of fields."""
    kind, entries = FIELDS[section], list[list[str]]()
    for line in lines:
        found = ITEM.match(line)
        if found and kind != "returns":
            known = f"~{names[found[1]]}" if kind == "raises" and found[1] in names else found[1]
            entries.append([f":{kind} {known}: {escape_text(found[2])}"])
        elif line.strip() and entries:
            entries[-1].append(escape_text(line.strip()))
        elif line.strip():
            entries.append([f":{kind}: {escape_text(line.strip())}"])
    if entries:
        yield "\n".join(" ".join(entry) for entry in entries)


def convert_paragraphs(text: str) -> Iterator[str]:
    """Convert paragraphs to Markdown; indented paragraphs are code, and lists stay lists."""
    for part in filter(str.strip, text.split("\n\n")):
        if part.startswith("    "):
            yield f"~~~text\n{inspect.cleandoc(part)}\n~~~"
        elif re.match(r"(-|\d\.) ", part):
            yield escape_text(part)
        else:
            yield escape_text(" ".join(part.split()))
