"""Numbers of the cash account and its baselines, each by hand or by a law."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from markets import CPU, flat_market, market_of, panel_of, rough_panel

from flatwater_trading.market.baselines import buy_and_hold, equal_weight, play_random_
from flatwater_trading.market.config import AccountConfig, RewardConfig, TradeConfig, TradingConfig
from flatwater_trading.market.equity_measures import (
    alpha_beta,
    calmar,
    drawdown,
    exposure,
    sharpe,
    sortino,
    total_return,
    turnover,
    win_rate,
)
from flatwater_trading.market.market import build_market, last_usable_closes, last_usable_rows
from flatwater_trading.market.results import episode_summary, trade_columns
from flatwater_trading.market.simulator import build_simulator, reset_
from flatwater_watch.errors import ConfigError, DataError

torch.set_num_threads(1)
NAN = float("nan")
FREE = AccountConfig(cost_bps=0.0, slippage_bps=0.0)


def test_a_curve_by_hand() -> None:
    """100 -> 120 -> 90 -> 99, and the same shorter by its last day."""
    curves = torch.tensor([[100.0, 120.0, 90.0, 99.0], [100.0, 120.0, 90.0, NAN]])
    assert total_return(curves).tolist() == pytest.approx([-0.01, -0.1])
    assert drawdown(curves).tolist() == pytest.approx([0.25, 0.25])
    for b, returns in enumerate(([0.2, -0.25, 0.1], [0.2, -0.25])):
        assert sharpe(curves, 252)[b].item() == pytest.approx(
            np.mean(returns) / np.std(returns, ddof=1) * 252**0.5, rel=1e-5
        )
    assert exposure(curves, curves / 2).tolist() == pytest.approx([0.5, 0.5])
    assert turnover(curves, torch.tensor([204.5, 310.0])).tolist() == pytest.approx([2.0, 3.0])


def test_measures_of_risk_by_hand_and_by_numpy() -> None:
    curve = torch.tensor([100.0, 120.0, 90.0, 99.0])
    losses = np.sqrt(0.25**2 / 3)
    assert sortino(curve, 252).item() == pytest.approx(np.mean([0.2, -0.25, 0.1]) / losses * 252**0.5, rel=1e-5)
    assert calmar(curve, 252).item() == pytest.approx((0.99 ** (252 / 3) - 1) / 0.25, rel=1e-4)
    draw = np.random.default_rng(4)
    moves = draw.normal(0.0005, 0.01, 400)
    own = 0.0002 + 0.5 * moves + draw.normal(0, 0.002, 400)
    market, other = (torch.from_numpy(np.cumprod([100.0, *1 + each])) for each in (moves, own))
    slope, height = np.polyfit(moves, own, 1)
    alpha, beta = alpha_beta(other, market, 252)
    assert (alpha.item(), beta.item()) == pytest.approx((height * 252, slope), rel=1e-6)
    shorter = torch.cat([other[:300], torch.full((101,), NAN, dtype=torch.float64)])
    assert alpha_beta(torch.stack([other, shorter]), market, 252)[1].tolist() == pytest.approx(
        [slope, np.polyfit(moves[:299], own[:299], 1)[0]], rel=1e-6
    )


@pytest.mark.parametrize("a_year", [365, 252, 52, 12, 4, 1])
def test_figures_of_a_year_are_those_of_its_periods(a_year: int) -> None:
    """Against their formulas in NumPy, over the same prices taken every day, week, month ..."""
    draw = np.random.default_rng(a_year)
    moves, held = draw.normal(0.01, 0.05, (2, 300))
    curve, market = (torch.from_numpy(np.cumprod([100.0, *1 + each])) for each in (moves, held))
    growth = np.prod(1 + moves) ** (a_year / 300) - 1
    peaks = np.maximum.accumulate(curve.numpy())
    slope, height = np.polyfit(held, moves, 1)
    alpha, beta = alpha_beta(curve, market, a_year)
    found = (sharpe(curve, a_year), sortino(curve, a_year), calmar(curve, a_year), alpha, beta)
    known = (
        moves.mean() / moves.std(ddof=1) * a_year**0.5,
        moves.mean() / np.sqrt((np.minimum(moves, 0) ** 2).mean()) * a_year**0.5,
        growth / (1 - curve.numpy() / peaks).max(),
        height * a_year,
        slope,
    )
    assert [each.item() for each in found] == pytest.approx(known, rel=1e-6)


@settings(deadline=None)
@given(scale=st.floats(0.01, 1e6), seed=st.integers(0, 1000))
def test_ratios_do_not_depend_on_the_size_of_the_account(scale: float, seed: int) -> None:
    curve = torch.from_numpy(np.exp(np.cumsum(np.random.default_rng(seed).normal(0, 0.02, 30)))).float()
    for number in (total_return, drawdown, partial(sharpe, a_year=252)):
        torch.testing.assert_close(number(curve * scale), number(curve), rtol=1e-3, atol=1e-4)


def test_nothing_happened() -> None:
    """A flat curve has no Sharpe ratio, no drawdown; no trades, no wins; one day, no deviation."""
    flat = torch.full((1, 5), 100_000.0)
    assert [f(flat).item() for f in (total_return, partial(sharpe, a_year=12), drawdown)] == [0, 0, 0]
    assert sharpe(torch.tensor([[100.0, 101.0]]), 252).item() == 0
    assert [f(flat, 12).item() for f in (sortino, calmar)] == [0, 0]
    still = alpha_beta(torch.tensor([100.0, 101.0, 99.0]), torch.full((3,), 7.0), 252)
    assert [each.item() for each in still] == [0, 0]
    assert win_rate(torch.tensor([[5.0, -1.0]]), torch.tensor([[False, False]])).item() == 0
    assert win_rate(
        torch.tensor([[5.0, -1.0, 0.0, 1.0]]), torch.tensor([[True, True, True, False]])
    ).item() == pytest.approx(1 / 3)


def test_buy_and_hold_by_hand() -> None:
    """Half in each of two; the one that is not listed yet is left out; what ends keeps its last close."""
    close = [[10, 50, NAN], [11, 50, 7], [12, NAN, 8], [15, NAN, 9]]
    market = market_of(panel_of(np.array(close, dtype=float)))
    assert buy_and_hold(market, 0, 4, FREE).tolist() == pytest.approx([1e5, 1e5, 1.05e5, 1.1e5, 1.25e5])
    account = AccountConfig(cost_bps=30.0, slippage_bps=20.0)
    both = (1 - 0.003) * (1 - 0.002) / (1.003 * 1.002)
    assert buy_and_hold(market, 0, 4, account)[-1].item() == pytest.approx(1.25e5 * both)
    assert buy_and_hold(market_of(panel_of(np.full((3, 1), NAN))), 0, 3, account).tolist() == [1e5] * 4


def test_equal_weight_by_hand() -> None:
    """Without costs its daily return is the mean return of what is listed; what ended is sold."""
    close = np.array([[10, 50, NAN], [12, 50, 7], [12, NAN, 14], [18, NAN, 14], [18, NAN, 14]], dtype=float)
    market = market_of(panel_of(close))
    wanted = [1e5, 1e5, 1e5 * 1.1, 1e5 * 1.1 * (1 + 1 / 3), 1e5 * 1.1 * (4 / 3) * 1.25, 1e5 * 1.1 * (4 / 3) * 1.25]
    assert equal_weight(market, 0, 5, FREE).tolist() == pytest.approx(wanted)


def test_equal_weight_pays_for_what_it_trades() -> None:
    """In a flat market it buys once and sells once; in any market costs only take."""
    account = AccountConfig(cost_bps=30.0, slippage_bps=20.0)
    curve = equal_weight(flat_market(6, 3), 0, 6, account)
    assert curve[1:-1].tolist() == pytest.approx([1e5 / (1.003 * 1.002)] * 5)
    assert curve[-1].item() == pytest.approx(1e5 * (1 - 0.003) * (1 - 0.002) / (1.003 * 1.002))
    rough = market_of(rough_panel(8, days=40, columns=4))
    assert (equal_weight(rough, 0, 40, account) <= equal_weight(rough, 0, 40, FREE) + 0.1).all()


def test_the_random_trader_is_determined_by_its_generator() -> None:
    config = TradingConfig(trade=TradeConfig(hold_days=5))
    market = market_of(rough_panel(2, days=40, columns=5))
    window = {"start": torch.tensor([2, 5]), "trading_end": torch.tensor([30, 30]), "end": torch.tensor([38, 36])}
    totals = []
    for seed in (0, 0, 1):
        sim = build_simulator(config, batch=2, max_days=36, instruments=5, device=CPU)
        reset_(sim, **window)
        play_random_(sim, market, config, days=36, rng=torch.Generator().manual_seed(seed))
        assert (sim.day == sim.end).all()
        assert episode_summary(sim, config)["trades"].min() > 3
        totals.append(sim.total.tolist())
    assert totals[0] == totals[1] != totals[2]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_summary_is_what_the_log_of_trades_says(seed: int) -> None:
    """Profits add up to the equity's change, rewards and penalties to the total."""
    config = TradingConfig(trade=TradeConfig(hold_days=6, target_low=5.0), reward=RewardConfig(loss_factor=2.0))
    panel = rough_panel(seed, days=40, columns=4)
    market = market_of(panel)
    sim = build_simulator(config, batch=3, max_days=30, instruments=4, device=CPU)
    reset_(sim, start=torch.tensor([0, 5, 9]), trading_end=torch.tensor([20, 20, 20]), end=torch.tensor([30, 26, 21]))
    play_random_(sim, market, config, days=30, rng=torch.Generator().manual_seed(seed))
    summary = episode_summary(sim, config)
    log = trade_columns(sim, market, config, instruments=panel.instruments, dates=panel.dates)
    for b in range(3):
        mine = {name: column[log["episode"] == b] for name, column in log.items()}
        count = len(mine["gain"])
        assert summary["trades"][b].item() == count
        assert summary["total_return"][b].item() == pytest.approx(mine["profit"].sum() / 1e5, abs=2e-5)
        idle = (mine["reward"].sum() - summary["reward"][b].item()) / 5
        assert idle == pytest.approx(round(idle), abs=0.01)
        assert summary["fitness"][b].item() == pytest.approx(summary["reward"][b].item() - (0 if count else 1e4))
        if count:
            assert summary["win_rate"][b].item() == pytest.approx((mine["gain"] > 0).mean())
            assert summary["mean_gain"][b].item() == pytest.approx(mine["gain"].mean(), rel=1e-3, abs=1e-3)
            traded = (mine["shares"] * (mine["entry_price"] + mine["exit_price"])).sum()
            equity = sim.logs.equity[b].nanmean().item()
            assert summary["turnover"][b].item() == pytest.approx(traded / equity, rel=1e-4)


def test_a_market_keeps_what_is_usable() -> None:
    """Prices of 0 and below are no prices; a missing high is the close; marks go on; the last row is known."""
    close = np.array([[NAN, 5, 3], [4, 0, 3], [NAN, 6, -1], [2, 7, NAN]], dtype=float)
    high = np.array([[9, 6, NAN], [4, 9, 2], [9, 6, 9], [NAN, 8, 9]], dtype=float)
    market = market_of(panel_of(close, high))
    np.testing.assert_array_equal(market.close, [[NAN, 5, 3], [4, NAN, 3], [NAN, 6, NAN], [2, 7, NAN]])
    np.testing.assert_array_equal(market.high, [[NAN, 6, 3], [4, NAN, 3], [NAN, 6, NAN], [2, 8, NAN]])
    np.testing.assert_array_equal(market.last_close, [[0, 5, 3], [4, 5, 3], [4, 6, 3], [2, 7, 3]])
    assert market.last_day.tolist() == [3, 3, 1]


def test_a_column_without_any_price() -> None:
    none = np.full((4, 1), np.nan)
    assert last_usable_rows(~np.isnan(none)).tolist() == [-1]
    assert last_usable_closes(none).tolist() == [[0.0]] * 4


def test_observations_of_another_panel_are_refused() -> None:
    with pytest.raises(DataError, match=r"observations: .*\[2, 8, .*\[2, 9, 1\]"):
        build_market(panel_of(np.ones((8, 2))), torch.zeros(2, 9, 1), CPU)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: AccountConfig(position_share=0.0), r"env.account.position_share = 0.0: .*above 0 .*1\b"),
        (
            lambda: TradeConfig(coefficient_max=1.0),
            r"env.trade.coefficient_max = 1.0: .*buy_threshold",
        ),
        (lambda: TradeConfig(target_low=60.0), r"env.trade.target_high = 50.0: .*target_low \(60.0\)"),
    ],
)
def test_a_config_that_cannot_work_names_its_field(make: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()


def test_a_credit_that_is_not_known_is_refused() -> None:
    """By us, or by the runtime type checker where it is on."""
    with pytest.raises((ConfigError, TypeError), match="never"):
        RewardConfig(credit="never")
