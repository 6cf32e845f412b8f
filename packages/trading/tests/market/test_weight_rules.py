"""Weights by a covariance: they have the property that defines them, and rules see no later price."""

import pytest
import torch

from flatwater_trading.market.config import PortfolioConfig
from flatwater_trading.market.portfolio import play_weights, portfolio_prices
from flatwater_trading.market.weight_rules import Closes, minimum_variance, risk_parity, weight_rules
from flatwater_trading.panel.calendar import Calendar


@pytest.fixture
def covariance() -> torch.Tensor:
    """Of eight instruments with a common factor, whose deviations differ by a factor of four."""
    rng = torch.Generator().manual_seed(0)
    moves = torch.randn(500, 8, generator=rng, dtype=torch.float64) + torch.randn(
        500, 1, generator=rng, dtype=torch.float64
    )
    moves = moves * torch.linspace(0.005, 0.02, 8, dtype=torch.float64)
    return moves.T @ moves / 500


def test_at_the_least_variance_no_exchange_lowers_it(covariance: torch.Tensor) -> None:
    weights = minimum_variance(covariance)
    assert float(weights.sum()) == pytest.approx(1)
    slope = covariance @ weights
    variance = float(weights @ slope)
    held = weights > 1e-4
    # What is held adds as much as the whole does, what is not held more (the conditions of Karush, Kuhn and Tucker).
    assert slope[held].tolist() == pytest.approx([variance] * int(held.sum()), rel=0.02)
    assert (slope[~held] >= 0.98 * variance).all()


def test_at_risk_parity_all_have_the_same_part_of_the_variance(covariance: torch.Tensor) -> None:
    weights = risk_parity(covariance)
    parts = weights * (covariance @ weights)
    assert parts.tolist() == pytest.approx([float(parts.mean())] * len(parts), rel=1e-6)


def closes_of(days: int, a_year: int, unit: str, seed: int = 2) -> Closes:
    rng = torch.Generator().manual_seed(seed)
    last_close = 100 * torch.exp((0.02 * torch.randn(days, 4, generator=rng, dtype=torch.float64)).cumsum(0))
    return Closes(last_close, torch.ones_like(last_close, dtype=torch.bool), Calendar("", a_year, unit))


def test_a_year_of_covariance_is_a_year_of_the_dates() -> None:
    """Weeks: what lies more than 52 rows back changes no weight, and the weights are found again every fourth row."""
    weekly, days = closes_of(200, 52, "week"), range(150, 160)
    other = closes_of(200, 52, "week")
    other.moves[: 150 - 52] += 0.5
    signals = torch.zeros(200, 4, 1)
    for name in ("minimum variance", "risk parity"):
        weights, same = (weight_rules(each, signals, range(20, 100), days)[name]() for each in (weekly, other))
        torch.testing.assert_close(weights, same, rtol=0, atol=0)
        changes = [number for number in range(1, 10) if not torch.equal(weights[number], weights[number - 1])]
        assert changes == [4, 8]
    daily = closes_of(200, 252, "day")
    assert [daily.rows(each) for each in (8, 20, 60, 250)] == [8, 20, 60, 250]
    assert [closes_of(9, 12, "month").rows(each) for each in (8, 20, 60, 250)] == [2, 2, 3, 12]


def test_small_orders_are_left_out_and_no_money_is_borrowed_for_the_others() -> None:
    rng = torch.Generator().manual_seed(3)
    close = 100 * torch.exp((0.01 * torch.randn(60, 30, generator=rng, dtype=torch.float64)).cumsum(0))
    wanted = torch.softmax(torch.randn(60, 1, 30, generator=rng, dtype=torch.float64) * 0.02, -1)
    wanted[40:, :, 3] = 0
    config = PortfolioConfig(least_order=1e-3)
    played = play_weights(
        portfolio_prices(close), config, lambda number, _: wanted[number], start=0, days=60, logged_accounts=1
    )
    orders = played.log[0, :-1].abs()
    assert (orders[orders > 0] >= 0.9e-3 * played.equity.min()).all()
    assert 0.2 < float((orders[1:] > 0).double().mean()) < 0.8
    shares = (played.log[0] / close).cumsum(0)
    assert float(shares[40, 3].abs()) < 1e-9, "a position that is closed is closed whole"
    cash = played.equity[0, 1:] - (shares * close).sum(-1)
    assert float(cash.min()) > -1e-6


def test_an_account_is_its_cash_and_its_shares_less_the_costs() -> None:
    """No money comes from nowhere, with holes in the prices, shorts and limits: equity is what prices and costs say."""
    rng = torch.Generator().manual_seed(1)
    close = 100 * torch.exp((0.02 * torch.randn(60, 5, generator=rng, dtype=torch.float64)).cumsum(0))
    close[20:24, 1], close[30:, 2] = torch.nan, torch.nan  # a halt, and an end
    wanted = torch.randn(60, 3, 5, generator=rng, dtype=torch.float64) / 5
    config = PortfolioConfig(shorts=True, gross=0.9, turnover=0.5)
    played = play_weights(
        portfolio_prices(close), config, lambda number, _: wanted[number], start=0, days=60, batch=3, logged_accounts=3
    )
    known = close.clone()
    for day in range(1, 60):
        known[day] = known[day].where(known[day].isfinite(), known[day - 1])
    shares = (played.log / known).cumsum(1)
    value = (shares * known).sum(-1)
    account = config.as_account
    bought, sold = played.log.clamp(min=0).sum(-1), -played.log.clamp(max=0).sum(-1)
    cost = bought * (account.purchase_factor - 1) + sold * (1 - account.sale_factor)
    cash = config.cash - (played.log.sum(-1) + cost).cumsum(1)
    torch.testing.assert_close(played.equity[:, 1:], cash + value, rtol=0, atol=1e-6)
    assert (played.log[:, 20:24, 1] == 0).all(), "nothing is traded without a price"
    assert played.invested[:, -1].tolist() == pytest.approx([0, 0, 0], abs=1e-6)
    assert (played.log[:, 31:39, 2] == 0).all()
    assert (shares[:, 45, 2].abs() < 1e-9).all(), "what has had no price for ten days is sold"
