"""A preset's settings are below all that the user gives, and are kept with the run, whatever becomes of the preset."""

import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import flatwater as fw
from flatwater.api import resolve_config
from flatwater.checkpoints.reader import list_checkpoints
from flatwater.cli.main import command_class, main
from flatwater.config.mappings import flat_settings, to_mapping
from flatwater.config.toml import load_config
from flatwater.presets import lookup
from flatwater.presets.lookup import LEFT_OUT, NEWER, PRESET_FOLDER, SHARED
from flatwater.recipes.ppo.config import PpoRunConfig
from flatwater.sweeps.space import read_space
from flatwater_watch.errors import ConfigError

RECIPES = ("ddpg", "dqn", "ppo", "sac", "td3")
TINY = {"threads": 1, "trackers": (), "evaluation": {"envs": 2}, "wrapped": {"steps": 40}, "quiet": True}
"""Settings of a short run that no preset gives."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tables(recipe: str) -> dict[str, Any]:
    return tomllib.loads((PRESET_FOLDER / "zoo" / f"{recipe}.toml").read_text())


def env_ids(recipe: str) -> list[str]:
    return [name for name in {**tables(recipe), **tables(recipe)[NEWER]} if name not in {SHARED, NEWER}]


def is_installed(env: str) -> bool:
    """Return whether an environment can be made here: those of MuJoCo and Box2D need packages of their own."""
    place = gymnasium.registry[env].entry_point if env in gymnasium.registry else None
    if not isinstance(place, str):
        return False
    return find_spec({"mujoco": "mujoco", "box2d": "Box2D"}.get(place.split(".")[2], "gymnasium")) is not None


def read_config(recipe: str, *options: str) -> Any:
    return command_class(("train", recipe)).read(f"train {recipe}", options).settings()


ENTRIES = [(recipe, env) for recipe in RECIPES for env in env_ids(recipe)]


def test_the_zoo_has_settings_for_every_recipe_that_takes_a_preset() -> None:
    assert sorted(file.stem for file in (PRESET_FOLDER / "zoo").iterdir()) == sorted(RECIPES)
    for recipe in RECIPES:
        newer = tables(recipe)[NEWER]
        assert {*newer.values()} <= {*tables(recipe)}
        assert not {*newer} & {*tables(recipe)}, "an ID has one place"


@pytest.mark.parametrize(("recipe", "env"), ENTRIES)
def test_every_entry_is_a_valid_configuration(recipe: str, env: str) -> None:
    table = tables(recipe)
    entry = table[table[NEWER].get(env, env)]
    wanted = flat_settings({**table[SHARED]}) | flat_settings({n: x for n, x in entry.items() if n != LEFT_OUT})
    config = flat_settings(to_mapping(resolve_config(recipe, None, {"env": env, "preset": "zoo"})))
    assert {name: config[name] for name in wanted} == wanted
    assert (config["env"], config["preset"]) == (env, "zoo")
    if recipe == "ppo":  # the plan of an environment that is not installed cannot say it
        steps = config["envs"] * config["block"]
        assert steps % config["learner.minibatches"] == 0


@pytest.mark.parametrize(("recipe", "env"), [entry for entry in ENTRIES if is_installed(entry[1])])
def test_every_entry_can_be_planned(recipe: str, env: str) -> None:
    plan = fw.plan(recipe, env=env, preset="zoo")
    left_out = tables(recipe)[tables(recipe)[NEWER].get(env, env)].get(LEFT_OUT, [])
    notes = [note for note in plan.notes if "preset zoo" in note]
    assert len(notes) == bool(left_out)
    assert all(text in notes[0] for text in left_out)


def test_options_win_over_a_file_which_wins_over_the_preset_which_wins_over_defaults() -> None:
    Path("mine.toml").write_text("seed = 7\nenvs = 4\n[learner]\nlr = 1e-4\nepochs = 3\n")
    options = ("--preset", "zoo", "--config", "mine.toml", "--learner.epochs", "2")
    config = read_config("ppo", *options)
    assert (config.seed, config.envs, config.learner.lr, config.learner.epochs) == (7, 4, 1e-4, 2)
    zoo = tables("ppo")["CartPole-v1"]
    assert (config.block, config.total_steps) == (zoo["block"], zoo["total_steps"])
    assert config.learner.lr_schedule == "linear"
    assert config.evaluation == PpoRunConfig().evaluation, "no preset says how a policy is evaluated"
    given = {"preset": "zoo", "learner": {"epochs": 2}}
    assert resolve_config("ppo", "mine.toml", given) == config


def test_a_file_may_name_the_preset() -> None:
    Path("mine.toml").write_text('preset = "zoo"\nenv = "Acrobot-v1"\n[learner]\nlr = 1e-4\n')
    config = read_config("dqn", "--config", "mine.toml")
    assert (config.learner.lr, config.learner.target_every) == (1e-4, 250)
    assert resolve_config("dqn", "mine.toml", {}) == config
    # The option replaces it.
    assert read_config("dqn", "--config", "mine.toml", "--preset", "None").learner.target_every == 1
    assert resolve_config("dqn", "mine.toml", {"preset": None}).learner.target_every == 1


def test_the_rounds_that_are_given_win_over_the_steps_of_the_preset() -> None:
    assert read_config("ppo", "--preset", "zoo", "--rounds", "3").rounds == 3
    assert resolve_config("ppo", None, {"preset": "zoo", "rounds": 3}).rounds == 3
    assert read_config("ppo", "--preset", "zoo", "--total-steps", "512").rounds == 2
    Path("mine.toml").write_text("rounds = 3\n")
    for config in (
        read_config("ppo", "--preset", "zoo", "--config", "mine.toml"),
        resolve_config("ppo", "mine.toml", {"preset": "zoo"}),
    ):
        assert (config.rounds, config.total_steps) == (3, 0)
    zoo = read_config("ppo", "--preset", "zoo")
    assert zoo.rounds == -(-zoo.total_steps // (zoo.envs * zoo.block))


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_an_environment_is_known_by_its_id_however_it_is_given(env: str) -> None:
    assert read_config("ppo", "--env", env, "--preset", "zoo").block == tables("ppo")["CartPole-v1"]["block"]


@pytest.mark.parametrize(
    ("recipe", "options", "words"),
    [
        ("ppo", ["--preset", "zoo", "--env", "CartPole-v0"], ["env = 'CartPole-v0'", 'Did you mean "CartPole-v1"?']),
        ("ppo", ["--preset", "zoo", "--env", "forage"], ["env = 'forage'", "Acrobot-v1"]),
        ("teach", ["--preset", "zoo"], ["--preset", "ppo"]),
        ("evolve", ["--preset", "zoo"], ["--preset", "sac"]),
        ("ppo", ["--preset", "zo"], ["preset = 'zo'", 'Did you mean "zoo"?']),
    ],
)
def test_a_preset_that_has_nothing_for_the_run_is_refused(
    recipe: str, options: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", recipe, *options]) == 2
    message = capsys.readouterr().err
    assert all(word in message for word in words), message
    assert not Path("runs").exists()


def test_what_is_left_out_is_said_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--env", "Pendulum-v1", "--preset", "zoo", "--rounds", "1", "--envs", "1", "--block", "64"]
    options += ["--wrapped.steps", "20", "--threads", "1", "--run", "run", "--evaluation.envs", "1"]
    assert main(["train", "ppo", *options]) == 0
    said = capsys.readouterr().out
    assert said.count("gSDE") == 1
    assert "preset zoo" in said


@pytest.mark.few(1)
def test_a_run_keeps_the_settings_that_it_began_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Resumed after the preset was changed, it ends as a run that was never stopped."""
    settings: Any = {**TINY, "preset": "zoo", "learner": {"schedule_rounds": 4}}
    fw.train("ppo", run="whole", rounds=4, **settings)
    cut = fw.train("ppo", run="cut", rounds=2, **settings)
    config = load_config(PpoRunConfig, Path("cut", "config.toml"))
    assert (config.preset, config.block, config.learner.lam) == ("zoo", 32, 0.8)
    shutil.copytree(PRESET_FOLDER / "zoo", tmp_path / "presets" / "zoo")
    file = tmp_path / "presets" / "zoo" / "ppo.toml"
    file.write_text(file.read_text().replace("learner.lam = 0.8", "learner.lam = 0.5"))
    monkeypatch.setattr(lookup, "PRESET_FOLDER", tmp_path / "presets")
    assert resolve_config("ppo", None, {"preset": "zoo"}).learner.lam == 0.5
    assert cut.resume(4, quiet=True).finished
    ends = [list_checkpoints(Path(run, "checkpoints"))[-1].leaves for run in ("whole", "cut")]
    assert ends[0] == ends[1]
    # Neither does a fork take the new settings, nor a run that repeats it by its file.
    fork = load_config(PpoRunConfig, fw.fork(cut, rounds=5, run="fork", quiet=True).path / "config.toml")
    assert (fork.preset, fork.learner.lam) == ("zoo", 0.8)
    assert resolve_config("ppo", "cut/config.toml", {}).learner.lam == 0.8
    monkeypatch.setattr(lookup, "PRESET_FOLDER", tmp_path)  # without any preset
    assert cut.resume(5, quiet=True).finished


def test_a_preset_is_for_a_new_run_and_for_all_trials_of_a_sweep() -> None:
    run = fw.train("ppo", run="run", rounds=1, envs=2, block=16, **TINY)
    with pytest.raises(ConfigError, match="--preset"):
        fw.fork(run, preset="zoo", rounds=2, quiet=True)
    Path("space.toml").write_text('[preset]\nchoices = ["zoo"]\n')
    with pytest.raises(ConfigError, match="preset"):
        read_space(Path("space.toml"), PpoRunConfig())
