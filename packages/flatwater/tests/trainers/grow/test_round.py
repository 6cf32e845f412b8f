"""The laws of a round: it goes on from any step, never moves a tensor, and is judged on seeds that are held out."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from trees import differing, digest, leaf_copies, pointers, restore_

from flatwater.algorithms.learner import weight_views
from flatwater.envs.growing.simulator import reset_, step_
from flatwater.envs.growing.task import load_task
from flatwater.state.tree import nbytes
from flatwater.trainers.grow.collect import HELD_OUT
from flatwater.trainers.grow.config import GrowConfig, HeldOutConfig
from flatwater.trainers.grow.round import GrowTrainer, episodes_record
from flatwater.trainers.grow.state import GrowSetup, build_grow
from flatwater_watch.errors import ConfigError

Built = Callable[..., GrowTrainer]
Trained = Callable[..., tuple[GrowTrainer, list[dict[str, float]]]]


OWN = {"host": "own_host:Pixels", "env.host.channels": [4, 8, 16]}
"""The network of examples/, in place of the small ones."""
HOSTS = pytest.mark.parametrize("host", [{}, OWN], ids=["shipped", "own"])


def numbered_steps(trainer: GrowTrainer, rounds: int) -> list[tuple[int, int, int]]:
    """(round, phase, step) of every step of some rounds, in order."""
    places = []
    for round_ in range(rounds):
        trainer.progress.round = round_
        places += [(round_, p, s) for p, phase in enumerate(trainer.phases) for s in range(phase.steps())]
    trainer.progress.round = 0
    return places


def do_(trainer: GrowTrainer, place: tuple[int, int, int]) -> None:
    """One step, as the loop does it."""
    round_, phase, step = place
    trainer.progress.round = round_
    trainer.phases[phase].step_(step)


def evaluate_(trainer: GrowTrainer) -> None:
    """The held-out episodes of the policy, whether they are due or not."""
    for number in range(6):
        trainer.phases[3].step_(number)


@pytest.mark.few(1)
@HOSTS
def test_from_every_step_a_restored_build_goes_on_bit_for_bit(build_small: Built, host: dict[str, Any]) -> None:
    """Each step of a round is repeated by a new build that got nothing but the leaves before it."""
    changes = {"evaluation.every": 1, "evaluation.episodes": 2} | host
    trainer = build_small(changes)
    places = numbered_steps(trainer, 1)
    assert {phase for _, phase, _ in places} == {0, 1, 2, 3}
    for place in places:
        before = leaf_copies(trainer.run)
        do_(trainer, place)
        other = build_small(changes)
        restore_(other.run, before)
        do_(other, place)
        assert differing(leaf_copies(trainer.run), leaf_copies(other.run)) == [], place


@pytest.mark.long
def test_one_seed_gives_one_run_and_another_seed_another(train_small: Trained) -> None:
    nobodys = torch.get_rng_state()
    first, numbers = train_small(2)
    assert torch.equal(torch.get_rng_state(), nobodys), "the global generator is left alone"
    second, again = train_small(2)
    assert digest(first.run) == digest(second.run)
    assert numbers == again
    third, _ = train_small(1, {"seed": 1})
    assert not torch.equal(third.run.learner.block, first.run.learner.block)


@pytest.mark.few(1)
@HOSTS
def test_no_tensor_ever_moves(build_small: Built, host: dict[str, Any]) -> None:
    trainer = build_small(host)

    home, plan = pointers(trainer.run), nbytes(trainer.run)
    for place in numbered_steps(trainer, 4):
        do_(trainer, place)
    assert pointers(trainer.run) == home
    assert nbytes(trainer.run) == plan


@HOSTS
def test_what_is_planned_is_what_is_held(build_small: Built, host: dict[str, Any]) -> None:
    meta = torch.device("meta")
    trainer = build_small(host)
    task = load_task("digits", meta)
    planned = build_grow(GrowSetup(trainer.setup.config, meta, task.image_shape), task)
    assert nbytes(planned) == nbytes(trainer.run)


def test_episodes_are_recorded_as_they_were_played(train_small: Trained) -> None:
    trainer, rounds = train_small(1)
    rollout, actions = trainer.run.rollout, trainer.setup.network.actions
    assert rollout["terminated"][:, 0].tolist() == [False, False, True]
    assert rollout["starts"][:, 0].tolist() == [True, False, False]
    assert rollout["alive"].all()
    assert not rollout["truncated"].any()
    assert torch.equal(rollout["next_value"][:-1], rollout["value"][1:])
    assert rollout["next_value"][-1].abs().max() == 0
    operation = rollout["action"][..., :1]
    assert rollout["legal"][..., : actions.operations].gather(-1, operation).all()
    assert rollout["log_prob"].max() < 0
    assert rounds[0]["return/mean"] == pytest.approx(float(rollout["reward"].sum(0).mean()))
    shares = [value for name, value in rounds[0].items() if name.startswith("operation/")]
    assert len(shares) == actions.operations
    assert sum(shares) == pytest.approx(1)


def test_the_same_actions_on_the_same_seeds_lead_to_the_same_episodes(train_small: Trained) -> None:
    """The recorded actions, played once more on the recorded seeds, give the recorded lives and numbers."""
    trainer, rounds = train_small(1, {"env.steps": 5})
    run, record = trainer.run, episodes_record(trainer.run)
    rollout = {name: run.rollout[name].clone() for name in ("action", "reward", "stage", "accuracy")}
    rolled_back = 0
    reset_(run.envs, torch.tensor(record["seed"]))
    for t in range(5):
        assert torch.equal(step_(run.envs, rollout["action"][t]), rollout["reward"][t])
        assert torch.equal(run.envs.slots.stage, rollout["stage"][t])
        rolled_back += int(run.envs.measures.rolled_back.sum())
    assert run.envs.measures.accuracy[:, 0].tolist() == record["accuracy"] == rollout["accuracy"][-1].tolist()
    assert rollout["reward"].sum(0).tolist() == record["return"]
    assert sum(record["wait"]) + sum(record["germinate"]) > 0
    assert rollout["stage"].max() > 0
    assert rounds[0]["host/accuracy"] == pytest.approx(sum(record["accuracy"]) / 2)
    assert rounds[0]["host/rollbacks"] == rolled_back


def test_an_episode_starts_with_nothing_remembered(train_small: Trained, build_small: Built) -> None:
    """What is left of the episodes before does not reach the next ones."""
    trainer, _ = train_small(1)
    other = build_small()
    restore_(other.run, leaf_copies(trainer.run))
    other.run.memory.fill_(7)
    for run in (trainer, other):
        do_(run, (1, 1, 0))
    assert torch.equal(trainer.run.rollout["log_prob"], other.run.rollout["log_prob"])
    assert torch.equal(trainer.run.memory, other.run.memory)
    assert trainer.run.memory.abs().max() > 0


def test_baselines_are_played_once_and_the_policy_when_it_is_due(train_small: Trained) -> None:
    trainer, rounds = train_small(4)
    due = ["evaluation/policy" in numbers for numbers in rounds]
    assert due == [False, True, False, True]
    for name in ("wait", "random", "heuristic"):
        assert rounds[1][f"evaluation/{name}"] == rounds[3][f"evaluation/{name}"]
        assert math.isfinite(rounds[1][f"evaluation/{name}"])
    assert rounds[1]["evaluation/policy"] != rounds[3]["evaluation/policy"]
    assert math.isfinite(rounds[3]["evaluation/policy"])
    assert len(trainer.run.scores.policy) == 4


def test_hosts_left_alone_are_measured_once_and_what_is_paid_follows_from_them(
    train_small: Trained, build_small: Built
) -> None:
    """They are hosts of training seeds that wait; a pool that knows nothing of them pays more for the same episodes."""
    trainer, _ = train_small(2)
    run, config = trainer.run, trainer.setup.config
    hosts = run.envs.alone.hosts
    assert hosts.tolist() == [[config.evaluation_passes * config.envs / 2] * config.env.steps] * 2
    pool = build_small().run.envs
    wanted = torch.zeros_like(hosts)
    for turn in range(config.evaluation_passes):
        reset_(pool, torch.arange(turn * config.envs, (turn + 1) * config.envs))
        for t in range(config.env.steps):
            step_(pool, torch.zeros(config.envs, 5, dtype=torch.int64))
            wanted[:, t] += pool.measures.accuracy[:, 0]
    assert torch.equal(run.envs.alone.accuracy, wanted)


def test_all_play_the_same_held_out_episodes_whatever_was_trained_in_between(
    train_small: Trained, build_small: Built
) -> None:
    """Evaluated in a run's pool or in a new one, a policy has the same returns."""
    trainer, _ = train_small(2)
    fresh = build_small()
    held = leaf_copies(trainer.run)
    for path in held:
        if path.startswith("envs."):
            held[path] = leaf_copies(fresh.run)[path]
    restore_(fresh.run, held)
    for run in (trainer, fresh):
        evaluate_(run)
    assert torch.equal(trainer.run.scores.policy, fresh.run.scores.policy)


def test_evaluating_draws_nothing(train_small: Trained) -> None:
    """The policy plays its likeliest action: evaluated twice, it gets the same returns."""
    trainer, _ = train_small(2)
    drawn = trainer.run.generators["held out"].get_state()
    returns = trainer.run.scores.policy.clone()
    evaluate_(trainer)
    assert torch.equal(trainer.run.scores.policy, returns)
    assert torch.equal(trainer.run.generators["held out"].get_state(), drawn)


def test_a_new_policy_does_each_operation_as_often_as_its_prior_says(build_small: Built) -> None:
    prior = torch.tensor([4, 1, 2, 0.5, 1, 0.1])
    trainer = build_small({"policy.prior": prior.tolist()})
    run, network = trainer.run, trainer.setup.network
    obs = torch.randn(1, 2, *network.obs, generator=torch.Generator().manual_seed(0))
    starts = torch.zeros(1, 2, dtype=torch.bool)
    seen = network(weight_views(network, run.learner), obs, run.memory, starts)
    logits = seen.logits[0, :, : len(prior)]
    torch.testing.assert_close(logits.softmax(1), (prior / prior.sum()).expand(2, -1), rtol=0.02, atol=0)
    with pytest.raises(ConfigError, match=r"policy\.prior = .*: .*6 numbers"):
        build_small({"policy.prior": [1, 1]})


def test_a_policy_that_is_sure_to_wait_gets_what_waiting_gets(train_small: Trained) -> None:
    """On the same episodes, whatever its floor: the two returns are the same bits."""
    trainer, _ = train_small(1, {"policy.floor": 0.99})
    weights = weight_views(trainer.setup.network, trainer.run.learner)
    weights["action.bias"][0] = 1e4
    for _ in range(2):
        evaluate_(trainer)
        assert torch.equal(trainer.run.scores.policy, trainer.run.scores.baselines["wait"])
    assert len({*trainer.run.scores.policy.tolist()}) > 1


def test_training_seeds_are_never_held_out(build_small: Built) -> None:
    trainer = build_small()
    rng = trainer.run.generators["env seeds"]
    assert int(torch.randint(HELD_OUT, (100_000,), generator=rng).max()) < HELD_OUT


def test_every_round_plays_other_episodes(train_small: Trained) -> None:
    _, rounds = train_small(3)
    assert len({numbers["return/mean"] for numbers in rounds}) == 3


CHANGES: dict[str, Any] = {
    "envs": 4,
    "policy.hidden": 9,
    "policy.memory": 7,
    "policy.floor": 0.5,
    "policy.prior": [1, 1, 1, 1, 1, 1],
    "learner.gamma": 0.9,
    "learner.lam": 0.5,
    "learner.clip": 1e-4,
    "learner.value_clip": 1e-4,
    "learner.epochs": 3,
    "learner.minibatches": 1,
    "learner.lr": 1e-2,
    "learner.grad_clip": 1e-3,
    "learner.value_weight": 0.1,
    "learner.entropy_weight": 1.0,
    "evaluation.episodes": 6,
    "evaluation.every": 1,
}


@pytest.fixture(scope="module")
def ordinary() -> dict[str, str]:
    return {}


@pytest.mark.few(6)
@pytest.mark.parametrize("name", CHANGES)
def test_every_setting_does_something(name: str, train_small: Trained, ordinary: dict[str, str]) -> None:
    if not ordinary:
        ordinary["digest"] = digest(train_small(1)[0].run)
    assert digest(train_small(1, {name: CHANGES[name]})[0].run) != ordinary["digest"]


def test_settings_that_do_not_fit_together_are_named() -> None:
    with pytest.raises(ConfigError, match=r"envs = 7: .*learner\.minibatches \(4\)"):
        GrowConfig(envs=7)
    assert GrowConfig(envs=8, evaluation=HeldOutConfig(episodes=12)).evaluation_passes == 2
    for name in ("episodes", "every"):
        with pytest.raises(ConfigError, match=f"evaluation.{name} = 0: .*1 to"):
            HeldOutConfig(**{name: 0})
    with pytest.raises(ConfigError, match=r"envs = 0: .*1 to"):
        GrowConfig(envs=0)


def test_in_bf16_the_policy_learns_other_numbers_and_goes_on_bit_for_bit(
    build_small: Built, train_small: Trained
) -> None:
    lowered = {"learner.autocast": "bf16"}
    exact, _ = train_small(1)
    trainer, told = train_small(1, lowered)
    assert not torch.equal(trainer.run.learner.block, exact.run.learner.block)
    assert trainer.run.learner.block.dtype == torch.float32
    assert trainer.run.learner.block.isfinite().all()
    assert told[0]["train/skipped"] == 0
    other = build_small(lowered)
    restore_(other.run, leaf_copies(trainer.run))
    for place in ((1, 1, 0), (1, 2, 0)):
        do_(trainer, place)
        do_(other, place)
    assert differing(leaf_copies(trainer.run), leaf_copies(other.run)) == []
