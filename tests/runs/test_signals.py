"""Signals and closed terminals: runs stop with a checkpoint, the rest ends cleanly, no print harms."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import OPTIONS, newest_leaves
from signalled import signal_amid

from flatwater.cli.main import main
from flatwater.runs.signals import Terminated, end_on_signals

Train = Callable[..., Path]
Same = Callable[[Path, Path], None]
LONG = ("--learner.hindsight.updates", "200", "--rounds", "2")
"""Enough updates for a signal to meet one of them on a machine that is busy."""
CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGUSR1: 138, signal.SIGINT: 0}
FLATWATER = (sys.executable, "-c", "import sys; from flatwater.cli.main import main; sys.exit(main())")
PLACE = "checkpoints"
IN_TERMINAL = """
import fcntl, os, signal, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, getattr(signal, sys.argv.pop(1)))
from flatwater.cli.main import main
from flatwater.runs.signals import Terminated, end_on_signals
sys.exit(main())
"""
"""What a shell does before it starts a program in the foreground of a terminal."""
ROUNDS = {"erl": "40", "grow": "40", "teach": "200"}
"""Enough that the terminal is closed before the last."""


@pytest.fixture(autouse=True)
def _as_in_a_terminal() -> Iterator[None]:
    """The tests may themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        pytest.param(number, code, marks=() if number == signal.SIGTERM else pytest.mark.slow)
        for number, code in CODES.items()
    ],
)
def test_a_signal_finishes_the_step_saves_and_loses_nothing(
    number: signal.Signals,
    code: int,
    tiny: list[str],
    train: Train,
    same: Same,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped = tmp_path / "stopped"
    sender = signal_amid("learn_", stopped / "checkpoints" / "000001.000000.json", number)
    handlers = {n: signal.getsignal(n) for n in CODES}
    assert main(["train", "erl", *tiny, *LONG, "--run", str(stopped)]) == code
    sender.join()
    said = capsys.readouterr().out
    assert f"{number.name}: finishing this step" in said
    assert f"flatwater resume {stopped}" in said
    assert {n: signal.getsignal(n) for n in handlers} == handlers

    newest = json.loads(max((stopped / "checkpoints").glob("*.json")).read_text())
    assert newest["round"] == 1
    assert 0 < newest["step"] < 200, "some of the 200 updates are done"
    assert not (stopped / "result.json").exists()
    assert main(["resume", str(stopped)]) == 0
    same(train("whole", *LONG), stopped)


def test_sigusr2_saves_a_checkpoint_and_the_run_goes_on(
    tiny: list[str], train: Train, same: Same, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, written = tmp_path / "run", list[Path]()

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and (name := Path(str(arguments[1]))).suffix == ".json" and name.parent.name == PLACE:
            written.append(name)

    sys.addaudithook(note)  # the checkpoint of a round removes those within it
    sender = signal_amid("learn_", run / PLACE / "000001.000000.json", signal.SIGUSR2)
    assert main(["train", "erl", *tiny, *LONG, "--run", str(run)]) == 0
    sender.join()
    assert "SIGUSR2: a checkpoint is saved, in round 2; the run goes on" in capsys.readouterr().out
    rounds = [name.stem.split(".") for name in written]
    assert [round_ for round_, _ in rounds] == ["000000", "000001", "000001", "000002"]
    assert 0 < int(rounds[2][1]) < 200
    same(train("whole", *LONG), run)


ENDED = """
import signal, sys
from pathlib import Path
sys.path.append(sys.argv[1])
from signalled import signal_amid
from flatwater.cli.main import main
from flatwater.runs.signals import Terminated, end_on_signals
run, number = Path(sys.argv[2]), signal.Signals(int(sys.argv[3]))
signal.signal(number, signal.SIG_DFL)
signal_amid("restore_run", run / "config.toml", number)
sys.exit(main(["evaluate", str(run)]))
"""


@pytest.mark.parametrize(
    "number", [signal.SIGHUP, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGTERM, signal.SIGUSR1))]
)
def test_an_evaluation_is_ended_in_a_line(number: signal.Signals, train: Train) -> None:
    """Not by the signal itself: what it had begun to write is cleared away."""
    run = train("run", "--rounds", "1")
    command = [sys.executable, "-c", ENDED, str(Path(__file__).parent), str(run), str(int(number))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (CODES[number], f"ended by {number.name}\n")


def in_terminal(run: Path, kind: str, *, hangups_ignored: bool) -> tuple[subprocess.Popen[bytes], int]:
    """Train in a terminal of its own, as a shell or ssh starts it. Returns the process and the terminal's other end."""
    master, slave = pty.openpty()

    command = [kind, *OPTIONS[kind], "--rounds", ROUNDS[kind], "--run", str(run)]
    program = (sys.executable, "-c", IN_TERMINAL, "SIG_IGN" if hangups_ignored else "SIG_DFL", "train")
    process = subprocess.Popen([*program, *command], stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    return process, master


def close_after_the_first_round(run: Path, process: subprocess.Popen[bytes], master: int) -> None:
    while not (run / "checkpoints" / "000001.000000.json").exists():
        assert process.poll() is None, os.read(master, 1 << 16)
        time.sleep(0.005)
    os.close(master)


@pytest.mark.parametrize(
    "kind", ["erl", pytest.param("grow", marks=pytest.mark.slow), pytest.param("teach", marks=pytest.mark.slow)]
)
def test_a_closed_terminal_loses_nothing(kind: str, tmp_path: Path, same: Same) -> None:
    run = tmp_path / "run"
    process, master = in_terminal(run, kind, hangups_ignored=False)
    close_after_the_first_round(run, process, master)
    assert process.wait() == 129
    assert not (run / "result.json").exists()
    newest = json.loads(max((run / "checkpoints").glob("*.json")).read_text())
    stopped = newest["round"]
    assert len((run / "metrics.jsonl").read_text().splitlines()) == stopped
    rounds = str(stopped + 2)
    assert main(["resume", str(run), "--rounds", rounds]) == 0
    whole = tmp_path / "whole"
    assert main(["train", kind, *OPTIONS[kind], "--rounds", rounds, "--run", str(whole)]) == 0
    same(whole, run)


@pytest.mark.slow
def test_under_nohup_a_run_outlives_its_terminal(tmp_path: Path) -> None:
    """It prints to the closed terminal all the while, and ends as if somebody had read it."""
    run = tmp_path / "run"
    process, master = in_terminal(run, "erl", hangups_ignored=True)
    close_after_the_first_round(run, process, master)
    assert process.wait() == 0
    assert (run / "result.json").exists()


@pytest.mark.slow
def test_a_run_outlives_the_program_that_reads_its_lines(tiny: list[str], train: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [*FLATWATER, "train", "erl", *tiny, "--rounds", "3", "--run", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 0
    assert newest_leaves(run) == newest_leaves(train("whole", "--rounds", "3"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_log_on_a_full_disk_does_not_end_the_run(tiny: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Path("/dev/full").open("w") as full:
        command = [*FLATWATER, "train", "erl", *tiny, "--rounds", "2", "--run", str(run)]
        assert subprocess.run(command, stdout=full, check=False).returncode == 0
    assert (run / "result.json").exists()


def test_who_is_ended_and_woken_draws_nothing_more() -> None:
    def draw(*_: object) -> None:
        raise AssertionError("a screen would be drawn")

    before = signal.getsignal(signal.SIGCONT)
    with end_on_signals():
        signal.signal(signal.SIGCONT, draw)  # as the live screen does
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGCONT)
    assert signal.getsignal(signal.SIGCONT) is before
