"""Proximal policy optimisation of a recurrent policy on whole episodes, in place.

An episode is one sequence: it starts with empty memory and is never cut, so a gradient flows through all of it, and a
minibatch is a part of the environments. The critic's loss is not clipped as the policy's is: that makes it depend on
the scale of rewards, and in the large comparison of Andrychowicz et al. 2021 it did not help.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Adam, build_adam
from flatwater.learners.losses import clipped_loss
from flatwater.learners.ppo_config import PPOConfig
from flatwater.learners.returns import gae
from flatwater.learners.sequences import bind_update, read_sums_
from flatwater.nets.actions import Operations
from flatwater.nets.policy import Normaliser, RecurrentPolicy, Weights, build_normaliser, normalise
from flatwater.nets.stack import init_
from flatwater.rollouts.block import Column, Rollout
from flatwater.state.tree import state

METRICS = ("policy_loss", "value_loss", "entropy", "kl", "clipped", "grad_norm", "skipped")
"""Rows of the sums: kl estimates the divergence from the policy that acted by E[ratio - 1 - log ratio]; clipped is the
share of actions whose ratio lies outside of the clip."""
DEVIATION_EPSILON = 1e-8
"""Added to the deviation of advantages: where all are equal, there is nothing to learn, and nothing is learned."""


@state
class PPOLearner:
    """Network, moments and counters. Allocated whole by `build_ppo`; updates write in place."""

    block: Float[Tensor, "1 n"]
    """The policy's weights: a population of one."""
    adam: Adam
    normaliser: Normaliser
    order: Int[Tensor, "B"]
    """The environments, as they are dealt into this epoch's minibatches."""
    rng: torch.Generator
    """Initial weights, then the order."""
    sums: Float[Tensor, "S"]
    """Summed over updates since they were last read; rows as in METRICS."""
    updates: int = 0
    """Updates since the run began."""
    updates_read: int = 0
    """`updates` when the sums were last read."""


def build_ppo(policy: RecurrentPolicy, *, envs: int, rng: torch.Generator, device: torch.device) -> PPOLearner:
    """Initial weights and moments of zero. On the meta device this is the plan."""
    block = torch.empty(1, policy.layout.size, device=device).fill_(0)
    init_(block, policy.layout, rng)
    return PPOLearner(
        block=block,
        adam=build_adam(1, policy.layout.size, block.dtype, device),
        normaliser=build_normaliser(policy.obs, device),
        order=torch.arange(envs).to(device),  # on the meta device `arange` would import the compiler
        rng=rng,
        sums=torch.empty(len(METRICS), device=device).fill_(0),
    )


def ppo_columns(policy: RecurrentPolicy, actions: Operations) -> dict[str, Column]:
    """What a rollout keeps of each step: the collector writes all but the last two."""
    return {
        "obs": Column((policy.obs,)),
        "legal": Column((actions.outputs,), torch.bool),
        "action": Column((1 + len(actions.choices),), torch.int64),
        "log_prob": Column(),
        "value": Column(),
        "reward": Column(),
        "discount": Column(),
        "next_value": Column(),
        "continues": Column((), torch.bool),
        "advantage": Column(),
        "returns": Column(),
    }


@dataclass(frozen=True)
class Acted:
    """One step of the policy."""

    action: Int[Tensor, "B A"]
    log_prob: Float[Tensor, "B"]
    value: Float[Tensor, "B"]
    memory: Float[Tensor, "2 B M"]
    """After the step."""


@torch.no_grad()
def act(
    policy: RecurrentPolicy,
    actions: Operations,
    learner: PPOLearner,
    *,
    obs: Float[Tensor, "B O"],
    legal: Bool[Tensor, "B R"],
    memory: Float[Tensor, "2 B M"],
    rng: torch.Generator | None,
) -> Acted:
    """Draw an action on each observation, after what is remembered; without a generator, take the likeliest."""
    seen = policy(policy.weights(learner.block), normalise(learner.normaliser, obs).unsqueeze(0), memory)
    given = actions.given(seen.logits[0], legal)
    if rng is None:
        action = given.likeliest()
    else:
        action = given.draw(actions.noise_(obs.new_empty(len(obs), actions.noise), rng))
    return Acted(action, given.log_prob(action), seen.value[0], seen.memory)


def assess_(rollout: Rollout, config: PPOConfig) -> None:
    """Write the returns, and the advantages with mean 0 and deviation 1 over the whole block.

    Over the block and not over each minibatch: a few episodes are too few to take a deviation from.
    """
    columns = {name: rollout[name] for name in ("reward", "discount", "value", "next_value", "continues")}
    rollout["advantage"].copy_(gae(**columns, lam=config.lam))
    torch.add(rollout["advantage"], rollout["value"], out=rollout["returns"])
    deviation, mean = torch.std_mean(rollout["advantage"], correction=0)
    rollout["advantage"].sub_(mean).div_(deviation + DEVIATION_EPSILON)


def make_update(
    config: PPOConfig, policy: RecurrentPolicy, actions: Operations, learner: PPOLearner, rollout: Rollout
) -> Callable[[int], None]:
    """Bind an update to the learner's storage.

    Returns:
        `update_(number)` learns from minibatch `number % minibatches` of the rollout, which `assess_` has been through;
        the first of an epoch deals the environments anew. It does not wait for the device.
    """

    def loss(weights: Weights, columns: Mapping[str, Tensor], envs: Int[Tensor, "b"]) -> tuple[Tensor, list[Tensor]]:
        batch = {name: column.index_select(1, envs) for name, column in columns.items()}
        return _loss(config, policy, actions, weights, normalise(learner.normaliser, batch["obs"]), batch)

    return bind_update(config, policy.layout, learner, loss, {name: rollout[name] for name in LEARNED_FROM})


LEARNED_FROM = ("obs", "legal", "action", "log_prob", "advantage", "returns")


def _loss(  # noqa: PLR0917  (a loss reads them all)
    config: PPOConfig,
    policy: RecurrentPolicy,
    actions: Operations,
    weights: Weights,
    obs: Float[Tensor, "T b O"],
    batch: Mapping[str, Tensor],
) -> tuple[Float[Tensor, ""], list[Tensor]]:
    """The loss, and what METRICS names before the gradient's norm."""
    empty = obs.new_zeros(2, obs.shape[1], policy.cells)
    seen = policy(weights, obs, empty)
    now = actions.given(seen.logits, batch["legal"])
    log_ratio = now.log_prob(batch["action"]) - batch["log_prob"]
    policy_loss = clipped_loss(log_ratio, batch["advantage"], config.clip).mean()
    value_loss = (seen.value - batch["returns"]).square().mean()
    entropy = now.entropy().mean()
    with torch.no_grad():
        kl = (log_ratio.expm1() - log_ratio).mean()
        clipped = (log_ratio.exp() - 1).abs().gt(config.clip).float().mean()
        told = [policy_loss.detach(), value_loss.detach(), entropy.detach(), kl, clipped]
    return policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy, told


def read_ppo_(learner: PPOLearner) -> dict[str, float]:
    """What `read_sums_` reads, by METRICS."""
    return read_sums_(learner, METRICS)
