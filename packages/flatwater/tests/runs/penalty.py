"""An on-policy algorithm with a state: a penalty whose weight adapts to the divergence, and a scale of rewards."""

from collections.abc import Mapping

import torch
from torch import Tensor

from flatwater.algorithms import OnPolicyAlgorithm, OnPolicySettings, estimate_targets, masked_mean
from flatwater.config import Count, Weight, config
from flatwater.nets.actions import Distribution


@config(table="learner.own")
class PenaltyConfig(OnPolicySettings):
    """Settings of the penalty."""

    epochs: Count = 2
    minibatches: Count = 2
    kl_target: Weight = 0.01
    """Divergence that the weight of the penalty aims at."""


def loss(
    _settings: PenaltyConfig, policy: Distribution, value: Tensor, batch: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the loss with its penalty, and the divergence."""
    steps, log_ratio = batch["alive"], policy.log_prob(batch["action"]) - batch["log_prob"]
    kl = masked_mean(log_ratio.expm1() - log_ratio, steps)
    policy_loss = -masked_mean(log_ratio.exp() * batch["advantage"], steps)
    critic_loss = masked_mean((value - batch["returns"]).square(), steps)
    return {"loss": policy_loss + batch["penalty"] * kl + critic_loss, "kl": kl}


def targets(settings: PenaltyConfig, block: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the targets of scaled rewards."""
    return estimate_targets(settings, {**block, "reward": block["reward"] / (1 + block["scale"].mean())})


def state(_settings: PenaltyConfig) -> dict[str, Tensor]:
    """Return the first weight and the first scale."""
    return {"penalty": torch.tensor(1.0), "scale": torch.zeros(2)}


def next_state(
    settings: PenaltyConfig, state: Mapping[str, Tensor], block: Mapping[str, Tensor], means: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return a weight twice or half as large, and the scale half way to the size of the block's returns."""
    factor = torch.where(means["kl"] > settings.kl_target, 2.0, 0.5)
    size = block["returns"].abs().mean()
    return {"penalty": state["penalty"] * factor, "scale": 0.5 * state["scale"] + 0.5 * size}


PENALTY = OnPolicyAlgorithm(loss, targets, metrics=("kl",), settings=PenaltyConfig, state=state, next_state=next_state)
