"""Advantages and returns: by hand, and by laws that do not share the recursion."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.algorithms.returns import gae

T, B = 7, 3


Block = dict[str, Tensor]


def lambda_returns(
    *,
    reward: Float[Tensor, "T B"],
    discount: Float[Tensor, "T B"],
    next_value: Float[Tensor, "T B"],
    continues: Bool[Tensor, "T B"],
    lam: float,
) -> Float[Tensor, "T B"]:
    """The lambda-return (Sutton & Barto 2018, eq. 12.20): a mixture of all n-step returns, equal to `gae` + V(s_t).

    G_t = r_t + discount_t ((1 - lam) V(s_t+1) + lam G_t+1), and r_t + discount_t V(s_t+1) where the episode ended or
    the block does. It needs no V(s_t), so a critic can learn from it before it is any good.

    Args:
        reward: r_t, paid on the way from s_t to its successor.
        discount: gamma, or 0 where the step terminated.
        next_value: V of the true successor, taken before any reset.
        continues: False where the episode ended, by termination or by truncation.
        lam: 0 gives the one-step target, 1 the discounted return.
    """
    returns, carry = torch.empty_like(reward), next_value[-1]
    for t in reversed(range(len(reward))):
        mixed = torch.lerp(next_value[t], carry, lam)
        carry = reward[t] + discount[t] * torch.where(continues[t], mixed, next_value[t])
        returns[t] = carry
    return returns


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64).unsqueeze(1)


def block_of(seed: int) -> Block:
    """Steps that go on, terminate (discount 0) or are truncated, at random."""
    rng = torch.Generator().manual_seed(seed)
    reward, value, next_value = (torch.randn(T, B, generator=rng, dtype=torch.float64) for _ in range(3))
    ended, terminated = (torch.rand(T, B, generator=rng) < p for p in (0.3, 0.5))
    discount = 0.9 * (~(ended & terminated)).double()
    columns = (reward, discount, value, next_value, ~ended)
    return dict(zip(("reward", "discount", "value", "next_value", "continues"), columns, strict=True))


def without_value(block: Block) -> Block:
    return {name: column for name, column in block.items() if name != "value"}


def test_an_episode_that_terminates_by_hand() -> None:
    """gamma = 1/2, lam = 1/2, values 4, 2, 8; rewards 1, 2, 3.

    TD errors: 1 + 2/2 - 4 = -2; 2 + 8/2 - 2 = 4; 3 - 8 = -5 (nothing follows).
    Advantages, from the end: -5; 4 - 5/4 = 2.75; -2 + 2.75/4 = -1.3125.
    """
    advantage = gae(
        reward=column(1, 2, 3),
        discount=column(0.5, 0.5, 0),
        value=column(4, 2, 8),
        next_value=column(2, 8, 100),
        continues=torch.tensor([[True], [True], [False]]),
        lam=0.5,
    )
    assert advantage.squeeze(1).tolist() == [-1.3125, 2.75, -5.0]


def test_a_truncated_step_counts_the_value_that_followed_and_nothing_of_the_next_episode() -> None:
    """gamma = 1/2, lam = 1. The first episode is cut after two steps, where the state is worth 6.

    TD errors: 1 + 2/2 - 4 = -2; 2 + 6/2 - 2 = 3; then the next episode: 1000 - 0.
    Advantages: 1000; 3, not 3 + 500; -2 + 3/2 = -0.5.
    """
    advantage = gae(
        reward=column(1, 2, 1000),
        discount=column(0.5, 0.5, 0),
        value=column(4, 2, 0),
        next_value=column(2, 6, 0),
        continues=torch.tensor([[True], [False], [False]]),
        lam=1.0,
    )
    assert advantage.squeeze(1).tolist() == [-0.5, 3.0, 1000.0]


def test_lambda_returns_by_hand() -> None:
    """gamma = 1/2, lam = 1/2, rewards 1, 2, 3; the last step terminates.

    From the end: 3; 2 + (8/2 + 3/2)/2 = 4.75; 1 + (2/2 + 4.75/2)/2 = 2.6875: the first example's values added.
    """
    returns = lambda_returns(
        reward=column(1, 2, 3),
        discount=column(0.5, 0.5, 0),
        next_value=column(2, 8, 100),
        continues=torch.tensor([[True], [True], [False]]),
        lam=0.5,
    )
    assert returns.squeeze(1).tolist() == [2.6875, 4.75, 3.0]


@given(seed=st.integers(0, 1000), lam=st.sampled_from([0.0, 0.3, 0.98, 1.0]))
def test_the_lambda_return_is_advantage_plus_value_wherever_the_values_agree(seed: int, lam: float) -> None:
    """V(s_t+1) of a step that goes on is the next row's V(s_t)."""
    block = block_of(seed)
    goes_on = block["continues"][:-1]
    block["next_value"][:-1] = torch.where(goes_on, block["value"][1:], block["next_value"][:-1])
    returns = lambda_returns(**without_value(block), lam=lam)
    torch.testing.assert_close(returns, gae(**block, lam=lam) + block["value"], rtol=0, atol=1e-12)


@given(seed=st.integers(0, 1000))
def test_the_advantage_is_the_sum_of_discounted_td_errors_up_to_the_episodes_end(seed: int) -> None:
    """Equation 16 itself, term by term."""
    block, lam = block_of(seed), 0.8
    td_error = block["reward"] + block["discount"] * block["next_value"] - block["value"]
    expected = torch.zeros_like(td_error)
    for b in range(B):
        for t in range(T):
            weight = 1.0
            for k in range(t, T):
                expected[t, b] += weight * td_error[k, b]
                if not block["continues"][k, b]:
                    break
                weight *= 0.9 * lam
    torch.testing.assert_close(gae(**block, lam=lam), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("lam", [0.0, 0.9])
def test_what_the_last_row_says_of_going_on_does_not_matter(lam: float) -> None:
    """A block that is cut in an episode's middle ends with the value of the state that followed."""
    block = block_of(5)
    block["discount"][-1] = 0.9
    found = []
    for goes_on in (True, False):
        block["continues"][-1] = goes_on
        found.append((gae(**block, lam=lam), lambda_returns(**without_value(block), lam=lam)))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
