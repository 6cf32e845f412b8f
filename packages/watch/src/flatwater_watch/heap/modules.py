"""Modules that are made at run time, by a parser of schemas or a loader of plugins: they are data, and not code.

Such a module came after the first census, and has neither a file nor a spec, or the file of a module of another name.
"""

import sys
from types import ModuleType

from flatwater_watch.heap.raw import loaded_modules, named_entries, namespace, namespace_value, plain_text
from flatwater_watch.heap.view import OPAQUE, OpenedObject, Walk, evenly_spaced_slice, open_container

_known_names: set[str] = set()
"""Names of the modules of the first census, and of those that were imported since."""
_runtime_modules: dict[str, ModuleType] = {}
"""The modules that were made at run time and are still in `sys.modules`, by their names there."""
_name_by_file: dict[str, str] = {}
"""The name of the first module of each file."""


def runtime_modules() -> dict[str, ModuleType]:
    """Return the modules in `sys.modules` that were made at run time, by their names there, the newest last.

    Each call looks at the modules that came since the last call. All modules at the first call count as imported.
    """
    # Runs no code of the watched program.
    is_first_census = not _known_names
    loaded = loaded_modules()
    removed_names = [name for name, module in _runtime_modules.items() if loaded.get(name) is not module]
    for name in removed_names:
        del _runtime_modules[name]
    for name, module in loaded.items():
        if name in _known_names or name in _runtime_modules:
            continue
        space = namespace(module)
        file = namespace_value(space, "__file__")
        if type(file) is str:  # made at run time if an earlier module has the file
            first_name = _name_by_file.setdefault(file, name)
            # The same module under a second name, as `os.path` is `posixpath`, is no second one.
            is_made = first_name != name and loaded.get(first_name) is not module
        else:
            is_made = namespace_value(space, "__spec__") is None
        if is_made and not is_first_census:
            _runtime_modules[name] = module
        else:
            _known_names.add(name)
    return _runtime_modules


def known_runtime_modules() -> dict[str, ModuleType]:
    """Return the modules that the last call of `runtime_modules` found, without a look at all modules."""
    return _runtime_modules


def is_runtime_file(file: str) -> bool:
    """Return whether a file is the code of modules that were made at run time."""
    return any(namespace_value(namespace(module), "__file__") == file for module in runtime_modules().values())


def imported_module_count() -> int:
    """Return the number of modules that were imported, without those that were made at run time."""
    return len(sys.modules) - len(runtime_modules())


def open_modules(walk: Walk) -> OpenedObject:
    """Open `sys.modules`: the modules in it that were made at run time, or a sample of many."""
    modules = list(known_runtime_modules().values())
    sample = modules[evenly_spaced_slice(len(modules), walk.sampled_items)]
    return open_container("dict", 0, len(modules), sample, walk)


def open_module(module: ModuleType, _walk: Walk) -> OpenedObject:
    """Open a module that was made at run time: its globals, without special names. Other modules are not entered."""
    space = namespace(module)
    name = plain_text(namespace_value(space, "__name__"))
    is_loaded = sys.modules.get(name) is module
    is_made_at_run_time = known_runtime_modules().get(name) is module
    if name in _known_names or (is_loaded and not is_made_at_run_time):
        return OPAQUE
    parts = [(f".{key}", value) for key, value in named_entries(space) if not key.startswith("__")]
    return OpenedObject("object", object.__sizeof__(module) + dict.__sizeof__(space), len(parts), parts)
