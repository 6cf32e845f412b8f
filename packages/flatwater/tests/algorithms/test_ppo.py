"""PPO on a task that needs memory: a cue is shown in the first step, and has to be named in the last one."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from flatwater.algorithms.learner import build_learner, make_act, read_learner_, step_columns
from flatwater.algorithms.on_policy import compute_targets_, make_update
from flatwater.algorithms.on_policy_config import EpisodeConfig
from flatwater.algorithms.ppo import PPO
from flatwater.algorithms.returns import clipped_loss
from flatwater.nets.actions import OperationActions
from flatwater.nets.actor_critic import ActorCritic
from flatwater.nets.config import ActorCriticConfig
from flatwater.nets.policy import update_running_stats_
from flatwater.nets.stack import views
from flatwater.rollouts.block import ColumnSpec, build_rollout, write_step_
from flatwater.state.tree import leaves
from flatwater_watch.errors import ConfigError

CPU = torch.device("cpu")
STEPS, ENVS = 4, 32
CONFIG = EpisodeConfig(lr=5e-3, minibatches=2)

ACTIONS = OperationActions(choices=(2, 3), relevant=torch.tensor([[False, False], [True, False]]), floor=0.1)
"""WAIT or NAME(cue); a second head never matters. NAME is legal in the last step only, and is then the only choice."""
POLICY = ActorCritic((3,), ACTIONS, 255, ActorCriticConfig(hidden=16, memory=16), CPU, (0, 1, 2), scaling="deviations")
WRITTEN = {
    "obs": ColumnSpec((3,)),
    "reward": ColumnSpec(),
    "terminated": ColumnSpec((), torch.bool),
    "truncated": ColumnSpec((), torch.bool),
}


class Task:
    """Learner, rollout and generators of one run on the memory task."""

    def __init__(self, seed: int, config: EpisodeConfig = CONFIG) -> None:
        self.config = config
        self.learner = build_learner(
            POLICY, sequences=ENVS, rng=torch.Generator().manual_seed(seed), device=CPU, metrics=PPO.metrics
        )
        columns = WRITTEN | step_columns(ColumnSpec((3,), torch.int64), legal=ACTIONS.outputs)
        self.rollout = build_rollout(columns, steps=STEPS, batch=ENVS, device=CPU)
        self.rng = torch.Generator().manual_seed(seed + 1000)
        self.act = make_act(config, POLICY, self.learner, masked=True)
        begun = torch.zeros(1, 2, ENVS, 16)
        self.update_ = make_update(
            config,
            PPO,
            POLICY,
            self.learner,
            rollout=self.rollout,
            initial_memory=begun,
            weights={},
        )

    def play_(self, *, remembers: bool = True, paid: float = 1.0) -> float:
        """One episode of each environment into the rollout; the share of cues that were named."""
        cue = torch.randint(0, 2, (ENVS,), generator=self.rng)
        memory, noise = torch.zeros(2, ENVS, 16), torch.zeros(ENVS, ACTIONS.noise)
        for t in range(STEPS):
            last = t == STEPS - 1
            obs, legal = observation(cue, t), legality(last=last)
            starts = torch.full((ENVS,), t == 0)
            ACTIONS.noise_(noise, self.rng)
            acted = self.act(obs=obs, memory=memory, starts=starts, noise=noise, legal=legal)
            memory = acted.memory if remembers else torch.zeros_like(memory)
            named = (acted.action[:, 1] == cue).float()
            write_step_(
                self.rollout,
                t,
                obs=obs,
                legal=legal,
                action=acted.action,
                log_prob=acted.log_prob,
                value=acted.value,
                starts=starts,
                alive=torch.ones(ENVS, dtype=torch.bool),
                reward=paid * named if last else torch.zeros(ENVS),
                terminated=torch.full((ENVS,), last),
                next_value=torch.zeros(ENVS),
            )
            if t:
                self.rollout["next_value"][t - 1] = acted.value
        return float(named.mean())

    def learn_(self) -> dict[str, float]:
        compute_targets_(PPO, self.config, self.learner, self.rollout)
        for number in range(self.config.epochs * self.config.minibatches):
            self.update_(number)
        update_running_stats_(self.learner.statistics, self.rollout["obs"])
        return read_learner_(self.learner, PPO.metrics)


def observation(cue: Tensor, t: int) -> Tensor:
    shown = torch.nn.functional.one_hot(cue, 2) * (t == 0)
    return torch.cat([shown.float(), torch.full((len(cue), 1), t / STEPS)], dim=1)


def legality(*, last: bool) -> Tensor:
    operation = torch.tensor([not last, last])
    first, second = torch.tensor([[False] * 2, [last] * 2]), torch.zeros(2, 3, dtype=torch.bool)
    return torch.cat([operation, first.flatten(), second.flatten()]).expand(ENVS, -1)


def named_after(rounds: int, task: Task, **how: float) -> float:
    """The share of cues that the task's policy names after some rounds."""
    for _ in range(rounds):
        task.play_(**how)
        task.learn_()
    return sum(task.play_() for _ in range(4)) / 4


def test_it_learns_to_remember() -> None:
    """By chance .5 of the cues are named."""
    assert named_after(18, Task(seed=0)) > 0.9


def test_without_memory_the_cue_cannot_be_named() -> None:
    """So that the test above is one of the memory."""
    task = Task(seed=0)
    for _ in range(10):
        task.play_(remembers=False)
        task.learn_()
    assert sum(task.play_(remembers=False) for _ in range(8)) / 8 < 0.65


def test_nothing_is_learned_where_all_rewards_are_equal() -> None:
    assert named_after(10, Task(seed=0), paid=0.0) < 0.65


def test_without_advantage_the_policy_stays_and_the_critic_learns() -> None:
    """An advantage of 0 and no weight on entropy leave exactly the gradient of the critic's loss."""
    task = Task(seed=0, config=replace(CONFIG, entropy_weight=0.0))
    task.play_()
    compute_targets_(PPO, task.config, task.learner, task.rollout)
    task.rollout["advantage"].zero_()
    task.update_(0)
    grads = views(task.learner.adam.grad, POLICY.layout)
    assert grads["action.weight"].abs().max() == 0
    assert grads["action.bias"].abs().max() == 0
    assert grads["value.weight"].abs().max() > 0


def test_the_policy_that_acted_is_the_one_that_learns() -> None:
    """Step by step and episode by episode give the same log-probabilities, so the first ratios are 1."""
    task = Task(seed=0)
    task.play_()
    task.learn_()  # the statistics have been filled, the weights are others
    task.play_()
    compute_targets_(PPO, task.config, task.learner, task.rollout)
    task.update_(0)
    told = read_learner_(task.learner, PPO.metrics)
    assert told["train/kl"] == pytest.approx(0, abs=1e-9)


def test_assessment_has_mean_0_and_deviation_1_and_returns_that_telescope() -> None:
    """The only reward is the last step's: with lam = 1 the return is gamma ** (steps to go) times it."""
    task = Task(seed=1, config=replace(CONFIG, gamma=0.5, lam=1.0))
    task.play_()
    compute_targets_(PPO, task.config, task.learner, task.rollout)
    last = task.rollout["reward"][-1]
    for t in range(STEPS):
        torch.testing.assert_close(task.rollout["returns"][t], last * 0.5 ** (STEPS - 1 - t), rtol=0, atol=1e-6)
    advantage = task.rollout["advantage"]
    assert advantage.mean().abs() < 1e-6
    assert advantage.std(correction=0) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.1, 1.5])
def test_a_ratio_beyond_the_clip_no_longer_pulls(ratio: float, advantage: float) -> None:
    """min(ratio A, clipped ratio A) is flat above 1.2 for a gain and below 0.8 for a loss, and steep elsewhere."""
    log_ratio = torch.tensor([ratio]).log().requires_grad_()
    (slope,) = torch.autograd.grad(clipped_loss(log_ratio, torch.tensor([advantage]), 0.2), log_ratio)
    flat = (ratio > 1.2 and advantage > 0) or (ratio < 0.8 and advantage < 0)
    assert float(slope) == pytest.approx(0.0 if flat else -advantage * ratio, abs=1e-6)


def test_each_epoch_learns_from_every_environment_once() -> None:
    task = Task(seed=0)
    task.play_()
    compute_targets_(PPO, task.config, task.learner, task.rollout)
    orders = []
    for number in range(4):
        task.update_(number)
        orders.append(task.learner.order.tolist())
    assert orders[0] == orders[1] != orders[2] == orders[3]
    assert sorted(orders[0]) == sorted(orders[2]) == list(range(ENVS))


def test_each_minibatch_is_a_part_of_its_own() -> None:
    """One environment's returns are poisoned: of the two updates of each epoch, one is left out."""
    task = Task(seed=0)
    task.play_()
    compute_targets_(PPO, task.config, task.learner, task.rollout)
    task.rollout["returns"][:, 5] = torch.nan
    skipped = []
    for epoch in range(3):
        task.update_(2 * epoch)
        task.update_(2 * epoch + 1)
        skipped.append(read_learner_(task.learner, PPO.metrics)["train/skipped"])
    assert skipped == [1, 1, 1]


def test_minibatches_must_divide_the_environments() -> None:
    with pytest.raises(ConfigError, match=r"learner\.minibatches = 5: .*32"):
        Task(seed=0, config=replace(CONFIG, minibatches=5))


def test_the_learning_rate_falls_from_round_to_round_to_a_tenth() -> None:
    """Adam's first step is the learning rate for each weight with a gradient, so a gradient of signs shows it."""
    task = Task(seed=0, config=replace(CONFIG, cooling=4, grad_clip=0.0))
    a_round = CONFIG.epochs * CONFIG.minibatches
    task.play_()
    compute_targets_(PPO, task.config, task.learner, task.rollout)
    moved = []
    for updates in (0, a_round - 1, a_round, 2 * a_round, 4 * a_round, 9 * a_round):
        task.learner.updates = updates
        for moments in (task.learner.adam.exp_avg, task.learner.adam.exp_avg_sq, task.learner.adam.steps):
            moments.zero_()
        before = task.learner.block.clone()
        task.update_(0)
        moved.append(float((task.learner.block - before).abs().max()) / CONFIG.lr)
    assert moved == pytest.approx([1, 1, 0.775, 0.55, 0.1, 0.1], rel=1e-2)


def test_a_gradient_that_is_not_finite_is_left_out() -> None:
    task = Task(seed=0)
    task.play_()
    compute_targets_(PPO, task.config, task.learner, task.rollout)
    task.rollout["returns"][0] = torch.nan
    before = task.learner.block.clone()
    task.update_(0)
    assert torch.equal(task.learner.block, before)
    assert read_learner_(task.learner, PPO.metrics)["train/skipped"] == 1


def test_one_seed_gives_one_run_in_storage_that_never_moves() -> None:
    runs = [Task(seed=3), Task(seed=3), Task(seed=4)]
    homes = [pointers(task) for task in runs]
    told = []
    for task in runs:
        for _ in range(3):
            task.play_()
            numbers = task.learn_()
        told.append(numbers)
    assert told[0] == told[1] != told[2]
    assert torch.equal(runs[0].learner.block, runs[1].learner.block)
    assert torch.equal(runs[0].rollout["obs"], runs[1].rollout["obs"])
    assert [pointers(task) for task in runs] == homes


def pointers(task: Task) -> list[int]:
    values = [leaf.value for part in (task.learner, task.rollout) for leaf in leaves(part)]
    return [value.data_ptr() for value in values if isinstance(value, torch.Tensor)]


def test_nothing_to_tell_before_the_first_update() -> None:
    assert read_learner_(Task(seed=0).learner, PPO.metrics) == {}


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("gamma", 1.1),
        ("lam", -0.1),
        ("clip", 0.0),
        ("value_clip", -0.1),
        ("lr", 0.0),
        ("cooling", -1),
        ("epochs", 0),
        ("minibatches", 0),
        ("grad_clip", -1.0),
        ("value_weight", -1.0),
        ("entropy_weight", -1.0),
    ],
)
def test_settings_out_of_range_are_named(field: str, wrong: float) -> None:
    with pytest.raises(ConfigError, match=f"learner.{field} = {wrong}"):
        EpisodeConfig(**{field: wrong})
