"""Runs in environments that Python hands over: they go on bit for bit, and say before training where they cannot."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import brought
import gymnasium
import pytest
from brought import Boat, Fleet, boats
from gymnasium.wrappers.vector import NormalizeObservation

import flatwater as fw
from flatwater.cli.main import main
from flatwater.envs.wrapped.spaces import make_reader
from flatwater_watch.errors import ConfigError, FlatwaterError

SMALL: dict[str, Any] = {"threads": 1, "trackers": (), "envs": 2, "block": 8, "quiet": True}
SMALL |= {"evaluation": {"envs": 2, "every": 1}, "learner": {"minibatches": 1, "epochs": 1}, "policy": {"layers": [8]}}
SMALL |= {"wrapped": {"steps": 20}}
GIVEN: dict[str, Callable[[], Any]] = {
    "a function": lambda: lambda: Boat(0.7),
    "an object": lambda: Boat(0.7),
    "a vector environment": lambda: boats(2),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def leaves(run: fw.TrainedRun) -> list[str]:
    newest = max((run.path / "checkpoints").glob("*.json"))
    return sorted(f"{leaf['path']} {leaf['sha256']}" for leaf in json.loads(newest.read_text())["leaves"])


@pytest.mark.few(1)
@pytest.mark.parametrize("given", GIVEN)
def test_a_run_in_an_object_goes_on_bit_for_bit(given: str) -> None:
    make = GIVEN[given]
    whole = fw.train("ppo", env=make(), rounds=2, run="whole", **SMALL)
    halves = fw.train("ppo", env=make(), rounds=1, run="halves", **SMALL)
    again = fw.resume("halves", 2, env=make(), quiet=True)
    assert leaves(again) == leaves(whole)
    assert halves.evaluate()["players"] == fw.evaluate("whole", env=make())["players"]
    assert fw.load(halves).act(Boat().reset(seed=0)[0]).shape == ()


def test_a_specification_of_gymnasium_makes_the_environments() -> None:
    """The registered one is a name, by which any process goes on; one with other arguments is an object."""
    spec = gymnasium.spec("Pendulum-v1")
    run = fw.train("ppo", env=spec, rounds=1, run="named", **SMALL)
    assert 'env = "Pendulum-v1"' in (run.path / "config.toml").read_text()
    named = fw.train("ppo", env="Pendulum-v1", env_kwargs={"g": 2.0}, rounds=1, run="heavy", **SMALL)
    heavy = gymnasium.make(spec, g=2.0).spec
    again = fw.train("ppo", env=heavy, rounds=1, run="object", **SMALL)
    assert 'env = "object:Pendulum-v1"' in (again.path / "config.toml").read_text()
    assert leaves(again) == leaves(named) != leaves(run)
    assert fw.resume("object", 2, env=heavy, quiet=True).finished
    assert leaves(fw.train("ppo", env=heavy, env_kwargs={"g": 10.0}, rounds=1, run="light", **SMALL)) == leaves(run)
    assert fw.resume("named", 2, env=spec, quiet=True).finished


@pytest.mark.long
def test_a_run_in_an_object_says_before_training_that_it_goes_on_in_python_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = fw.train("ppo", env=lambda: Boat(0.7), rounds=1, run="run", **{**SMALL, "quiet": False})
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.index("flatwater.resume(RUN, env=...)") < shown.index("held-out return")
    assert 'env = "object:<lambda>"' in (run.path / "config.toml").read_text()
    assert main(["resume", "run", "--rounds", "2"]) == 2
    assert "goes on there alone: flatwater.resume(RUN, env=...)" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ConfigError, match=r"begun with object:<lambda>.*got object:Boat"):
        fw.resume("run", 2, env=Boat(), quiet=True)


@pytest.mark.long
def test_a_vector_environment_that_begins_its_own_episodes_is_not_exact(capsys: pytest.CaptureFixture[str]) -> None:
    fw.train("ppo", env=Fleet, rounds=1, run="run", **{**SMALL, "quiet": False})
    assert "not exact" in " ".join(capsys.readouterr().out.split())


@pytest.mark.long
@pytest.mark.few(1)
def test_arguments_are_kept_shown_and_resumed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(brought.__file__ or "").parent)
    options = ["--env", "brought:Boat", "--env-args", "push=0.7", "most=9", "--block", "8", "--envs", "2"]
    options += ["--learner.minibatches", "1", "--learner.epochs", "1", "--rounds", "1", "--threads", "1", "--trackers"]
    assert main(["train", "ppo", *options, "--run", "run"]) == 0
    assert 'env_args = ["push=0.7", "most=9"]' in Path("run/config.toml").read_text()
    assert max(json.loads(Path("run/episodes.jsonl").read_text().splitlines()[-1])["steps"]) <= 9
    assert main(["resume", "run", "--rounds", "2"]) == 0
    same = fw.plan("ppo", env="brought:Boat", env_kwargs={"push": 0.7, "most": 9}, **{**SMALL, "quiet": None})
    assert same.fits
    capsys.readouterr()


@pytest.mark.slow
def test_processes_for_environments_change_no_bit_and_may_change_at_a_resume() -> None:
    options = {**SMALL, "env": lambda: Boat(0.7), "wrapped": {"wrappers": ("NormalizeObservation",)}}
    whole = fw.train("ppo", rounds=2, run="whole", **options)
    fw.train("ppo", rounds=1, run="halves", env_workers=2, **options)
    again = fw.resume("halves", 2, env=options["env"], env_workers=1, quiet=True)
    assert leaves(again) == leaves(whole)
    assert again.result["players"] == whole.result["players"]  # type: ignore[index]


def test_a_wrapper_that_returns_nothing_is_named() -> None:
    options = {**SMALL, "env": lambda: Boat(0.7), "wrapped": {"wrappers": ("brought:forget",)}}
    with pytest.raises(ConfigError, match="brought:forget returned None"):
        fw.train("ppo", rounds=1, run="none", **options)


class FakeVecEnv:
    """Named as Stable-Baselines3's class."""


FakeVecEnv.__module__, FakeVecEnv.__name__ = "stable_baselines3.common.vec_env.base_vec_env", "VecEnv"
REFUSED: dict[str, tuple[str, Callable[[], Any], str]] = {
    "a fixed number": ("dqn", lambda: boats(3), r"for dqn a function of the number .*, got .* of always 3"),
    "another library's": (
        "ppo",
        lambda: partial(FakeVecEnv),
        r"a VecEnv of Stable-Baselines3\. Give .* --rewards normalised",
    ),
    "no single resets": ("ppo", lambda: NormalizeObservation(boats(2)), "wrap each environment"),
}


@pytest.mark.parametrize("given", REFUSED)
def test_what_cannot_be_stepped_is_refused_with_what_to_give(given: str) -> None:
    recipe, make, told = REFUSED[given]
    with pytest.raises(FlatwaterError, match=told):
        fw.train(recipe, env=make(), rounds=1, run="none", **(SMALL if recipe == "ppo" else {"quiet": True}))


def test_a_part_that_is_no_numbers_is_named_with_the_wrapper_that_leaves_it_out() -> None:
    words, seen = gymnasium.spaces.Text(5), gymnasium.spaces.Discrete(3)
    said = gymnasium.spaces.Dict({"seen": seen, "inside": gymnasium.spaces.Tuple((seen, words))})
    with pytest.raises(ConfigError) as refused:
        make_reader(said, "boat:Boat")
    assert "boat:Boat: observation['inside'][1]: expected a Box" in str(refused.value)
    assert "--wrapped.wrappers \"FilterObservation(filter_keys=['seen'])\"" in str(refused.value)
    with pytest.raises(ConfigError, match="TransformObservation"):
        make_reader(gymnasium.spaces.Tuple((words,)), "boat:Boat")


@pytest.mark.long
def test_members_evolve_in_what_is_brought() -> None:
    tiny = {"population": {"size": 2, "envs": 1}, "replay": {"warmup": 8, "capacity": 64}, "steps": 12, "quiet": True}
    tiny |= {"evaluation": {"episodes": 1}, "net": {"hidden": 4}, "threads": 1, "trackers": ()}
    given = {"rounds": 1, "wrapped": {"steps": 6}, "learner": {"td3": {"batch_size": 4}}, **tiny}
    by_name = fw.train("evolve", env="Pendulum-v1", env_kwargs={"g": 9.0}, run="named", **given)
    pendulum = lambda: gymnasium.make("Pendulum-v1", g=9.0)  # noqa: E731  (as people type it)
    by_function = fw.train("evolve", env=pendulum, env_workers=2, run="given", **given)
    assert leaves(by_function) == leaves(by_name)
