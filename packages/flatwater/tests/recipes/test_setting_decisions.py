"""What is left out of PPO's settings is decided where a run begins, by its environment and length, and stays so."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flatwater.algorithms.compilation import COMPILER_BYTES
from flatwater.algorithms.on_policy_config import BlockConfig
from flatwater.cli.main import command_class, main
from flatwater.config.toml import load_config
from flatwater.recipes.ppo import setting_decisions
from flatwater.recipes.ppo.config import PpoRunConfig
from flatwater.recipes.ppo.run import build_worlds
from flatwater.recipes.ppo.run import plan as plan_ppo
from flatwater.recipes.ppo.setting_decisions import COMPILED_NOTE, COMPILED_UPDATES, decide_settings

ENVIRONMENTS = Path(__file__).with_name("own_nets.py")
TINY = ("--envs", "4", "--block", "16", "--evaluation.envs", "3", "--wrapped.steps", "20", "--threads", "1")
TINY += ("--trackers",)
UPDATES = 16 // 8 + 64
"""Updates of a round of these settings, with the steps of the policy that count as such."""
needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="compiling needs a C++ compiler")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with a file of environments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, ENVIRONMENTS.stem, raising=False)
    (tmp_path / ENVIRONMENTS.name).write_text(ENVIRONMENTS.read_text())
    return tmp_path


def decide_learner(*options: str) -> BlockConfig:
    config: PpoRunConfig = command_class(("train", "ppo")).read("train ppo", [*TINY, *options]).settings()
    return decide_settings(config, build_worlds(config).training.spaces).learner


def decide(*options: str) -> bool | None:
    return decide_learner(*options).compile


IMAGES = ("--env", "own_nets:Spot")


@pytest.mark.parametrize("option", ["--population.size=4", "--replay.capacity=100000"])
def test_what_only_a_replay_and_a_population_have_is_refused_with_the_recipes_that_have_it(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "ppo", option]) == 2
    assert f"flatwater train dqn {option.replace('=', ' ')}" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ((), (8, 8)),
        (IMAGES, (4, 4)),
        ((*IMAGES, "--learner.epochs", "8"), (8, 4)),
        ((*IMAGES, "--learner.minibatches", "2"), (4, 2)),
        ((*IMAGES, "--wrapped.form", "vector"), (8, 8)),
        (("--learner.epochs", "3", "--learner.minibatches", "1"), (3, 1)),
    ],
)
def test_passes_are_those_of_the_observation_unless_they_are_given(
    options: tuple[str, ...], passes: tuple[int, int]
) -> None:
    learner = decide_learner(*options)
    assert (learner.epochs, learner.minibatches) == passes


@pytest.mark.long
def test_passes_of_images_are_said_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    said = (
        "images are seen: 4 epochs of 4 minibatches for each block (changed by --learner.epochs and "
        "--learner.minibatches of `train` and `fork`)"
    )
    assert main(["plan", "ppo", *TINY, *IMAGES]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert main(["train", "ppo", *TINY, *IMAGES, "--rounds", "1", "--run", "run"]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    learner = load_config(PpoRunConfig, Path("run", "config.toml")).learner
    assert (learner.epochs, learner.minibatches) == (4, 4)
    assert main(["resume", "run", "--rounds", "2"]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


LONG = ("--rounds", str(-(-COMPILED_UPDATES // UPDATES)))
SHORT = ("--rounds", str(COMPILED_UPDATES // UPDATES - 1))


@needs_compiler
def test_a_run_is_compiled_from_the_updates_on_that_gain() -> None:
    assert decide(*LONG) is True
    assert decide(*SHORT) is False


def test_what_the_user_says_is_obeyed() -> None:
    assert decide(*LONG, "--learner.no-compile") is False
    assert decide(*SHORT, "--learner.compile") is True


def test_a_policy_with_a_memory_is_not_compiled_by_itself() -> None:
    assert decide(*LONG, "--policy.memory", "4") is False


def test_without_a_compiler_a_long_run_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert decide(*LONG) is False


@needs_compiler
def test_the_plan_says_it_and_counts_the_compiler(capsys: pytest.CaptureFixture[str]) -> None:
    for options, compiled in ((LONG, True), (SHORT, False), ((*LONG, "--learner.no-compile"), False)):
        assert main(["plan", "ppo", *TINY, *options]) == 0
        assert (COMPILED_NOTE in capsys.readouterr().out) == compiled
    config = PpoRunConfig()
    plain, compiled_plan = (
        plan_ppo(replace(config, learner=replace(config.learner, compile=flag))) for flag in (False, True)
    )
    assert compiled_plan.owners == plain.owners
    assert compiled_plan.base_bytes > plain.base_bytes + COMPILER_BYTES // 2  # both include what is resident now


def test_a_short_run_stays_plain_however_far_it_is_resumed() -> None:
    assert main(["train", "ppo", *TINY, "--rounds", "1", "--run", "run"]) == 0
    config = load_config(PpoRunConfig, Path("run", "config.toml"))
    assert config.learner.compile is False
    longer = replace(config, rounds=COMPILED_UPDATES)
    assert decide_settings(longer, build_worlds(longer).training.spaces) == longer


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it loads its compiler
def test_a_run_that_was_compiled_by_itself_is_resumed_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setting_decisions, "COMPILED_UPDATES", 2 * UPDATES)
    assert main(["train", "ppo", *TINY, "--rounds", "2", "--run", "run"]) == 0
    assert COMPILED_NOTE in capsys.readouterr().out
    assert load_config(PpoRunConfig, Path("run", "config.toml")).learner.compile is True
    monkeypatch.setattr(setting_decisions, "COMPILED_UPDATES", COMPILED_UPDATES)
    assert main(["resume", "run", "--rounds", "3"]) == 0
    assert load_config(PpoRunConfig, Path("run", "config.toml")).learner.compile is True
    capsys.readouterr()
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert main(["resume", "run", "--rounds", "4"]) == 2
    assert "flatwater fork RUN --learner.no-compile" in " ".join(capsys.readouterr().err.split())
    assert main(["evaluate", "run"]) == 0
    assert main(["fork", "run", "--rounds", "4", "--learner.no-compile", "--run", "plain"]) == 0
