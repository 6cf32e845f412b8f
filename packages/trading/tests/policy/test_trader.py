"""Actor and critic of a trader: missing data, attention, the two ways to act, gradients."""

import pytest
import torch

from flatwater.nets.stack import Params, init_, views
from flatwater_trading.policy.config import TraderNetConfig
from flatwater_trading.policy.trader import MarketObs, TraderActor, TraderCritic, build_trader

P, B, N, C, F = 2, 3, 5, 12, 4
INVESTABLE = torch.tensor([0, 2, 4])


def trader(*, account: bool = False) -> tuple[TraderActor, TraderCritic, Params, Params]:
    config = TraderNetConfig(channels=6, hidden=8)
    actor, critic = build_trader(config, context=C, features=F, columns=N, investable=INVESTABLE, sees_account=account)
    rng = torch.Generator().manual_seed(0)
    blocks = [torch.empty(P, net.layout.size, dtype=torch.float64) for net in (actor, critic)]
    for block, net in zip(blocks, (actor, critic), strict=True):
        init_(block, net.layout, rng)
    return actor, critic, views(blocks[0], actor.layout), views(blocks[1], critic.layout)


def some_windows() -> torch.Tensor:
    return torch.randn(P, B, N, C, F, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def test_actions_are_bounded_and_one_per_investable_instrument() -> None:
    actor, _, params, _ = trader()
    action = actor(params, MarketObs(100 * some_windows()))
    assert action.shape == (P, B, len(INVESTABLE), 2)
    assert action.abs().max() <= 1


def test_a_missing_column_gets_no_attention_and_changes_nothing() -> None:
    """A column that is 0 today is missing; what it held before must not reach the other instruments."""
    actor, _, params, _ = trader()
    windows = some_windows()
    windows[:, :, 1, -1] = 0
    seen = actor.trunk.embed_windows(params, windows)
    assert (seen.attention[..., 1] == 0).all()
    torch.testing.assert_close(seen.attention.sum(-1), torch.ones_like(seen.attention.sum(-1)))

    other = windows.clone()
    other[:, :, 1, :-1] += 5
    torch.testing.assert_close(actor(params, MarketObs(windows)), actor(params, MarketObs(other)), rtol=0, atol=0)


def test_the_columns_that_cannot_be_bought_are_told_apart() -> None:
    """Columns 1 and 3 have an attention of their own, which knows which of them is which."""
    actor, _, params, _ = trader()
    windows = some_windows()
    swapped = windows.clone()
    swapped[:, :, [1, 3]] = windows[:, :, [3, 1]]

    def summary(seen: torch.Tensor, favoured: int) -> torch.Tensor:
        params["context.column"].zero_()[:, favoured] = 50.0
        market = actor.trunk.embed_windows(params, seen).market
        return market[..., market.shape[-1] // 2 :]

    torch.testing.assert_close(summary(windows, 1), summary(swapped, 0))
    assert not torch.allclose(summary(windows, 1), summary(windows, 0)), "it is column 3 that is the second of them"
    assert not torch.allclose(summary(windows, 1), summary(swapped, 1))


def test_the_market_decides_how_much_a_token_counts() -> None:
    """What sets two instruments apart is another thing under another context, as a sum of both would not allow."""
    actor, _, params, _ = trader()
    windows = some_windows()
    other = windows.clone()
    other[:, :, [1, 3]] += 2
    apart = []
    for x in (windows, other):
        hidden = actor.hidden_features(params, actor.trunk.embed_windows(params, x))
        apart.append(hidden[:, :, 0] - hidden[:, :, 1])
    assert ((apart[0] - apart[1]).abs() > 1e-3).float().mean() > 0.9


def test_context_that_is_missing_today_says_nothing() -> None:
    actor, _, params, _ = trader()
    windows = some_windows()
    windows[:, :, [1, 3], -1] = 0
    other = windows.clone()
    other[:, :, [1, 3], :-1] += 5
    torch.testing.assert_close(actor(params, MarketObs(windows)), actor(params, MarketObs(other)), rtol=0, atol=0)


def test_a_missing_instrument_gets_the_lowest_coefficient() -> None:
    actor, _, params, _ = trader()
    windows = some_windows()
    windows[:, 1, 2, -1] = 0
    coefficient = actor(params, MarketObs(windows))[..., 0]
    assert (coefficient[:, 1, 1] == -1).all(), "column 2 is the second investable one"
    assert int((coefficient == -1).sum()) == P


def test_a_day_without_any_data_gives_finite_numbers() -> None:
    actor, critic, actor_params, critic_params = trader()
    obs = MarketObs(torch.zeros(P, B, N, C, F, dtype=torch.float64))
    action = actor(actor_params, obs)
    assert action.isfinite().all()
    assert critic(critic_params, obs, action).isfinite().all()


@pytest.mark.parametrize("more", [0, 5])
def test_acting_on_days_equals_acting_on_windows(more: int) -> None:
    actor, _, params, _ = trader()
    x = torch.randn(1, 1, N, C + more, F, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    windows = x[0].unfold(2, C, 1).permute(0, 2, 1, 4, 3)[0].expand(P, -1, -1, -1, -1)
    torch.testing.assert_close(actor.over_days(params, x), actor(params, MarketObs(windows)), rtol=0, atol=1e-12)


def test_the_account_reaches_the_action_and_the_value() -> None:
    actor, critic, actor_params, critic_params = trader(account=True)
    windows, flat = some_windows(), torch.zeros(P, B, len(INVESTABLE), 3, dtype=torch.float64)
    held = flat.clone()
    held[:, :, 1, 0] = 1
    before, after = (actor(actor_params, MarketObs(windows, account)) for account in (flat, held))
    moved = (before != after).any(-1)
    assert moved[:, :, 1].all()
    assert not moved[:, :, [0, 2]].any()
    values = [critic(critic_params, MarketObs(windows, account), before) for account in (flat, held)]
    assert (values[0] != values[1]).all()


def test_the_value_has_a_gradient_for_every_instrument_and_part() -> None:
    _, critic, _, params = trader()
    action = torch.zeros(P, B, len(INVESTABLE), 2, dtype=torch.float64, requires_grad=True)
    critic(params, MarketObs(some_windows()), action).sum().backward()
    assert action.grad is not None
    assert (action.grad.abs().sum((0, 1)) > 0).all()
