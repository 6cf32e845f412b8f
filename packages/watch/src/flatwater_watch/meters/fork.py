"""Work in a fork of this process, so that its imports and allocations are gone when it ends."""

import ctypes
import json
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from flatwater_watch.meters.fork_warnings import remove_filter as remove_hook_filter
from flatwater_watch.meters.proc import process_cpu_seconds
from flatwater_watch.meters.system_calls import (
    CHUNK_BYTES,
    end_process,
    fork,
    list_folder,
    monotonic,
    read_file,
    read_to_end,
    system,
)

MAXIMUM_FORK_SECONDS = 60
"""Seconds after which a detached fork ends by itself, whatever it waits for."""
WALL_SECONDS_PER_CPU_SECOND = 3.0
"""Maximum wait for a fork, as a multiple of its CPU seconds: other processes want the cores too."""
POLL_SECONDS = 0.1
"""Seconds between two reads of a fork's CPU time."""
ID_BYTES = 4
FIRST_DESCRIPTOR, MAXIMUM_DESCRIPTOR = 3, 1 << 16
"""Range of the descriptors that a fork closes: all after stderr."""

FORK_UNSAFE_LIBRARIES = {
    "jaxlib": "JAX",  # warns at each fork, and hangs in some
    "tensorflow": "TensorFlow",
    "grpc": "gRPC",
    "cupy": "CUDA",
}
"""Libraries that hang or fail in a fork, by module."""
COPY_UNSAFE_DRIVERS = {b"libcuda.so": "CUDA", b"libamdhip64.so": "ROCm", b"libze_intel_gpu.so": "oneAPI"}
"""Drivers that fail in a process of which a copy is made, by mapped file. Devices read and write pages of the process
by themselves: after a copy the process may write to another page than the device reads."""
DEVICES = ("/dev/nv", "/dev/dxg", "/dev/kfd", "/dev/dri/")
"""Beginnings of the devices' names. A driver that is only mapped, as by `import torch`, has no device open."""
DESCRIPTORS = "/proc/self/fd"

_as_json, _from_json = json.JSONEncoder().encode, json.JSONDecoder().decode
"""Bound here: a program may replace `json.dumps` and `json.loads`."""
_IGNORED_WARNINGS: Any = ("ignore", None, DeprecationWarning, None, 0)  # a filter as `warnings` keeps it

Work = Callable[[], Any]
"""A function without arguments that returns a value for JSON."""


class AbortedForkError(RuntimeError):
    """A library in C gave up in a fork of this process, by SIGABRT."""


def run_in_fork(work: Work) -> Any:  # noqa: ANN401  (whatever JSON can hold)
    """Run `work` in a fork and return its result, by way of JSON.

    The fork has one thread and must not wait for another thread's lock: no parallel kernels, no backward pass on data.

    Raises:
        AbortedForkError: a library in C aborted the fork.
        RuntimeError: the work raised, and its traceback is on stderr, or the fork was killed.
    """
    read_end, write_end = system.pipe()
    # Before the fork: it inherits the buffers, and would write them a second time with its own output.
    sys.stdout.flush()
    sys.stderr.flush()
    child_pid = _fork_quietly()
    if child_pid == 0:
        system.close(read_end)
        _work_and_exit(work, write_end)
    system.close(write_end)  # else the pipe would never end, as this process would hold it open itself
    try:
        received_bytes = read_to_end(read_end)
    finally:
        system.close(read_end)
    _, status = system.waitpid(child_pid, 0)
    if status or not received_bytes:
        code = system.waitstatus_to_exitcode(status)
        error_class = AbortedForkError if code == -signal.SIGABRT else RuntimeError
        raise error_class(f"a fork of this process ended with {code}")
    return _from_json(received_bytes.decode())


class DetachedFork:
    """A fork that works while this process goes on.

    The fork is no child of this process, as a program may wait for all its children or count them: a process between
    the two has ended. It holds no file of this process open, prints nothing, and gets no Ctrl-C of its terminal. Its
    work has the limits of `run_in_fork`.
    """

    def __init__(self, work: Work) -> None:
        """Fork twice, and run `work` in the second fork; the program pauses until both are made.

        Raises:
            OSError: there is no memory for a fork, or a library of the program hangs or fails in a fork.
        """
        if (library := fork_unsafe_library()) is not None:
            raise OSError(f"no fork of a process with {library}")
        self._owner = system.getpid()
        self._received = b""
        self._read_end, write_end = system.pipe()
        try:
            middle_child = _fork_quietly()
            if middle_child == 0:
                _fork_worker_and_end(work, write_end)
        except OSError:
            system.close(self._read_end)
            raise
        finally:
            system.close(write_end)
        # The id of the second fork, of which this process is no parent.
        self._pid = int.from_bytes(system.read(self._read_end, ID_BYTES))
        _wait_quietly(middle_child)
        if not self._pid:  # the pipe ended without an id, as the child could not fork
            system.close(self._read_end)
            raise OSError("a fork of this process could not fork")

    def is_done(self, seconds: float = 0.0) -> bool:
        """Read what the fork writes, for at most `seconds`; return whether the work is done, as the fork has ended."""
        deadline = monotonic() + seconds
        while self._read_end >= 0:  # -1 once the pipe was closed, as the fork has ended
            if not _wait_until_readable(self._read_end, max(0.0, deadline - monotonic())):
                return False
            piece = system.read(self._read_end, CHUNK_BYTES)
            self._received += piece
            if not piece:  # the pipe has ended, as the fork has
                self._close_pipe()
        return True

    def wait_until_done(self, cpu_seconds: float) -> bool:
        """Wait until the work is done or has used `cpu_seconds`; return whether it is done.

        By the clock the wait takes at most `WALL_SECONDS_PER_CPU_SECOND` times these seconds.
        """
        deadline = monotonic() + WALL_SECONDS_PER_CPU_SECOND * cpu_seconds
        while not self.is_done(POLL_SECONDS):
            if monotonic() >= deadline or process_cpu_seconds(self._pid) >= cpu_seconds:
                return self.is_done()  # it may have ended just now
        return True

    def result(self) -> Any:  # noqa: ANN401  (whatever JSON can hold)
        """Return the result of the work; to be called once `is_done`.

        Raises:
            RuntimeError: the work goes on, or it raised, was killed or stopped.
        """
        if not self.is_done():
            raise RuntimeError("the fork still works: wait for `is_done`")
        if not self._received:
            raise RuntimeError("a fork of this process ended without an answer")
        return _from_json(self._received.decode())

    def stop(self) -> None:
        """Kill the fork, unless its work is done; in a fork of the process that started it, only forget it."""
        if system.getpid() != self._owner:  # this process inherited the object
            self._close_pipe()
        elif not self.is_done():
            with suppress(ProcessLookupError):
                system.killpg(self._pid, signal.SIGKILL)  # the group, as the work may have forked as well
            self._close_pipe()
        self._received = b""

    def _close_pipe(self) -> None:
        """Close the pipe, and wait for the fork's end."""
        if self._read_end >= 0:
            system.close(self._read_end)
            self._read_end = -1
            _wait_quietly(self._pid)  # it is a child after all if this is process 1, as in a container


def fork_unsafe_library() -> str | None:
    """Return the name of a loaded library that hangs in a fork, or whose driver fails in it; None without one."""
    for module, library in FORK_UNSAFE_LIBRARIES.items():
        if module in sys.modules:
            return library
    return copy_unsafe_driver()


def copy_unsafe_driver() -> str | None:
    """Return the name of a driver, with an open device, that fails if this process is copied; None without one."""
    maps = read_file("/proc/self/maps")
    driver = next((driver for file, driver in COPY_UNSAFE_DRIVERS.items() if file in maps), None)
    return driver if driver is not None and _has_device_open() else None


def _has_device_open() -> bool:
    """Return whether this process has a device open that reads memory by itself."""
    for descriptor in list_folder(DESCRIPTORS):
        with suppress(OSError):  # another thread has closed it
            if system.readlink(f"{DESCRIPTORS}/{descriptor}").startswith(DEVICES):
                return True
    return False


def _fork_quietly() -> int:
    """Fork without a warning; return 0 in the child.

    Python 3.12 and later warn of locks that other threads hold; work in a fork takes none of them.
    """
    # Only the list of filters is changed: `warnings.simplefilter` would have each module forget its earlier warnings,
    # and the program would show its own warnings again.
    filters = cast("list[Any]", warnings.filters)
    filters.insert(0, _IGNORED_WARNINGS)
    try:
        return fork()
    except RuntimeError:  # Python 3.12.0 and 3.12.1 refuse to fork once the main code has ended
        return _fork_at_exit()
    finally:
        with suppress(ValueError):  # a hook of the program may have cleared the list
            filters.remove(_IGNORED_WARNINGS)
        # The hook of `fork_warnings`, which runs before each fork, may have set a filter of its own.
        remove_hook_filter()


def _fork_at_exit() -> int:
    """Fork as `os.fork` does (Modules/posixmodule.c, `os_fork_impl`), in a process that ends; return 0 in the child.

    Raises:
        OSError: there is no memory for a fork.
    """
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    child_pid: int = ctypes.PyDLL(None).fork()  # a PyDLL keeps the interpreter's lock
    if child_pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    if child_pid < 0:
        raise OSError("no memory for a fork")
    return child_pid


def _wait_quietly(child: int) -> None:
    """Wait for a process that ends; return at once if it is no child, or if the program ignores SIGCHLD."""
    with suppress(ChildProcessError):
        system.waitpid(child, 0)


def _wait_until_readable(pipe: int, seconds: float) -> bool:
    """Wait for at most `seconds` until the pipe has bytes, or its other end is closed; return False if neither is."""
    poller = select.poll()  # `select.select` takes descriptors below 1024 only
    poller.register(pipe, select.POLLIN)
    return bool(poller.poll(1000 * seconds))  # in milliseconds


def _fork_worker_and_end(work: Work, pipe: int) -> None:
    """Fork a process that does the work, and end this one; the exit code is 1 if there is no memory for it."""
    # In a fork: no lock of another thread is taken, and nothing is printed.
    code = 1
    try:
        child_pid = _fork_quietly()
        if child_pid == 0:
            _work_in_detached_process(work, pipe)  # it does not return
        code = 0
    finally:
        end_process(code)


def _work_in_detached_process(work: Work, pipe: int) -> None:
    """Leave the terminal and the program's files, write the process id and the result to the pipe, and end."""
    # In a fork of a fork. It has one thread.
    system.setsid()  # a session of its own: Ctrl-C goes to the terminal's process group
    # The kernel ends the fork, not a handler in Python: the fork may wait for a lock that another thread held.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(MAXIMUM_FORK_SECONDS)
    system.write(pipe, system.getpid().to_bytes(ID_BYTES))  # before the result: the parent reads the id first
    null_file = system.open(os.devnull, system.O_RDWR)
    for standard in (0, 1, 2):
        system.dup2(null_file, standard)
    system.closerange(FIRST_DESCRIPTOR, pipe)
    system.closerange(pipe + 1, MAXIMUM_DESCRIPTOR)
    sys.stdout = sys.stderr = os.fdopen(1, "w", closefd=False)  # the program's streams may have been other files
    _work_and_exit(work, pipe)


def _work_and_exit(work: Work, pipe: int) -> None:
    """Write the result of the work to the pipe as JSON, and end this process: with exit code 1 if the work raises."""
    # In a fork: nothing is raised, and by `_exit` no callback of the parent runs.
    code = 1
    try:
        system.write(pipe, _as_json(work()).encode())
        code = 0
    except (BrokenPipeError, KeyboardInterrupt):  # nobody waits for it any more; Ctrl-C is reported by the parent
        pass
    except BaseException:  # noqa: BLE001  (nothing of the parent may catch it)
        sys.__excepthook__(*sys.exc_info())
    finally:
        end_process(code)
