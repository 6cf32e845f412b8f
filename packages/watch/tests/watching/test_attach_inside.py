"""A running process that is entered, watched for a while, and left as it was."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running import MAIN, environment

from flatwater_watch.faces import attach_inside

SERVER = """
import gc, os, signal, sys, threading, time

KEPT = []

def serve():
    KEPT.append(bytearray(300_000))
    time.sleep(0.02)

def state():
    handlers = [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())]
    counts = threading.active_count(), len(gc.callbacks)
    return sorted(globals()), list(sys.path), counts, handlers, sys.gettrace()

before = ends = None
before = state()
ends = time.monotonic() + float(sys.argv[1])
print("ready", flush=True)
while time.monotonic() < ends and not os.path.exists("stop"):
    serve()
print(*(now == then for now, then in zip(state(), before)), flush=True)
"""


def can_enter() -> bool:
    """Whether gdb is here, and may and can enter a process."""
    gdb = shutil.which("gdb")
    try:
        if gdb is not None:
            attach_inside._try_gdb(gdb)
    except attach_inside.CannotEnterError:
        return False
    return gdb is not None


@pytest.fixture(scope="module")
def enters() -> None:
    """Skip where no process can be entered."""
    if not can_enter():
        pytest.skip("no gdb that may enter a process: apt-get install gdb; in a container, --cap-add=SYS_PTRACE")


@contextmanager
def running(
    folder: Path, source: str, *words: str, python: Sequence[str] = (sys.executable,)
) -> Iterator[subprocess.Popen[str]]:
    """A program that has said that it is ready."""
    (folder / "serve.py").write_text(source)
    line = [*python, "serve.py", *words]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            yield program
        finally:
            program.kill()


def attach(
    folder: Path, pid: int, *options: str, before: Sequence[str] = (), main: str = MAIN, **changes: str
) -> tuple[dict[str, Any], str]:
    """The JSON of a look at a process, and what was said."""
    line = [*before, sys.executable, "-c", main, "run", "--attach", str(pid), "--json", "out.json", *options]
    ran = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, check=False, env=environment(**changes), timeout=300
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads((folder / "out.json").read_text()), ran.stderr


def alone(pid: int) -> bool:
    """Whether a process comes to have no thread but its own."""
    ends = time.monotonic() + 240
    while several := len(list(Path(f"/proc/{pid}/task").iterdir())) > 1 and time.monotonic() < ends:
        time.sleep(0.1)
    return not several


@dataclass(frozen=True)
class Looked:
    """A look of six seconds at a server that leaks, and the server after it."""

    told: dict[str, Any]
    said: str
    reports: str
    rest: str
    code: int | None


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory, enters: None) -> Looked:
    assert enters is None
    folder = tmp_path_factory.mktemp("looked")
    with running(folder, SERVER, "120") as program:
        told, said = attach(folder, program.pid, "--seconds", "6", "--every", "1s", "--out", "told.txt")
        assert alone(program.pid)
        (folder / "stop").touch()
        assert program.stdout is not None
        rest = program.stdout.read()
    return Looked(told, said, (folder / "told.txt").read_text(), rest, program.returncode)


def test_owner_and_line_are_found_in_a_process_that_runs_and_it_is_left_as_it_was(look: Looked) -> None:
    found = look.told["findings"]
    assert [(each["verdict"], each["owner"].rpartition(".")[2]) for each in found] == [("leak", "KEPT")], look.said
    assert found[0]["made_at"]["function"] == "serve"
    assert look.rest == "True True True True True\n"
    assert look.code == 0


def test_reports_are_told_while_a_process_is_looked_into(look: Looked) -> None:
    assert look.reports.count("flatwater: ") >= 2, look.said


@pytest.mark.usefixtures("enters")
def test_a_clone_of_flatwater_beside_the_program_is_not_taken_for_the_package(tmp_path: Path) -> None:
    """A folder without `__init__.py` is a package as well, of which no file is known."""
    (tmp_path / "flatwater_watch").mkdir()
    with running(tmp_path, SERVER, "60", python=(sys.executable, "-S")) as program:
        told, said = attach(tmp_path, program.pid, "--seconds", "3")
    assert [each["owner"].rpartition(".")[2] for each in told["findings"]] == ["KEPT"], said


@pytest.mark.slow
@pytest.mark.usefixtures("enters")
def test_twenty_looks_say_the_same_and_leave_nothing(tmp_path: Path) -> None:
    with running(tmp_path, SERVER, "600") as program:
        for _ in range(20):
            told, said = attach(tmp_path, program.pid, "--seconds", "2")
            assert [each["owner"].rpartition(".")[2] for each in told["findings"]] == ["KEPT"], said
        assert alone(program.pid)
        assert len(list(Path(f"/proc/{program.pid}/fd").iterdir())) == 3


@pytest.mark.usefixtures("enters")
def test_a_runner_that_is_killed_takes_the_watch_with_it(tmp_path: Path) -> None:
    with running(tmp_path, SERVER, "60") as program:
        line = [sys.executable, "-c", MAIN, "run", "--attach", str(program.pid), "--seconds", "50"]
        environ = environment(TMPDIR=str(tmp_path))
        with subprocess.Popen(line, cwd=tmp_path, env=environ, stderr=subprocess.DEVNULL) as runner:
            ends = time.monotonic() + 240
            while not list(tmp_path.glob("flatwater-watch-*/notes/claim")) and time.monotonic() < ends:
                time.sleep(0.1)
            runner.send_signal(signal.SIGKILL)
        for folder in tmp_path.glob("flatwater-watch-*"):
            shutil.rmtree(folder)  # what a system does with its temporary files
        assert alone(program.pid)
        assert program.poll() is None


IMPATIENT = "from flatwater_watch.faces import attach_inside; attach_inside.ANSWER_SECONDS = 1.0; " + MAIN
"""It waits a second, and not five, for a main thread that never answers."""
WAITS = """
import threading
print("ready", flush=True)
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "says"),
    [
        (WAITS, "ran no Python"),
        ("import os; print('ready', flush=True); os.execvp('sleep', ['sleep', '60'])", "symbols"),
    ],
    ids=["waits", "no Python"],
)
@pytest.mark.usefixtures("enters")
def test_a_process_that_cannot_be_entered_is_looked_at_from_outside(tmp_path: Path, source: str, says: str) -> None:
    with running(tmp_path, source) as program:
        time.sleep(0.5)
        told, said = attach(tmp_path, program.pid, "--seconds", "2", main=IMPATIENT)
        assert program.poll() is None
    assert says in said
    assert any(says in sentence for sentence in told["unseen"])
    assert told["readings"] > 1


@pytest.mark.skipif(
    shutil.which("gdb") is None or shutil.which("setpriv") is None or os.geteuid() != 0,
    reason="needs gdb, and root and setpriv to take the right to trace away",
)
@pytest.mark.usefixtures("enters")
def test_where_tracing_is_not_allowed_that_is_said_with_what_to_change(tmp_path: Path) -> None:
    forbids = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")
    with running(tmp_path, SERVER, "60") as program:
        told, said = attach(tmp_path, program.pid, "--seconds", "1", before=forbids)
        assert program.poll() is None
    assert "gdb may not" in said
    assert "--cap-add=SYS_PTRACE" in told["unseen"][0]


def test_without_gdb_the_process_is_looked_at_from_outside_and_gdb_is_asked_for(tmp_path: Path) -> None:
    with running(tmp_path, SERVER, "60") as program:
        told, said = attach(tmp_path, program.pid, "--seconds", "1", PATH=str(tmp_path))
    assert "gdb is not" in said
    assert "apt-get install gdb" in told["unseen"][0]


RACER = """
import os, sys
from contextlib import suppress
from pathlib import Path
from flatwater_watch.agent import runner_protocol
from flatwater_watch.faces import attach_inside

victim = Path(sys.argv[1])
child = os.fork()
if child == 0:  # another user, who knows where to look and is quick
    os.setgid(65534), os.setuid(65534)
    tmp = Path(os.environ["TMPDIR"])
    while True:
        for folder in tmp.glob("flatwater-watch-*"):
            for place in (folder, folder / "notes"):
                told = ("enter.py", "line", "1.json", "1.fault", "notes")
                for name in (runner_protocol.MAPPED_PAGE_FILE, runner_protocol.STAY, *told):
                    with suppress(OSError):
                        (place / name).symlink_to(victim)
                    with suppress(OSError):
                        (place / name).unlink()
                        (place / name).symlink_to(victim)
            with suppress(OSError):
                os.rename(folder / "notes", folder / "gone")
            with suppress(OSError):
                os.symlink(victim.parent, folder / "notes")
try:
    owned = 0
    for _ in range(100):
        with attach_inside._exchange_folders(child) as (ours, theirs):
            for name in (runner_protocol.MAPPED_PAGE_FILE, "enter.py", "line"):
                (ours / name).write_text("written")
            assert attach_inside.read_summaries(theirs) == [] == attach_inside.read_sentences(theirs, "fault")
            attach_inside.read_notes(theirs, runner_protocol.CLAIM)
            owned += theirs.lstat().st_uid == 65534 and ours.lstat().st_uid == os.geteuid()
    print(owned, victim.read_text(), victim.stat().st_uid, len(os.listdir(os.environ["TMPDIR"])))
finally:
    os.kill(child, 9)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user as well")
def test_another_user_whose_process_is_entered_cannot_turn_what_root_writes(tmp_path: Path) -> None:
    victim, place = tmp_path / "victim", tmp_path / "tmp"
    victim.write_text("mine")
    place.mkdir()
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o711)
    place.chmod(0o1777)
    (tmp_path / "race.py").write_text(RACER)
    ran = subprocess.run(
        [sys.executable, "race.py", str(victim)],
        cwd=tmp_path, env=environment(TMPDIR=str(place)), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    owned, text, owner, left = ran.stdout.split()
    assert (text, owner) == ("mine", "0"), ran.stderr
    # He may rename his own folder just before it is looked at, and fill it while it is removed.
    assert int(owned) >= 90
    assert int(left) <= 10
