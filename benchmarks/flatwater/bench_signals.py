"""Stop runs by signals at random moments while Python ignores exceptions half of the time: is any signal lost?

    python benchmarks/flatwater/bench_signals.py [--stops 1000]

One warm process, which has everything imported, forks a run for each stop. The run's environment is busy in finalisers,
callbacks of weak references and of the garbage collector, hooks at forks, and a library that catches everything. A
signal is sent after a random time, from the reading of the options on. It is lost if the run has not ended within the
limit, or has ended by another exit code than that of the signal; SIGUSR2 if no line of the log tells of its checkpoint.
"""

import argparse
import contextlib
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import gymnasium
import numpy as np
from claims import Claim, record_claims

from flatwater.cli.main import main
from flatwater.rundir.layout import RunFolder

LIMIT_SECONDS = 60.0
"""On a machine that has other things to do."""
LONGEST_WAIT = 1.2
ENDING = {signal.SIGINT: (0, 130), signal.SIGTERM: (143,), signal.SIGHUP: (129,), signal.SIGUSR1: (138,)}
"""Exit codes: of a run that stopped with a checkpoint, and of one that had not begun."""
SAVES = signal.SIGUSR2
OPTIONS: tuple[str, ...] = ("--envs", "2", "--block", "16", "--evaluation.envs", "2", "--evaluation.every", "1000")
OPTIONS += ("--threads", "1", "--wrapped.steps", "60", "--policy.hidden", "8", "--learner.epochs", "1")
OPTIONS += ("--rounds", "100000", "--trackers", "--quiet")


def linger(seconds: float = 0.0008) -> None:
    """Python code that takes its time, so that signals come in it."""
    latest = time.perf_counter() + seconds
    while time.perf_counter() < latest:
        pass


class Finalised:
    """A simulator's handle."""

    def __init__(self) -> None:
        self.itself: Finalised | None = self

    def __del__(self) -> None:
        linger()


def catch_all(work: Callable[[], object]) -> None:
    """Do some work and swallow every exception, as an overconfident library does."""
    with contextlib.suppress(BaseException):
        work()


class Busy(gymnasium.Env[Any, Any]):
    """It ignores exceptions in half of its time."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin."""
        super().reset(seed=seed, options=options)
        self.steps = 0
        return self.observation(), {}

    def step(self, action: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make garbage of each kind."""
        self.steps += 1
        kind = self.steps % 5
        if kind == 0:
            Finalised().itself = None  # its finaliser runs at once
        elif kind == 1:
            target = Finalised()
            target.itself = None
            weakref.finalize(target, linger)
        elif kind == 2:
            gc.collect(0)
        elif kind == 3:
            catch_all(linger)
        elif self.steps % 50 == 4 and (child := os.fork()) >= 0:
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
        return self.observation(), float(action == 1), False, self.steps >= 60, {}

    def observation(self) -> np.ndarray[Any, Any]:
        """Numbers that follow from the seed."""
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


def train(run: Path) -> int:
    """A run that goes on until it is stopped."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    # The youngest generation is collected at every 700th allocation: lingering there, a run would not come to a round.
    gc.callbacks.append(lambda _phase, numbers: linger(0.0003 if numbers["generation"] else 0))
    os.register_at_fork(before=linger, after_in_parent=linger)
    return main(["train", "ppo", "--env", "bench_signals:Busy", *OPTIONS, "--run", str(run)])


def begin(run: Path) -> int:
    """Train in a fork; returns when it has handlers: before that, a signal ends it as any program."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and a run leaves it so
        os.chdir(run.parent)
        os.close(reader)

        def report_dispatch(frame: FrameType, _event: str, _argument: object) -> None:
            """Tell the parent that a command is looked for: its handlers are there."""
            if frame.f_code.co_name == "dispatch":
                sys.setprofile(None)
                os.write(writer, b"x")

        sys.setprofile(report_dispatch)
        os._exit(train(run))
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    return child


def end_of(child: int) -> int | None:
    """Its exit code; None where it does not end."""
    latest = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < latest:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def is_saved(run: Path) -> bool:
    """Whether a checkpoint was written because it was asked for; true as well where the run had not begun."""
    log = RunFolder(run).log
    latest = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < latest:
        if log.exists() and "SIGUSR2: a checkpoint is saved" in log.read_text():
            return True
        time.sleep(0.01)
    return False


def stop(run: Path, number: int, after: float) -> str:
    """Begin a run and stop it; empty, or what went wrong."""
    child = begin(run)
    if number == SAVES:  # it saves what there is: the run has to have begun
        latest = time.monotonic() + LIMIT_SECONDS
        while not list(run.glob("checkpoints/*.json")) and time.monotonic() < latest:
            time.sleep(0.005)
    time.sleep(after)
    os.kill(child, number)
    if number == SAVES:
        lost = "" if is_saved(run) else "no checkpoint was saved"
        os.kill(child, signal.SIGTERM)
        code = end_of(child)
        return lost or ("" if code == ENDING[signal.SIGTERM][0] else f"then ended with {code}")
    code = end_of(child)
    return "" if code in ENDING[signal.Signals(number)] else f"ended with {code}"


def measure(stops: int) -> None:
    """Print how many of each signal were lost."""
    sys.path.insert(0, str(Path(__file__).parent))
    rng = random.Random(1)  # noqa: S311  (moments)
    numbers = [*ENDING, SAVES]
    sent, lost, begun, started = Counter[str](), Counter[str](), 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder) / "warm"
        assert main(["train", "ppo", "--env", "bench_signals:Busy", *OPTIONS, "--rounds", "1", "--run", str(warm)]) == 0
        for at in range(stops):
            number, run = numbers[at % len(numbers)], Path(folder) / f"run{at}"
            name = signal.Signals(number).name
            sent[name] += 1
            if wrong := stop(run, number, rng.uniform(0, LONGEST_WAIT)):
                lost[name] += 1
                print(f"{name}, stop {at}: {wrong}", flush=True)
            begun += bool(list(run.glob("checkpoints/*.json")))
            shutil.rmtree(run, ignore_errors=True)
            if (done := at + 1) % 50 == 0:
                left = (time.monotonic() - started) / done * (stops - done)
                print(f"{done} of {stops} stops, {lost.total()} lost, {left:.0f} s left", flush=True)
    print(f"{'signal':<10}{'sent':>6}{'lost':>6}")
    for name, count in sent.items():
        print(f"{name:<10}{count:>6}{lost[name]:>6}")
    print(f"{stops} stops, {begun} of them after the first checkpoint, {sum(lost.values())} lost")
    name, missed = "signals to a training run at random moments that are lost", lost.total()
    record_claims([Claim("flatwater", "lost", name, f"{missed} of {stops}", "0", missed == 0)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=1000)
    measure(parser.parse_args().stops)
