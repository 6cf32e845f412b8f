"""The market panel: [time, instrument, feature], a row for each calendar day of all columns.

A panel is a value: it is built once by `build_panel` (from an import, the generator or a stored file), its arrays are
read-only, and runs with equal fingerprints saw the same data. Missing cells are NaN here; observations have 0 instead.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import MappingProxyType

import numpy as np

from flatwater_trading.panel.calendar import Calendar, infer_calendar
from flatwater_watch.errors import DataError, require
from flatwater_watch.phrases import list_phrase

FEATURES = ("open", "close", "high", "low", "rsi", "macd", "macd_signal", "trix", "sma20_distance")
"""The first nine features of the last axis, always addressed by name."""

PRICES = ("open", "high", "low", "close")
"""Features among the nine that are read from a file."""

_HASH_BYTES = 4 << 20  # bytes that are hashed at a time


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Panel:
    """Prices and indicators of N instruments on T days."""

    values: np.ndarray
    """Features [T, N, F] float32, read-only; memory-mapped if the panel was opened from a file. NaN if missing."""
    valid: np.ndarray
    """Mask [T, N] bool of the days with a usable close: finite, and for instruments that can be bought above 0."""
    dates: np.ndarray
    """Days [T] datetime64[D], strictly increasing."""
    instruments: tuple[str, ...]
    """Names [N] of the columns, all different."""
    investable: np.ndarray
    """Numbers [K] int64 of columns that can be bought, increasing. Others are context columns: never traded."""
    features: tuple[str, ...]
    """Names of the last axis of `values`: the nine, and own features."""
    origins: Mapping[str, str]
    """Origin of each own feature, with the version of its code; also of features that replace one of the nine."""
    fingerprint: str
    """sha256 (hex) of values, dates, names and investable columns: equal for equal contents, however stored."""
    raw_close: np.ndarray | None = None
    """Closes as they were traded [T, N] float32, of a file that also has adjusted closes; NaN if missing. They are for
    orders alone: nothing is learned from them, and the fingerprint leaves them out. None if unknown."""

    @property
    def calendar(self) -> Calendar:
        """The frequency of the rows, by their dates."""
        return infer_calendar(self.dates)

    @property
    def investable_names(self) -> tuple[str, ...]:
        """Names [K] of the columns that can be bought."""
        return tuple(self.instruments[n] for n in self.investable)

    def unpriced_names(self, row: int) -> tuple[str, ...]:
        """Return the names of the columns without a usable close on a row."""
        return tuple(name for name, valid in zip(self.instruments, self.valid[row], strict=True) if not valid)

    @property
    def mapped_bytes(self) -> Mapping[str, int]:
        """Bytes of values and masks by path, for a plan: pages of the file that the panel was opened from."""
        return {"panel.values": self.values.nbytes, "panel.valid": self.valid.nbytes}

    def feature(self, name: str) -> np.ndarray:
        """Return a feature as a view [T, N] of `values`.

        Raises:
            DataError: the panel has no such feature; the message names its features.
        """
        return self.values[:, :, feature_number(self.features, name)]

    def closes(self, columns: np.ndarray) -> np.ndarray:
        """Return the closes [T, n] of some columns, by their numbers; NaN on days without a usable close."""
        return np.where(self.valid[:, columns], self.feature("close")[:, columns], np.nan)


def first_days(panel: Panel, days: int | None) -> Panel:
    """Return a panel of the first `days` days, whose arrays are views; the panel itself for None.

    Raises:
        ConfigError: the panel has fewer than `days` days.
    """
    if days is None or days == len(panel.dates):
        return panel
    require(days < len(panel.dates), "splits.days", days, f"at most the {len(panel.dates)} rows of the panel")
    values, dates = panel.values[:days], panel.dates[:days]
    # Indicators depend on earlier days alone, so the fingerprint is that of an import without the newer days.
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
    """Return the panel with only these columns, in this order; the panel itself if it already has them so.

    Raises:
        DataError: the panel lacks some of `instruments`; the message names them.
    """
    columns = {name: n for n, name in enumerate(panel.instruments)}
    absent = [name for name in instruments if name not in columns]
    if absent:
        raise DataError(f"the prices lack {list_phrase(absent)}. They have: {list_phrase(panel.instruments)}.")
    # No copy of the values where nothing changes.
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
        DataError: there is no such feature; the message names the features.
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
        values: features [T, N, F] float32 in the order of `features`; NaN if missing.
        dates: days [T] datetime64[D], strictly increasing.
        instruments: names [N], all different.
        investable: names that may be traded, or patterns such as `ETF*`; None for all.
        features: names of the nine features, then of own features.
        origins: origins of own features.
        raw_close: closes as they were traded [T, N] float32, if `values` are adjusted.

    Raises:
        DataError: names are repeated, `investable` is empty, or a name or pattern in it matches no instrument.
    """
    names = tuple(instruments)
    columns = investable_columns(names, investable)
    close = values[:, :, FEATURES.index("close")]
    valid = np.isfinite(close)
    # Only for columns that can be bought: a context column, such as a spread, may be of any sign, or 0.
    valid[:, columns] &= close[:, columns] > 0
    arrays: list[np.ndarray] = [values, valid, dates, columns]
    if raw_close is not None:
        arrays.append(raw_close)
    for array in arrays:
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
        instruments: names of all columns.
        names: chosen names, and patterns with `*` and `?` for other characters.

    Raises:
        DataError: instruments are repeated, `names` is empty, or a chosen name matches no instrument.
    """
    if len(set(instruments)) < len(instruments):
        repeated_name = next(name for name in instruments if instruments.count(name) > 1)
        raise DataError(f"instrument {repeated_name!r} appears twice: every column of a panel needs a name of its own.")
    if names is None:
        return np.arange(len(instruments), dtype=np.int64)
    places = {name: n for n, name in enumerate(instruments)}
    columns_by_choice: dict[str, list[int]] = {}
    for choice in names:
        # An exact name is tried before a pattern, as a name may have a `*`.
        if choice in places:
            columns_by_choice[choice] = [places[choice]]
        else:
            columns_by_choice[choice] = [places[name] for name in instruments if fnmatchcase(name, choice)]
    unknown = [choice for choice in names if not columns_by_choice[choice]]  # without an instrument
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

    All NaN count as the same, whatever their bits, so a re-import on another machine gives the same fingerprint.

    Args:
        values: features [T, N, F], hashed as float32.
        dates: days [T].
        instruments: names [N].
        investable: column numbers [K].
        features: names [F].
    """
    digest = hashlib.sha256(f"{features}{values.shape}{instruments}".encode())
    # Little-endian and of fixed width, so that machines of another byte order compute the same hash.
    digest.update(np.ascontiguousarray(dates.astype("datetime64[D]").astype("<i8")).data)
    digest.update(np.ascontiguousarray(investable.astype("<i8")).data)
    rows = max(1, _HASH_BYTES // max(1, values[:1].nbytes))  # in blocks of about `_HASH_BYTES`
    for first in range(0, len(values), rows):
        block = np.array(values[first : first + rows], dtype="<f4", order="C")
        # Every NaN becomes the same, as payload and sign of a NaN depend on the processor that computed it.
        block[np.isnan(block)] = np.nan
        digest.update(block.data)
    return digest.hexdigest()
