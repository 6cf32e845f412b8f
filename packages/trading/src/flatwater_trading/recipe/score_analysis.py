"""Factor analysis of a trader's scores: do they order the instruments as the later returns do, and for how long?

The score of an instrument is what the trader orders it by: a coefficient, or a learned weight. For several horizons,
each day's scores are compared with the returns from its close to the close `rows` rows later, within the days that are
played: by rank correlation (the information coefficient), and by the mean return of instruments in quantiles of the
score, less that of all (Grinold & Kahn 2000). A coefficient that falls slowly with the horizon is a slow signal.

Neighbouring days share most of a long horizon, so the t value counts one day in each horizon.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Float

from flatwater_watch.files.json_values import convert_to_type

HORIZONS = (1, 5, 10, 20, 60)
"""Rows from a score to the close that it is compared with."""
QUANTILES = 5
MINIMUM_INSTRUMENTS = 4
"""Fewest instruments that are ordered: two in each of two quantiles."""
MINIMUM_DAYS = 10
"""Fewest days with a return at the horizon; a longer horizon is left out."""
CHUNK_DAYS = 256
"""Days that are ranked at a time: memory does not grow with the days."""


@dataclass(frozen=True)
class HorizonScore:
    """How scores and later returns agree at one horizon."""

    rows: int
    """Rows from the score to the close that it is compared with."""
    days: int
    """Days on which the scores differ and the return is known."""
    ic: float
    """Mean over the days of the rank correlation of scores and returns."""
    deviation: float
    """Deviation of the daily rank correlations."""
    t: float
    """Mean over its error, which counts one day in each horizon."""
    positive: float
    """Share of the days with a correlation above 0."""
    quantiles: tuple[float, ...]
    """Mean return of each quantile of the scores, the lowest first, less the mean of all instruments of the day."""
    kept: float
    """Share of the highest quantile that is in it still, `rows` rows later."""
    same_order: float
    """Mean rank correlation of the scores with those of `rows` rows later."""


@dataclass(frozen=True)
class ScoreAnalysis:
    """The analysis at all horizons that fit into the days."""

    horizons: tuple[HorizonScore, ...]
    daily: dict[int, Float[np.ndarray, "D"]]
    """Horizon -> rank correlation of each day; NaN where it is unknown."""


def analyse_scores(
    scores: Float[np.ndarray, "D K"], last_close: Float[np.ndarray, "D K"], tradable: Bool[np.ndarray, "D K"]
) -> ScoreAnalysis:
    """Compare the scores of consecutive days with later returns, for each horizon with enough days.

    Args:
        scores: score of each instrument on each day.
        last_close: last close up to each day; 0 before the first.
        tradable: mask of the instruments with a close on the day: others are not ordered.
    """
    days, count = scores.shape
    if count < MINIMUM_INSTRUMENTS:
        return ScoreAnalysis((), {})  # no horizon
    ranks = day_ranks(np.where(tradable & np.isfinite(scores), scores, np.nan))
    quantiles = min(QUANTILES, count // 2)  # at least two instruments in each
    quantile_numbers = _quantile_numbers(ranks, quantiles)
    horizons, daily = [], {}
    # Horizons ascend, so after one with too few days all others have too few as well.
    for rows in HORIZONS:
        if days - rows < MINIMUM_DAYS:
            break
        correlations, excess_returns = _compare_with_returns(
            ranks, quantile_numbers, last_close, horizon=rows, quantiles=quantiles
        )
        daily[rows] = correlations
        known_correlations = correlations[np.isfinite(correlations)]
        if len(known_correlations) < MINIMUM_DAYS:
            break
        is_in_top = quantile_numbers == quantiles - 1
        horizons.append(_horizon_score(rows, known_correlations, excess_returns, ranks, is_in_top))
    return ScoreAnalysis(tuple(horizons), daily)


def _horizon_score(
    rows: int,
    correlations: Float[np.ndarray, "d"],
    excess_returns: tuple[float, ...],
    ranks: Float[np.ndarray, "D K"],
    is_in_top: Bool[np.ndarray, "D K"],
) -> HorizonScore:
    """Return how scores and later returns agree at a horizon of `rows` rows.

    Args:
        rows: rows from the scores to the close that they are compared with.
        correlations: rank correlations of scores and returns, of the days on which they are known.
        excess_returns: mean return of each quantile of the scores, less that of all.
        ranks: ranks of the scores on all days.
        is_in_top: mask of the instruments in the highest quantile.
    """
    mean, deviation = float(correlations.mean()), float(correlations.std(ddof=1))
    # One day in each horizon counts, as neighbouring days share most of a long one.
    error = deviation / max(1.0, len(correlations) / rows) ** 0.5
    # Of the instruments in the highest quantile, the share that is still in it `rows` rows later.
    top_count = is_in_top[:-rows].sum(1)
    kept_count = (is_in_top[:-rows] & is_in_top[rows:]).sum(1)
    has_top = top_count > 0  # days on which instruments are ordered
    kept_shares = kept_count[has_top] / top_count[has_top]
    return HorizonScore(
        rows=rows,
        days=len(correlations),
        ic=mean,
        deviation=deviation,
        t=mean / error if error > 0 else 0.0,
        positive=float((correlations > 0).mean()),
        quantiles=excess_returns,
        kept=_known_mean(kept_shares),
        same_order=_known_mean(day_correlations(ranks[:-rows], ranks[rows:])),
    )


def day_ranks(values: Float[np.ndarray, "D K"]) -> Float[np.ndarray, "D K"]:
    """Return the rank of each number in its row, from 1; equal numbers share their mean rank, and NaN has none."""
    ranks = np.empty(values.shape)
    for rows in _chunks(len(values)):
        # Transposed: polars ranks a column, and here a day is a row.
        columns = pl.from_numpy(values[rows].T).select(pl.all().fill_nan(None).rank("average"))
        ranks[rows] = columns.select(pl.all().cast(pl.Float64).fill_null(np.nan)).to_numpy().T
    return ranks


def day_correlations(
    first_table: Float[np.ndarray, "D K"], second_table: Float[np.ndarray, "D K"]
) -> Float[np.ndarray, "D"]:
    """Return the correlation of two tables on each day, over the instruments that have a number in both.

    It is NaN on a day on which the numbers of a table are all equal.
    """
    correlations = np.full(len(first_table), np.nan)
    for rows in _chunks(len(first_table)):
        is_known = np.isfinite(first_table[rows]) & np.isfinite(second_table[rows])
        first_centred = _subtract_daily_mean(first_table[rows], is_known)
        second_centred = _subtract_daily_mean(second_table[rows], is_known)
        spread = np.sqrt(np.square(first_centred).sum(1) * np.square(second_centred).sum(1))
        # Days with a spread of 0 keep NaN.
        np.divide((first_centred * second_centred).sum(1), spread, out=correlations[rows], where=spread > 0)
    return correlations


def _subtract_daily_mean(
    table: Float[np.ndarray, "D K"], is_known: Bool[np.ndarray, "D K"]
) -> Float[np.ndarray, "D K"]:
    """Return the known numbers less their mean of the day; 0 where a number is unknown."""
    count = np.maximum(is_known.sum(1, keepdims=True), 1)
    mean = np.where(is_known, table, 0).sum(1, keepdims=True) / count
    return np.where(is_known, table - mean, 0)


def _compare_with_returns(
    ranks: Float[np.ndarray, "D K"],
    quantile_numbers: np.ndarray,
    last_close: Float[np.ndarray, "D K"],
    *,
    horizon: int,
    quantiles: int,
) -> tuple[Float[np.ndarray, "D"], tuple[float, ...]]:
    """Return the rank correlation of each day's scores with later returns, and each quantile's mean excess return.

    An excess return is an instrument's return less the mean return of all instruments from the same day.

    Args:
        ranks: ranks of the scores; NaN for an instrument that is not ordered.
        quantile_numbers: quantile of each instrument on each day; -1 for none.
        last_close: last close up to each day; 0 before the first.
        horizon: days ahead, over which returns are measured.
        quantiles: number of quantiles.
    """
    # Days without a later close in the table keep NaN.
    correlations = np.full(len(ranks), np.nan)
    excess_sums, counts = np.zeros(quantiles), np.zeros(quantiles)
    for days in _chunks(len(ranks) - horizon):
        later_days = slice(days.start + horizon, days.stop + horizon)
        close = last_close[days]
        is_known = (close > 0) & np.isfinite(ranks[days])
        # 1 in the place of a missing close, so that nothing is divided by 0.
        returns = np.where(is_known, last_close[later_days] / np.where(close > 0, close, 1) - 1, np.nan)
        correlations[days] = day_correlations(ranks[days], day_ranks(returns))
        excess_returns = _subtract_daily_mean(returns, is_known)
        for quantile in range(quantiles):
            is_in_quantile = is_known & (quantile_numbers[days] == quantile)
            excess_sums[quantile] += excess_returns[is_in_quantile].sum()
            counts[quantile] += is_in_quantile.sum()
    return correlations, tuple((excess_sums / np.maximum(counts, 1)).tolist())


def _quantile_numbers(ranks: Float[np.ndarray, "D K"], quantiles: int) -> np.ndarray:
    """Return the number of each instrument's quantile on each day: 0 for the lowest scores, -1 without a rank.

    Args:
        ranks: ranks of the scores on each day, from 1; NaN for an instrument that is not ordered.
        quantiles: number of quantiles.
    """
    count = np.isfinite(ranks).sum(1, keepdims=True)
    # (rank - 0.5) / count is a fraction between 0 and 1: the middle of the rank's step.
    number = np.floor((ranks - 0.5) / np.maximum(count, 1) * quantiles)
    return np.where(np.isfinite(number), np.clip(number, 0, quantiles - 1), -1).astype(np.int8)


def _chunks(days: int) -> Iterator[slice]:
    """Yield slices of consecutive days, `CHUNK_DAYS` long but for the last."""
    for first in range(0, days, CHUNK_DAYS):
        yield slice(first, min(days, first + CHUNK_DAYS))


def _known_mean(values: np.ndarray) -> float:
    """Return the mean of the finite numbers; 0 if there are none."""
    known_values = values[np.isfinite(values)]
    return float(known_values.mean()) if len(known_values) else 0.0


def read_horizons(result: Mapping[str, Any]) -> list[HorizonScore]:
    """Read the score analysis of a run's result; empty if the result has none, as in another version.

    Raises:
        ValueError: the values are of other types, or horizons differ in their number of quantiles.
    """
    horizons = convert_to_type(result.get("scores", []), list[HorizonScore])
    if any(horizon.rows < 1 or len(horizon.quantiles) != len(horizons[0].quantiles) for horizon in horizons):
        raise ValueError("scores: expected rows of 1 or more and as many quantiles at each horizon")
    return horizons
