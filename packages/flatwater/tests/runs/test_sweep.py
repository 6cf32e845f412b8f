"""A sweep comes to the same trials however often it is stopped, and starts none that cannot be trained."""

import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from signalled import signal_when
from status_lines import StatusLines

from flatwater.cli.main import main
from flatwater.config.toml import load_config
from flatwater.recipes.grow.config import GrowRunConfig
from flatwater.recipes.teach.config import TeachRunConfig
from flatwater.rundir.layout import RunFolder, hold_lock
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.training.learner import LearnerConfig
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.meters.limit import memory_limits

pytest.importorskip("optuna", reason="the extra `sweep` is not installed")

from sqlalchemy import Engine, event

from flatwater.sweeps.folder import SweepOutcome
from flatwater.sweeps.opening import SweepOrder, open_sweep
from flatwater.sweeps.sweep import train_sweep

FAKE = (sys.executable, str(Path(__file__).with_name("fake_trial.py")))
NOISE = "[learner.ddpg.noise]\nlow = 0.01\nhigh = 1.0\nlog = true\n"
BASE = ErlRunConfig(rounds=4, threads=1, seed=5, learner=LearnerConfig(algorithm="ddpg"))


@pytest.fixture(autouse=True)
def _unsafe_disk() -> Iterator[None]:
    """SQLite does not wait for the disk: a test does not lose its power."""

    def hurry(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", hurry)
    yield
    event.remove(Engine, "connect", hurry)


def order(space: str | None = NOISE, trials: int | None = 3, folder: str = "s", **how: Any) -> SweepOrder:
    path = None
    if space is not None:
        path = Path(f"space-{abs(hash(space))}.toml")
        path.write_text(space)
    given = {"config": BASE, "prune": False} | how
    return SweepOrder(space=path, trials=trials, folder=Path(folder), **given)


def swept(asked: SweepOrder) -> tuple[SweepOutcome, str]:
    console = Console(file=io.StringIO(), width=200)
    outcome = train_sweep(asked, console, FAKE)
    return outcome, console.file.getvalue()  # type: ignore[attr-defined]


def started_trials() -> list[str]:
    """Trials in the order in which their processes began."""
    return Path("started").read_text().split()


@pytest.mark.parametrize("config", [GrowRunConfig(rounds=9), TeachRunConfig(rounds=9)])
def test_trials_without_an_evaluation_are_not_begun(config: GrowRunConfig | TeachRunConfig) -> None:
    """They would be trained to their end and have no value."""
    space = "[learner.lr]\nlow = 1e-4\nhigh = 1e-2\n"
    with pytest.raises(ConfigError, match=r"rounds = 9: .*--rounds 10 or more"):
        train_sweep(order(space, config=config), Console(file=io.StringIO()), FAKE)
    assert not Path("s").exists()
    often = replace(config, evaluation=replace(config.evaluation, every=9))
    assert open_sweep(order(space, config=often), FAKE).base.rounds == 9


def test_a_sweep_says_from_its_start_how_far_it_is_in_the_words_of_its_recipe() -> None:
    console = StatusLines()
    train_sweep(order(), console, FAKE)
    assert console.kept[0] == "generation 0 of 12, time left unknown yet"
    assert console.kept[-1] == "generation 12 of 12, only the scores are left"


def test_the_best_trial_is_the_one_with_the_highest_last_value_and_its_configuration_is_written() -> None:
    outcome, said = swept(order())
    noises = [line.settings["learner.ddpg.noise"] for line in outcome.lines]
    assert [line.number for line in outcome.lines] == [1, 2, 3]
    assert all(0.01 <= noise <= 1 for noise in noises)
    assert len({*noises}) == 3
    assert [line.value for line in outcome.lines] == [noise + 4 for noise in noises]
    assert outcome.best_trial is not None
    assert outcome.best_trial.settings["learner.ddpg.noise"] == max(noises)
    best = load_config(ErlRunConfig, Path("s/best.toml"))
    assert best.learner.ddpg.noise == max(noises)
    assert (best.rounds, best.seed) == (4, 5)
    assert json.loads(Path("s/sweep.json").read_text()) == json.loads(json.dumps(outcome.to_json()))
    assert said.count("finished after round 4") == 3


def test_how_many_trials_are_wanted_is_remembered() -> None:
    swept(order(trials=2))
    again, _ = swept(order(None, None))
    assert again.wanted == 2
    assert len(again.lines) == 2


@pytest.mark.long
def test_a_trial_that_falls_behind_is_pruned() -> None:
    first = swept(order(trials=6, prune=True))[0]
    pruned = [line for line in first.lines if line.state == "pruned"]
    assert pruned
    for line in pruned:
        before = [other.settings["learner.ddpg.noise"] for other in first.lines[: line.number - 1]]
        assert line.settings["learner.ddpg.noise"] < max(before)
        assert line.number > 4, "four trials are trained to their end first"
        assert line.round == 1, "a quarter of all"


def test_a_trial_that_would_not_fit_or_dies_has_failed_with_its_reason_and_the_sweep_goes_on() -> None:
    outcome, said = swept(order(NOISE + "[net.hidden]\nchoices = [64, 300, 600]\n", trials=5))
    by_size = {line.settings["net.hidden"]: line for line in outcome.lines}
    assert {*by_size} == {64, 300, 600}
    assert (by_size[64].state, by_size[64].reason) == ("finished", "")
    assert (by_size[600].state, by_size[600].value) == ("failed", None)
    assert by_size[600].reason == "The run would take 9.0 GiB, and 8.0 GiB are allowed."
    assert "was killed by SIGKILL" in by_size[300].reason
    assert "failed: The run would take 9.0 GiB" in said
    assert outcome.best_trial is not None
    assert outcome.best_trial.settings["net.hidden"] == 64


@pytest.mark.long
def test_settings_that_cannot_be_had_together_fail_without_a_process() -> None:
    """Each fits alone: a replay of one generation with a warm-up of 200, one of 500 with a warm-up of 20,000."""
    space = "[replay.generations]\nchoices = [1, 500]\n[replay.warmup]\nchoices = [200, 20000]\n"
    outcome, _ = swept(order(space, trials=6))
    failed = [line for line in outcome.lines if line.state == "failed"]
    assert {(line.settings["replay.generations"], line.settings["replay.warmup"]) for line in failed} == {(1, 20000)}
    assert all("replay.warmup = 20000" in line.reason for line in failed)
    assert len(started_trials()) == 6 - len(failed)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_stopped_sweep_resumes_the_trial_that_was_at_work(number: int) -> None:
    whole = swept(order(folder="whole", trials=2))[0]
    Path("started").unlink()
    Path("hold").write_text("3")
    thread = signal_when(Path("held").exists, number)
    cut, said = swept(order(folder="cut", trials=2))
    thread.join()
    assert cut.stop.signal == number
    assert [line.state for line in cut.lines] == ["interrupted"]
    assert "stopped in round 4" in said
    Path("hold").unlink()
    again, _ = swept(order(None, None, "cut"))
    assert started_trials() == ["trial-0001", "trial-0001", "trial-0002"]
    assert again.to_json() == whole.to_json()


@pytest.mark.long
def test_trials_at_once_come_to_the_same_as_one_after_the_other() -> None:
    """Also where settings are drawn from a model of the trials before, and some are pruned."""
    asked = order(folder="together", trials=16, prune=True, at_once=3)
    together, said = swept(asked)
    assert "16 trials, searching learner.ddpg.noise, 3 at once" in said
    assert {line.state for line in together.lines} == {"finished", "pruned"}
    swept(order(folder="apart", trials=1, prune=True, at_once=3))
    apart, said = swept(order(None, 16, "apart", prune=True, at_once=1))
    assert "at once" not in said
    assert apart.to_json() == together.to_json()


def test_trials_train_at_the_same_time() -> None:
    Path("hold").write_text("1")

    met: list[bool] = []

    def release() -> None:
        give_up = time.monotonic() + 240
        while not met and time.monotonic() < give_up:
            time.sleep(0.01)
            if len(list(Path("s").glob("trial-*/metrics.jsonl"))) == 2:
                met.append(True)
        Path("hold").unlink()
        Path("go").touch()

    thread = threading.Thread(target=release)
    thread.start()
    swept(order(trials=2, at_once=2))
    thread.join()
    assert met, "the second began while the first was held"


def test_more_at_once_than_a_sweep_was_begun_with_are_refused() -> None:
    swept(order(trials=2, at_once=2))
    with pytest.raises(ConfigError, match=r"--at-once 3: .*--at-once 2 "):
        swept(order(None, 4, at_once=3))
    assert [line.number for line in swept(order(None, 4))[0].lines] == [1, 2, 3, 4]


def test_trials_at_once_share_the_memory() -> None:
    alone, shared = (open_sweep(order(folder=f"of {n}", at_once=n), FAKE).base.budget_bytes for n in (1, 4))
    assert alone is None
    assert shared is not None
    assert 0 < shared < min(memory_limits().values()) / 3
    given = replace(BASE, budget="1GiB")
    assert open_sweep(order(folder="given", at_once=4, config=given), FAKE).base.budget == "1GiB"


def test_a_wish_for_a_checkpoint_is_handed_on_to_the_trial() -> None:
    Path("hold").write_text("2")

    def send() -> None:
        while not Path("held").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGUSR2)
        while not Path("saved").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGHUP)

    thread = threading.Thread(target=send)
    thread.start()
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    cut, _ = swept(order(folder="cut", trials=1))
    signal.signal(signal.SIGHUP, before)
    thread.join()
    assert cut.stop.signal == signal.SIGHUP
    assert cut.stop.exit_code == 129


@pytest.mark.long
def test_a_sweep_whose_folder_is_renamed_stops_and_goes_on_from_there() -> None:
    whole = swept(order(folder="whole", trials=2))[0]
    Path("hold").write_text("3")

    def move() -> None:
        while not Path("held").exists():
            time.sleep(0.01)
        Path("cut").rename("now")

    thread = threading.Thread(target=move)
    thread.start()
    with pytest.raises(RunError, match=r"cut: .*moved.*/now.*: flatwater sweep .*/now"):
        swept(order(folder="cut", trials=2))
    thread.join()
    assert not Path("cut").exists()
    Path("hold").unlink()
    assert swept(order(None, None, "now"))[0].to_json() == whole.to_json()


DRIVER = """
import sys
from pathlib import Path
from rich.console import Console
from flatwater_trading.training.learner import LearnerConfig
from flatwater_watch.meters.limit import memory_limits
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater.sweeps.opening import SweepOrder, open_sweep
from flatwater.sweeps.sweep import train_sweep
config = ErlRunConfig(rounds=4, threads=1, seed=5, learner=LearnerConfig(algorithm="ddpg"))
order = SweepOrder(config=config, space=Path(sys.argv[1]), trials=2, folder=Path("cut"), prune=False)
assert "torch" not in sys.modules
train_sweep(order, Console(), sys.argv[2:])
"""


def test_a_killed_sweep_goes_on_and_is_a_sweep_that_was_not_killed() -> None:
    """And the process of a sweep does not load torch: that memory is the trials'."""
    asked = order(folder="whole", trials=2)
    whole = swept(asked)[0]
    Path("hold").write_text("3")
    command = [sys.executable, "-c", DRIVER, str(asked.space), *FAKE]
    killed = subprocess.Popen(command)
    while not Path("held").exists():
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    Path("hold").unlink()
    assert swept(order(None, None, "cut"))[0].to_json() == whole.to_json()


@pytest.mark.long
def test_trials_are_mirrored_below_the_name_of_their_sweep() -> None:
    """Trials of two sweeps have the same names."""
    config = replace(BASE, seed=0, mirror="file:///mirror/")
    swept(order(trials=1, folder="s", config=config))
    assert json.loads(Path("s/trial-0001/order.json").read_text())["mirror"] == "file:///mirror/s"
    assert load_config(ErlRunConfig, Path("s/best.toml")).mirror == "file:///mirror/"


def test_two_processes_do_not_sweep_in_one_folder() -> None:
    swept(order(trials=1))
    with hold_lock(RunFolder(Path("s"))), pytest.raises(RunError):
        swept(order(trials=2))


def test_another_space_or_other_settings_are_told() -> None:
    swept(order(trials=1))
    with pytest.raises(ConfigError, match=r"--space .*another space"):
        swept(order("[net.hidden]\nchoices = [64, 128]\n"))
    with pytest.raises(ConfigError, match=r"rounds: 4 in the sweep, 9 now"):
        swept(order(None, config=replace(BASE, rounds=9)))
    assert len(swept(order(None, 2, config=replace(BASE, threads=0, budget="4GiB")))[0].lines) == 2
    assert load_config(ErlRunConfig, Path("s/base.toml")).budget == "4GiB"


def test_what_is_missing_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"--space: .*missing"):
        swept(order(None))
    with pytest.raises(ConfigError, match="trials = 0"):
        swept(order(trials=0))
    for module in [name for name in sys.modules if name.startswith(("flatwater.sweeps", "optuna"))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["sweep", "erl"]) == 2
    assert "pip install 'flatwater[sweep]'" in capsys.readouterr().err


@pytest.mark.slow
def test_real_trials_are_runs_and_the_command_goes_on_after_a_kill(
    tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rate = "[learner.hindsight.actor_lr]\nlow = 1e-4\nhigh = 1e-2\nlog = true\n"
    Path("space.toml").write_text(f"{rate}[population.size]\nlow = 2\nhigh = 6\nstep = 2\n")
    options = ["sweep", "erl", "--space", "space.toml", "--trials", "2", "--rounds", "4", *tiny]
    assert main([*options, "--run", "whole"]) == 0
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 100
    command = [sys.executable, "-m", "flatwater.cli.main", *options, "--run", "cut"]
    program = f"import sys; from flatwater.cli.main import main; sys.exit(main({command[3:]!r}))"
    killed = subprocess.Popen([sys.executable, "-c", program])
    while not Path("cut/trial-0001/metrics.jsonl").exists():
        assert killed.poll() is None
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    assert main(["sweep", "erl", "--run", "cut", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(Path("whole/sweep.json").read_text())
    assert Path("whole/best.toml").read_text() == Path("cut/best.toml").read_text()


@pytest.mark.slow
def test_a_trial_over_its_budget_is_not_started(replayed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("space.toml").write_text("[replay.generations]\nchoices = [2, 1000000]\n")
    command = ["sweep", "erl", "--space", "space.toml", "--trials", "2", "--rounds", "1", "--run", "s", "--seed", "1"]
    command += ["--budget", "2GiB"]
    assert main([*command, *replayed, "--json"]) == 0
    trials = json.loads(capsys.readouterr().out)["trials"]
    fits, large = sorted(trials, key=lambda trial: int(trial["settings"]["replay.generations"]))
    assert (fits["settings"], fits["state"]) == ({"replay.generations": 2}, "finished")
    assert (large["settings"], large["state"]) == ({"replay.generations": 1_000_000}, "failed")
    assert "The run would take" in large["reason"]
    assert not Path(f"s/trial-{large['number']:04}").exists()
