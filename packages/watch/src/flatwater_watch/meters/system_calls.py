"""The interpreter's clocks and system calls, whatever the program has put in their place.

Programs and their libraries replace `time.sleep`, the clocks and functions of `os` (freezegun, gevent, pyfakefs), some
of them in every module that has imported them. The watch makes its own functions a second time, out of their sight: the
functions of a builtin module are new objects whenever the module is initialised.
"""

import sys
from collections.abc import Callable
from importlib.machinery import BuiltinImporter, ModuleSpec
from importlib.util import module_from_spec
from types import SimpleNamespace
from typing import Any, NoReturn

CHUNK_BYTES = 1 << 16
"""Maximum bytes of one read."""


def _make_namespace_again(name: str) -> dict[str, Any]:
    """Return the namespace of a builtin module that is made anew; `sys.modules` keeps the old module."""
    importer: Any = BuiltinImporter  # a class that is its own instance
    module = module_from_spec(ModuleSpec(name, importer, origin="built-in"))
    importer.exec_module(module)  # makes all functions of the module as new objects
    return vars(module)


_TIME, _SYSTEM = _make_namespace_again("time"), _make_namespace_again("posix")

# `perf_counter` is CLOCK_MONOTONIC as well, and time-machine leaves its C function alone.
monotonic: Callable[[], float] = _TIME["perf_counter"]
thread_seconds: Callable[[], float] = _TIME["thread_time"]
"""CPU time of this thread."""
process_seconds: Callable[[], float] = _TIME["process_time"]
sleep: Callable[[float], None] = _TIME["sleep"]
wall_time: Callable[[], float] = _TIME["time"]
"""Seconds since 1970."""

system: Any = SimpleNamespace(**_SYSTEM)
"""The module `posix`, made again."""
end_process: Callable[[int], NoReturn] = _SYSTEM["_exit"]
"""End the process at once, with an exit code: nothing is flushed, and no callback of the program runs."""
fork: Callable[[], int] = _SYSTEM["fork"]
process_id: Callable[[], int] = _SYSTEM["getpid"]
list_folder: Callable[[str], list[str]] = _SYSTEM["listdir"]
"""Names in a folder."""
_open, _close, _read, _write, _rename = (_SYSTEM[name] for name in ("open", "close", "read", "write", "rename"))
_READ_FLAGS: int = _SYSTEM["O_RDONLY"] | _SYSTEM["O_CLOEXEC"]
_CREATE_FLAGS: int = _SYSTEM["O_WRONLY"] | _SYSTEM["O_CREAT"] | _SYSTEM["O_TRUNC"] | _SYSTEM["O_CLOEXEC"]
_FILE_MODE = 0o600


def read_file(path: str) -> bytes:
    """Return all bytes of a file."""
    file = _open(path, _READ_FLAGS)
    try:
        return read_to_end(file)
    finally:
        _close(file)


def read_to_end(file: int) -> bytes:
    """Return all remaining bytes of an open file or a pipe."""
    pieces = []
    while piece := _read(file, CHUNK_BYTES):
        pieces.append(piece)
    return b"".join(pieces)


def read_text(path: str) -> str:
    """Return the text of a file; bytes that are no UTF-8 are replaced."""
    return read_file(path).decode("utf-8", "replace")


def write_whole(path: str, content: str) -> None:
    """Write or replace a file in one step, so that nobody ever reads half of it; it is not synced to the disk."""
    # The process id keeps two processes that write the same file apart.
    temporary_path = f"{path}.{process_id()}"
    unwritten = memoryview(content.encode(sys.getdefaultencoding(), "surrogateescape"))
    file = _open(temporary_path, _CREATE_FLAGS, _FILE_MODE)
    try:
        while unwritten:
            written_count = _write(file, unwritten)  # maybe not all bytes
            unwritten = unwritten[written_count:]
    finally:
        _close(file)
    _rename(temporary_path, path)  # only when all is written: rename(2) replaces the file atomically
