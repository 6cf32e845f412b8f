"""Targets and losses by hand."""

import math

import torch
from populations import settings_of
from torch import Tensor

from flatwater.algorithms.api import Networks
from flatwater.algorithms.critics import critic_loss
from flatwater.algorithms.ddpg import DdpgWeights, critic_target, smooth_action
from flatwater.nets.stack import Params
from flatwater.replay.batch import Batch


def target_of(algorithm: str, *, reward: Tensor, discount: Tensor, values: list[Tensor], gamma: float) -> Tensor:
    """The target where the critics give these values of the next observation and the target actor's action."""

    def actor(_params: Params, obs: Tensor) -> Tensor:
        return torch.zeros(*obs.shape, 1)

    def critic(params: Params, _obs: Tensor, _action: Tensor) -> Tensor:
        return params["value"]

    weights = DdpgWeights(actor={}, actor_target={}, critics=[], critic_targets=[{"value": value} for value in values])
    batch = Batch(obs=reward, action=reward, reward=reward, discount=discount, next_obs=reward)
    config = settings_of({"algorithm": algorithm, "gamma": gamma})
    return critic_target(config, Networks(actor, critic), weights, batch, None)


def test_target_of_a_terminated_a_truncated_and_a_running_transition() -> None:
    """y = r + 0.9 Q' where the episode goes on or was truncated (discount 1), r where it terminated (0)."""
    reward, discount = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]])

    target = target_of("ddpg", reward=reward, discount=discount, values=[torch.full((1, 2), 10.0)], gamma=0.9)

    torch.testing.assert_close(target, torch.tensor([[10.0, 2.0]]))


def test_two_critics_give_the_smaller_target() -> None:
    values = [torch.tensor([[1.0, 5.0]]), torch.tensor([[3.0, 2.0]])]

    target = target_of("td3", reward=torch.zeros(1, 2), discount=torch.ones(1, 2), values=values, gamma=0.5)

    torch.testing.assert_close(target, torch.tensor([[0.5, 1.0]]))


def test_a_loss_is_of_its_member_alone() -> None:
    error = torch.tensor([[1.0, 3.0], [0.0, 2.0]])

    assert critic_loss(error, None).tolist() == [5.0, 2.0]
    assert critic_loss(error, torch.tensor([[1.0, 0.0], [1.0, 0.5]])).tolist() == [0.5, 1.0]


def test_target_smoothing_is_bounded_by_clip_and_by_the_actions_range() -> None:
    action, noise = torch.tensor([0.0, 0.9, -0.9, 0.2]), torch.tensor([3.0, 0.3, -9.0, 0.1])

    torch.testing.assert_close(smooth_action(action, noise, 0.5), torch.tensor([0.5, 1.0, -1.0, 0.3]))
    assert math.isclose(float(smooth_action(torch.zeros(1), torch.full((1,), -0.2), 0.5)), -0.2, rel_tol=1e-6)
