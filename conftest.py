"""Python examples in the Markdown pages are tests too: `make docs` runs them.

The examples of a page share one namespace and run in order, in an empty folder of their own, in which `examples`
is the repository's.
"""

import builtins
import os
import shutil
import sys
import tempfile
from doctest import ELLIPSIS
from importlib import import_module
from pathlib import Path
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

os.environ["OMP_NUM_THREADS"] = "1"  # programs that pages start: threads that wait for a core take as long again

ADDED = "PYTEST_ADDOPTS"
"""Pages start pytest in their own folder, without pyproject.toml, which leaves importnb's plugin out."""
NAMES = ("XDG_CACHE_HOME", "XDG_STATE_HOME", ADDED)


def leave_unpainted(out: Path, rows: object) -> None:  # noqa: ARG001  (as `write_picture` is called)
    """Put a file in the place of a run's picture: to paint it is a fifth of a small run, and no page shows one."""
    out.write_bytes(b"")


def enter_empty_folder(namespace: dict[str, Any]) -> None:
    """Pages write files as a reader would, into the current folder; nothing of them stays."""
    namespace["left"] = {"cwd": Path.cwd(), "env": {name: os.environ.get(name) for name in NAMES}, "path": [*sys.path]}
    picture: Any = import_module("flatwater.reports.picture")  # by the pages alone: it loads matplotlib
    import_module("sympy")  # torch does where kernels of the meta device are first used: in the fork of each plan
    namespace["left"]["picture"], namespace["left"]["write"] = picture, picture.write_picture
    picture.write_picture = leave_unpainted
    namespace["left"]["folder"] = tempfile.mkdtemp(prefix="flatwater-page-")
    os.chdir(namespace["left"]["folder"])
    os.environ["XDG_CACHE_HOME"] = str(Path.cwd() / ".cache")
    os.environ["XDG_STATE_HOME"] = str(Path.cwd() / ".state")
    os.environ[ADDED] = "-p no:importnb"
    os.environ.pop("COLUMNS", None)  # `readline` puts it there, which pdb imports; pages show tables of 100 columns
    for name in ("examples", "benchmarks"):
        Path(name).symlink_to(Path(__file__).parent / name)


def leave_folder(namespace: dict[str, Any]) -> None:
    """Go back, remove it, and drop what the page held: its names live as long as pytest does, and `_` in `builtins`.

    Its modules go as well: another page may write one of the same name.
    """
    left = namespace["left"]
    left["picture"].write_picture = left["write"]
    os.chdir(left["cwd"])
    sys.path[:] = left["path"]
    sys.path_importer_cache.pop(".", None)  # Python keeps the folder that it was
    for name, module in [*sys.modules.items()]:
        if Path(getattr(module, "__file__", None) or "/").resolve().is_relative_to(Path(left["folder"]).resolve()):
            del sys.modules[name]
    for name, value in left["env"].items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value
    shutil.rmtree(left["folder"])
    namespace.clear()
    vars(builtins).pop("_", None)


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS), SkipParser()],
    patterns=["*.md"],
    setup=enter_empty_folder,
    teardown=leave_folder,
).pytest()
