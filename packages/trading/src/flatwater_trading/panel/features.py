"""Features that an agent can observe of a column on a day: those of the panel, and some that are free of scale.

The level of a price means nothing in itself; its changes do. Features that are free of scale are in percent and
comparable between columns and years, so one mean and one deviation over all instruments that can be bought scale them
(`panel/normalise.py`): differences between columns then remain visible. The panel's prices, and all features of a
context column, are scaled column by column.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from flatwater_trading.panel.panel import FEATURES, Panel
from flatwater_watch.errors import DataError

Columns = dict[str, np.ndarray]
"""Features of the panel by name, each [T, n] float64; NaN if the value or the day's close is missing."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A number of a column on a day."""

    needs: tuple[str, ...]
    """The panel's features that the feature is computed from."""
    compute: Callable[[Columns], np.ndarray]
    """Function that computes the feature, [T, n] float64, NaN if missing. It does not read later days."""
    scale_free: bool
    """True if the feature is comparable between columns."""
    rows: int
    """Fewest days with a close, its own included, after which a column has a number of the feature."""


_INDICATOR_ROWS = {"rsi": 15, "macd": 34, "macd_signal": 34, "trix": 44, "sma20_distance": 20}
"""Days with a close up to the first number of each indicator: one more than its warm-up (`panel/indicators.py`)."""


def _plain_feature(name: str) -> Feature:
    """Return a feature of the panel without a change. RSI and TRIX are in percent, the others in units of the price."""
    rows = _INDICATOR_ROWS.get(name, 1)  # an own feature has as many numbers as its author computed
    return Feature((name,), lambda columns: columns[name], scale_free=name in {"rsi", "trix"}, rows=rows)


def _was_always_positive(close: np.ndarray) -> np.ndarray:
    """Return a mask of the days up to which all closes are above 0: a spread that has crossed 0 has no percentage."""
    # Accumulated, as a later close below 0 must not change earlier days. fmin skips NaN.
    return np.fmin.accumulate(close, axis=0) > 0


def _past_return(columns: Columns, *, days: int) -> np.ndarray:
    """Return the return in percent since the close `days` rows ago or, if it is missing, the last close before it."""
    close = columns["close"]
    rows = np.where(np.isfinite(close), np.arange(len(close))[:, None], -1)  # -1: no close
    # For each row, the newest row up to it that has a close: no later row is read.
    newest_row = np.maximum.accumulate(rows, axis=0)
    # For each row, that of the row `days` before; -1 in the first `days` rows, which have no such row.
    without_close = np.full((min(days, len(close)), close.shape[1]), -1)
    earlier_row = np.vstack([without_close, newest_row[:-days]])
    earlier_close = np.where(
        (earlier_row >= 0) & _was_always_positive(close),
        np.take_along_axis(close, np.maximum(earlier_row, 0), axis=0),  # row 0 in place of -1, and not used
        np.nan,
    )
    return 100 * (close / earlier_close - 1)


def _return_over(days: int) -> Feature:
    """Return the feature of the return over `days` rows."""
    return Feature(("close",), partial(_past_return, days=days), scale_free=True, rows=days + 1)


def _percent_of_close(name: str) -> Feature:
    """Return the feature `name` in percent of the day's close; NaN from the first close at or below 0 on."""

    def compute(columns: Columns) -> np.ndarray:
        """Return the feature [T, n] in percent of the close."""
        close = columns["close"]
        return 100 * columns[name] / np.where(_was_always_positive(close), close, np.nan)

    return Feature((name, "close"), compute, scale_free=True, rows=_INDICATOR_ROWS[name])


OBSERVABLE: dict[str, Feature] = {name: _plain_feature(name) for name in FEATURES} | {
    "return": _return_over(1),
    "return_60": _return_over(60),
    "return_120": _return_over(120),
    "macd_pct": _percent_of_close("macd"),
    "macd_signal_pct": _percent_of_close("macd_signal"),
    "sma20_distance_pct": _percent_of_close("sma20_distance"),
}
"""Name -> feature. `return...` and names that end in `_pct` are in percent, `rsi` is 0 to 100, `trix` percent a day."""


def find_features(names: Sequence[str], file_features: Sequence[str] = FEATURES) -> list[Feature]:
    """Return the features of these names, in their order.

    Args:
        names: names of the observed features.
        file_features: features of the panel; own features are observed without a change.

    Raises:
        DataError: a feature is unknown; the message names the known features.
    """
    available = {name: _plain_feature(name) for name in file_features} | OBSERVABLE  # the latter win
    for name in names:
        if name not in available:
            raise DataError(f"there is no feature {name!r} to observe. There are: {', '.join(available)}.")
    return [available[name] for name in names]


def observed_features(panel: Panel, features: Sequence[Feature], stop: int, columns: slice) -> np.ndarray:
    """Compute the features of some columns on rows 0 ... `stop` - 1: [stop, n, F] float64; NaN if missing.

    Args:
        panel: T days of N columns.
        features: F features of `find_features`.
        stop: row after the last row.
        columns: slice of n columns.
    """
    valid = panel.valid[:stop, columns]
    needed_columns: Columns = {}
    needed_names = {name for feature in features for name in feature.needs}
    for name in needed_names:
        needed_columns[name] = panel.feature(name)[:stop, columns].astype(np.float64)
        # Written to the copy that astype made. Without a usable close all features of the day are missing.
        needed_columns[name][~valid] = np.nan
    return np.stack([feature.compute(needed_columns) for feature in features], axis=-1)
