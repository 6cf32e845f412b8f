"""Learning from a teacher: cross-entropy and a critic first, PPO after the hand-over; one loss with three weights.

A sequence is some steps of one agent in a block, from the memory that it had before the first of them. The gradient is
cut there: nothing of an earlier step's graph is kept.

Axes: T steps of a block, B agents of all environments, C sequences of U steps in a block, R actions, M cells.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Adam, build_adam
from flatwater.learners.losses import clipped_loss, clipped_value_loss
from flatwater.learners.ppo import DEVIATION_EPSILON
from flatwater.learners.returns import gae
from flatwater.learners.sequences import Weights, bind_update, read_sums_
from flatwater.learners.teaching_config import TeachingConfig
from flatwater.nets.heads import judge, sample
from flatwater.nets.policy import Outlook
from flatwater.nets.stack import init_, views
from flatwater.nets.student import Student
from flatwater.rollouts.block import Column, Rollout
from flatwater.state.tree import state

METRICS = (
    "imitation_loss", "agreement", "policy_loss", "value_loss", "entropy", "kl", "grad_norm", "skipped",
)  # fmt: skip
"""Rows of the sums: agreement is the share of steps on which the student's likeliest action is the teacher's; kl
estimates the divergence from the student that acted by E[ratio - 1 - log ratio]."""


@state
class StudentLearner:
    """Network, moments and counters. Allocated whole by `build_student`; updates write in place."""

    block: Float[Tensor, "1 n"]
    """The student's weights: a population of one."""
    adam: Adam
    order: Int[Tensor, "C*B"]
    """The sequences, as they are dealt into this epoch's minibatches."""
    rng: torch.Generator
    """Initial weights, then the order."""
    sums: Float[Tensor, "S"]
    """Summed over updates since they were last read; rows as in METRICS."""
    updates: int = 0
    """Updates since the run began."""
    updates_read: int = 0
    """`updates` when the sums were last read."""


def build_student(student: Student, *, sequences: int, rng: torch.Generator, device: torch.device) -> StudentLearner:
    """Initial weights and moments of zero. On the meta device this is the plan.

    Args:
        student: its layout is what is allocated.
        sequences: of a block, C times B.
        rng: a generator on the device.
        device: where the network lies.
    """
    block = torch.empty(1, student.layout.size, device=device).fill_(0)
    init_(block, student.layout, rng)
    return StudentLearner(
        block=block,
        adam=build_adam(1, student.layout.size, block.dtype, device),
        order=torch.arange(sequences).to(device),  # on the meta device `arange` would import the compiler
        rng=rng,
        sums=torch.empty(len(METRICS), device=device).fill_(0),
    )


def teaching_columns() -> dict[str, Column]:
    """What a rollout keeps of each step besides `obs`, `reward`, `terminated` and `truncated`, which the world writes.

    The last two are written by `assess_`.
    """
    return {
        "taught": Column((), torch.int64),  # what the teacher would do
        "action": Column((), torch.int64),  # what was executed
        "led": Column((), torch.bool),  # by the teacher
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
    learner: StudentLearner,
    *,
    obs: Tensor,
    memory: Float[Tensor, "2 B M"],
    starts: Bool[Tensor, "B"],
) -> Outlook:
    """What the student makes of one observation of each agent, [B, *obs], after what it remembers."""
    weights = {name: view[0] for name, view in views(learner.block, student.layout).items()}
    return student(weights, obs.unsqueeze(0), memory, starts.unsqueeze(0))


@dataclass(frozen=True)
class Choice:
    """What an agent might do, drawn from the student."""

    action: Int[Tensor, "B"]
    log_probs: Float[Tensor, "B R"]
    """Of all actions: which one is executed is decided later."""


def choose(student: Student, seen: Outlook, rng: torch.Generator) -> Choice:
    """Draw an action for each agent."""
    logits = seen.logits[0]
    legal = torch.ones_like(logits, dtype=torch.bool)
    action = sample(student.policy.heads, logits, legal, rng)
    return Choice(action.squeeze(-1), logits.log_softmax(-1))


def assess_(rollout: Rollout, config: TeachingConfig) -> None:
    """Write the returns, and the advantages, with mean 0 and deviation 1 over the steps that the student chose."""
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
    own = rollout["alive"] & ~rollout["led"]
    count = own.sum().clamp(min=1)
    mean = (estimated * own).sum() / count
    deviation = (((estimated - mean) * own).square().sum() / count).sqrt()
    torch.div(estimated - mean, deviation + DEVIATION_EPSILON, out=advantage)


@dataclass
class Weighing:
    """The weights of the loss's parts, as of this round."""

    supervision: float
    reinforcement: float


def make_update(
    config: TeachingConfig,
    student: Student,
    learner: StudentLearner,
    *,
    rollout: Rollout,
    begun: Float[Tensor, "C 2 B M"],
    weighing: Callable[[], Weighing],
) -> Callable[[int], None]:
    """Bind an update to the learner's storage; what it returns is that of `bind_update`.

    Args:
        config: how it learns.
        student: the network.
        learner: its weights.
        rollout: a block that `assess_` has been through.
        begun: memory before the first step of each sequence.
        weighing: of this round.
    """
    agents = begun.shape[2]
    columns = {name: rollout[name].view(-1, config.unroll, *rollout[name].shape[1:]) for name in LEARNED_FROM}

    def loss(weights: Weights, sequences: Int[Tensor, "b"]) -> tuple[Tensor, list[Tensor]]:
        place, agent = sequences // agents, sequences % agents
        there, whose = place.to(rollout["obs"].device), agent.to(rollout["obs"].device)
        batch = {name: column[there, :, whose].transpose(0, 1).to(begun.device) for name, column in columns.items()}
        memory = begun[place, :, agent].transpose(0, 1)
        return teaching_loss(
            config, student, student(weights, batch["obs"], memory, batch["starts"]), batch, weighing()
        )

    return bind_update(config, student.layout, learner, loss)


LEARNED_FROM = (
    "obs", "taught", "action", "led", "alive", "starts", "log_prob", "value", "advantage", "returns",
)  # fmt: skip


def teaching_loss(
    config: TeachingConfig, student: Student, seen: Outlook, batch: Mapping[str, Tensor], weighing: Weighing
) -> tuple[Float[Tensor, ""], list[Tensor]]:
    """The loss, and what METRICS names before the gradient's norm.

    Actions that the teacher led say nothing of the student's policy, so PPO leaves them out; the cross-entropy and the
    critic learn from all steps.
    """
    alive, own = batch["alive"].float(), (batch["alive"] & ~batch["led"]).float()
    imitation = -_at(seen.logits.log_softmax(-1), batch["taught"])
    legal = torch.ones_like(seen.logits, dtype=torch.bool)
    now = judge(student.policy.heads, seen.logits, legal, batch["action"].unsqueeze(-1))
    log_ratio = (now.log_prob - batch["log_prob"]) * own
    policy_loss = _mean(clipped_loss(log_ratio, batch["advantage"], config.clip), own)
    value_loss = _mean(clipped_value_loss(seen.value, batch["value"], batch["returns"], config.value_clip), alive)
    imitation_loss, entropy = _mean(imitation, alive), _mean(now.entropy, alive)
    with torch.no_grad():
        agreement = _mean((seen.logits.argmax(-1) == batch["taught"]).float(), alive)
        kl = _mean(log_ratio.expm1() - log_ratio, own)
        told = [x.detach() for x in (imitation_loss, agreement, policy_loss, value_loss, entropy, kl)]
    reinforced = policy_loss - config.entropy_weight * entropy
    whole = weighing.supervision * imitation_loss + weighing.reinforcement * reinforced
    return whole + config.value_weight * value_loss, told


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    return (values * counted).sum() / counted.sum().clamp(min=1)


def _at(log_p: Float[Tensor, "*N R"], action: Int[Tensor, "*N"]) -> Float[Tensor, "*N"]:
    return log_p.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def read_teaching_(learner: StudentLearner) -> dict[str, float]:
    """What `read_sums_` reads, by METRICS."""
    return read_sums_(learner, METRICS)
