"""Imported by Python before the program, from the front of PYTHONPATH. Begins the watch and takes itself out of sight.

It needs nothing but the standard library until it knows that this process is to be watched, and leaves `sys.path`,
the environment and the user's own `sitecustomize` as they would be without it.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (pathlib would be imported in every process)


def _restore() -> dict[str, str]:
    """Take the watch out of the environment and of `sys.path`; returns what it was told there."""
    told = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("FLATWATER_WATCH_")}
    before = told.get("FLATWATER_WATCH_PYTHONPATH")
    if before is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = before
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE or not entry]  # noqa: PTH100
    return told


def _package(folder: str) -> None:
    """Make `flatwater` importable from where the runner has it, and nothing else that lies beside it."""
    if importlib.util.find_spec("flatwater") is None:
        spec = importlib.util.spec_from_file_location(
            "flatwater",
            os.path.join(folder, "__init__.py"),  # noqa: PTH118
            submodule_search_locations=[folder],
        )
        assert spec is not None  # noqa: S101
        assert spec.loader is not None  # noqa: S101
        module = importlib.util.module_from_spec(spec)
        sys.modules["flatwater"] = module
        spec.loader.exec_module(module)


def _next_sitecustomize() -> None:
    """Run the one that Python would have run. Where there is none, this module stays: Python asks for it by name."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _begin() -> None:
    told = _restore()
    if "FLATWATER_WATCH_FOLDER" in told:
        _package(told["FLATWATER_WATCH_PACKAGE"])
        from flatwater.memory.watch.boot import begin  # noqa: PLC0415

        begin(told)


_begin()
_next_sitecustomize()
