"""`train sac`, `td3`, `ddpg`, `dqn`: one agent by default, with the settings that the field starts from."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import flatwater as fw
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import command_class, main
from flatwater.recipes.evolve.run import EvolveRun, compose
from flatwater.state.tree import nbytes
from flatwater_watch.errors import ConfigError

FILE = Path(__file__).with_name("continuous.py")
TINY = ("--steps", "37", "--net.hidden", "8", "--evaluation.episodes", "2", "--learner.batch-size", "16", "--trackers")
TINY += ("--replay.warmup", "24", "--replay.capacity", "200", "--threads", "1")
NUMBERS = ("sac", "td3", "ddpg")
PLACES = {"dqn": "CartPole-v1", "sac of choices": "CartPole-v1"}
"""Environment of a recipe, where numbers are no actions."""
KINDS = (*NUMBERS, *PLACES)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with the file of the environments and nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "continuous", raising=False)
    (tmp_path / FILE.name).write_text(FILE.read_text())
    return tmp_path


def train(recipe: str, run: str, rounds: int, *options: str) -> dict[str, object]:
    words = [
        "train",
        recipe.partition(" ")[0],
        "--env",
        PLACES.get(recipe, "continuous:Reach"),
        *TINY,
        "--rounds",
        str(rounds),
        "--run",
        run,
        "--quiet",
    ]
    assert main([*words, *options]) == 0
    found: dict[str, object] = json.loads(Path(run, "result.json").read_text())
    return found


def compose_agent(recipe: str, *options: str) -> EvolveRun:
    words = ["--env", PLACES.get(recipe, "continuous:ReachWorld"), *TINY, *options]
    name = recipe.partition(" ")[0]
    return compose(command_class(("train", name)).read(f"train {name}", words).settings())


@pytest.mark.long
@pytest.mark.parametrize(
    "recipe", [r if r in {"sac", "dqn"} else pytest.param(r, marks=pytest.mark.slow) for r in KINDS]
)
def test_resumed_an_agent_ends_as_if_it_had_not_stopped(recipe: str) -> None:
    whole = train(recipe, "whole", 3)
    train(recipe, "cut", 1)
    assert main(["resume", "cut", "--rounds", "3", "--quiet"]) == 0
    assert json.loads(Path("cut", "result.json").read_text()) == whole
    ends = [list_checkpoints(Path(run, "checkpoints"))[-1].leaves for run in ("whole", "cut")]
    assert ends[0] == ends[1]
    assert {*whole["players"]} == {"policy", "random"}  # type: ignore[misc]  # plain values


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("recipe", ["td3", "dqn"])
def test_rates_follow_a_schedule_which_a_stopped_run_goes_on_with(recipe: str) -> None:
    """The schedule ends with the updates of the rounds that the run is begun with; a resumed run keeps its end."""
    schedule = ("--learner.lr-schedule", "linear", "--learner.train-every", "4", "--learner.updates", "2")
    train(recipe, "whole", 2, *schedule)
    first, last = (json.loads(line) for line in Path("whole", "metrics.jsonl").read_text().splitlines())
    assert f"schedule_updates = {int(last['updates'])}" in Path("whole", "config.toml").read_text()
    assert [line["train/lr_factor"] for line in (first, last)] == [1 - first["updates"] / last["updates"], 0]
    end = list_checkpoints(Path("whole", "checkpoints"))[-1].leaves
    train(recipe, "cut", 1, *schedule, "--learner.schedule-updates", str(int(last["updates"])))
    assert main(["resume", "cut", "--rounds", "2", "--quiet"]) == 0
    assert list_checkpoints(Path("cut", "checkpoints"))[-1].leaves == end
    # Beyond its end rates are 0, and weights stay.
    assert main(["resume", "whole", "--rounds", "3", "--quiet"]) == 0
    later = {leaf.path: leaf for leaf in list_checkpoints(Path("whole", "checkpoints"))[-1].leaves}
    assert all(later[leaf.path].sha256 == leaf.sha256 for leaf in end if leaf.path == "learner.actor")


@pytest.mark.parametrize("recipe", KINDS)
@pytest.mark.parametrize("size", ["1", "3"])
def test_what_is_planned_is_held(recipe: str, size: str) -> None:
    run = compose_agent(recipe, "--population.size", size)
    assert nbytes(run.trainer.run) == run.plan.owners


def test_one_agent_has_no_champion_and_no_evolution() -> None:
    run = compose_agent("sac")
    assert [phase.name for phase in run.trainer.phases] == ["train", "evaluate"]
    assert len(run.trainer.run.learner.actor) == 1
    assert run.trainer.setup.trial.envs == 2


@pytest.mark.long
def test_several_agents_evolve() -> None:
    train("td3", "run", 2, "--population.size", "3")
    last = json.loads(Path("run", "metrics.jsonl").read_text().splitlines()[-1])
    assert last.keys() >= {"evaluation/policy", "fitness/max", "mutation/rate"}
    assert len(json.loads(Path("run", "lineage.jsonl").read_text().splitlines()[-1])["ids"]) == 4


def test_the_policy_is_used_as_any_other() -> None:
    train("sac", "run", 1)
    assert main(["evaluate", "run", "--holdout"]) == 0
    assert main(["report", "run"]) == 0
    assert main(["plan", "sac", "--config", "run/config.toml"]) == 0
    action = fw.load("run").act(np.zeros((5, 1), np.float32))
    assert action.shape == (5, 1)
    assert np.abs(action).max() <= 2


@pytest.mark.parametrize("recipe", NUMBERS)
def test_defaults_are_those_of_stable_baselines(recipe: str) -> None:
    config = command_class(("train", recipe)).read(f"train {recipe}", []).settings()
    learner, replay = config.learner, config.replay
    assert (config.population.size, config.population.envs, learner.train_every, learner.updates) == (1, 1, 1, 1)
    assert (learner.batch_size, learner.tau, learner.gamma, learner.weight_decay) == (256, 0.005, 0.99, 0)
    assert (replay.capacity, replay.warmup, replay.prioritised) == (1_000_000, 100, False)
    assert learner.actor_lr == learner.critic_lr == (3e-4 if recipe == "sac" else 1e-3)


def test_updates_come_after_every_nth_step() -> None:
    run = compose_agent("td3", "--learner.train-every", "4", "--learner.updates", "3", "--replay.warmup", "10")
    for step in range(20):
        run.trainer.collector.step_(step)
    assert run.trainer.run.learner.tally.updates == 3 * 3, "after 12, 16 and 20 steps"


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("prioritised", [(), ("--replay.prioritised",)], ids=["plain", "prioritised"])
def test_every_part_of_rainbow_is_a_switch_and_a_policy_of_choices_is_used_as_any_other(
    prioritised: tuple[str, ...],
) -> None:
    switches = ("--learner.double", "--learner.duelling", "--learner.n-steps", "3", *prioritised)
    train("dqn", "run", 2, *switches, "--population.size", "2")
    assert main(["export", "run", "--to", "policy.safetensors"]) == 0
    policy, again = fw.load("run"), fw.load("policy.safetensors")
    seen = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    actions = policy.act(seen)
    assert actions.dtype == np.int64
    assert set(actions.tolist()) <= {0, 1}
    assert np.array_equal(again.act(seen), actions)
    assert np.allclose(again.value(seen), policy.value(seen))
    assert policy.act(seen[0]) == actions[0]


def test_a_policy_of_choices_by_sac_is_drawn_from_valued_and_exported() -> None:
    train("sac of choices", "run", 2, "--population.size", "2")
    assert main(["export", "run", "--to", "policy.safetensors"]) == 0
    assert main(["export", "run", "--to", "policy.pt2"]) == 0
    policy, again = fw.load("run"), fw.load("policy.safetensors")
    seen = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
    assert np.array_equal(again.act(seen), policy.act(seen))
    assert np.allclose(again.value(seen), policy.value(seen))
    drawn = policy.act(seen, deterministic=False)
    assert set(drawn.tolist()) == {0, 1}
    assert not np.array_equal(drawn, policy.act(seen))


@pytest.mark.slow
def test_sac_learns_a_choice() -> None:
    options = ("--steps", "2500", "--net.hidden", "64", "--learner.batch-size", "64", "--replay.capacity", "10000")
    rates = ("--learner.actor-lr", "1e-3", "--learner.critic-lr", "2e-3", "--learner.temperature-lr", "1e-3")
    players = train("sac of choices", "run", 2, *options, *rates, "--learner.train-every", "2")["players"]
    assert isinstance(players, dict)
    assert players["policy"]["return"] > 4 * players["random"]["return"]


@pytest.mark.slow
def test_dqn_solves_cartpole() -> None:
    """With the settings of RL Zoo for it, at its 50,000 steps."""
    assert main(["train", "dqn", "--preset", "zoo", "--threads", "1", "--run", "run", "--quiet", "--trackers"]) == 0
    assert json.loads(Path("run", "result.json").read_text())["players"]["policy"]["return"] >= 475


@pytest.mark.parametrize(
    ("recipe", "env", "said"),
    [
        ("dqn", "Pendulum-v1", "train sac"),
        ("sac", "forage", "train ppo"),
        ("td3", "CartPole-v1", "train dqn"),
    ],
)
def test_an_environment_of_other_actions_is_refused(
    recipe: str, env: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if env == "forage":
        pytest.importorskip("mettagrid", reason="mettagrid has wheels for Python 3.11 and 3.12 alone")
    assert main(["train", recipe, "--env", env]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--learner.algorithm", "mine:MINE"], "this recipe trains sac alone"),
        (["--learner.tau", "2"], r"learner\.tau = 2"),
    ],
)
def test_what_an_agent_has_not_is_refused(options: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        command_class(("train", "sac")).read("train sac", options)


def test_a_target_that_would_hardly_move_is_refused() -> None:
    """Who gives `target_update_interval` of another library alone has a copy in mind."""
    read = command_class(("train", "dqn")).read
    with pytest.raises(ConfigError, match=r"learner\.tau = 0\.005: expected 1, which copies"):
        read("train dqn", ["--learner.target-every", "250"])
    settings = read("train dqn", ["--learner.target-every", "250", "--learner.tau", "1"]).settings()
    assert (settings.learner.tau, settings.learner.target_every) == (1, 250)
