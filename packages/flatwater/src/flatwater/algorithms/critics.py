"""Members with critics, and the critics' loss and gradients, which DDPG, TD3 and SAC share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.adam import Adam
from flatwater.algorithms.api import Members, Networks, Setting, as_leaves, autocast, gradients
from flatwater.algorithms.config import AlgorithmConfig
from flatwater.algorithms.update import Part, StageResult
from flatwater.nets.stack import Params
from flatwater.replay.batch import Batch
from flatwater.state.tree import state


@state
class CriticMembers(Members):
    """Actors with critics, and target networks that follow the critics slowly."""

    critics: list[Float[Tensor, "P+x m"]]
    critic_targets: list[Float[Tensor, "P+x m"]]
    critic_adams: list[Adam]

    @property
    def trained(self) -> dict[str, tuple[Float[Tensor, "P+x n"], Adam]]:
        """Rows that a gradient moves, and their optimiser, by name."""
        return self.actor_and_critics

    @property
    def actor_and_critics(self) -> dict[str, tuple[Float[Tensor, "P+x n"], Adam]]:
        """Rows of actor and critics, and their optimisers, by name."""
        critics = zip(self.critics, self.critic_adams, strict=True)
        return {"actor": (self.actor, self.actor_adam)} | {f"critic {n}": pair for n, pair in enumerate(critics)}

    @property
    def targets(self) -> list[tuple[Float[Tensor, "P+x n"], Float[Tensor, "P+x n"]]]:
        """Targets of the critics, each with the rows that it follows."""
        return [*zip(self.critic_targets, self.critics, strict=True)]


def build_critics(nets: Networks, setting: Setting, count: int) -> dict[str, Any]:
    """Return the fields of `CriticMembers` by name, for `count` critics of each member.

    Critics have initial weights, their targets are copies of them, and moments are 0.
    """
    layout = nets.critic.layout
    critics = [setting.rows(f"critic {n}", layout) for n in range(count)]
    return {
        "critics": critics,
        "critic_targets": [block.clone() for block in critics],
        "critic_adams": [setting.adam(layout.size) for _ in critics],
    }


def critic_parts(nets: Networks, members: CriticMembers, lr: float) -> Mapping[str, Part]:
    """Return how a `Stage` trains the critics, by name; `lr` is the learning rate of each."""
    part = Part(nets.critic.layout, lr, "critic_grad_norm")
    return {f"critic {n}": part for n in range(len(members.critics))}


@dataclass(frozen=True)
class CriticWeights:
    """The weights of some members' networks, as views of their rows, which stay valid as no storage ever moves."""

    actor: Params
    critics: Sequence[Params]
    critic_targets: Sequence[Params]


def critic_loss(td_error: Float[Tensor, "p B"], weight: Float[Tensor, "p B"] | None) -> Float[Tensor, "p"]:
    """Return the mean squared TD error of each member; `weight` corrects a prioritised draw (Schaul et al. 2016)."""
    squares = td_error.square()
    return (squares if weight is None else weight * squares).mean(1)


def smallest_value(values: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return the elementwise minimum of the critics' values, which may be bfloat16, in the precision `dtype`."""
    smallest = values[0].to(dtype)
    for value in values[1:]:
        smallest = torch.minimum(smallest, value.to(dtype))
    return smallest


def regression_gradients(
    config: AlgorithmConfig, nets: Networks, weights: CriticWeights, batch: Batch, target: Float[Tensor, "p B"]
) -> StageResult:
    """Return each critic's gradients of its squared error to the target values.

    Args:
        config: precision and number of micro-batches, by which gradients are divided.
        nets: networks of actor and critic.
        weights: weights of p members.
        batch: B transitions for each of them.
        target: the value that each critic should give for each observation and action.

    Returns:
        gradients by critic; as sums each critic's loss, and the first critic's mean value `q`; as errors the first
        critic's absolute TD errors.
    """
    grads, sums, first_value = {}, [], None
    for n, critic in enumerate(weights.critics):
        params = as_leaves(critic)
        with autocast(config, batch.reward.device):
            value = nets.critic(params, batch.obs, batch.action)
        value = value.to(batch.reward.dtype)
        loss = critic_loss(value - target, batch.weight)
        grads[f"critic {n}"] = gradients(loss / config.micro_batches, params)
        sums.append(("critic_loss", loss.detach()))
        if first_value is None:
            first_value = value.detach()
    assert first_value is not None  # noqa: S101  (for the type checker: there is a critic)
    return StageResult(grads, [*sums, ("q", first_value.mean(1))], error=(first_value - target).abs())
