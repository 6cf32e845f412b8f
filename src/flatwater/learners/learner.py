"""What a population of learners keeps: networks, moments and counters, allocated whole and written in place.

The blocks have one row for each member and `extra` rows more, for the champion: those are never trained.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.learners.adam import Adam, build_adam
from flatwater.learners.config import LearnerConfig
from flatwater.learners.gradients import METRICS, SKIPPED
from flatwater.learners.protocols import Actor, Critic
from flatwater.nets.stack import Layout, init_
from flatwater.state.tree import state

CRITICS = {"hindsight": 0, "ddpg": 1, "td3": 2}
"""Critics of an algorithm, each with a target. Without any there is no target of the actor either."""


@state
class Learner:
    """Networks, moments and counters of a population. Allocated whole by `build_learner`; updates write in place."""

    actor: Float[Tensor, "P+x n"]
    actor_targets: list[Float[Tensor, "P+x n"]]
    """One, where there are critics."""
    critics: list[Float[Tensor, "P+x m"]]
    """As many as `CRITICS` says."""
    critic_targets: list[Float[Tensor, "P+x m"]]
    actor_adam: Adam
    critic_adams: list[Adam]
    rng: torch.Generator
    """Initial weights, then TD3's target noise."""
    sums: Float[Tensor, "M P"]
    """Losses, values, norms and skipped steps of each member since they were last read; rows as in METRICS."""
    skipped_total: Int[Tensor, "P"]
    """Steps that each member left out, over all its networks, in the round that was last read."""
    updates: int = 0
    """Updates since the run began."""
    updates_read: int = 0
    """`updates` when the sums were last read."""
    actor_updates: int = 0
    """Updates of the actor since the sums were last read; fewer for TD3."""

    @property
    def blocks(self) -> list[Float[Tensor, "P+x n"]]:
        """The weights of every network."""
        return [self.actor, *self.actor_targets, *self.critics, *self.critic_targets]

    @property
    def adams(self) -> list[Adam]:
        """The optimisers of what is trained."""
        return [self.actor_adam, *self.critic_adams]


def build_learner(
    config: LearnerConfig,
    actor: Actor,
    critic: Critic,
    *,
    members: int,
    extra: int = 1,
    rng: torch.Generator,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Learner:
    """Initial weights, targets equal to them, and moments of zero. On the meta device this is the plan."""

    def block(layout: Layout) -> Tensor:
        rows = torch.empty(members + extra, layout.size, dtype=dtype, device=device).fill_(0)
        init_(rows, layout, rng)
        return rows

    online = block(actor.layout)
    critics = [block(critic.layout) for _ in range(CRITICS[config.algorithm])]
    return Learner(
        actor=online,
        actor_targets=[online.clone() for _ in critics[:1]],
        critics=critics,
        critic_targets=[rows.clone() for rows in critics],
        actor_adam=build_adam(members, actor.layout.size, dtype, device),
        critic_adams=[build_adam(members, critic.layout.size, dtype, device) for _ in critics],
        rng=rng,
        sums=torch.empty(len(METRICS), members, dtype=dtype, device=device).fill_(0),
        skipped_total=torch.empty(members, dtype=torch.int64, device=device).fill_(0),
    )


def read_losses_(learner: Learner) -> dict[str, float]:
    """Means over members and updates since the last reading, by metric name; then the sums start again from zero.

    The one place where a learner waits for its device: once a round. Empty where there was no update.
    """
    updates, actor_updates = learner.updates - learner.updates_read, learner.actor_updates
    learner.updates_read, learner.actor_updates = learner.updates, 0
    learner.skipped_total.copy_(learner.sums[SKIPPED].nan_to_num())
    # A copy also where the learner is on the CPU: the sums are zeroed before it is read.
    means = dict(zip(METRICS, learner.sums.to("cpu", torch.float64, copy=True), strict=True))
    learner.sums.zero_()
    if not updates:
        return {}
    losses = {"train/skipped": means["skipped"].sum()}
    if critic_steps := updates * len(learner.critics):
        losses["train/critic_loss"] = means["critic_loss"].mean() / critic_steps
        losses["train/q"] = means["q"].mean() / updates
        losses["train/critic_grad_norm"] = means["critic_grad_norm"].mean() / critic_steps
    if actor_updates:
        losses["train/actor_loss"] = means["actor_loss"].mean() / actor_updates
        losses["train/actor_grad_norm"] = means["actor_grad_norm"].mean() / actor_updates
    return {name: float(value) for name, value in losses.items()}
