"""A hook into imports: functions are called with modules right after the program has imported them.

Nothing is imported that the program does not import.
"""

import importlib.machinery
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from flatwater_watch.agent.guard import Guard


def prepare_on_import(preparations: Mapping[str, Callable[[ModuleType], None]]) -> None:
    """Call each function with the module that its key names: at once if that is loaded, else right after its import."""
    not_loaded = {}
    for name, prepare in preparations.items():
        module = sys.modules.get(name)
        if module is None:
            not_loaded[name] = prepare
        else:
            Guard().run(prepare, module)
    sys.meta_path.insert(0, _ImportPreparer(not_loaded))


class _ImportPreparer:
    """A finder that lets the others find a module, and has the module prepared when its code has run."""

    def __init__(self, preparations: dict[str, Callable[[ModuleType], None]]) -> None:
        self._preparations = preparations  # by name of a module that is not loaded yet

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec that another finder has for a module to be prepared; None for all other modules.

        The spec's loader is changed so that it prepares the module.
        """
        if name not in self._preparations:
            return None
        prepare = self._preparations.pop(name)  # each module is prepared once
        for finder in sys.meta_path:
            try:
                find = finder.find_spec
            except AttributeError:  # an old finder, which the interpreter passes over as well
                continue
            if finder is self:
                continue
            spec = find(name, path, target)
            if spec is not None:
                Guard().run(_prepare_after_execution, spec.loader, prepare)
                return spec
        return None


def _prepare_after_execution(found_loader: object, prepare: Callable[[ModuleType], None]) -> None:
    """Let a module's loader call `prepare` once it has executed the module; modules without source are left alone."""
    if not isinstance(found_loader, importlib.machinery.SourceFileLoader):
        return
    loader: Any = found_loader

    def exec_module(module: ModuleType) -> None:
        """Execute the module as its loader does, then prepare it."""
        del loader.exec_module  # without this attribute of the instance, the name is the class's own method again
        loader.exec_module(module)
        Guard().run(prepare, module)

    loader.exec_module = exec_module
