"""On-policy algorithms of one's own, whole: REINFORCE with a critic, and one that has targets too."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from flatwater.algorithms import OnPolicyAlgorithm, OnPolicySettings, masked_mean
from flatwater.config import Rate, Share, Weight, config
from flatwater.nets.actions import Distribution


@config(table="learner.own")
class ReinforceConfig(OnPolicySettings):
    """REINFORCE, with a critic as its baseline."""

    lam: Share = 1.0
    lr: Rate = 1e-2
    critic: Weight = 0.05
    """Weight of the critic's squared error."""


def loss(
    settings: ReinforceConfig, policy: Distribution, value: Tensor, batch: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Log-probabilities weighted by advantages, and the critic's error."""
    policy_loss = -masked_mean(policy.log_prob(batch["action"]) * batch["advantage"], batch["alive"])
    critic_loss = masked_mean((value - batch["returns"]).square(), batch["alive"])
    return {"loss": policy_loss + settings.critic * critic_loss, "policy_loss": policy_loss, "critic_loss": critic_loss}


def targets(_settings: ReinforceConfig, block: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Rewards of the step alone, less their mean."""
    reward = block["reward"]
    return reward - reward.mean(), reward


def distance(
    _settings: ReinforceConfig, policy: Distribution, _value: Tensor, batch: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """How far the log-probabilities have moved."""
    with torch.no_grad():
        return {"moved": (policy.log_prob(batch["action"]) - batch["log_prob"]).abs().mean()}


REINFORCE = OnPolicyAlgorithm(loss, metrics=("policy_loss", "critic_loss"), settings=ReinforceConfig)
GREEDY = replace(REINFORCE, targets=targets, numbers=distance)
