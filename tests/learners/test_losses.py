"""Targets and losses by hand, and their derivatives against torch's."""

import math

import pytest
import torch

from flatwater.learners.losses import actor_loss, actor_slope, critic_loss, critic_slope, smooth, td_target

RNG = torch.Generator().manual_seed(0)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=RNG, dtype=torch.float64)


def test_target_of_a_terminated_a_truncated_and_a_running_transition() -> None:
    """y = r + 0.9 Q' where the episode goes on or was truncated (discount 1), r where it terminated (0)."""
    target = td_target(
        reward=torch.tensor([[1.0, 2.0]]),
        discount=torch.tensor([[1.0, 0.0]]),
        next_values=[torch.tensor([[10.0, 10.0]])],
        gamma=0.9,
    )

    torch.testing.assert_close(target, torch.tensor([[10.0, 2.0]]))


def test_two_critics_give_the_smaller_target() -> None:
    target = td_target(
        reward=torch.zeros(1, 2),
        discount=torch.ones(1, 2),
        next_values=[torch.tensor([[1.0, 5.0]]), torch.tensor([[3.0, 2.0]])],
        gamma=0.5,
    )

    torch.testing.assert_close(target, torch.tensor([[0.5, 1.0]]))


@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_are_the_derivatives_of_the_losses(weighted: bool) -> None:  # noqa: FBT001
    value, target = normal(3, 5).requires_grad_(), normal(3, 5)
    weight = normal(3, 5).abs() if weighted else None

    (by_torch,) = torch.autograd.grad(critic_loss(value - target, weight).sum(), value)
    torch.testing.assert_close(critic_slope((value - target).detach(), weight), by_torch, rtol=0, atol=1e-15)
    (by_torch,) = torch.autograd.grad(actor_loss(value).sum(), value)
    torch.testing.assert_close(actor_slope(value.detach()), by_torch, rtol=0, atol=1e-15)


def test_a_loss_is_of_its_member_alone() -> None:
    error = torch.tensor([[1.0, 3.0], [0.0, 2.0]])

    assert critic_loss(error, None).tolist() == [5.0, 2.0]
    assert critic_loss(error, torch.tensor([[1.0, 0.0], [1.0, 0.5]])).tolist() == [0.5, 1.0]


def test_target_smoothing_is_bounded_by_clip_and_by_the_actions_range() -> None:
    action, noise = torch.tensor([0.0, 0.9, -0.9, 0.2]), torch.tensor([3.0, 0.3, -9.0, 0.1])

    torch.testing.assert_close(smooth(action, noise, 0.5), torch.tensor([0.5, 1.0, -1.0, 0.3]))
    assert math.isclose(float(smooth(torch.zeros(1), torch.full((1,), -0.2), 0.5)), -0.2, rel_tol=1e-6)
