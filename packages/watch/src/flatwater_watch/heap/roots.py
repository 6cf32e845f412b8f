"""The roots of a walk over the heap: globals of the user's modules, locals of frames and tasks, known registries.

A root is an object at which the walk begins, with its path. Code is the user's unless it lies in the standard library,
in an installed package, in the finder itself or in its trainers. A namespace (or space) is the dict of a module's
globals. Frames are the calls that are under way; a stack is the frames of one thread.

No code of the user's program is called: namespaces of modules and instances are read as dicts, never as attributes, so
modules that import lazily stay asleep and no property runs.
"""

import atexit
import inspect
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from itertools import chain, count, takewhile
from types import FrameType
from typing import Any, NamedTuple

from flatwater_watch.heap.locals import frame_locals, function_name
from flatwater_watch.heap.modules import runtime_modules
from flatwater_watch.heap.raw import (
    class_dict,
    count_values,
    instance_dict,
    loaded_modules,
    module_namespace,
    named_entries,
    namespace,
    namespace_value,
    plain_text,
    thread_name,
)
from flatwater_watch.heap.tasks import caller_frames, context_variables, suspended_frames
from flatwater_watch.installs import is_library_folder
from flatwater_watch.paths import file_name, file_stem, parent_folder

_PATH_SEPARATORS = tuple({os.sep, os.altsep or os.sep})
_STDLIB_FOLDERS = tuple(sorted({os.path.normpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}))
_SCRIPTS_FOLDER = os.path.normpath(sysconfig.get_path("scripts"))
"""The folder of installed commands."""
_INTERACTIVE_FILES = ("<string>", "<stdin>", "<ipython-input")
"""Beginnings of the file names of code without a file: `python -c`, the prompt, a notebook's cell."""
_threads: dict[int, threading.Thread] = vars(threading)["_active"]
_TOOL_FOLDER = parent_folder(parent_folder(__file__))
"""The folder of the finder itself, whose objects never count."""
_host_packages: set[str] = set()
"""Libraries that run the program, such as `_pytest`: the main thread calls the user's code from theirs."""
TRAINER_PACKAGES = ("flatwater", "flatwater_trading")
"""Packages that are libraries wherever they lie: an installation for development is outside of site-packages."""
OWN_PACKAGES = (file_name(_TOOL_FOLDER), *TRAINER_PACKAGES)


class Roots(NamedTuple):
    """The choice of roots for a walk."""

    packages: tuple[str, ...] = ()
    """Library packages whose code counts as the user's as well, such as "flatwater" in its own runs."""
    named: tuple[tuple[str, Any], ...] = ()
    """Objects that no variable of the program need hold, such as a test's fixtures, each with its path."""
    libraries: tuple[tuple[str, Any], ...] = ()
    """Holders in libraries, each with its path: they own the objects that no root of the user's reaches."""
    must_open_ids: frozenset[int] = frozenset()
    """Ids of objects below `libraries` that are opened even if the sample of their container leaves them out."""


@lru_cache(maxsize=16_384)
def is_user_file(file: str, packages: tuple[str, ...] = ()) -> bool:
    """Return whether code of this file is the user's: in neither the standard library nor an installed package.

    Args:
        file: path as in `co_filename` or `__file__`.
        packages: installed packages that count as the user's too.
    """
    if file.startswith("<"):  # code without a file
        return file.startswith(_INTERACTIVE_FILES)
    return _is_user_folder(os.path.dirname(file), packages)  # noqa: PTH120  a Path costs ten times as much


@lru_cache(maxsize=4_096)
def _is_user_folder(folder: str, packages: tuple[str, ...]) -> bool:
    """Return whether code in a folder is the user's; `packages` are installed packages that count as the user's."""
    # Kept by folder, as a program has a thousand modules in a few folders.
    # With a separator at the end, as `_is_below_folder` expects the path of a file in the folder.
    path = os.path.join(os.path.abspath(folder), "")  # noqa: PTH100, PTH118  a Path costs more
    if _is_below_folder(path, _TOOL_FOLDER):
        return False
    # Before the folders of libraries, in which these packages may lie.
    package_folders = [package_folder for package in packages for package_folder in _package_folders(package)]
    if any(_is_below_folder(path, package_folder) for package_folder in package_folders):
        return True
    library_folders = (*_STDLIB_FOLDERS, *_trainer_folders())
    if any(_is_below_folder(path, library_folder) for library_folder in library_folders):
        return False
    return not is_library_folder(path[:-1])  # without the separator


def is_installed_command(file: str) -> bool:
    """Return whether a file is the script of an installed command, such as `pytest`, which only calls its library."""
    return parent_folder(file) == _SCRIPTS_FOLDER


def _is_below_folder(path: str, folder: str) -> bool:
    return path.startswith(folder) and path[len(folder) :].startswith(_PATH_SEPARATORS)


def _trainer_folders() -> list[str]:
    return [folder for package in TRAINER_PACKAGES for folder in _package_folders(package)]


def _package_folders(package: str) -> list[str]:
    """Return folders of a loaded package; empty for a package that is not loaded, or a single file."""
    space = module_namespace(package) or {}
    return [_absolute(folder) for folder in space.get("__path__", ())]


@lru_cache(maxsize=64)
def _absolute(folder: str) -> str:
    """Return the folder's absolute path, kept as each file of a program asks for it."""
    return os.path.abspath(folder)  # noqa: PTH100  a Path costs more


def user_modules(roots: Roots) -> dict[str, dict[str, Any]]:
    """Return the namespaces of the user's code by module name: of loaded modules, and of code that runs without one.

    A profiler, a tracer or `exec` runs code in a dict that belongs to no module.
    """
    # Runs no code of the watched program.
    user_spaces: dict[str, dict[str, Any]] = {}
    library_names: set[str] = set()
    seen_ids: set[int] = set()  # of namespaces
    made_at_run_time = runtime_modules()
    # Packages of which some modules count as the user's, so that each of their modules is looked at.
    mixed_packages = {*OWN_PACKAGES, *(package.partition(".")[0] for package in roots.packages)}
    for name, module in loaded_modules().items():
        if name in made_at_run_time:
            continue
        space, top_package = namespace(module), name.partition(".")[0]
        if id(space) in seen_ids:  # the same module under a second name
            continue
        seen_ids.add(id(space))
        if top_package in library_names:
            continue
        file = space.get("__file__")
        if name == "__main__" or (type(file) is str and is_user_file(file, roots.packages)):
            user_spaces[name] = space
        elif name == top_package and file is not None and top_package not in mixed_packages:
            library_names.add(name)  # a library's package: modules below it are the library's as well
    return user_spaces | _running_globals(roots, user_spaces, seen_ids)


def _running_globals(
    roots: Roots, modules: Mapping[str, dict[str, Any]], known_ids: Collection[int]
) -> dict[str, dict[str, Any]]:
    """Return the globals of the user's running code that belong to no loaded module, by their `__name__`.

    If a profiler runs the program, both are named `__main__`: the program gets the name. Other globals whose name is
    taken get an unused one, made from the name of their file.

    Args:
        roots: choice of roots.
        modules: namespaces of the user's loaded modules, by name.
        known_ids: ids of the namespaces of all loaded modules.
    """
    spaces: dict[str, dict[str, Any]] = {}
    seen_ids = set(known_ids)
    for frame in _user_frames(roots):
        space, file = frame.f_globals, frame.f_code.co_filename
        if id(space) in seen_ids:
            continue
        seen_ids.add(id(space))
        name = plain_text(namespace_value(space, "__name__"), file_stem(file))
        is_taken = name in spaces or (name in modules and not _is_installed(modules[name]))
        if is_taken:
            name = _unused_name(file_stem(file), (*spaces, *modules))
        spaces[name] = space
    return spaces


def _is_installed(names: dict[str, Any]) -> bool:
    """Return whether a namespace is that of installed code, such as a profiler that runs as the main program."""
    file = namespace_value(names, "__file__")
    return type(file) is str and not is_user_file(file)


def _unused_name(name: str, names: Collection[str]) -> str:
    """Return the name, or `name~2`, `name~3` and so on if it is among `names`."""
    candidates = chain([name], (f"{name}~{number}" for number in count(2)))
    return next(candidate for candidate in candidates if candidate not in names)


def source_file(namespace: dict[str, Any]) -> str | None:
    """Return the file of a module's namespace; None if it has none."""
    # Python takes `__file__` away when a script has ended, and leaves its loader.
    loader_attributes = instance_dict(namespace_value(namespace, "__loader__"))
    file = namespace_value(namespace, "__file__") or namespace_value(loader_attributes, "path")
    return file if type(file) is str else None


def display_module_name(module: str, names: dict[str, Any]) -> str:
    """Return the name of a module in paths; the main program gets its file's name, as if the file were imported."""
    file = source_file(names)
    is_main = module == "__main__" or module.startswith("<")  # `<run_path>`: run by `runpy`
    return file_stem(file) if is_main and file is not None else module


def root_groups(roots: Roots, modules: Mapping[str, dict[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    """Yield the roots in groups, with their paths; a group owns all that it reaches before the next group begins.

    Globals, registries and the outermost frame of the main thread are there at every census. Inner frames come and go,
    and must not take over objects of the outer frames: each is a group, outermost first. A coroutine has the same paths
    while it runs and while it waits. Libraries come last: they own only objects that no root of the user's reaches.
    `modules` are the user's namespaces by name.
    """
    # Runs no code of the watched program.
    _note_host_packages_(roots, modules)
    # The flag of functions: the locals of a module's frame are its globals.
    frames = [frame for frame in _user_frames(roots) if frame.f_code.co_flags & inspect.CO_OPTIMIZED]
    outermost = _frame_locals(frames[0]) if frames else []
    yield [*_module_globals(modules), *outermost, *loaded_registries(), *roots.named]
    for frame in frames[1:]:
        yield _frame_locals(frame)
    yield _coroutine_locals(roots, {id(frame) for frame in frames})
    yield [(f"context variable {variable.name}", value) for variable, value in context_variables()]
    yield _thread_roots()
    yield [*roots.libraries]
    for frame in running_frames(_is_library_file):
        yield _frame_locals(frame, _package_of_frame(frame))


def _thread_roots() -> list[tuple[str, Any]]:
    """Return the threads but the main one, with paths such as `thread worker`: their names without numbers.

    If many have the same name, they have no paths of their own: Python's table of threads is returned for them.
    """
    # Not `enumerate()`, which asks for a lock that the interrupted code may hold.
    threads = [thread for thread in list(_threads.values()) if thread is not threading.main_thread()]
    thread_paths = [(f"thread {_without_number(thread_name(thread))}", thread) for thread in threads]
    counts = count_values(path for path, _ in thread_paths)
    rare_threads = [(path, thread) for path, thread in thread_paths if counts[path] < MANY_THREADS]
    if len(rare_threads) == len(threads):
        return rare_threads
    return [*rare_threads, (THREADS_TABLE, _threads)]


def named_roots(roots: Roots) -> Iterator[tuple[str, Any]]:
    """Yield each root with its path: "train.HISTORY", "play() in train.py: losses", "pyplot's figures"."""
    for group in root_groups(roots, user_modules(roots)):
        yield from group


def _module_globals(modules: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the globals of modules, as `module.name` and value, without special names but the warning registry."""
    for module, names in modules.items():
        display_name = display_module_name(module, names)
        for name, value in named_entries(names):
            if not name.startswith("__") or name == "__warningregistry__":  # it grows with each new warning
                yield f"{display_name}.{name}", value


def _user_frames(roots: Roots) -> list[FrameType]:
    """Return frames of the user's code, outermost first, the main thread before the others."""
    return running_frames(lambda file: is_user_file(file, roots.packages))


def running_frames(accepts: Callable[[str], bool]) -> list[FrameType]:
    """Return the running frames of files that `accepts` allows, outermost first, the main thread before the others."""
    frames = sys._current_frames()  # noqa: SLF001  the documented way to see the frames of other threads
    main = threading.main_thread().ident
    order = sorted(frames, key=lambda thread: (thread != main, thread))  # the main thread first: False before True
    stacks = (
        [frame for frame in caller_frames(frames[thread]) if accepts(frame.f_code.co_filename)] for thread in order
    )
    accepted_frames = [frame for stack in stacks for frame in reversed(stack)]
    frames.clear()  # this very frame is among them: a cycle, which would keep the program's objects until a collection
    return accepted_frames


def _frame_locals(frame: FrameType, place: str | None = None) -> list[tuple[str, Any]]:
    """Return a frame's local variables with paths such as `play() in train.py: losses`; `place` replaces the file."""
    call = f"{function_name(frame.f_code)}() in {place or file_name(frame.f_code.co_filename)}"
    # A name with a dot is the interpreter's, such as `.0` for the iterator of a comprehension.
    return [(f"{call}: {name}", value) for name, value in frame_locals(frame).items() if not name.startswith(".")]


def _is_library_file(file: str) -> bool:
    """Return whether a file is a library's: not the user's, the finder's or a trainer package's."""
    if file.startswith("<") or is_user_file(file):  # `<...>`: code without a file
        return False
    path = os.path.abspath(file)  # noqa: PTH100  a Path costs more
    return not any(_is_below_folder(path, folder) for folder in (_TOOL_FOLDER, *_trainer_folders()))


def _package_of_frame(frame: FrameType) -> str:
    """Return the library that a frame belongs to: "torch", "asyncio"."""
    module = plain_text(namespace_value(frame.f_globals, "__name__"), default=file_stem(frame.f_code.co_filename))
    return module.partition(".")[0]


def _note_host_packages_(roots: Roots, modules: Collection[str]) -> None:
    """Add the libraries that call the user's code, such as `_pytest`, to `_host_packages`.

    These are the libraries with calls on the main thread's stack outside of the user's outermost call. `modules` are
    the names of the user's modules.
    """
    # No variable may hold the innermost frame, which is this very one: a cycle, as in `running_frames`.
    calls = _stack_calls(sys._current_frames().get(threading.main_thread().ident or 0))  # noqa: SLF001  (the only way)
    outer_calls = list(takewhile(lambda call: not is_user_file(call[0], roots.packages), calls))
    runs_no_user_code, has_no_user_module = len(outer_calls) == len(calls), not set(modules) - {"__main__"}
    if runs_no_user_code and has_no_user_module:
        # An installed application is the program, and owns what it keeps.
        return
    for file, package in outer_calls:
        if _is_library_file(file) and package != "__main__" and package not in sys.stdlib_module_names:
            _host_packages.add(package)


def _stack_calls(frame: FrameType | None) -> list[tuple[str, str]]:
    """Return file and package of each call on a stack, outermost first."""
    # The script of an installed command, such as `pytest`, only calls its library, which says who owns the program.
    calls = [(call.f_code.co_filename, _package_of_frame(call)) for call in caller_frames(frame)]
    return [call for call in reversed(calls) if not is_installed_command(call[0])]


def lies_in_library_call(path: str) -> bool:
    """Return whether a path begins at a local variable of a library's function, which exists only during its call.

    The function may also be a generator or a coroutine that waits: `torch.data.batches.<locals of batches>.rows`. The
    globals of a library that runs the program count too: they keep its record of that call.
    """
    # A library's function has a module, `fit() in torch: batches`, and a user's a file: `fit() in train.py: batches`.
    call, colon, _ = path.partition(": ")
    _, separator, module = call.rpartition("() in ")
    is_local_variable = bool(colon and separator) and module_namespace(module) is not None
    package = path.partition(".")[0]
    return is_local_variable or package in _host_packages or (_begins_at_generator(path) and _is_library(package))


def _begins_at_generator(path: str) -> bool:
    """Return whether a path begins at a generator or coroutine: `torch.data.batches.<locals of batches>.rows`."""
    root, _, local_path = path.partition(".<locals of ")  # `torch.data.batches` and `batches>.rows`
    function = local_path.partition(">.")[0]
    return bool(function) and root.endswith(f".{function}")


def _is_library(package: str) -> bool:
    """Return whether a loaded package is a library's."""
    names = module_namespace(package)
    file = None if names is None else source_file(names)
    return file is not None and _is_library_file(file)


def _coroutine_locals(roots: Roots, running_ids: Collection[int]) -> list[tuple[str, Any]]:
    """Return the local variables of the user's coroutines and greenlets that wait, with their paths.

    Frames with `running_ids`, which run now, are left out.
    """
    # A list, not a generator, which would keep the frames, and they their variables, after a coroutine has ended.
    frames = [frame for frame in suspended_frames() if id(frame) not in running_ids]
    user_frames = [frame for frame in frames if is_user_file(frame.f_code.co_filename, roots.packages)]
    return [root for frame in user_frames for root in _frame_locals(frame)]


def _without_number(name: str) -> str:
    """Return a thread's name without its number, which differs from run to run: `Thread (run)` for `Thread-1 (run)`."""
    return "".join(c for c in name if not c.isdigit()).replace("- ", " ").strip("-_ ")


MANY_THREADS = 16
"""Threads of one name from which on they are items of a table, which has a length, rather than roots of their own."""
THREADS_TABLE = "Python's threads"


class Callback:
    """A stand-in for a function that C code keeps with its arguments: only the number of such functions is known."""


_KNOWN_REGISTRIES = (
    ("matplotlib._pylab_helpers", "Gcf.figs", "pyplot's figures"),
    ("logging", "root.handlers", "logging's handlers"),
    ("gc", "garbage", "gc's uncollectable objects"),
    ("gc", "callbacks", "gc's callbacks"),
    ("multiprocessing.process", "_children", "multiprocessing's children"),
    ("torch.nn.modules.module", "_global_forward_hooks", "torch's global forward hooks"),
    ("torch.nn.modules.module", "_global_forward_pre_hooks", "torch's global forward pre-hooks"),
    ("torch.nn.modules.module", "_global_backward_hooks", "torch's global backward hooks"),
    ("torch.nn.modules.module", "_global_backward_pre_hooks", "torch's global backward pre-hooks"),
    ("torch.optim.optimizer", "_global_optimizer_pre_hooks", "torch's global optimizer pre-hooks"),
    ("torch.optim.optimizer", "_global_optimizer_post_hooks", "torch's global optimizer post-hooks"),
    ("gymnasium.envs.registration", "registry", "gymnasium's registry"),
    ("sqlalchemy.pool.base", "_pool_registry", "sqlalchemy's pools"),
    ("weakref", "finalize._registry", "finalizers of weakref.finalize"),
    ("structlog._output", "WRITE_LOCKS", "structlog's WRITE_LOCKS"),
    ("linecache", "cache", "linecache's files"),
    ("sys", "modules", "sys.modules"),
)
"""Known registries: module, dotted name in it, and the name in reports."""


_EXIT_REGISTRY = "atexit's callbacks"
_REGISTRY_LABELS = (_EXIT_REGISTRY, *(label for _, _, label in _KNOWN_REGISTRIES))


def lies_in_registry(path: str) -> bool:
    """Return whether a path begins at a known registry; libraries add to it once, when they are loaded."""
    return path.startswith(_REGISTRY_LABELS)


def loaded_registries() -> list[tuple[str, Any]]:
    """Return the registries of loaded libraries with their names in reports, and a stand-in for atexit's callbacks."""
    # Runs no code of the watched program.
    registries = []
    for module, dotted_name, label in _KNOWN_REGISTRIES:
        space = module_namespace(module)
        value = None if space is None else _read_dotted_name(space, dotted_name.split("."))
        if value is not None:
            registries.append((label, value))
    return [*registries, (_EXIT_REGISTRY, [Callback() for _ in range(atexit._ncallbacks())])]  # noqa: SLF001  (the only count)


def _read_dotted_name(space: Mapping[str, Any], names: list[str]) -> Any:
    """Return the value of a dotted name, given as its parts; None if this version of the library has none.

    The first part is a name in `space`, each further one an attribute of the value before it.
    """
    value: Any = None
    for name in names:
        if name not in space:
            return None
        value = space[name]
        space = class_dict(value) if issubclass(type(value), type) else instance_dict(value)
    return value
