"""Features that an agent can observe of a column on a day: the panel's own, and some that are free of scale.

A price of 30 and one of 3,000 say nothing in themselves; their changes do. The features that are free of scale are in
percent, and mean the same in every column and every year, so one mean and one deviation over all that can be bought
scale them (`panel/normalise.py`): what a column does over years then remains visible. The panel's own prices, and
everything of a context column, are scaled column by column.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from flatwater_trading.panel.panel import FEATURES, Panel
from flatwater_watch.errors import DataError

Columns = dict[str, np.ndarray]
"""Features of the panel by name, each [T, n] float64, NaN where the value or the day's close is missing."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One number of a column and day."""

    needs: tuple[str, ...]
    """The panel's features that it is computed from."""
    of: Callable[[Columns], np.ndarray]
    """Function that computes it, [T, n] float64, NaN where it is missing. Reads nothing of later days."""
    scale_free: bool
    """True where it means the same in every column."""


def _plain_feature(name: str) -> Feature:
    return Feature((name,), lambda columns: columns[name], scale_free=name in {"rsi", "trix"})


def _was_always_positive(close: np.ndarray) -> np.ndarray:
    """Mask of days on which all closes so far are above 0: of a spread that crossed 0 no percentage can be taken."""
    # Accumulated, not of all days: whether a later close falls below 0 is not known yet. fmin skips NaN.
    return np.fmin.accumulate(close, axis=0) > 0


def _past_return(columns: Columns, *, days: int = 1) -> np.ndarray:
    """Return in percent since the last close that was known `days` rows ago, however old it was."""
    close = columns["close"]
    rows = np.where(np.isfinite(close), np.arange(len(close))[:, None], -1)
    # The newest row with a close, up to each: it reaches back only.
    newest_row = np.maximum.accumulate(rows, axis=0)
    row_before = np.vstack([np.full((min(days, len(close)), close.shape[1]), -1), newest_row[:-days]])
    close_before = np.where(
        (row_before >= 0) & _was_always_positive(close),
        np.take_along_axis(close, np.maximum(row_before, 0), axis=0),
        np.nan,
    )
    return 100 * (close / close_before - 1)


def _percent_of_close(name: str) -> Feature:
    """Return the feature that is another one in percent of the day's close; NaN from a close at or below 0 on."""

    def of(columns: Columns) -> np.ndarray:
        close = columns["close"]
        return 100 * columns[name] / np.where(_was_always_positive(close), close, np.nan)

    return Feature((name, "close"), of, scale_free=True)


OBSERVABLE: dict[str, Feature] = {name: _plain_feature(name) for name in FEATURES} | {
    "return": Feature(("close",), _past_return, scale_free=True),
    "return_60": Feature(("close",), partial(_past_return, days=60), scale_free=True),
    "return_120": Feature(("close",), partial(_past_return, days=120), scale_free=True),
    "macd_pct": _percent_of_close("macd"),
    "macd_signal_pct": _percent_of_close("macd_signal"),
    "sma20_distance_pct": _percent_of_close("sma20_distance"),
}
"""Name -> feature. `return...` and those that end in `_pct` are in percent, `rsi` is 0 to 100, `trix` percent a day."""


def find_features(names: Sequence[str], file_features: Sequence[str] = FEATURES) -> list[Feature]:
    """Find features by their names.

    Args:
        names: to be observed.
        file_features: features of the panel; own ones are observed as they are.

    Raises:
        DataError: there is no such feature; the message names those there are.
    """
    available = {name: _plain_feature(name) for name in file_features} | OBSERVABLE
    for name in names:
        if name not in available:
            raise DataError(f"there is no feature {name!r} to observe. There are: {', '.join(available)}.")
    return [available[name] for name in names]


def observed_features(panel: Panel, features: Sequence[Feature], stop: int, columns: slice) -> np.ndarray:
    """Compute the features of some columns on rows 0 ... `stop` - 1: [stop, n, F] float64, NaN where missing.

    Args:
        panel: T days of N columns.
        features: F, as `find_features` gives them.
        stop: row after the last.
        columns: the n columns.
    """
    valid = panel.valid[:stop, columns]
    needed: Columns = {}
    for name in {name for feature in features for name in feature.needs}:
        needed[name] = panel.feature(name)[:stop, columns].astype(np.float64)
        # On the copy that astype made. Without a usable close a column is missing on the day, whatever else it has.
        needed[name][~valid] = np.nan
    return np.stack([feature.of(needed) for feature in features], axis=-1)
