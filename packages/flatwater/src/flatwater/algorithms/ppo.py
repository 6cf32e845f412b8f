"""Proximal policy optimisation (Schulman et al. 2017), with a teacher or without: `grow`, `ppo` and `teach`.

It is an `OnPolicyAlgorithm`: the loss of a minibatch, with the targets that all such algorithms have by default. A
teacher adds the cross-entropy on its actions to the loss. Everything else (collecting a block, minibatches, the
optimiser) is in `learner.py` and `on_policy.py`.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.on_policy_algorithm import OnPolicyAlgorithm
from flatwater.algorithms.on_policy_config import PPOConfig
from flatwater.algorithms.returns import clipped_loss, clipped_value_loss, masked_mean, policy_steps
from flatwater.nets.actions import Distribution


def ppo_loss(
    settings: PPOConfig, policy: Distribution, value: Float[Tensor, "U b"], batch: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return a minibatch's loss, and its metrics: of the policy, the critic, the entropy and the divergence `kl`.

    The loss is PPO's clipped loss, less the weighted entropy, plus the weighted value loss; a teacher adds the
    cross-entropy to its actions. Policy loss and `kl` leave out steps that the teacher led; all other terms have them.

    Args:
        settings: clip range and weights of entropy and value.
        policy: the distribution of actions at each step.
        value: the critic's values.
        batch: columns [U, b, ...] of U steps of b sequences; 0-d, the weights of imitation and reinforcement if there
            is a teacher, and scheduled settings.
    """
    alive = batch["alive"].float()  # 1 where the agent was in its episode
    policy_mask = policy_steps(batch).float()  # 1 where, in addition, the teacher did not lead it
    log_ratio = (policy.log_prob(batch["action"]) - batch["log_prob"]) * policy_mask
    # In the batch if they have a schedule.
    clip = batch.get("clip", settings.clip)
    entropy_weight = batch.get("entropy_weight", settings.entropy_weight)
    policy_loss = masked_mean(clipped_loss(log_ratio, batch["advantage"], clip), policy_mask)
    value_loss = masked_mean(_value_loss(settings, value, batch), alive)
    entropy = masked_mean(policy.entropy(), alive)
    with torch.no_grad():
        # E[r - 1 - log r] is never negative, unlike samples of -log r (Schulman 2020, "Approximating KL Divergence").
        kl = masked_mean(log_ratio.expm1() - log_ratio, policy_mask)
    metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "kl": kl}
    total = policy_loss - entropy_weight * entropy
    if "taught" in batch:  # the actions of a teacher
        imitation_loss = masked_mean(-policy.log_prob(batch["taught"]), alive)
        agreement = masked_mean((policy.mode() == batch["taught"]).float(), alive)
        total = batch["supervision"] * imitation_loss + batch["reinforcement"] * total
        metrics |= {"imitation_loss": imitation_loss, "agreement": agreement}
    return {"loss": total + settings.value_weight * value_loss} | metrics


def _value_loss(settings: PPOConfig, value: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Return half of each step's squared value error; with `value_clip`, of the clipped error if that is larger."""
    if settings.value_clip:
        return clipped_value_loss(value, batch["value"], batch["returns"], settings.value_clip)
    return (value - batch["returns"]).square() / 2


def clip_fraction(
    settings: PPOConfig, policy: Distribution, _value: Tensor, batch: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the share of a minibatch's actions whose ratio of probabilities has left the clip range."""
    policy_mask = policy_steps(batch)
    ratio_change = (policy.log_prob(batch["action"]) - batch["log_prob"]).expm1()  # the ratio minus 1
    is_clipped = ratio_change.abs() > batch.get("clip", settings.clip)
    return {"clip_fraction": (is_clipped & policy_mask).sum() / policy_mask.sum().clamp(min=1)}


METRICS = ("policy_loss", "value_loss", "entropy", "kl")
"""Metrics of all runs: kl estimates the divergence from the policy that acted by E[ratio - 1 - log ratio]."""
TEACHER_METRICS = ("imitation_loss", "agreement")
"""Metrics with a teacher: agreement is the share of steps on which the policy's likeliest action is the teacher's."""
PPO = OnPolicyAlgorithm(ppo_loss, metrics=METRICS, numbers=clip_fraction, settings=PPOConfig)
TAUGHT_PPO = OnPolicyAlgorithm(
    ppo_loss, metrics=(*TEACHER_METRICS, *METRICS), numbers=clip_fraction, settings=PPOConfig
)
"""PPO with a teacher."""
