"""Start of the watch before the program: Python imports this module from the front of PYTHONPATH.

Any Python from 2.7 on can run this file: the interpreter may be too old for the watch, which is then reported. The
module leaves `sys.path`, the environment and the user's own `sitecustomize` as they would be without it.
"""

import gc
import os
import sys

_OLDEST = (3, 11)
_HERE = os.path.dirname(os.path.abspath(__file__))


def _remove_from_environment():
    # type: () -> dict[str, str]
    """Take the watch out of the environment and of `sys.path`; return the runner's variables."""
    # First of all: processes that the program starts must not inherit the watch's variables.
    variables = dict((name, os.environ.pop(name)) for name in list(os.environ) if name.startswith("FLATWATER_WATCH_"))
    user_pythonpath = variables.get("FLATWATER_WATCH_PYTHONPATH")
    if user_pythonpath is not None:
        os.environ["PYTHONPATH"] = user_pythonpath
    else:
        os.environ.pop("PYTHONPATH", None)
    # An empty entry is the working folder, which may be this one, and is the user's.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE or not entry]
    sys.path_importer_cache.pop(_HERE, None)
    return variables


def _make_importable(folder):
    # type: (str) -> None
    """Make the runner's `flatwater_watch` importable from its folder, unless this Python has the package installed."""
    import importlib.util

    installed_spec = importlib.util.find_spec("flatwater_watch")
    # Without an origin it is a folder of that name, such as a clone, and no package.
    if installed_spec is None or installed_spec.origin is None:
        spec = importlib.util.spec_from_file_location(
            "flatwater_watch", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["flatwater_watch"] = module
        spec.loader.exec_module(module)


def _write_note(variables, kind, sentence):
    # type: (dict[str, str], str, str) -> None
    """Leave a sentence for the runner in a file; nothing is ever printed in the program's own process."""
    try:
        with open(os.path.join(variables["FLATWATER_WATCH_FOLDER"], "%d.%s" % (os.getpid(), kind)), "w") as note:
            note.write(sentence)
    except (OSError, IOError):  # a full disk: the sentence is lost
        pass


def _start_if_asked():
    # type: () -> None
    """Start the watch in this process if the runner's variables are there; write a fault to the runner's folder."""
    variables = _remove_from_environment()
    if "FLATWATER_WATCH_FOLDER" not in variables:
        return
    if sys.version_info < _OLDEST:
        version = "%d.%d" % sys.version_info[:2]
        _write_note(variables, "old", "%s is Python %s; watch needs 3.11 or later" % (sys.executable, version))
        return
    gc_was_enabled = gc.isenabled()
    gc.disable()  # the watch's modules stay: a search for garbage in them takes a twelfth of their import
    try:
        _make_importable(variables["FLATWATER_WATCH_PACKAGE"])
        from flatwater_watch.agent.start_in_process import start_watch

        start_watch(variables)
    except Exception as fault:  # the edge between the watch and somebody else's program
        _write_note(variables, "fault", "the watch failed: %s: %s" % (type(fault).__name__, fault))
    finally:
        if gc_was_enabled:
            gc.enable()


_start_if_asked()
# Import the module that Python would have found: its errors, or its absence, show as they would without us.
_own_module = sys.modules.pop("sitecustomize", None)  # Python 2 clears the names of a module that nobody holds
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401  (a module of the user's, if there is one)
