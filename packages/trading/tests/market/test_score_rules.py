"""Simple rules: their scores by hand, blind to later days, and played under the env's constraints."""

import tracemalloc

import numpy as np
import pytest
import torch
from markets import CPU, market_of
from sklearn.linear_model import Ridge  # type: ignore[import-untyped]  # it ships no types
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]

from flatwater_trading.market.config import EpisodeConfig, TradeConfig, TradingConfig
from flatwater_trading.market.market import Market, build_market
from flatwater_trading.market.score_rules import (
    gain_features,
    past_return,
    play_rule_,
    ridge_bytes,
    ridge_scores,
    score_rules,
)
from flatwater_trading.market.simulator import build_simulator, reset_
from flatwater_trading.panel.calendar import DAILY, calendar_of_year
from flatwater_trading.panel.config import SyntheticConfig
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.synthetic import synthetic_panel

CONFIG = TradingConfig(
    episode=EpisodeConfig(context=1, trading_days=10, settlement_days=5), trade=TradeConfig(hold_days=5)
)


@pytest.fixture(scope="module")
def market() -> Market:
    config = SyntheticConfig(instruments=8, days=600, signal=0.6, signal_days=60, halts=0.01)
    return market_of(synthetic_panel(config).panel)


def test_a_past_return_is_that_of_the_closes(market: Market) -> None:
    close = market.close.double().numpy()
    found = past_return(market, 20, skip=3)
    assert np.isnan(found[:23]).all()
    for day in (23, 100, 599):
        for k in range(8):
            prices = close[[day, day - 3, day - 23], k]
            if np.isfinite(prices).all():
                assert found[day, k] == pytest.approx(prices[1] / prices[2] - 1)
    assert np.isnan(found[np.isnan(close)]).all()


@pytest.mark.parametrize("name", ["20-day momentum", "12-1 momentum", "ridge"])
def test_a_rule_knows_nothing_of_later_days(market: Market, name: str) -> None:
    learnt = range(130, 300)
    before = score_rules(market, CONFIG, learnt, DAILY)[name]()
    other = market_of(synthetic_panel(SyntheticConfig(instruments=8, days=600, seed=5)).panel)
    for mine, theirs in ((market.close, other.close), (market.high, other.high), (market.last_close, other.last_close)):
        kept = mine[400:].clone()
        mine[400:] = theirs[400:]
        try:
            after = score_rules(market, CONFIG, learnt, DAILY)[name]()
        finally:
            mine[400:] = kept
        np.testing.assert_array_equal(before[:400], after[:400])


@pytest.mark.parametrize(
    ("a_year", "fast", "rows", "skip"),
    [
        (252, "20-day momentum", 231, 21),
        (365, "20-day momentum", 335, 30),
        (52, "20-week momentum", 48, 4),
        (12, "20-month momentum", 11, 1),
        (4, "20-quarter momentum", 3, 1),
        (1, "20-year momentum", 1, 1),
        (156, "20-period momentum", 143, 13),
    ],
)
def test_a_year_of_momentum_has_the_rows_of_a_year(
    market: Market, a_year: int, fast: str, rows: int, skip: int
) -> None:
    found = score_rules(market, CONFIG, range(130, 300), calendar_of_year(a_year))
    assert list(found) == [fast, "12-1 momentum", "ridge"]
    np.testing.assert_array_equal(found["12-1 momentum"](), past_return(market, rows, skip=skip))
    np.testing.assert_array_equal(found[fast](), past_return(market, 20))


def test_ridge_finds_the_drift(market: Market) -> None:
    truth = synthetic_panel(SyntheticConfig(instruments=8, days=600, signal=0.6, signal_days=60, halts=0.01)).drift
    scores = ridge_scores(market, CONFIG, range(130, 400))
    known = np.isfinite(scores[400:]) & np.isfinite(truth[400:])
    assert np.corrcoef(scores[400:][known], truth[400:][known])[0, 1] > 0.5


def test_ridge_is_that_of_scikit_learn(market: Market) -> None:
    learnt = range(130, 400)
    features, gain, usable = gain_features(market, CONFIG, learnt)
    seen = features[learnt.start : learnt.stop][usable]
    scaler = StandardScaler().fit(seen)
    fitted = Ridge(alpha=1.0).fit(scaler.transform(seen), gain[usable])
    everywhere = np.isfinite(features).all(-1)
    theirs = fitted.predict(scaler.transform(features[everywhere]))
    np.testing.assert_allclose(ridge_scores(market, CONFIG, learnt)[everywhere], theirs, rtol=1e-9, atol=1e-12)


def test_a_rule_buys_the_best_of_what_it_does_not_hold_and_nothing_below_zero(market: Market) -> None:
    scores = torch.full((600, 8), -1.0)
    scores[:, 2], scores[:, 5] = 0.1, 0.3
    sim = build_simulator(CONFIG, batch=1, max_days=15, instruments=8, device=CPU)
    start = next(day for day in range(200, 500) if bool((market.close[day : day + 15][:, [2, 5]] > 0).all()))
    first = torch.tensor([start])
    reset_(sim, start=first, trading_end=first + 4, end=first + 15)
    play_rule_(sim, market, CONFIG, scores, start=start, days=15)
    assert sim.logs.instrument[0, :2].tolist() == [5, 2]
    assert (sim.logs.exit_day[0, 2:4] < 0).all()


@pytest.mark.parametrize("spec", ["synthetic:30x700", "synthetic:30x1400", "synthetic:30x700:context_instruments=4"])
def test_ridge_holds_what_its_formula_says(spec: str) -> None:
    panel = load_panel(spec)
    days, columns = panel.valid.shape
    market = build_market(panel, torch.ones(columns, days, 7), torch.device("cpu"))
    tracemalloc.start()
    try:
        ridge_scores(market, CONFIG, range(130, days - 25))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0.5 * ridge_bytes(market) < peak <= ridge_bytes(market)
