"""PPO on blocks of steps, with a teacher or without: a teacher adds the cross-entropy on its actions to the loss.

A sequence is some steps of one agent in a block, from the memory that it had before the first of them. The gradient is
cut there: nothing of an earlier step's graph is kept. A policy without a memory learns from sequences of one step.

Axes: T steps of a block, B agents of all environments, C sequences of U steps in a block, R numbers that say what to
do, M cells.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Adam, build_adam
from flatwater.learners.blocks_config import BlockConfig
from flatwater.learners.graph import as_graph
from flatwater.learners.losses import clipped_loss, clipped_value_loss
from flatwater.learners.ppo import DEVIATION_EPSILON
from flatwater.learners.returns import gae
from flatwater.learners.sequences import Weights, bind_update, read_sums_
from flatwater.nets.policy import Outlook
from flatwater.nets.stack import init_, views
from flatwater.nets.student import Student
from flatwater.rollouts.block import Column, Rollout
from flatwater.state.tree import state

TEACHING = ("imitation_loss", "agreement")
"""Rows of the sums that a teacher adds: agreement is the share of steps on which the policy's likeliest action is the
teacher's."""
METRICS = ("policy_loss", "value_loss", "entropy", "kl", "grad_norm", "skipped")
"""The other rows: kl estimates the divergence from the policy that acted by E[ratio - 1 - log ratio]."""


@state
class BlockLearner:
    """Network, moments and counters. Allocated whole by `build_learner`; updates write in place."""

    block: Float[Tensor, "1 n"]
    """The policy's weights: a population of one."""
    adam: Adam
    order: Int[Tensor, "C*B"]
    """The sequences, as they are dealt into this epoch's minibatches."""
    rng: torch.Generator
    """Initial weights, then the order."""
    sums: Float[Tensor, "S"]
    """Summed over updates since they were last read; rows as in METRICS, after TEACHING where there is a teacher."""
    updates: int = 0
    """Updates since the run began."""
    updates_read: int = 0
    """`updates` when the sums were last read."""


def build_learner(
    student: Student, *, sequences: int, rng: torch.Generator, device: torch.device, taught: bool = True
) -> BlockLearner:
    """Initial weights and moments of zero. On the meta device this is the plan.

    Args:
        student: its layout is what is allocated.
        sequences: of a block, C times B.
        rng: a generator on the device.
        device: where the network lies.
        taught: whether there is a teacher.
    """
    block = torch.empty(1, student.layout.size, device=device).fill_(0)
    init_(block, student.layout, rng)
    return BlockLearner(
        block=block,
        adam=build_adam(1, student.layout.size, block.dtype, device),
        order=torch.arange(sequences).to(device),  # on the meta device `arange` would import the compiler
        rng=rng,
        sums=torch.empty(len(metrics_of(taught=taught)), device=device).fill_(0),
    )


def metrics_of(*, taught: bool) -> tuple[str, ...]:
    """Names of the sums' rows."""
    return (*(TEACHING if taught else ()), *METRICS)


def block_columns(action: Column, *, taught: bool) -> dict[str, Column]:
    """What a rollout keeps of each step besides `obs`, `reward`, `terminated` and `truncated`, which the world writes.

    The last two are written by `assess_`.

    Args:
        action: the form of one.
        taught: whether there is a teacher.
    """
    teacher = {
        "taught": action,  # what the teacher would do
        "led": Column((), torch.bool),  # by the teacher
    }
    return (teacher if taught else {}) | {
        "action": action,  # what was executed
        "alive": Column((), torch.bool),  # the agent was not over before the step
        "starts": Column((), torch.bool),  # an episode began with the step
        "log_prob": Column(),
        "value": Column(),
        "next_value": Column(),
        "advantage": Column(),
        "returns": Column(),
    }


@torch.no_grad()
def look(
    student: Student,
    weights: Weights,
    *,
    obs: Tensor,
    memory: Float[Tensor, "2 B M"],
    starts: Bool[Tensor, "B"],
) -> Outlook:
    """What the policy makes of one observation of each agent, [B, *obs], after what it remembers."""
    return student(weights, obs.unsqueeze(0), memory, starts.unsqueeze(0))


@dataclass(frozen=True)
class Acted:
    """One step of each agent."""

    action: Tensor
    """[B, *action]."""
    memory: Float[Tensor, "2 B M"]
    """After the step."""
    log_prob: Float[Tensor, "B"] | None = None
    """Of the action; None where `judge_` writes it, and the value of what was seen."""
    value: Float[Tensor, "B"] | None = None


def make_act(config: BlockConfig, student: Student, learner: BlockLearner) -> Callable[..., Acted]:
    """Bind a step of each agent to the learner's weights.

    Returns:
        `act(obs, memory, starts, noise, *led)`, of observations [B, *obs], of what was remembered before them
        [2, B, M], of where an episode begins [B], of what the actions' `noise_` drew, and, where there is a teacher, of
        whom it leads [B] and of what it does [B, *action].
    """
    weights = bound_weights(student, learner)

    def step(*given: Tensor) -> tuple[Tensor, ...]:
        obs, memory, starts, noise, *led = given[len(weights) :]
        choice = student.choose(dict(zip(weights, given, strict=False)), obs, memory, starts)
        policy = student.actions.given(choice.logits)
        action = policy.draw(noise)
        if led:
            action = torch.where(led[0], led[1], action)
        judged = () if choice.value is None else (policy.log_prob(action), choice.value)
        return action, choice.memory, *judged

    graph = as_graph(torch.no_grad()(step), wanted=config.compile)

    def act(*given: Tensor) -> Acted:
        action, memory, *judged = graph(*weights.values(), *given)
        return Acted(action, memory, *judged)

    return act


@torch.no_grad()
def judge_(student: Student, weights: Weights, rollout: Rollout, *, memory: Float[Tensor, "2 B M"], parts: int) -> None:
    """Write the log-probabilities and the values of a block of a policy that remembers nothing.

    Args:
        student: the network.
        weights: those that acted.
        rollout: whose `obs` and `action` are written.
        memory: without cells.
        parts: in which it is done, for no more room than an update takes.
    """
    columns = [rollout[name].flatten(0, 1) for name in ("obs", "action", "log_prob", "value")]
    size = len(columns[0]) // parts
    for obs, action, log_prob, value in zip(*(torch.split(column, size) for column in columns), strict=True):
        starts = torch.zeros(len(obs), dtype=torch.bool, device=memory.device)
        of = memory.new_zeros(2, len(obs), 0)
        seen = look(student, weights, obs=obs.to(memory.device), memory=of, starts=starts)
        log_prob.copy_(student.actions.given(seen.logits[0]).log_prob(action.to(memory.device)))
        value.copy_(seen.value[0])


def bound_weights(student: Student, learner: BlockLearner) -> Weights:
    """The policy's weights by name, sharing the block's storage, which never moves."""
    return {name: view[0] for name, view in views(learner.block, student.layout).items()}


def own_steps(columns: Mapping[str, Tensor]) -> Bool[Tensor, "*N"]:
    """The steps that the policy chose: of agents that were in the episode, and not led."""
    return columns["alive"] & ~columns["led"] if "led" in columns else columns["alive"]


def assess_(rollout: Rollout, config: BlockConfig) -> None:
    """Write the returns, and the advantages, with mean 0 and deviation 1 over the steps that the policy chose."""
    value, advantage, terminated = rollout["value"], rollout["advantage"], rollout["terminated"]
    estimated = gae(
        reward=rollout["reward"],
        discount=torch.where(terminated, 0.0, config.gamma),
        value=value,
        next_value=rollout["next_value"],
        continues=~(terminated | rollout["truncated"]),
        lam=config.lam,
    )
    torch.add(estimated, value, out=rollout["returns"])
    own = own_steps(rollout.columns)
    count = own.sum().clamp(min=1)
    mean = (estimated * own).sum() / count
    deviation = (((estimated - mean) * own).square().sum() / count).sqrt()
    torch.div(estimated - mean, deviation + DEVIATION_EPSILON, out=advantage)


@dataclass
class Weighing:
    """The weights of the loss's parts, as of this round: 0-d, where the network is."""

    supervision: Float[Tensor, ""]
    reinforcement: Float[Tensor, ""]


def make_update(
    config: BlockConfig,
    student: Student,
    learner: BlockLearner,
    *,
    rollout: Rollout,
    begun: Float[Tensor, "C 2 B M"],
    weighing: Weighing,
) -> Callable[[int], None]:
    """Bind an update to the learner's storage; what it returns is that of `bind_update`.

    Args:
        config: how it learns.
        student: the network.
        learner: its weights.
        rollout: a block that `assess_` has been through.
        begun: memory before the first step of each sequence.
        weighing: read at each update.
    """
    agents, home = begun.shape[2], rollout["obs"].device
    names = [name for name in LEARNED_FROM if name in rollout.columns]
    reads = {name: rollout[name].flatten(0, 1) for name in names}
    reads |= {"begun": begun, "supervision": weighing.supervision, "reinforcement": weighing.reinforcement}
    steps = torch.arange(config.unroll, device="cpu").to(home).unsqueeze(1) * agents

    def loss(weights: Weights, reads: Mapping[str, Tensor], sequences: Int[Tensor, "b"]) -> tuple[Tensor, list[Tensor]]:
        begun, weighing = reads["begun"], Weighing(reads["supervision"], reads["reinforcement"])
        place, agent = sequences // agents, sequences % agents
        rows = (place * (config.unroll * agents) + agent).to(home) + steps
        batch = {
            name: reads[name].index_select(0, rows.flatten()).view(*rows.shape, *reads[name].shape[1:]).to(begun.device)
            for name in names
        }
        memory = begun[place, :, agent].transpose(0, 1)
        return block_loss(config, student, student(weights, batch["obs"], memory, batch["starts"]), batch, weighing)

    return bind_update(config, student.layout, learner, loss, reads, graph=config.compile)


LEARNED_FROM = (
    "obs", "taught", "action", "led", "alive", "starts", "log_prob", "value", "advantage", "returns",
)  # fmt: skip


def block_loss(
    config: BlockConfig, student: Student, seen: Outlook, batch: Mapping[str, Tensor], weighing: Weighing
) -> tuple[Float[Tensor, ""], list[Tensor]]:
    """The loss, and what `metrics_of` names before the gradient's norm.

    Actions that the teacher led say nothing of the policy, so PPO leaves them out; the cross-entropy and the critic
    learn from all steps.
    """
    alive, own = batch["alive"].float(), own_steps(batch).float()
    now = student.actions.given(seen.logits)
    log_ratio = (now.log_prob(batch["action"]) - batch["log_prob"]) * own
    policy_loss = _mean(clipped_loss(log_ratio, batch["advantage"], config.clip), own)
    value_loss, entropy = _mean(_value_loss(config, seen.value, batch), alive), _mean(now.entropy(), alive)
    with torch.no_grad():
        kl = _mean(log_ratio.expm1() - log_ratio, own)
        told = [x.detach() for x in (policy_loss, value_loss, entropy, kl)]
    reinforced = policy_loss - config.entropy_weight * entropy
    whole = weighing.reinforcement * reinforced
    if "taught" in batch:
        imitation_loss = _mean(-now.log_prob(batch["taught"]), alive)
        agreement = _mean((now.likeliest() == batch["taught"]).float(), alive)
        whole = weighing.supervision * imitation_loss + whole
        told = [imitation_loss.detach(), agreement, *told]
    return whole + config.value_weight * value_loss, told


def _value_loss(config: BlockConfig, value: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    if config.value_clip:
        return clipped_value_loss(value, batch["value"], batch["returns"], config.value_clip)
    return (value - batch["returns"]).square() / 2


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    return (values * counted).sum() / counted.sum().clamp(min=1)


def read_block_(learner: BlockLearner, *, taught: bool) -> dict[str, float]:
    """What `read_sums_` reads, by `metrics_of`."""
    return read_sums_(learner, metrics_of(taught=taught))
