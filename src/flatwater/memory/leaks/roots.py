"""Where the walk over the heap begins: globals of the user's modules, locals of running frames, known registries.

Nothing here calls into the user's program: module and instance namespaces are read as dicts, never through attributes,
so lazily importing modules stay asleep and no property runs.
"""

import inspect
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from flatwater.memory.leaks.registries import registries

_SEPARATORS = tuple({os.sep, os.altsep or os.sep})
_STDLIB = tuple(sorted({str(Path(sysconfig.get_path(name))) for name in ("stdlib", "platstdlib")}))
_INSTALLED = ("site-packages", "dist-packages")
_TYPED_IN = ("<string>", "<stdin>", "<ipython-input")
"""How Python names the file of code that has none: `python -c`, the prompt, a notebook's cell."""
_OURS = str(Path(__file__).parents[2])
_OURS_NAME = Path(_OURS).name
_NEVER = str(Path(__file__).parents[1])
"""flatwater, which counts where it is asked for, and its memory package, which never does."""
_namespace: Callable[[ModuleType], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__


@dataclass(frozen=True)
class Roots:
    """Where the walk begins."""

    packages: tuple[str, ...] = ()
    """Library packages whose code counts as the user's as well, such as "flatwater" in its own runs."""
    named: tuple[tuple[str, Any], ...] = ()
    """Objects that are held outside of the program's own variables, each with its path: a test's fixtures."""


@lru_cache(maxsize=16_384)
def is_user_file(file: str, packages: tuple[str, ...] = ()) -> bool:
    """Whether code of this file is the user's: in neither the standard library nor an installed package.

    Args:
        file: as in `co_filename` or `__file__`.
        packages: installed packages that count as the user's too.
    """
    if file.startswith("<"):
        return file.startswith(_TYPED_IN)
    path = os.path.abspath(file)  # noqa: PTH100  a Path costs ten times as much, and this runs for each module
    if _within(path, _NEVER):
        return False
    if any(_within(path, folder) for package in packages for folder in _folders(package)):
        return True
    library = any(_within(path, folder) for folder in (*_STDLIB, _OURS))
    return not library and not any(f"{sep}{name}{sep}" in path for name in _INSTALLED for sep in _SEPARATORS)


def _within(path: str, folder: str) -> bool:
    return path.startswith(folder) and path[len(folder) :].startswith(_SEPARATORS)


def _folders(package: str) -> list[str]:
    module = sys.modules.get(package)
    if not isinstance(module, ModuleType):
        return []
    return [os.path.abspath(folder) for folder in _namespace(module).get("__path__", ())]  # noqa: PTH100


def user_modules(roots: Roots) -> dict[str, dict[str, Any]]:
    """Namespaces of the loaded modules that are the user's, by name; the main program stands first."""
    found: dict[str, dict[str, Any]] = {}
    seen: set[int] = set()
    libraries: set[str] = set()
    mixed = {_OURS_NAME, *(package.partition(".")[0] for package in roots.packages)}
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if top in libraries or not issubclass(type(module), ModuleType):  # a few libraries put other objects there
            continue
        names = _namespace(module)
        file = names.get("__file__")
        if name == "__main__" or (type(file) is str and is_user_file(file, roots.packages)):
            if id(names) not in seen:
                seen.add(id(names))
                found[name] = names
        elif name == top and file is not None and top not in mixed:
            libraries.add(name)  # what lies below it is the library's as well
    return found


def spoken_name(module: str, names: Mapping[str, Any]) -> str:
    """How a path names the module: `__main__` by its file, which stays the same when it is imported."""
    file = names.get("__file__")
    return Path(file).stem if module == "__main__" and type(file) is str else module


def tiers(roots: Roots, modules: Mapping[str, dict[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    """The roots in groups; what a group reaches is its own before the next group begins.

    Globals, registries and the outermost frame of the main thread are there at every census. Frames below come and go,
    and must not take over the path of what the outer ones hold: each is a group, outermost first.

    Args:
        roots: whose frames are the user's.
        modules: from `user_modules`.
    """
    frames = _running(roots)
    outermost = _locals(frames[0]) if frames else []
    yield [*_globals(modules), *outermost, *registries(), *roots.named]
    for frame in frames[1:]:
        yield _locals(frame)
    yield [(f"thread {_digitless(t.name)}", t) for t in threading.enumerate() if t is not threading.main_thread()]


def named_roots(roots: Roots) -> Iterator[tuple[str, Any]]:
    """Each root with its path: "train.HISTORY", "play() in train.py: losses", "pyplot's figures"."""
    for tier in tiers(roots, user_modules(roots)):
        yield from tier


def _globals(modules: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for module, names in modules.items():
        spoken = spoken_name(module, names)
        for name, value in list(names.items()):
            if not name.startswith("__") or name == "__warningregistry__":
                yield f"{spoken}.{name}", value


def _running(roots: Roots) -> list[FrameType]:
    """Frames of the user's functions, outermost first, the main thread before the others."""
    frames = sys._current_frames()  # noqa: SLF001  the documented way to see the frames of other threads
    main = threading.main_thread().ident
    order = sorted(frames, key=lambda thread: (thread != main, thread))
    found = [frame for thread in order for frame in _stack(frames[thread], roots)]
    frames.clear()  # this very frame is among them: a cycle, which would keep the program's objects until a collection
    return found


def _stack(innermost: FrameType, roots: Roots) -> list[FrameType]:
    found: list[FrameType] = []
    frame: FrameType | None = innermost
    while frame is not None:
        code = frame.f_code
        if code.co_flags & inspect.CO_OPTIMIZED and is_user_file(code.co_filename, roots.packages):
            found.append(frame)
        frame = frame.f_back
    return found[::-1]


def _locals(frame: FrameType) -> list[tuple[str, Any]]:
    where = f"{function_name(frame.f_code)}() in {Path(frame.f_code.co_filename).name}"
    return [(f"{where}: {name}", value) for name, value in locals_of(frame).items() if not name.startswith(".")]


def function_name(code: CodeType) -> str:
    """Its qualified name without the functions around it: `Agent.act`, `main.step`."""
    return code.co_qualname.replace("<locals>.", "")


def locals_of(frame: FrameType) -> dict[str, Any]:
    """The frame's local variables, without leaving references to them behind.

    Up to Python 3.12 the frame of a function keeps the dict that `f_locals` returns; unless the program has it too,
    from its own `locals()`, it is emptied. From 3.13 on it is a view and nothing stays.
    """
    kept = frame.f_locals
    found = dict(kept)
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(kept) is dict and sys.getrefcount(kept) <= _UNSHARED:
        kept.clear()
    return found


_UNSHARED = 3
"""References to a frame's dict of locals that nobody else has: the frame's, ours, and the argument of getrefcount."""


def _digitless(name: str) -> str:
    """`Thread-12 (worker)` as `Thread (worker)`: the same thread has another number in the next run."""
    return "".join(c for c in name if not c.isdigit()).replace("- ", " ").strip("-_ ")
