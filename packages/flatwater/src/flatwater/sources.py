"""Finds the files of a dotted name, and hashes their text, without importing any of it."""

import ast
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType

from flatwater_watch.files.regular_files import read_regular

MAXIMUM_BYTES = 64 << 20
"""Most bytes of a module's file: those in C are large."""
MAXIMUM_FILES = 200
"""Most of a user's own files that a module imports from its own folder."""
RUNS_FOLDER = "runs"
"""Folder of runs that are given no other."""
_RUN_FILES = ("checkpoints", "metrics.jsonl", "run.log", ".lock")
"""A run's folder has at least one of these files, next to a config.toml that names a recipe."""
_RUN_CONFIG = re.compile(rb"^trainer\s*=", re.MULTILINE)


def module_specs(module: str) -> list[ModuleSpec]:
    """Return the import specs of a module's packages, outermost first, and of the module; nothing is imported.

    The list ends before the first part of the name that is not found. The folder where the command runs is searched
    last, as in `named_imports.import_named_module`.
    """
    specs: list[ModuleSpec] = []
    search_path: Sequence[str] | None = None
    module_names = module.split(".")
    if not all(name_part.isidentifier() for name_part in module_names):  # finders expect names
        return []
    for depth in range(1, len(module_names) + 1):
        spec = _find_spec(".".join(module_names[:depth]), search_path)
        if spec is None:
            break
        specs.append(spec)
        if spec.submodule_search_locations is None:
            break
        # Into a list: a namespace package's search path is a view that imports change.
        search_path = [*spec.submodule_search_locations]
    return specs


def _find_spec(name: str, package_path: Sequence[str] | None) -> ModuleSpec | None:
    """Return a module's spec from `sys.modules` or the first finder that has it; `package_path` is None at the top."""
    module = sys.modules.get(name)
    if isinstance(module, ModuleType) and module.__spec__ is not None:  # programs put other objects there as well
        return module.__spec__
    for finder in sys.meta_path:
        if finder is PathFinder:
            search_path = [*sys.path, *current_folder()] if package_path is None else package_path
            # The last part alone: for a dotted name without __init__.py, it would look for the package in sys.modules.
            spec = PathFinder.find_spec(name.rpartition(".")[2], search_path)
        else:
            spec = finder.find_spec(name, package_path)
        if spec is not None:
            return spec
    return None


def current_folder() -> list[str]:
    """Return the folder where the command runs, as an entry of the search path; empty if it is gone."""
    try:
        return [os.getcwd()]  # noqa: PTH109  (an entry of the search path is a text)
    except FileNotFoundError:  # somebody has removed it
        return []


def module_files(module: str) -> list[Path]:
    """Return the files and folders that an import of the module would read, by their real paths."""
    files = list[Path]()
    for spec in module_specs(module):
        # A package without an __init__.py has folders and no file.
        places = [spec.origin] if spec.has_location and spec.origin else [*(spec.submodule_search_locations or ())]
        files += [Path(file).resolve() for file in places]
    return files


def enclosing_run_folder(path: Path) -> Path | None:
    """Return the run folder that a path lies in, or the command's folder of runs; None if it is in neither."""
    runs_folders = [(Path(folder) / RUNS_FOLDER).resolve() for folder in current_folder()]  # one or none
    return next((folder for folder in (path, *path.parents) if folder in runs_folders or _is_run(folder)), None)


def _is_run(folder: Path) -> bool:
    """Return whether a folder is a run's: it has a file of a run, and its config.toml names a recipe (`trainer`)."""
    if not any((folder / name).exists() for name in _RUN_FILES):
        return False
    try:
        # Searched as text: the file of a stranger is not parsed to find out where it lies.
        return _RUN_CONFIG.search(read_regular(folder / "config.toml")) is not None
    except OSError:
        return False


def module_place(module: str) -> str:
    """Return where a module is, as a text that stays the same when its content changes.

    Modules of installed packages and of Python are named by their path below the folder of packages: another version
    of Python has another folder. Other modules are named by their real path; empty if there is no such module.
    """
    specs = module_specs(module)
    if len(specs) != module.count(".") + 1:  # a part of the dotted name was not found
        return ""
    places = module_files(module)
    if not places:
        return f"part of Python: {specs[-1].origin}"
    package_folder = _package_folder(places[-1])
    own_place = places[-1]  # the module's, after those of its packages
    return f"installed: {own_place.relative_to(package_folder)}" if package_folder else str(own_place)


def _package_folder(path: Path) -> Path | None:
    """Return the folder of installed packages, or of Python's library, that a file lies in; None for the user's own."""
    return next((folder for folder in _package_folders() if path.is_relative_to(folder)), None)


@cache
def _package_folders() -> list[Path]:
    """Return the folders of installed packages and of Python's library, the longest first: some lie within others."""
    names = [sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")]
    folders = {Path(folder).resolve() for folder in (*names, site.getusersitepackages())}
    return sorted(folders, key=lambda folder: -len(folder.parts))


def text_hashes(module: str) -> Mapping[str, str]:
    """Return hashes of the text of a module, and of the modules that it imports from its own folder.

    Returns:
        The name of a module -> 12 hexadecimal digits. Of an installed module the imports are not followed. A module
        without a file, or one whose file cannot be read, is left out.
    """
    from hashlib import sha256  # noqa: PLC0415  (where a run is made or resumed)

    places = module_files(module)
    is_installed = not places or _package_folder(places[-1]) is not None
    hashes: dict[str, str] = {}
    # Cached: many modules import the same ones, and each search reads the disk several times. Only a user's module,
    # which has a place, asks for neighbours.
    is_neighbour = cache(lambda imported_module: _is_neighbour_module(imported_module, places[0]))
    queue = [module]
    while queue and len(hashes) < MAXIMUM_FILES:
        name = queue.pop()
        if name in hashes or (text := _module_text(name)) is None:  # imports may go round in circles
            continue
        hashes[name] = sha256(text).hexdigest()[:12]
        if not is_installed:
            # The top package first: its cached answer leaves out most imports without a search for the module.
            queue += [
                imported_module
                for imported_module in _imported_modules(name, text)
                if is_neighbour(imported_module.partition(".")[0]) and is_neighbour(imported_module)
            ]
    return dict(sorted(hashes.items()))


def _module_text(module: str) -> bytes | None:
    """Return the bytes of a module's file; None if there is none, or it cannot be read."""
    specs = module_specs(module)
    # A part of the dotted name is not found, or the module has no file: built into Python, or a folder.
    if len(specs) != module.count(".") + 1 or not specs[-1].has_location or specs[-1].origin is None:
        return None
    try:
        return read_regular(Path(specs[-1].origin), MAXIMUM_BYTES)
    except OSError:
        return None


def _imported_modules(module: str, text: bytes) -> Iterator[str]:
    """Yield the names of modules, and of objects in them, that a module's text imports; none if it has errors."""
    # Parsed and never run: the text may be anybody's.
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    specs = module_specs(module)
    # The package from which relative imports count: the module itself if it is a package.
    package = module if specs[-1].submodule_search_locations is not None else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                source = resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:
                continue
            yield source
            # `from package import module` names a module as well.
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _is_neighbour_module(module: str, origin: Path) -> bool:
    """Return whether a module is the user's own and lies in, or below, the folder of the file or folder `origin`."""
    folder = origin if origin.is_dir() else origin.parent
    places = module_files(module)
    if not places:
        return False
    own_place = places[-1]  # the module's, after those of its packages
    return own_place.is_relative_to(folder) and _package_folder(own_place) is None
