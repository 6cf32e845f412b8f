"""Agents of different spaces: a policy for each kind, planned, trained, resumed, judged, used and exported together."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kinds_envs import Crew, Hunt
from trees import digest, leaf_copies, restore_
from watchers import Silent

import flatwater as fw
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import command_class, main
from flatwater.envs.kinds import name_kinds
from flatwater.envs.wrapped.pettingzoo_world import PettingZooWorld
from flatwater.recipes.ppo.run import BlocksRun, compose
from flatwater.state.tree import nbytes
from flatwater.trainers.blocks.round import join_numbers
from flatwater.trainers.loop import train_
from flatwater.trainers.resume_worlds import resume_episodes_
from flatwater_watch.errors import ConfigError

TINY = ("--envs", "4", "--block", "8", "--evaluation.envs", "2", "--evaluation.every", "2", "--threads", "1")
TINY += ("--trackers", "--policy.layers", "8", "--learner.epochs", "2", "--learner.minibatches", "2")
TINY += ("--wrapped.steps", "12")
ENVS: dict[str, tuple[str, ...]] = {
    "lists": ("--env", "kinds_envs:Hunt"),
    "memory": ("--env", "kinds_envs:Hunt", "--policy.memory", "4", "--learner.unroll", "4"),
    "numbers": ("--env", "kinds_envs:Crew", "--rewards", "normalised", "--learner.target-kl", "0.02"),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def build(name: str) -> BlocksRun:
    run = compose(command_class(("train", "ppo")).read("train ppo", [*TINY, *ENVS[name]]).settings())
    run.begin_()
    return run


@pytest.mark.parametrize("name", ENVS)
def test_a_run_that_was_stopped_at_any_step_goes_on_bit_for_bit_and_holds_what_was_planned(name: str) -> None:
    whole = build(name)
    assert nbytes(whole.trainer.run) == whole.plan.owners
    train_(whole.trainer, 3, Silent())
    assert nbytes(whole.trainer.run) == whole.plan.owners
    for steps in (1, 17, 24, 40):
        cut, again = build(name), build(name)
        train_(cut.trainer, 3, Silent(steps))
        cut.gather_()
        restore_(again.trainer.run, leaf_copies(cut.trainer.run))
        assert resume_episodes_(again.trainer) == ""
        train_(again.trainer, 3, Silent())
        assert digest(again.trainer.run) == digest(whole.trainer.run)


def test_a_run_is_resumed_with_other_processes_and_ends_as_if_it_had_not_stopped() -> None:
    for run, rounds, workers in (("whole", "3", "0"), ("cut", "1", "2")):
        options = ("--rounds", rounds, "--run", run, "--env-workers", workers)
        assert main(["train", "ppo", *TINY, *ENVS["lists"], *options]) == 0
    assert main(["resume", "cut", "--rounds", "3", "--env-workers", "0"]) == 0
    results = [json.loads(Path(run, "result.json").read_text()) for run in ("whole", "cut")]
    assert results[0] == results[1]
    parts = ("hunter", "hunter_0", "hunter_1", "prey")
    players = [f"{player}/{part}" for player in ("policy", "random") for part in parts]
    assert [*results[0]["players"]] == ["policy", "random", *players]
    ends = [list_checkpoints(Path(run, "checkpoints"))[-1].leaves for run in ("whole", "cut")]
    assert ends[0] == ends[1]
    last = json.loads(Path("cut", "metrics.jsonl").read_text().splitlines()[-2])
    assert {"return/prey", "return/hunter_1", "train/prey/kl", "evaluation/policy/hunter", "train/kl"} <= last.keys()
    assert last["train/entropy"] == pytest.approx((last["train/prey/entropy"] + last["train/hunter/entropy"]) / 2)
    assert main(["evaluate", "cut", "--video", "hunt.gif"]) == 0
    assert Path("hunt.gif").read_bytes().startswith(b"GIF89a")
    assert main(["report", "cut"]) == 0
    page = Path("cut", "report.html").read_text()
    assert "policy/prey" in page
    assert "Held-out returns by agent" in page
    assert "prey/kl" in page
    assert "prey/skipped" not in page


def test_a_plan_that_does_not_fit_says_what_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ppo", *TINY, *ENVS["lists"], "--block", "4096", "--budget", "1MiB"]) == 3
    assert "block = 2048: kinds would take" in " ".join("".join(capsys.readouterr()).split())


def test_each_kind_learns_what_is_its_own_and_gives_each_agent_its_policy() -> None:
    """Measured with seeds 0, 1 and 2: returns of 8.0 of 8 for both hunters and of 5.5 of 5.5 for the prey; by chance
    they are 2.45 to 2.97, and 1.81 to 2.06."""
    learner = {"lr": 1e-2, "epochs": 4, "minibatches": 4}
    options: dict[str, Any] = {"envs": 16, "block": 32, "learner": learner, "evaluation": {"envs": 32, "every": 20}}
    run = fw.train("ppo", env=Hunt, rounds=20, run="run", threads=1, trackers=(), quiet=True, **options)
    assert run.result is not None
    players = run.result["players"]
    assert players["policy/hunter"]["return"] > 2 * players["random/hunter"]["return"] > 4
    assert players["policy/prey"]["return"] > 2 * players["random/prey"]["return"] > 3
    assert players["policy/prey"]["times_random"] > 1.5
    policy, env = fw.load("run"), Hunt()
    seen, _ = env.reset(seed=1)
    assert policy.act(seen) == env.cue
    actions, state = policy.predict(seen, deterministic=True)
    assert (actions, state) == (env.cue, None)
    assert policy.predict(seen["prey"], agent="prey", deterministic=True)[0] == env.cue["prey"]
    assert policy["hunter_1"].act(seen["hunter_1"]) == env.cue["hunter_1"]
    assert policy.action_space("prey").n == 5
    assert set(policy.value(seen)) == set(env.possible_agents)
    with pytest.raises(ConfigError, match=r"agent = 'wolf': expected one of hunter_0, hunter_1, prey"):
        policy.act(seen["prey"], agent="wolf")
    with pytest.raises(ConfigError, match="expected a dict of observations by agent"):
        policy.act(seen["hunter_0"])
    assert fw.export("run", "policy.safetensors") == 0
    for agent in ("prey", "hunter_1"):
        file = f"policy-{agent.partition('_')[0]}.safetensors"
        assert fw.load(file).act(seen[agent]) == env.cue[agent]
    assert sorted(file.name for file in Path().glob("*.safetensors")) == [
        "policy-hunter.safetensors",
        "policy-prey.safetensors",
    ]


def test_each_agent_remembers_its_own_episode() -> None:
    options: dict[str, Any] = {"envs": 2, "block": 8, "policy": {"memory": 4, "layers": (8,)}}
    options |= {"learner": {"unroll": 4, "minibatches": 2}, "evaluation": {"envs": 2}, "wrapped": {"steps": 12}}
    fw.train("ppo", env=Hunt, rounds=1, run="run", threads=1, trackers=(), quiet=True, **options)
    together, apart, env, state = fw.load("run"), fw.load("run"), Hunt(), None
    seen, _ = env.reset(seed=1)
    for _ in range(4):
        values = together.value(seen)
        assert values == {agent: apart.value(own, agent=agent) for agent, own in seen.items()}
        actions, state = apart.predict(seen, state, deterministic=True)
        assert actions == together.act(seen) == {agent: apart.act(own, agent=agent) for agent, own in seen.items()}
        seen = env.step(actions)[0]
    assert set(state) == set(env.possible_agents)


def test_observations_and_actions_of_several_forms_are_read_as_each_agent_has_them() -> None:
    options: dict[str, Any] = {"envs": 2, "block": 8, "learner": {"minibatches": 2}, "evaluation": {"envs": 2}}
    fw.train("ppo", env=Crew, rounds=1, run="run", threads=1, trackers=(), quiet=True, wrapped={"steps": 8}, **options)
    policy, env = fw.load("run"), Crew()
    seen, _ = env.reset(seed=1)
    for _ in range(8):
        seen, *_ = env.step(policy.act(seen, deterministic=False, generator=torch.Generator().manual_seed(2)))
    fw.export("run", "policy.safetensors")
    assert np.array_equal(fw.load("policy-wheel.safetensors").act(seen["wheel"]), policy["wheel"].act(seen["wheel"]))


def test_an_environment_itself_is_copied_and_its_run_goes_on_bit_for_bit() -> None:
    options: dict[str, Any] = {"envs": 2, "block": 8, "learner": {"minibatches": 2}, "evaluation": {"envs": 2}}
    options |= {"threads": 1, "trackers": (), "quiet": True, "wrapped": {"steps": 12}}
    given = Hunt()
    for run, rounds in (("whole", 2), ("halves", 1)):
        fw.train("ppo", env=given, rounds=rounds, run=run, **options)
    fw.resume("halves", 2, env=given, quiet=True)
    ends = [list_checkpoints(Path(run, "checkpoints"))[-1].leaves for run in ("whole", "halves")]
    assert ends[0] == ends[1]
    assert not hasattr(given, "age"), "the user's own is never stepped"


@pytest.mark.parametrize("env", ["kinds_envs:Hunt", "masked_envs:Two"])
def test_an_evaluation_ends_with_its_last_episode(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says nothing of a last step, so that 1,000 are planned for."""
    steps, step_ = list[int](), PettingZooWorld.step_

    def count(world: PettingZooWorld, *arrays: Any) -> None:
        steps.append(world.spaces.envs)
        step_(world, *arrays)

    monkeypatch.setattr(PettingZooWorld, "step_", count)
    options = ("--env", env, "--rounds", "1", "--evaluation.every", "1", "--wrapped.steps", "1000", "--run", "run")
    assert main(["train", "ppo", *TINY, *options]) == 0
    # The policy and random play in the round, both again for the result, and the test of exactness.
    assert steps.count(2) <= 200


def test_weights_of_another_run_are_taken_by_kind() -> None:
    for run, options in (("first", ()), ("second", ("--from-run", "first", "--learner.lr", "1e-12"))):
        assert main(["train", "ppo", *TINY, *ENVS["lists"], "--rounds", "1", "--run", run, *options]) == 0
    first, second = (fw.load(run)["prey"].module.state_dict() for run in ("first", "second"))
    assert all(torch.allclose(first[name], second[name], atol=1e-6) for name in first if "obs." not in name)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ppo", "--env", "kinds_envs:Mixed"), "choices of wheel and numbers of camera"),
        (("teach", "--world", "kinds_envs:Hunt", "--teacher", "random"), "flatwater train ppo --env kinds_envs:Hunt"),
        (
            ("ppo", *TINY, *ENVS["lists"], "--envs", "3", "--learner.minibatches", "16"),
            "a divisor of 24, such as 12: 3 agents have 8 sequences each",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *arguments, "--run", "run"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("groups", "names"),
    [
        ([["hunter_0", "hunter_1"], ["prey"]], ["hunter", "prey"]),
        ([["a_0"], ["a_1"]], ["a_0", "a_1"]),
        ([["0", "1"], ["2"]], ["0", "2"]),
        ([["x", "y_1"], ["z.left"], ["z_left"]], ["x", "z_left", "z_left_2"]),
    ],
)
def test_kinds_are_named_by_what_their_agents_have_in_common(groups: list[list[str]], names: list[str]) -> None:
    assert name_kinds(groups) == names


def test_metrics_of_each_kind_are_kept_where_another_lacks_them() -> None:
    """The user's own numbers may depend on the policy."""
    by_kind = {"prey": {"train/kl": 1.0, "train/own": 4.0, "train/skipped": 1.0}, "hunter": {"train/kl": 2.0}}
    assert join_numbers(by_kind) == {
        "train/kl": 1.5,
        "train/prey/kl": 1.0,
        "train/hunter/kl": 2.0,
        "train/own": 4.0,
        "train/prey/own": 4.0,
        "train/skipped": 1.0,
        "train/prey/skipped": 1.0,
    }
