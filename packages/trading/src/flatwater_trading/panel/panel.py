"""The market panel: [time, instrument, feature], one row a calendar day for all columns.

A panel is a value: it is built once by `build_panel` (from an import, the generator or a stored file), its arrays are
read-only, and its fingerprint says whether two runs saw the same data. Missing cells are NaN, here and nowhere later.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import MappingProxyType

import numpy as np

from flatwater_trading.panel.calendar import Calendar, infer_calendar
from flatwater_watch.errors import DataError, require
from flatwater_watch.forms import list_phrase

FEATURES = ("open", "close", "high", "low", "rsi", "macd", "macd_signal", "trix", "sma20_distance")
"""The nine features with which the last axis begins, always addressed by name."""

PRICES = ("open", "high", "low", "close")
"""Features among the nine that a file has to hold."""

_HASH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Panel:
    """Prices and indicators of N instruments on T days."""

    values: np.ndarray
    """Features [T, N, F] float32, read-only; memory-mapped when the panel was opened from a file. NaN where missing."""
    valid: np.ndarray
    """Mask [T, N] bool of the days with a usable close: finite, and above 0 where it can be bought."""
    dates: np.ndarray
    """Days [T] datetime64[D], strictly increasing."""
    instruments: tuple[str, ...]
    """Names [N] of the columns, all different."""
    investable: np.ndarray
    """Column numbers [K] int64 that can be bought, increasing. The others are context columns: seen, never traded."""
    features: tuple[str, ...]
    """Names of the last axis of `values`: the nine, and own ones."""
    origins: Mapping[str, str]
    """Origin of each own feature, with the version of its code; features that replace one of the nine have one, too."""
    fingerprint: str
    """sha256 (hex) of values, dates, names and investable columns: equal for equal contents, however stored."""
    raw_close: np.ndarray | None = None
    """Closes as they were traded [T, N] float32, of a file with adjusted closes beside them; NaN where missing. They
    are for orders alone: nothing is learned from them, and the fingerprint leaves them out. None where unknown."""

    @property
    def calendar(self) -> Calendar:
        """The frequency of the rows, by their dates."""
        return infer_calendar(self.dates)

    def feature(self, name: str) -> np.ndarray:
        """Return one feature as a view [T, N] of `values`.

        Raises:
            DataError: the panel has no such feature; the message names those it has.
        """
        return self.values[:, :, feature_number(self.features, name)]


def first_days(panel: Panel, days: int | None) -> Panel:
    """Return the panel as it was after its first `days` days, as a view; all of it for None.

    Raises:
        ConfigError: the panel has fewer than `days`.
    """
    if days is None or days == len(panel.dates):
        return panel
    require(days < len(panel.dates), "splits.days", days, f"at most the {len(panel.dates)} rows of the panel")
    values, dates = panel.values[:days], panel.dates[:days]
    # Indicators reach back only: the result has the fingerprint of the panel that was imported before newer days came.
    return replace(
        panel,
        values=values,
        valid=panel.valid[:days],
        dates=dates,
        raw_close=None if panel.raw_close is None else panel.raw_close[:days],
        fingerprint=fingerprint(
            values=values,
            dates=dates,
            instruments=panel.instruments,
            investable=panel.investable,
            features=panel.features,
        ),
    )


def choose_instruments(panel: Panel, instruments: tuple[str, ...], investable: Sequence[str]) -> Panel:
    """Return the panel with these columns, in this order; itself where it has them so. Other columns are left out.

    Raises:
        DataError: the panel lacks some of `instruments`; the message names them.
    """
    columns = {name: n for n, name in enumerate(panel.instruments)}
    absent = [name for name in instruments if name not in columns]
    if absent:
        raise DataError(f"the prices lack {list_phrase(absent)}. They have: {list_phrase(panel.instruments)}.")
    if panel.instruments == instruments and [instruments[n] for n in panel.investable] == [*investable]:
        return panel
    order = [columns[name] for name in instruments]
    values = panel.values[:, order]
    return build_panel(
        values=values,
        dates=panel.dates,
        instruments=instruments,
        investable=investable,
        features=panel.features,
        origins=panel.origins,
        raw_close=None if panel.raw_close is None else panel.raw_close[:, order],
    )


def feature_number(features: tuple[str, ...], name: str) -> int:
    """Return the place of a feature in the last axis of `values`.

    Raises:
        DataError: there is no such feature; the message names those there are.
    """
    if name not in features:
        raise DataError(f"feature {name!r} is not in the panel. It has: {', '.join(features)}.")
    return features.index(name)


def build_panel(
    *,
    values: np.ndarray,
    dates: np.ndarray,
    instruments: Sequence[str],
    investable: Sequence[str] | None = None,
    features: tuple[str, ...] = FEATURES,
    origins: Mapping[str, str] = MappingProxyType({}),
    raw_close: np.ndarray | None = None,
) -> Panel:
    """Build a panel around `values`, which is made read-only and not copied.

    Args:
        values: [T, N, F] float32 in the order of `features`, NaN where missing.
        dates: [T] datetime64[D], strictly increasing.
        instruments: [N] names, all different.
        investable: names that may be traded, or patterns such as `ETF*`; None for all.
        features: the nine, and own ones behind them.
        origins: origins of own features.
        raw_close: [T, N] float32, closes as they were traded where `values` are adjusted.

    Raises:
        DataError: names are repeated, `investable` is empty or has a name or pattern of no instrument.
    """
    names = tuple(instruments)
    columns = investable_columns(names, investable)
    close = values[:, :, FEATURES.index("close")]
    valid = np.isfinite(close)
    # A context column may be of any sign: a spread of 0 is a value.
    valid[:, columns] &= close[:, columns] > 0
    for array in (values, valid, dates, columns, *(() if raw_close is None else (raw_close,))):
        array.setflags(write=False)
    return Panel(
        values=values,
        valid=valid,
        dates=dates,
        instruments=names,
        investable=columns,
        features=features,
        origins=dict(origins),
        raw_close=raw_close,
        fingerprint=fingerprint(values=values, dates=dates, instruments=names, investable=columns, features=features),
    )


def investable_columns(instruments: tuple[str, ...], names: Sequence[str] | None) -> np.ndarray:
    """Return increasing int64 column numbers of the chosen names, of all columns for None.

    Args:
        instruments: all names.
        names: some of them, and patterns in which `*` and `?` stand for other characters.

    Raises:
        DataError: names are repeated, none is chosen, or a chosen one is no instrument.
    """
    if len(set(instruments)) < len(instruments):
        repeated = next(name for name in instruments if instruments.count(name) > 1)
        raise DataError(f"instrument {repeated!r} appears twice: every column of a panel needs a name of its own.")
    if names is None:
        return np.arange(len(instruments), dtype=np.int64)
    places = {name: n for n, name in enumerate(instruments)}
    columns_by_choice = {
        each: [places[each]] if each in places else [places[name] for name in instruments if fnmatchcase(name, each)]
        for each in names
    }
    unknown = [each for each in names if not columns_by_choice[each]]
    if unknown or not names:
        problem = f"names no instrument of the panel: {', '.join(unknown)}" if unknown else "is empty"
        raise DataError(f"investable {problem}. Choose from: {list_phrase(instruments)}.")
    return np.array(sorted({column for columns in columns_by_choice.values() for column in columns}), dtype=np.int64)


def fingerprint(
    *,
    values: np.ndarray,
    dates: np.ndarray,
    instruments: tuple[str, ...],
    investable: np.ndarray,
    features: tuple[str, ...] = FEATURES,
) -> str:
    """Return the sha256 (hex) of a panel's contents, in bounded extra memory.

    All NaN count as the same, whatever bits they carry, so a re-import on another machine gives the same fingerprint.

    Args:
        values: features [T, N, F], hashed as float32.
        dates: days [T].
        instruments: names [N].
        investable: column numbers [K].
        features: names [F].
    """
    digest = hashlib.sha256(f"{features}{values.shape}{instruments}".encode())
    # Little-endian and of fixed width: machines of another byte order come to the same hash.
    digest.update(np.ascontiguousarray(dates.astype("datetime64[D]").astype("<i8")).data)
    digest.update(np.ascontiguousarray(investable.astype("<i8")).data)
    rows = max(1, _HASH_BYTES // max(1, values[:1].nbytes))
    for first in range(0, len(values), rows):
        block = np.array(values[first : first + rows], dtype="<f4", order="C")
        # One NaN for all: payload and sign of a NaN depend on the processor that made it.
        block[np.isnan(block)] = np.nan
        digest.update(block.data)
    return digest.hexdigest()
