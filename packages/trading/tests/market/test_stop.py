"""The stop of an account of target weights: when it goes to cash, how long it stays there, and from where it counts."""

import pytest
import torch

from flatwater_trading.market.config import PortfolioConfig
from flatwater_trading.market.portfolio import play_weights, portfolio_prices

CLOSES = [100.0, 120, 100, 95, 200, 50, 210, 200, 180, 170, 170]


def test_an_account_that_has_fallen_holds_cash_and_comes_back() -> None:
    """Whole in one instrument, without costs: equity is the price while it is held."""
    config = PortfolioConfig(cash=100, cost_bps=0, slippage_bps=0, stop=0.2, stop_rows=3, turnover=0.5, band=0.1)
    close = torch.tensor(CLOSES, dtype=torch.float64)[:, None]
    played = play_weights(
        portfolio_prices(close),
        config,
        lambda *_: torch.ones(1, 1, dtype=torch.float64),
        start=0,
        days=11,
        logged_accounts=1,
    )
    equity, invested = played.equity[0, 1:].tolist(), played.invested[0, 1:].tolist()
    # Half of the money goes in on the first day, the rest on the second.
    assert invested[:2] == pytest.approx([50, 110])
    # From 120 to 95 it has lost more than a fifth; it waits for three closes, that of the fall among them.
    assert equity[1:4] == pytest.approx([110, 110 * 100 / 120, 110 * 95 / 120])
    assert invested[3:6] == [0, 0, 0], "it missed 200 and 50"
    assert played.stopped.tolist() == [3]
    # It comes back on the fourth close: falls count from there, and 10 % are none.
    assert invested[6] == pytest.approx(equity[6] / 2)
    assert equity[6] == pytest.approx(equity[3])
    assert all(each > 0 for each in invested[6:10])


def test_without_a_stop_nothing_is_different_and_each_account_has_its_own() -> None:
    rng = torch.Generator().manual_seed(0)
    prices = portfolio_prices(
        100 * torch.exp((0.05 * torch.randn(80, 2, generator=rng, dtype=torch.float64)).cumsum(0))
    )
    wanted = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]], dtype=torch.float64)

    def play(weights: torch.Tensor, config: PortfolioConfig) -> torch.Tensor:
        return play_weights(prices, config, lambda *_: weights, start=0, days=80, batch=len(weights)).equity

    together = play(wanted, PortfolioConfig(stop=0.1, stop_rows=5))
    for number in range(3):
        alone = play(wanted[number][None], PortfolioConfig(stop=0.1, stop_rows=5))
        assert torch.equal(together[number], alone[0])
    free = play(wanted, PortfolioConfig())
    assert not torch.equal(free[0], together[0])
    assert torch.equal(free, play(wanted, PortfolioConfig(stop=0.999)))
