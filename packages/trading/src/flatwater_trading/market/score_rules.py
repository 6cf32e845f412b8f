"""Simple rules of purchases: they trade under the same constraints as an agent, and learning has to beat them.

Each rule gives every instrument a score on every day, from prices up to that day, and requests the instruments with a
score above 0; the simulator then buys the best that is not held. So rules and agents have the same costs, sizes and
holding time, and differ only in their choices.

- 20-day and 12-1 momentum: the return over the last 20 days, and over the last 12 months without the newest (Jegadeesh
  and Titman 1993; 252 and 21 trading days). If a row of the market is a week, a month or a quarter, the first is over
  20 of these and named accordingly; the second is over a year without its last month or, if a row is longer than a
  month, without its last row.
- ridge: a linear regression of the resolved gain on past returns over 8 lengths, raw and less the day's mean over the
  instruments, and on the observed features of up to 8 columns that cannot be bought (Hoerl and Kennard 1970, solved
  as by scikit-learn), fitted to the days that the agent learns from.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater_trading.market.config import TradingConfig
from flatwater_trading.market.exits import trade_gains
from flatwater_trading.market.market import Market
from flatwater_trading.market.simulator import Simulator, step_
from flatwater_trading.panel.calendar import Calendar
from flatwater_watch.progress import count_steps

MONTHS_OF_A_YEAR = 12
MOMENTUM_ROWS = 20
"""Rows of the shorter momentum: as many as a position is held by default."""
RETURN_ROWS = (1, 2, 5, 10, 20, 40, 60, 120)
"""Lengths in rows of the past returns that ridge sees."""
RIDGE_PENALTY = 1.0
"""Penalty of ridge, on features of deviation 1."""
MAXIMUM_CONTEXT_COLUMNS = 8
"""Most columns that cannot be bought that ridge sees: with more it would have more features than it can fit."""
MAXIMUM_GAIN = 0.5
"""Limit of the gains that ridge is fitted to: they are clipped to +-50 %."""


def past_return(market: Market, days: int, *, skip: int = 0) -> np.ndarray:
    """Return the returns [T, K] over `days` rows that end `skip` rows before each row, float64.

    NaN if a price is missing, or if the instrument has no close on the row and so cannot be bought.
    """
    last_close = market.last_close.double().cpu().numpy()
    known_close = np.where(last_close > 0, last_close, np.nan)
    returns = np.full_like(known_close, np.nan)
    stop = len(known_close) - skip
    if stop > days:
        # Row t compares rows t - skip and t - skip - days: nothing later than t is read.
        returns[days + skip :] = known_close[days:stop] / known_close[: stop - days] - 1
    # An instrument without a close today cannot be bought, so it has no score.
    returns[~(market.close > 0).cpu().numpy()] = np.nan
    return returns


def gain_features(
    market: Market, config: TradingConfig, learned_rows: range
) -> tuple[Float[np.ndarray, "T K F"], Float[np.ndarray, "D K"], Bool[np.ndarray, "D K"]]:
    """Return features and targets of a regression of gains, and a mask of the samples that have both.

    Args:
        market: prices.
        config: holding time, largest target and costs.
        learned_rows: D rows that the regression is fitted to; their trades end on training days.

    Returns:
        Features: past returns of eight lengths, raw and less the day's mean, and the observed features of a few columns
        that cannot be bought; targets: resolved gains, clipped; and the mask.
    """
    context_features = _context_features(market)
    features = np.empty((*market.close.shape, 2 * len(RETURN_ROWS) + context_features.shape[-1]))
    # Views: what is written into them is in `features`.
    raw, less_mean = features[..., : len(RETURN_ROWS)], features[..., len(RETURN_ROWS) : 2 * len(RETURN_ROWS)]
    for number, days in enumerate(RETURN_ROWS):
        raw[..., number] = past_return(market, days)
    with np.errstate(invalid="ignore"):
        is_known = np.isfinite(raw)
        mean = np.where(is_known, raw, 0).sum(1, keepdims=True) / np.maximum(is_known.sum(1, keepdims=True), 1)
    np.subtract(raw, mean, out=less_mean)
    features[..., 2 * len(RETURN_ROWS) :] = context_features
    target = torch.tensor([config.trade.target_high], device=market.close.device)
    gains = trade_gains(market, rows=learned_rows, targets=target, trade=config.trade, account=config.account)[..., 0]
    gain = gains.double().cpu().numpy().clip(-MAXIMUM_GAIN, MAXIMUM_GAIN)
    is_usable = np.isfinite(features[learned_rows.start : learned_rows.stop]).all(-1) & np.isfinite(gain)
    return features, gain, is_usable


def context_column_count(columns: int, instruments: int) -> int:
    """Return the number of columns that cannot be bought and that ridge sees: all, or 0 if they are too many."""
    context_columns = columns - instruments
    return context_columns if context_columns <= MAXIMUM_CONTEXT_COLUMNS else 0


def _context_features(market: Market) -> Float[np.ndarray, "T 1 CF"]:
    """Return the observed features of the columns that cannot be bought, the same for every instrument."""
    days, instruments = market.close.shape
    if not context_column_count(len(market.observations), instruments):
        return np.empty((days, 1, 0))
    # The columns that are not investable.
    columns = np.setdiff1d(np.arange(len(market.observations)), market.investable.cpu().numpy())
    observed = market.observations[torch.from_numpy(columns).to(market.observations.device)].double().cpu().numpy()
    return np.asarray(observed.transpose(1, 0, 2).reshape(days, 1, -1))


def ridge_bytes(market: Market) -> int:
    """Return the most bytes that `ridge_scores` holds at a time, for a market of this size."""
    (days, instruments), (columns, _, features) = market.close.shape, market.observations.shape
    feature_count = 2 * len(RETURN_ROWS) + context_column_count(columns, instruments) * features
    # Float64 numbers: all features, the samples of the fit, masks, and the values of a few instruments and days.
    return 8 * days * instruments * (2 * feature_count + len(RETURN_ROWS))


def ridge_scores(market: Market, config: TradingConfig, learned_rows: range) -> np.ndarray:
    """Return the gain [T, K] that ridge expects of each purchase; NaN if a feature is missing.

    Solves the normal equations, as scikit-learn's `Ridge` does; its import would take 2 CPU seconds and 110 MB.
    """
    features, gain, is_usable = gain_features(market, config, learned_rows)
    scores = np.full(features.shape[:2], np.nan)
    if not is_usable.any():
        return scores
    samples = features[learned_rows.start : learned_rows.stop][is_usable]
    centre = samples.mean(0)
    samples -= centre  # in place: a copy would be as large as all training samples
    # Features of deviation 1, so that one penalty treats them alike; a constant feature is divided by 1.
    spread = np.sqrt(np.einsum("df,df->f", samples, samples) / len(samples))
    spread[spread == 0] = 1
    samples /= spread
    mean_gain = gain[is_usable].mean()
    # Features and gains are centred: the mean gain is the intercept, and no penalty shrinks it.
    normal_matrix = samples.T @ samples + RIDGE_PENALTY * np.eye(samples.shape[1])
    weights = np.linalg.solve(normal_matrix, samples.T @ (gain[is_usable] - mean_gain))
    # Day by day, so that standardised and raw features are never all in memory together.
    for day, row in enumerate(features):
        is_known = np.isfinite(row).all(-1)
        scores[day, is_known] = (row[is_known] - centre) / spread @ weights + mean_gain
    return scores


def score_rules(
    market: Market, config: TradingConfig, learned_rows: range, calendar: Calendar
) -> dict[str, Callable[[], np.ndarray]]:
    """Return rules by name, each as the function that computes the rule's scores [T, K].

    Args:
        market: prices.
        config: holding time, largest target and costs.
        learned_rows: rows that ridge is fitted to.
        calendar: calendar of the market's rows.
    """
    # Rows of a month; at least one, so that 12-1 momentum leaves out a row also if rows are longer than a month.
    month = max(1, round(calendar.a_year / MONTHS_OF_A_YEAR))
    return {
        f"{MOMENTUM_ROWS}-{calendar.unit} momentum": lambda: past_return(market, MOMENTUM_ROWS),
        "12-1 momentum": lambda: past_return(market, max(1, calendar.a_year - month), skip=month),
        "ridge": lambda: ridge_scores(market, config, learned_rows),
    }


def oracle_scores(true_returns: np.ndarray, config: TradingConfig) -> np.ndarray:
    """Return the expected gain [T, K] of each purchase by the law of a synthetic market, less its costs.

    Args:
        true_returns: expected log returns until the position is sold; NaN for an instrument without a price.
        config: costs, of which those in proportion to the value count: a synthetic market has no volume.
    """
    # The truth is a log return, so the costs of both sides are a logarithm too.
    cost = np.log(config.account.purchase_factor / config.account.sale_factor)
    return np.asarray(true_returns - cost)


def play_rule_(
    sim: Simulator, market: Market, config: TradingConfig, scores: Float[Tensor, "T K"], *, start: int, days: int
) -> None:
    """Play `days` steps of the episodes that `reset_` has begun on row `start`; a score above 0 requests a purchase.

    Args:
        sim: simulator; written in place, and its logs then hold the rule's trades and equity.
        market: prices.
        config: settings, with the ranges of the actions.
        scores: scores of the rule; NaN requests nothing.
        start: row of the first day.
        days: number of days of the longest episode.
    """
    trade = config.trade
    action = torch.full((len(sim.day), sim.instruments, 2), trade.target_high, device=sim.day.device)
    for day in count_steps("days of a rule", range(start, start + days)):
        # Scores of a day depend on prices up to its close, at which the simulator buys.
        score = scores[day].nan_to_num(nan=-1.0)
        # Coefficients keep the order of the scores and start at the threshold: a score above 0 is a purchase. Sorting
        # twice gives each instrument's number in the order of the scores, here as a part of all.
        rank = score.argsort().argsort() / max(1, len(score))
        coefficient = trade.buy_threshold + rank * (trade.coefficient_max - trade.buy_threshold)
        action[..., 0] = coefficient.where(score > 0, 0.0)
        step_(sim, market, config, action)
