"""Costs of all kinds: by hand, differentiable, and the same money in simulator, orders and backtest."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from markets import CPU, DEAR, market_of, panel_of, rough_panel, with_volume

from flatwater_trading.market.config import AccountConfig, CostConfig, PortfolioConfig, TradeConfig, TradingConfig
from flatwater_trading.market.cost_rates import rate_tables
from flatwater_trading.market.costs import CostRates, Costs
from flatwater_trading.market.market import build_market
from flatwater_trading.market.portfolio import log_growth, play_weights
from flatwater_trading.market.simulator import build_simulator, reset_, step_
from flatwater_trading.panel.panel import Panel, build_panel, first_days
from flatwater_trading.panel.traded_closes import traded_ratio
from flatwater_trading.recipe.weights.market import account_prices
from flatwater_trading.recipe.weights.orders import StopRecord, WeightsClose, decide_weight_orders
from flatwater_watch.errors import ConfigError, DataError


def plain_cost(config: CostConfig, value: float, *, shares: float, part: float, sale: bool) -> float:
    """The costs of an order as a broker's bill: the price that is paid, the commission on it, and the impact.

    Args:
        config: costs.
        value: value at the quoted price.
        shares: shares as traded.
        part: deviation times the part of the volume to the power of the law.
        sale: whether it is a sale.
    """
    if not value:
        return 0.0
    worse = value * (config.slippage_bps + config.half_spread_bps) / 1e4
    paid = value - worse if sale else value + worse
    commission = max(config.least_commission, paid * config.cost_bps / 1e4 + shares * config.per_share)
    return worse + commission + config.impact * value * part


@settings(max_examples=30, deadline=None)
@given(
    value=st.floats(0, 1e6),
    price=st.floats(0.5, 900),
    least=st.sampled_from([0.0, 1.0, 40.0]),
    per_share=st.sampled_from([0.0, 0.005]),
    impact=st.sampled_from([0.0, 1.0]),
    sale=st.booleans(),
)
def test_an_order_costs_what_the_bill_says_and_a_purchase_takes_no_more_than_its_money(
    value: float,
    price: float,
    least: float,
    per_share: float,
    impact: float,
    sale: bool,  # noqa: FBT001
) -> None:
    config = AccountConfig(
        cost_bps=4, half_spread_bps=3, per_share=per_share, least_commission=least, impact=impact, impact_power=0.6
    )
    deviation, money_a_day = 0.02, 5e6
    amount, quoted, share, rate, little = (
        torch.tensor(number, dtype=torch.float64)
        for number in (value, price, per_share, impact * deviation / money_a_day**0.6, least / 2)
    )
    costs = Costs(config, None if config.is_proportional else CostRates(share, rate))
    part = deviation * (value / money_a_day) ** 0.6
    bill = plain_cost(config, value, shares=value / price, part=part, sale=sale)
    if sale:
        assert float(costs.proceeds(amount, quoted)) == pytest.approx(value - bill, abs=1e-6)
        return
    paid = amount * costs.config.purchase_factor + costs.extra_cost(amount, quoted)
    assert float(paid) == pytest.approx(value + bill, abs=1e-6)
    assert float(costs.affordable_value(paid, quoted)) == pytest.approx(value, rel=1e-9, abs=1e-6)
    assert float(costs.affordable_value(little, quoted)) == 0, "less money than the least commission buys nothing"


def bill_of(panel: Panel, config: PortfolioConfig, day: int, k: int, value: float) -> float:
    """The costs of an order of a day, from the panel's plain columns alone."""
    close, volume = (panel.feature(name)[: day + 1, k].astype(float) for name in ("close", "volume"))
    assert panel.raw_close is not None
    raw = panel.raw_close[: day + 1, k].astype(float)
    known = np.flatnonzero(close > 0)
    ratio = raw[known[-1]] / close[known[-1]]
    moves, money, last, last_money = [], [], np.nan, np.nan
    for row in range(known[0], day + 1):
        moves.append(0.0 if row == known[0] or not close[row] > 0 else close[row] / last - 1)
        last = close[row] if close[row] > 0 else last
        today = volume[row] * raw[row] if close[row] > 0 else np.nan
        last_money = today if np.isfinite(today) else last_money
        money.append(last_money)
    deviation = max(1e-4, exponential_mean(np.square(moves), 60) ** 0.5)
    part = deviation * (abs(value) / exponential_mean(np.array(money), 20)) ** config.impact_power
    return plain_cost(config, abs(value), shares=abs(value) / (last * ratio), part=part, sale=value < 0)


def exponential_mean(values: np.ndarray, memory: int) -> float:
    weights = (1 - 2 / (memory + 1)) ** np.arange(len(values))[::-1]
    return float(values @ weights / weights.sum())


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([None, 0.05]))
def test_orders_of_weights_are_the_trades_of_the_account_and_pay_every_bill(
    seed: int,
    shorts: bool,  # noqa: FBT001
    stop: float | None,
) -> None:
    """Any weights on any prices, with all kinds of costs and a stop: account, evening orders, and bills by hand."""
    rng, days, count = np.random.default_rng(seed), 25, 4
    panel = with_volume(rough_panel(seed, days=days, columns=count), seed)
    config = PortfolioConfig(shorts=shorts, turnover=0.7, band=0.01, stop=stop, stop_rows=4, **DEAR)
    wanted = torch.from_numpy(
        rng.normal(0.1, 0.25, (days, count)) if shorts else rng.dirichlet(np.ones(5), days)[:, 1:]
    )
    played = play_weights(
        account_prices(panel, config),
        config,
        lambda number, _: wanted[number][None],
        start=0,
        days=days,
        logged_accounts=1,
    )
    shares: dict[str, float] = {}
    cash = paid = config.cash
    record: StopRecord | None = None
    ratios_before = np.ones(count)
    for day in range(days - 1):  # on the last one the account sells all
        past = first_days(panel, day + 1)
        assert past.raw_close is not None
        ratios = np.array([traded_ratio(past, day, k) for k in range(count)])
        # A broker splits shares overnight.
        shares = {name: each * (ratios_before / ratios)[int(name[1:])] for name, each in shares.items()}
        ratios_before = ratios
        prices = account_prices(past, config).day(day)
        close = WeightsClose(past.dates, past.instruments, prices, torch.from_numpy(ratios), as_traded=True)
        orders = decide_weight_orders(close, wanted[day], shares, cash, config, held=1.0, rest="cash", stop=record)
        values = {each.instrument: each.value * (1 if each.order == "buy" else -1) for each in orders.orders}
        assert values == pytest.approx(
            {f"X{k}": value for k, value in enumerate(played.log[0, day].tolist()) if value}, abs=0.005
        )
        bill = sum(bill_of(panel, config, day, int(name[1:]), value) for name, value in values.items())
        assert orders.cost == pytest.approx(bill, rel=1e-5, abs=0.005)
        paid += orders.cost
        shares, cash, record = orders.shares, orders.cash, orders.stop
        assert orders.equity == pytest.approx(float(played.equity[0, day + 1]), abs=0.005)
        assert shorts or cash >= 0, "nothing is borrowed"
        assert all(abs(each.weight) > 1e-9 for each in orders.holdings), "a position that is sold leaves no shares"
    assert paid > config.cash


def test_what_is_learned_counts_the_costs_of_the_account_and_can_be_differentiated() -> None:
    panel = with_volume(panel_of(np.exp(np.random.default_rng(0).normal(0, 0.02, (40, 3)).cumsum(0)) * 50), 0)
    config = replace(PortfolioConfig(**DEAR), cash=2e4)
    prices = account_prices(panel, config)
    assert prices.rates is not None
    weights = torch.rand(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) / 3
    played = play_weights(prices, config, lambda number, _: weights[number][None], start=0, days=40)
    following = torch.zeros(40, 3, dtype=torch.float64)
    following[:-1] = prices.last_close[1:] / prices.last_close[:-1] - 1
    costs = Costs(config, CostRates(prices.rates.share / prices.last_close, prices.rates.impact))

    def growth(weights: torch.Tensor) -> torch.Tensor:
        return log_growth(weights, following, costs, config.cash)

    # The account sizes shares after costs, and growth before: they differ by the square of the costs.
    assert float(growth(weights)[:-1].sum()) == pytest.approx(
        float((played.equity[0, -2] / config.cash).log()) + float(growth(weights)[-2]), abs=0.05
    )
    free = log_growth(weights, following, Costs(replace(config, impact=0.0, per_share=0.0, least_commission=0.0)), 1.0)
    assert (growth(weights) < free).all()
    torch.autograd.gradcheck(growth, weights.requires_grad_())


@pytest.mark.parametrize("kind", ["half_spread_bps", "per_share", "least_commission", "impact"])
def test_each_kind_of_cost_takes_money_from_purchases(kind: str) -> None:
    panel = with_volume(panel_of(np.full((12, 2), 100.0)), 0, splits=False)
    ends = []
    for value in (0.0, 50.0):
        config = TradingConfig(trade=TradeConfig(hold_days=3), account=AccountConfig(**{kind: value}))
        market = build_market(panel, torch.zeros(2, 12, 1), CPU, config.account)
        sim = build_simulator(config, batch=1, max_days=12, instruments=2, device=CPU)
        reset_(sim, start=torch.tensor([0]), trading_end=torch.tensor([8]), end=torch.tensor([12]))
        for _ in range(12):
            step_(sim, market, config, torch.tensor([[[2.0, 50.0], [0.0, 50.0]]]))
        ends.append((float(sim.logs.equity[0, -1]), float(sim.total)))
    (plain, reward), (dear, dear_reward) = ends
    assert dear < plain
    assert dear_reward < reward, "a trader learns from what it pays"


def test_what_cannot_be_counted_is_refused_with_what_to_do() -> None:
    panel = panel_of(np.full((6, 2), 100.0))
    with pytest.raises(DataError, match=r"^account\.impact: the panel has no feature volume.*--features volume"):
        rate_tables(panel, PortfolioConfig(impact=1.0))
    with pytest.raises(DataError, match=r"^env\.account\.impact: "):
        build_market(panel, torch.zeros(2, 6, 1), CPU, AccountConfig(impact=1.0))
    late = with_volume(panel, 0)
    values = late.values.copy()
    values[:3, 1, -1] = np.nan
    given_late: dict[str, Any] = {"dates": late.dates, "instruments": late.instruments, "features": late.features}
    with pytest.raises(DataError, match=r"X1 has a close on 2001-01-01, and no volume up to that day"):
        rate_tables(build_panel(values=values, **given_late), PortfolioConfig(impact=1.0))
    with pytest.raises(ConfigError, match=r"env\.account: the market was built without the rates"):
        market_of(panel).costs(AccountConfig(per_share=0.01), 0, torch.tensor([0]))
