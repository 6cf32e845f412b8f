"""Signals: inputs of a policy of target weights on each day, from closes up to that day alone.

All signals are free of units and of levels: moves are measured in deviations of the days before them, so a policy that
was learned on one share applies to another, and still applies after prices have drifted.

- of an instrument: its move over eight spans, less the day's mean over the instruments; the deviation of its last days
  over that of its last months, and over those of the other instruments.
- of the market: the mean move over the same spans, and its deviation over three spans.
- of each column that cannot be bought, if there are at most `MAXIMUM_CONTEXT`: its moves over the same spans, and its
  level relative to that of its last year.

A move over a span of n rows is an exponential mean of one-row moves with span n, scaled to deviation 1.
"""

from dataclasses import dataclass

import numpy as np

from flatwater_trading.panel.panel import Panel

MEAN_SPANS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Spans of the exponential means of moves, in rows."""
QUICK, USUAL, SLOW = 8, 60, 250
"""Spans of deviations, in rows: the last days, the last months, and the last year."""
REMEMBERED_ROWS = 300
"""Rows that signals remember: the slowest mean has a tenth of its weight on days before these, and what is held with
signals of these rows alone is within a hundredth of what it would be with all."""
OWN_SIGNALS = len(MEAN_SPANS) + 2
"""Signals of an instrument: its moves, and two of their deviation."""
MARKET_SIGNALS = len(MEAN_SPANS) + 2
"""Signals of the market: its mean moves, and two of its deviation."""
CONTEXT_SIGNALS = len(MEAN_SPANS) + 2
"""Signals of a column that cannot be bought: its moves, and two of its level."""
MAXIMUM_CONTEXT = 8
"""Most columns that cannot be bought that give signals; if there are more, none does. The ridge regression that results
are compared with has the same limit."""
LIMIT = 5.0
"""Largest signal, in deviations."""
MINIMUM_DEVIATION = 1e-4
"""Lower limit of the deviation of moves, for a price that does not change."""


@dataclass(frozen=True)
class Signals:
    """Signals at the close of each day, and the returns up to the next close."""

    own: np.ndarray
    """Signals of each instrument [T, K, F] float32; 0 for an instrument without a close on the day."""
    market: np.ndarray
    """Signals that all instruments share [T, G] float32."""
    following: np.ndarray
    """Return of each instrument from a day's close to the next day's [T, K] float32; 0 without a next close, and on the
    last day. Only the account may read it."""
    tradable: np.ndarray
    """Mask [T, K] of the instruments that have a close on the day."""


def market_signals(columns: int, investable: int) -> int:
    """Return the number G of signals that all instruments share."""
    context_columns = columns - investable
    return MARKET_SIGNALS + (context_columns * CONTEXT_SIGNALS if context_columns <= MAXIMUM_CONTEXT else 0)


def find_signals(panel: Panel) -> Signals:
    """Compute the signals of all days of a panel."""
    tradable = panel.valid[:, panel.investable]
    close = panel.closes(panel.investable).astype(np.float64)
    moves = find_moves(close)
    is_listed = np.logical_or.accumulate(tradable, axis=0)
    own_signals = np.empty((*close.shape, OWN_SIGNALS), dtype=np.float32)
    deviation = deviation_so_far(moves, USUAL, is_listed)
    past_moves = _mean_moves(_scale_by_deviations(moves, deviation))
    past_moves -= _day_mean(past_moves, tradable)
    own_signals[..., : len(MEAN_SPANS)] = past_moves
    # Last the two signals of deviation: quick over usual, and usual over that of the other instruments.
    own_signals[..., -2] = np.log(deviation_so_far(moves, QUICK, is_listed) / deviation)
    log_deviation = np.log(deviation)
    own_signals[..., -1] = log_deviation - _day_mean(log_deviation[..., None], tradable)[..., 0]
    own_signals[~tradable] = 0
    np.clip(own_signals, -LIMIT, LIMIT, out=own_signals)
    following = np.zeros(close.shape, dtype=np.float32)
    following[:-1] = moves[1:]  # a day's return is the move of the next day
    return Signals(
        own=own_signals, market=_shared_signals(panel, moves, tradable), following=following, tradable=tradable
    )


def _shared_signals(panel: Panel, moves: np.ndarray, tradable: np.ndarray) -> np.ndarray:
    """Return the signals of the market and of columns that cannot be bought, side by side [T, G] float32."""
    mean = _day_mean(moves[..., None], tradable)[:, 0]  # [T, 1]: the market as a single column
    quick, usual, slow = deviation_so_far(mean, QUICK), deviation_so_far(mean, USUAL), deviation_so_far(mean, SLOW)
    signals = [
        _mean_moves(_scale_by_deviations(mean, usual))[:, 0],
        np.log(quick / usual),
        np.log(usual / slow),
    ]
    context_columns = np.setdiff1d(np.arange(len(panel.instruments)), panel.investable)
    if 0 < len(context_columns) <= MAXIMUM_CONTEXT:
        levels = fill_holes(panel.closes(context_columns).astype(np.float64))
        # Differences and not fractions, as a spread or a yield may be 0 or below.
        steps = np.diff(levels, axis=0, prepend=levels[:1])
        step_deviation = deviation_so_far(steps, USUAL, minimum=0)
        mean_steps = _mean_moves(_scale_by_deviations(steps, step_deviation))
        signals.append(mean_steps.reshape(len(levels), -1))  # all columns side by side
        distance = levels - mean_so_far(levels, SLOW)
        spread = deviation_so_far(distance, SLOW, minimum=0)
        # 0 where the level has not moved yet.
        relative_level = np.divide(distance, spread, where=spread > 0, out=distance * 0)
        signals += [relative_level, mean_so_far(relative_level, QUICK)]
    return np.concatenate(signals, axis=-1).clip(-LIMIT, LIMIT).astype(np.float32)


def find_moves(close: np.ndarray) -> np.ndarray:
    """Return the change of the last known close, as a fraction [T, K]; 0 before the first."""
    last_close = fill_holes(close)
    moves = np.zeros_like(last_close)
    is_priced = last_close[:-1] > 0  # else there was no close yet
    np.divide(last_close[1:], last_close[:-1], out=moves[1:], where=is_priced)
    moves[1:][is_priced] -= 1
    return moves


def fill_holes(values: np.ndarray) -> np.ndarray:
    """Fill each hole with the last number before it, [T, C]; 0 before the first."""
    # The row of the last number up to each row; -1 before the first. A running maximum, so no later row is read.
    rows = np.maximum.accumulate(np.where(np.isnan(values), -1, np.arange(len(values))[:, None]), axis=0)
    last_numbers = np.take_along_axis(values, np.maximum(rows, 0), axis=0)  # row 0 in place of -1, and not used
    return np.where(rows >= 0, last_numbers, 0.0)


def mean_so_far(values: np.ndarray, span: int, is_listed: np.ndarray | None = None) -> np.ndarray:
    """Return the exponential mean [T, C] of each column over the days since it was listed, up to each day.

    Args:
        values: values [T, C]; 0 on the days before a column was listed.
        span: span of the mean, in rows.
        is_listed: mask [T, C] of the days from a column's first close on; None if all are listed from the first day.
    """
    weight = 2 / (span + 1)  # of the newest day, as usual for a span
    means = np.empty_like(values)
    mean = np.zeros_like(values[0])
    for day, row in enumerate(values):
        mean = mean + weight * (row - mean)
        means[day] = mean
    days = np.arange(1, len(values) + 1)[:, None] if is_listed is None else is_listed.cumsum(axis=0)
    # A mean that starts at 0 is too small by the weight of the days before the first.
    return np.asarray(means / (1 - (1 - weight) ** np.maximum(days, 1)))


def deviation_so_far(
    moves: np.ndarray, span: int, is_listed: np.ndarray | None = None, *, minimum: float = MINIMUM_DEVIATION
) -> np.ndarray:
    """Return the deviation [T, C] about 0 of the moves up to each day, at least `minimum`; see `mean_so_far`."""
    return np.asarray(np.maximum(np.sqrt(mean_so_far(moves * moves, span, is_listed)), minimum))


def _scale_by_deviations(moves: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return each day's moves in deviations of the day before, clipped; 0 where that deviation is 0."""
    # The first day has none before it, and takes its own.
    previous_deviation = np.concatenate([deviation[:1], deviation[:-1]])
    scaled_moves = np.divide(moves, previous_deviation, where=previous_deviation > 0, out=np.zeros_like(moves))
    # A single move may be twice as large as a signal, which is a mean of moves.
    return np.asarray(np.clip(scaled_moves, -2 * LIMIT, 2 * LIMIT))


def _mean_moves(moves: np.ndarray) -> np.ndarray:
    """Return exponential means of one-row moves for each of `MEAN_SPANS`, scaled to deviation 1 [T, C, M] float32."""
    weights = np.array([2 / (span + 1) for span in MEAN_SPANS])
    # The variance of an exponential mean of independent moves of variance 1 is weight / (2 - weight).
    scale = np.sqrt((2 - weights) / weights)
    weighted_moves = np.empty((*moves.shape, len(weights)), dtype=np.float32)
    means = np.zeros((moves.shape[1], len(weights)))
    for day, row in enumerate(moves):
        means += weights * (row[:, None] - means)
        weighted_moves[day] = means * scale
    return weighted_moves


def _day_mean(values: np.ndarray, tradable: np.ndarray) -> np.ndarray:
    """Return the mean of each day over the instruments that are traded, [T, K, M] -> [T, 1, M]."""
    # The sum over the K instruments, without those that are not traded.
    total = np.einsum("tkm,tk->tm", values, tradable.astype(values.dtype))
    count = np.maximum(tradable.sum(axis=1), 1).astype(values.dtype)
    return np.asarray((total / count[:, None])[:, None])
