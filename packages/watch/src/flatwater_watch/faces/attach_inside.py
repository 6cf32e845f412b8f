"""A watch of a running process from inside, which sees owners and lines: gdb has its interpreter begin the watch.

gdb stops the process for less than a second, maps a page with one line of Python into it, and leaves that line to the
interpreter as a pending call: it runs in the main thread, between two instructions, as the watch's own readings do.
"""

import mmap
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flatwater_watch.agent import runner_protocol, spool
from flatwater_watch.errors import FlatwaterError, until_interrupted
from flatwater_watch.faces.runner_folder import read_notes, read_sentences, read_summaries, watch_folder
from flatwater_watch.faces.summary_masking import masked_summary
from flatwater_watch.meters.proc import process_command, process_owner, read_kib_counters

GDB_SECONDS = 30.0
"""Maximum seconds of gdb for looking up symbols and making two calls."""
ANSWER_SECONDS = 5.0
"""Seconds of waiting for the main thread to begin, and to end: it may be in a call of C."""
POLL_SECONDS = 0.25
"""Seconds between two reads of the notes of the process."""
UNSEEN_PAST = (
    "what had grown before the watch began: the rates are measured while it looks",
    "what was loaded into the process to look stays loaded: about 5 MiB of modules, once",
)

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_GDB_SETTINGS = ("set auto-load off", "set debuginfod enabled off", "set auto-solib-add off")
_READ_WRITE, _PRIVATE_ANONYMOUS = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_MMAP_EXPRESSION = "((void*(*)(void*, long, int, int, int, long))mmap)"
"""The function mmap with its types, which gdb does not know without debug symbols."""
_LIBRARIES = ("sharedlibrary libc.so", "sharedlibrary ld-musl", "sharedlibrary libpython")
"""Commands that load symbols of the libraries needed. With the symbols of all libraries gdb stops a program with torch
for 4.7 s, with these alone for 0.2 s."""
_PYTHON_LINE = 'try: exec(__import__("pathlib").Path({script!r}).read_text(), {{}})\nexcept OSError: pass\n'
"""The line that runs in `__main__`, so it must bind no name there. If it runs too late, the file is gone."""
_SCRIPT = """\
import sys
try:
    if sys.version_info < (3, 11):
        raise RuntimeError("the process is Python %d.%d; watch needs 3.11 or later" % sys.version_info[:2])
    from importlib.util import find_spec, module_from_spec, spec_from_file_location
    here = find_spec("flatwater_watch")
    if here is None or here.origin is None:  # a folder of that name, such as a clone, is not a package
        folder = {package!r}
        spec = spec_from_file_location("flatwater_watch", folder + "/__init__.py", submodule_search_locations=[folder])
        sys.modules["flatwater_watch"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["flatwater_watch"])
    from flatwater_watch.agent.start_in_process import watch_running_process
    watch_running_process({variables!r})
except Exception as fault:
    with open({fault!r}, "w") as note:
        note.write(str(fault) if type(fault) is RuntimeError else "%s: %s" % (type(fault).__name__, fault))
"""
"""The script that runs in the process, where only the standard library is sure to be installed."""


class CannotEnterError(FlatwaterError):
    """The process cannot be entered; the message says why, and what to change."""


def watch_inside(
    pid: int,
    seconds: float,
    limit: int | None = None,
    *,
    on_reading: Callable[[float], None] = lambda _: None,
    reports: spool.PeriodicReports | None = None,
) -> dict[str, Any]:
    """Watch a running process from inside for some seconds, or until it ends or Ctrl-C is pressed.

    Args:
        pid: process id.
        seconds: duration of the watch.
        limit: resident bytes at which the process must stop; by default the machine's limit.
        on_reading: callback each time that the notes of the process are read, with the share of the time that is over.
        reports: reports during the watch; None makes none.

    Returns:
        The JSON of `flatwater watch`, with growth per second.

    Raises:
        CannotEnterError: gdb is missing or may not enter, or the program's main thread runs no Python.
    """
    command_words = process_command(pid)
    with _exchange_folders(pid) as (runner_folder, process_folder):
        page_address = _enter_process(pid, runner_folder, process_folder, limit)
        # The watch in the process reads the address at its end, and unmaps the page.
        (runner_folder / runner_protocol.MAPPED_PAGE_FILE).write_text(str(page_address))

        def masked_summaries() -> list[dict[str, Any]]:
            return [masked_summary(summary, command_words) for summary in read_summaries(process_folder)]

        def report_progress(elapsed_seconds: float) -> None:
            on_reading(elapsed_seconds / seconds)
            if reports is not None:
                reports.report_if_due(elapsed_seconds, masked_summaries)

        summary = _watch_until_end(pid, runner_folder, process_folder, seconds, report_progress)
    # The watch has ended, and the program goes on.
    summary.pop("ended", None)
    summary.pop("ended_at", None)
    return masked_summary({**summary, "unseen": [*summary["unseen"], *UNSEEN_PAST]}, command_words)


@contextmanager
def _exchange_folders(pid: int) -> Iterator[tuple[Path, Path]]:
    """Make two folders for the block: the runner's, which the process reads, and below it one for the process's notes.

    When the runner's folder is gone, the watch in the process ends.
    """
    with watch_folder() as runner_folder:
        process_folder = runner_folder / "notes"
        (runner_folder / runner_protocol.STAY).touch()  # the watch in the process ends when this file is gone
        process_folder.mkdir(0o700)
        _give_to_owner(runner_folder, process_folder, pid)
        yield runner_folder, process_folder


def _give_to_owner(runner_folder: Path, process_folder: Path, pid: int) -> None:
    """Give the inner folder to the user of a process, if it is another user's, and let that user read the outer one.

    From then on the runner writes nothing into the inner folder, and reads it by `runner_folder.read_notes` only.
    """
    # By descriptors: a path could be replaced by a link between the check and the change of owner.
    runner_descriptor = os.open(runner_folder, _FOLDER_FLAGS)
    try:
        process_descriptor = os.open(process_folder.name, _FOLDER_FLAGS, dir_fd=runner_descriptor)
        try:
            user, group = process_owner(pid)
            if user != os.geteuid():
                os.fchmod(runner_descriptor, 0o755)  # readable for the other user
                with suppress(PermissionError):  # then gdb may not enter either, and says so
                    os.fchown(process_descriptor, user, group)
        finally:
            os.close(process_descriptor)
    finally:
        os.close(runner_descriptor)


def _enter_process(pid: int, runner_folder: Path, process_folder: Path, limit: int | None) -> int:
    """Map a page with a line of Python into the process, have it called, and return the page's address.

    The line executes a file with `_SCRIPT`, which begins the watch. Both lie in the runner's folder.

    Raises:
        CannotEnterError: there is no gdb, or it could not enter the process or have the line called.
    """
    gdb = shutil.which("gdb")
    if gdb is None:
        raise CannotEnterError("gdb is not installed, by which a process is entered: apt-get install gdb")
    package = Path(__file__).parents[1]
    variables = {
        runner_protocol.FOLDER: str(process_folder),
        runner_protocol.RUNNER_VARIABLE: str(runner_folder),
        runner_protocol.UNIT: runner_protocol.TIME_UNIT,
    }
    if limit is not None:
        variables[runner_protocol.LIMIT] = str(limit)
    _try_gdb(gdb)  # first on a process of our own, as an old gdb ends the process that it enters
    script_file, line_file = runner_folder / "enter.py", runner_folder / "line"
    script_file.write_text(
        _SCRIPT.format(variables=variables, package=str(package), fault=str(process_folder / "enter.fault"))
    )
    line_file.write_bytes(_PYTHON_LINE.format(script=str(script_file)).encode() + b"\0")
    script_file.chmod(0o644)  # another user's process reads it
    # Map a page, copy the file `line` into it, print its address, and queue the call `PyRun_SimpleString(page)`.
    commands = [
        f"set $page = {_MMAP_EXPRESSION}(0, {runner_protocol.PAGE_BYTES}, {_READ_WRITE}, {_PRIVATE_ANONYMOUS}, -1, 0)",
        f"restore {line_file} binary $page",
        "print/d $page",
        "print ((int(*)(void*, void*))Py_AddPendingCall)((void*)PyRun_SimpleString, $page)",
    ]
    printed_numbers, messages = _run_gdb(gdb, pid, commands)
    # The page's address, and the result of Py_AddPendingCall: 0 if the call is in the queue.
    if printed_numbers[1:] != [0]:
        raise CannotEnterError(_gdb_refusal(messages))
    return printed_numbers[0]


def _try_gdb(gdb: str) -> None:
    """Check in a probe process of our own that gdb can call a function in a process and leave it alive.

    gdb 13 cannot do so on processors whose registers it does not know, and the process then fails at its next call.

    Raises:
        CannotEnterError: gdb cannot call a function here, or has ended the process.
    """
    # The probe sleeps longer than gdb may take.
    command = [sys.executable, "-c", f"import time; time.sleep({2 * GDB_SECONDS})"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as probe:  # noqa: S603  (our own)
        try:
            answers, messages = _run_gdb(gdb, probe.pid, ["print ((int(*)(void))getpid)()"])
            if answers != [probe.pid] or probe.poll() is not None:
                raise CannotEnterError(_gdb_refusal(messages))
        finally:
            probe.kill()


def _run_gdb(gdb: str, pid: int, commands: Sequence[str]) -> tuple[list[int], str]:
    """Run commands of gdb in a process; return the numbers that it prints, and its messages on stderr.

    Raises:
        CannotEnterError: gdb took too long.
    """
    # -iex: before gdb enters the process; -ex: in it.
    settings = [word for command in _GDB_SETTINGS for word in ("-iex", command)]
    actions = [word for command in (*_LIBRARIES, *commands) for word in ("-ex", command)]
    try:
        gdb_run = subprocess.run(  # noqa: S603  (gdb, and nothing of the user's)
            [gdb, "-p", str(pid), "-batch", "-nx", *settings, *actions],
            capture_output=True, text=True, check=False, timeout=GDB_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise CannotEnterError(f"gdb took more than {GDB_SECONDS:.0f} s. Try again, or run under watch") from error
    # A line such as `$1 = 140213`.
    printed_numbers = re.findall(r"^\$\d+ = (-?\d+)$", gdb_run.stdout, re.MULTILINE)
    return [int(number) for number in printed_numbers], gdb_run.stderr


def _gdb_refusal(messages: str) -> str:
    """Return the reason why gdb failed, with a remedy, from its messages."""
    if "not permitted" in messages or "ptrace" in messages:
        return (
            "gdb may not enter the process: run as its user or as root; where the system forbids it, sudo sysctl "
            "kernel.yama.ptrace_scope=0; in a container, --cap-add=SYS_PTRACE"
        )
    if "extended state" in messages:
        return "gdb is too old for this processor, and a process that it tries to enter would fail: install a newer gdb"
    if "No symbol" in messages:
        return "the process runs no Python that shows its symbols: a static or stripped interpreter cannot be entered"
    last_line = next((line for line in reversed(messages.splitlines()) if line.strip()), "no reason")
    return f"gdb could not enter the process ({last_line.strip()[:200]})"  # 200: a line may be long


def _watch_until_end(
    pid: int, runner_folder: Path, process_folder: Path, seconds: float, on_reading: Callable[[float], None]
) -> dict[str, Any]:
    """Wait for some seconds, then end the watch in the process, and return the summary that it leaves.

    Raises:
        CannotEnterError: the watch in the process failed, did not begin in time, or left no summary.
    """
    began = time.monotonic()
    with until_interrupted():  # Ctrl-C ends the loop, and the findings so far are reported
        while (elapsed_seconds := time.monotonic() - began) < seconds and _is_alive(pid):
            on_reading(elapsed_seconds)
            time.sleep(min(POLL_SECONDS, seconds))
            _check_began(process_folder, elapsed_seconds)
    (runner_folder / runner_protocol.STAY).unlink(missing_ok=True)  # at its next tick the watch in the process ends
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline and _is_alive(pid) and not _has_final_summary(process_folder):
        time.sleep(POLL_SECONDS / 5)  # shorter, as it ends within a tick or two
    _check_began(process_folder, waited_seconds=ANSWER_SECONDS)  # an error if it never began
    summaries = read_summaries(process_folder)
    if not summaries:
        raise CannotEnterError("the process ended before it was read")
    return summaries[0]


def _has_final_summary(process_folder: Path) -> bool:
    return any(summary.get("ended") for summary in read_summaries(process_folder))


def _check_began(process_folder: Path, waited_seconds: float) -> None:
    """Check by its notes that the watch in the process has begun, if `waited_seconds` are enough for that.

    Raises:
        CannotEnterError: the watch in the process failed, or has not begun in time.
    """
    faults = read_sentences(process_folder, "fault")
    if faults:
        raise CannotEnterError(faults[0])
    if waited_seconds < ANSWER_SECONDS:
        return
    # Its claim is there while the process is watched, its summary afterwards too: without both, nothing has begun.
    if not read_notes(process_folder, runner_protocol.CLAIM) and not read_summaries(process_folder):
        raise CannotEnterError(
            f"the program's main thread ran no Python for {ANSWER_SECONDS:.0f} s: it waits in a call of C. "
            "Try again when it works"
        )


def _is_alive(pid: int) -> bool:
    """Return whether a process has memory, which a zombie has not."""
    try:
        return bool(read_kib_counters(f"/proc/{pid}/status").get("VmRSS"))
    except (OSError, KeyError):
        return False
