"""The laws of artificial markets: each moves prices as it says, as strongly as it is asked to."""

from typing import get_args

import numpy as np
import pytest

from flatwater_trading.panel.config import Law, SyntheticConfig
from flatwater_trading.panel.laws import HORIZON_DAYS, make_law
from flatwater_trading.panel.synthetic import SyntheticPanel, synthetic_panel, synthetic_truth
from flatwater_watch.errors import ConfigError

TRADED = 120


def market_of(law: Law, *, signal: float = 0.12, days: int = 4000, life: int = 20) -> SyntheticPanel:
    """A market without gaps, large enough for its shares to be seen."""
    return synthetic_panel(
        SyntheticConfig(
            instruments=TRADED + 1,
            days=days,
            context_instruments=1,
            law=law,
            signal=signal,
            signal_days=life,
            late_listings=0.0,
            delistings=0.0,
            halts=0.0,
        )
    )


def closes(market: SyntheticPanel) -> np.ndarray:
    """Log closing prices [T, N]."""
    return np.log(market.panel.feature("close").astype(np.float64))


def share_and_slope(market: SyntheticPanel, growth: float) -> tuple[float, float]:
    """Share of the variance of 20-day returns that the truth explains, and the slope of returns over the truth."""
    log = closes(market)[:, :TRADED]
    ahead = log[HORIZON_DAYS:] - log[:-HORIZON_DAYS] + HORIZON_DAYS * growth
    truth = market.drift[:-HORIZON_DAYS, :TRADED].astype(np.float64) + HORIZON_DAYS * growth
    return float(1 - np.mean((ahead - truth) ** 2) / np.mean(ahead**2)), float(
        np.mean(ahead * truth) / np.mean(truth**2)
    )


@pytest.mark.parametrize(
    ("law", "signal", "life"),
    [("reversal", 0.2, 10), ("regimes", 0.12, 20), ("interaction", 0.12, 20), ("lead", 0.3, 50)],
)
def test_the_truth_explains_the_share_asked_for(law: Law, signal: float, life: int) -> None:
    """All columns share one leader, one sign: there are some hundreds of independent stretches, not thousands."""
    market = market_of(law, signal=signal, life=life)
    growth = make_law(
        SyntheticConfig(instruments=2, days=4000, context_instruments=1, law=law, signal=signal, signal_days=life)
    ).growth
    share, slope = share_and_slope(market, growth)
    assert share == pytest.approx(signal, abs=0.12 if law == "lead" else 0.02)
    assert slope == pytest.approx(1, abs=0.25 if law == "lead" else 0.05)


@pytest.mark.parametrize("law", get_args(Law))
def test_equal_weights_earn_nothing_on_average(law: Law) -> None:
    close = np.exp(closes(market_of(law))[:, :TRADED])
    assert np.mean(close[1:] / close[:-1] - 1) == pytest.approx(0, abs=0.001)


def momentum(market: SyntheticPanel) -> np.ndarray:
    """On each day, how past and next month go together over the columns [T]."""
    log = closes(market)[:, :TRADED]
    past, ahead = (
        log[HORIZON_DAYS:-HORIZON_DAYS] - log[: -2 * HORIZON_DAYS],
        log[2 * HORIZON_DAYS :] - log[HORIZON_DAYS:-HORIZON_DAYS],
    )
    past, ahead = (each - each.mean(1, keepdims=True) for each in (past, ahead))
    return np.asarray((past * ahead).mean(1) / (past.std(1) * ahead.std(1)))


def test_trends_go_on_and_reversals_turn() -> None:
    assert momentum(market_of("trend", life=50)).mean() > 0.1
    assert momentum(market_of("reversal")).mean() < -0.1
    assert abs(momentum(market_of("none")).mean()) < 0.02


def test_the_context_column_says_which_rule_pays() -> None:
    market = market_of("interaction", days=6000)
    pays, shown = momentum(market), closes(market)[:, TRADED]
    rises = shown[HORIZON_DAYS:-HORIZON_DAYS] > shown[: -2 * HORIZON_DAYS]
    assert 0.2 < rises.mean() < 0.8
    assert pays[rises].mean() > 0.1
    assert pays[~rises].mean() < -0.1
    assert abs(pays.mean()) < 0.1


def test_the_leader_moves_before_the_others() -> None:
    log = closes(market_of("lead", signal=0.3, life=50))
    led, leader = log[:, :TRADED].mean(1), log[:, TRADED]
    past = leader[HORIZON_DAYS:-HORIZON_DAYS] - leader[: -2 * HORIZON_DAYS]
    ahead = led[2 * HORIZON_DAYS :] - led[HORIZON_DAYS:-HORIZON_DAYS]
    before = led[HORIZON_DAYS:-HORIZON_DAYS] - led[: -2 * HORIZON_DAYS]
    following = leader[2 * HORIZON_DAYS :] - leader[HORIZON_DAYS:-HORIZON_DAYS]
    assert np.corrcoef(past, ahead)[0, 1] > 0.4
    assert abs(np.corrcoef(before, following)[0, 1]) < 0.2


@pytest.mark.parametrize("law", ["lead", "interaction"])
def test_a_law_that_speaks_by_a_column_wants_one(law: Law) -> None:
    with pytest.raises(ConfigError, match=rf"synthetic\.law = {law}: .*synthetic\.context_instruments .*1"):
        synthetic_panel(SyntheticConfig(law=law))


@pytest.mark.parametrize("law", ["trend", "reversal", "regimes"])
def test_more_signal_than_a_law_can_have_is_refused(law: Law) -> None:
    with pytest.raises(ConfigError, match=r"synthetic\.signal = 0\.9: .*50 days .* 0\..*synthetic\.signal_days"):
        synthetic_panel(SyntheticConfig(law=law, signal=0.9))


@pytest.mark.parametrize("law", get_args(Law))
def test_the_truth_is_the_same_without_the_panel(law: Law) -> None:
    config = SyntheticConfig(instruments=7, days=300, context_instruments=2, law=law, signal=0.1, signal_days=20)
    market = synthetic_panel(config)
    np.testing.assert_array_equal(synthetic_truth(config), market.drift[:, market.panel.investable])
