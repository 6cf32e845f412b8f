"""Signals and closed terminals: runs stop with a checkpoint, the rest ends cleanly, no print harms."""

import contextlib
import gc
import json
import os
import pty
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console
from signalled import signal_amid
from small_runs import OPTIONS, newest_leaves

from flatwater.api import resume, train
from flatwater.cli.main import command_class, main
from flatwater.runs.callbacks import Round
from flatwater.runs.session import start_new_run
from flatwater.runs.signals import end_on_signals, stop_on_signals
from flatwater_watch.errors import Terminated

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
sys.exit(main())
"""
"""What a shell does before it starts a program in the foreground of a terminal."""
ROUNDS = {"erl": "40", "grow": "40", "teach": "200", "ppo": "200"}
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


@pytest.mark.long
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
    assert "SIGUSR2: a checkpoint is saved, in round 2" in capsys.readouterr().out
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
run, number = Path(sys.argv[2]), signal.Signals(int(sys.argv[3]))
signal.signal(number, signal.SIG_DFL)
signal_amid("restore_run", run / "config.toml", number)
sys.exit(main(["evaluate", str(run)]))
"""


@pytest.mark.long
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
    """Read what the run shows: on a slow machine it fills a terminal that nobody reads, and waits for good."""
    os.set_blocking(master, False)
    shown = b""
    while not (run / "checkpoints" / "000001.000000.json").exists():
        with contextlib.suppress(OSError):  # nothing new; or the run has ended
            shown = os.read(master, 1 << 16)
        assert process.poll() is None, shown
        time.sleep(0.005)
    os.close(master)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["ppo", "erl", "grow", "teach"])
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


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_log_on_a_full_disk_does_not_end_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Path("/dev/full").open("w") as full:
        command = [*FLATWATER, "train", "ppo", *OPTIONS["ppo"], "--rounds", "2", "--run", str(run)]
        assert subprocess.run(command, stdout=full, check=False).returncode == 0
    assert (run / "result.json").exists()


def test_who_is_ended_and_woken_draws_nothing_more() -> None:
    def draw(*_: object) -> None:
        raise AssertionError("a screen would be drawn")

    def end() -> None:
        with end_on_signals():
            signal.signal(signal.SIGCONT, draw)  # as the live screen does
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGCONT)

    before = signal.getsignal(signal.SIGCONT)
    with pytest.raises(Terminated):
        end()
    assert signal.getsignal(signal.SIGCONT) is before


class _Final:
    """Its finaliser is where a signal comes."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work

    def __del__(self) -> None:
        self.work()


def in_a_finaliser(work: Callable[[], None]) -> None:
    _Final(work)


def in_a_callback_of_a_weak_reference(work: Callable[[], None]) -> None:
    target = {0}.__class__()  # a set, as it can be referred to weakly
    kept = weakref.ref(target, lambda _: work())
    del target
    assert kept() is None


def in_a_callback_of_the_collector(work: Callable[[], None]) -> None:
    def call(phase: str, _: object) -> None:
        if phase == "start":
            work()

    gc.callbacks.append(call)
    try:
        gc.collect(0)
    finally:
        gc.callbacks.remove(call)


def in_who_catches_all(work: Callable[[], None]) -> None:
    with contextlib.suppress(BaseException):
        work()


def in_who_keeps_what_it_catches(work: Callable[[], None]) -> None:
    try:
        work()
    except BaseException as fault:  # noqa: BLE001
        KEPT.append(fault)


KEPT: list[BaseException] = []
IGNORED = pytest.mark.parametrize(
    "ignore",
    [
        in_a_finaliser,
        in_a_callback_of_a_weak_reference,
        in_a_callback_of_the_collector,
        in_who_catches_all,
        in_who_keeps_what_it_catches,
    ],
)
"""Where Python, or a library, ignores what a handler raises."""
QUIET = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@QUIET
@IGNORED
@pytest.mark.parametrize("number", CODES)
def test_a_signal_that_was_ignored_ends_the_command_all_the_same(
    number: signal.Signals, ignore: Callable[[Callable[[], None]], None]
) -> None:
    handlers = {n: signal.getsignal(n) for n in CODES}
    latest = time.monotonic() + 60

    def work_on() -> None:
        with end_on_signals():
            ignore(lambda: signal.raise_signal(number))
            while time.monotonic() < latest:
                time.sleep(0.01)

    with pytest.raises(Terminated, match=number.name):
        work_on()
    assert time.monotonic() < latest
    assert {n: signal.getsignal(n) for n in CODES} == handlers


@QUIET
@IGNORED
def test_training_does_not_begin_over_a_signal_that_was_ignored(ignore: Callable[[Callable[[], None]], None]) -> None:
    def train() -> None:
        with end_on_signals():
            ignore(lambda: signal.raise_signal(signal.SIGTERM))
            with stop_on_signals(Console(quiet=True)):
                pytest.fail("it began")

    with pytest.raises(Terminated, match="SIGTERM"):
        train()


def test_a_second_signal_does_not_interrupt_the_clearing_away() -> None:
    done: list[str] = []

    @contextlib.contextmanager
    def open_briefly() -> Iterator[None]:
        try:
            yield
        finally:
            signal.raise_signal(signal.SIGINT)
            done.append("closed")

    def work() -> None:
        with end_on_signals(), open_briefly():
            try:
                signal.raise_signal(signal.SIGHUP)
            finally:
                signal.raise_signal(signal.SIGTERM)
                done.append("cleared")

    with pytest.raises(Terminated, match="SIGHUP"):
        work()
    assert done == ["cleared", "closed"]


def test_who_waits_only_for_the_store_goes_on() -> None:
    def wait() -> str:
        with end_on_signals():
            try:
                signal.raise_signal(signal.SIGINT)
            except Terminated as asked:
                asked.grant_()
            return "gone on"

    assert wait() == "gone on"


SMALL = (
    "--envs",
    "2",
    "--block",
    "8",
    "--evaluation.envs",
    "2",
    "--wrapped.steps",
    "8",
    "--threads",
    "1",
    "--trackers",
)
SMALL += ("--rounds", "2")


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_loop_over_runs_in_python_ends_with_the_run(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C ended one run, and the loop began the next."""
    settings = {"envs": 2, "block": 8, "evaluation": {"envs": 2}, "wrapped": {"steps": 8}, "threads": 1, "trackers": ()}

    def loop() -> None:
        for seed in range(3):
            signalled = number if seed == 1 else 0
            train(
                "ppo",
                run=tmp_path / str(seed),
                seed=seed,
                rounds=2,
                quiet=True,
                on_round=lambda _, sent=signalled: signal.raise_signal(sent) if sent else None,  # type: ignore[misc]
                **settings,
            )

    with pytest.raises((KeyboardInterrupt, SystemExit)) as ended:
        loop()
    assert type(ended.value) is (KeyboardInterrupt if number == signal.SIGINT else SystemExit)
    assert ended.value.args == (() if number == signal.SIGINT else (143,))
    assert list((tmp_path / "1" / "checkpoints").glob("000001*.json"))
    assert not (tmp_path / "1" / "result.json").exists()
    assert not (tmp_path / "2").exists()
    assert resume(tmp_path / "1", quiet=True).finished


def test_a_signal_at_the_last_step_ends_the_run_before_it_is_scored(tmp_path: Path) -> None:
    """It was told that a checkpoint is saved, and the baselines were played for as long as that took."""
    run = tmp_path / "run"

    def on_round(round_: Round) -> None:
        if round_.number == round_.rounds:
            signal.raise_signal(signal.SIGTERM)

    config = command_class(("train", "ppo")).read("train ppo", [*SMALL]).settings()
    with end_on_signals():
        outcome = start_new_run(config, run, Console(quiet=True), on_round=on_round)
    assert (outcome.finished, outcome.exit_code) == (False, 143)
    assert not (run / "result.json").exists()
    assert main(["resume", str(run), "--quiet"]) == 0
    assert (run / "result.json").exists()
