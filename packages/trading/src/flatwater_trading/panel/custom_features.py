"""Own features of the user: columns of the file, or columns that the user's function computes from the prices."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from flatwater.named_imports import find_object, module_hash
from flatwater.user_code import CallGuard
from flatwater_trading.panel.adjusting import RAW_CLOSE
from flatwater_trading.panel.features import OBSERVABLE
from flatwater_trading.panel.panel import FEATURES, PRICES
from flatwater_watch.errors import DataError

_KEY_COLUMNS = ["symbol", "date"]
UserFunction = Callable[[pl.DataFrame], Any]
"""Function of the user, from a frame of prices to a frame of features; what it returns is checked."""


def file_column_names(features: Sequence[str]) -> list[str]:
    """Return the features that are columns of the file: names without a `:`.

    Raises:
        DataError: a feature has the name of a price or of a computed feature, or its name is not an identifier.
    """
    names = [name for name in features if ":" not in name]
    for name in names:
        _check_name(name)
    return names


def compute_custom_features(
    source: Path, frame: pl.DataFrame, features: Sequence[str]
) -> tuple[pl.DataFrame, dict[str, str]]:
    """Return the frame with the columns that functions compute, and the origin of every own feature.

    A function such as `signals:alpha` takes a frame of symbol, date, open, high, low, close and the kept columns,
    sorted by symbol and date, and returns symbol, date and a column for each feature.

    Args:
        source: file, for messages.
        frame: row, symbol, date, prices and the kept columns.
        features: names of columns, and functions.

    Raises:
        DataError: a function cannot be found, returns something else, or looks at later days.
    """
    # Origin of each own feature by its name: a column of the file, or a function with its version.
    origins = {name: f"column {name}" for name in file_column_names(features)}
    import_paths = [feature for feature in features if ":" in feature]
    if import_paths:
        # The user's function takes symbols as text; those of a wide file are an Enum here.
        frame = frame.with_columns(pl.col("symbol").cast(pl.String))
        # Not strict: `RAW_CLOSE` is there only if prices are adjusted.
        rows = frame.drop("row", RAW_CLOSE, strict=False).sort(_KEY_COLUMNS)
    for import_path in import_paths:
        function, version = _find_function(import_path)
        features_frame = _call_function(import_path, function, rows)
        _check_causal(import_path, function, rows, features_frame)
        feature_names = [name for name in features_frame.columns if name not in _KEY_COLUMNS]
        for name in feature_names:
            _check_name(name)
            if name in origins:
                raise DataError(f"--features {import_path}: {name} is there already, as {origins[name]}. Rename one.")
            origins[name] = f"{import_path} {version}"
        # maintain_order, as row numbers in messages follow the order of the file.
        frame = frame.join(features_frame, on=_KEY_COLUMNS, how="left", maintain_order="left")
    for name in origins:
        infinite_rows = frame.filter(pl.col(name).is_infinite())
        if not infinite_rows.is_empty():
            cell = f"{infinite_rows['symbol'][0]} on {infinite_rows['date'][0]}"
            raise DataError(f"{source}: feature {name}: {cell} is infinite. Leave it empty if it cannot be computed.")
    return frame, origins


def _check_name(name: str) -> None:
    """Check that an own feature may have this name: an identifier without another meaning.

    Raises:
        DataError: the name is not an identifier, or is that of a price or of a computed feature such as `return_60`.
    """
    is_computed = name in OBSERVABLE and name not in FEATURES  # indicators, which are in both, may be replaced
    if name in PRICES or is_computed or not name.isidentifier():
        raise DataError(
            f"--features {name}: the name is taken, or is not allowed: {', '.join(OBSERVABLE)} have a meaning. "
            f"Only {', '.join(known for known in FEATURES if known not in PRICES)} may be replaced. "
            "Choose another name."
        )


def _find_function(import_path: str) -> tuple[UserFunction, str]:
    """Return the function of a text such as `signals:alpha`, and a hash of its module's text as its version.

    Raises:
        DataError: the function is not found, or its module's text cannot be read.
    """
    function = find_object(
        import_path, setting=f"--features {import_path}: it", expected="MODULE:FUNCTION", error=DataError
    )
    try:
        return function, module_hash(function)
    except (TypeError, OSError) as error:
        raise DataError(
            f"--features {import_path}: {error}. Its version is the hash of its text: write it in a file MODULE.py."
        ) from error


def _call_function(import_path: str, function: UserFunction, prices: pl.DataFrame) -> pl.DataFrame:
    """Return the features that the user's function computes; an error in it names `--features` as its source.

    Args:
        import_path: the function as the user wrote it, `signals:alpha`.
        function: the user's function from frame to frame.
        prices: symbol, date, prices and kept columns, sorted by symbol and date.

    Returns:
        symbol, date and the features as float64; null for a value that is missing or NaN.

    Raises:
        DataError: the function returned another object, a column that is not numeric, or a day of an instrument twice.
    """
    with CallGuard(f"--features {import_path}", function, expected="a function of one frame of prices"):
        features = function(prices)
    # `<` and not `<=`: at least one column must be a feature.
    if not isinstance(features, pl.DataFrame) or not {*_KEY_COLUMNS} < {*features.columns}:
        raise DataError(f"--features {import_path}: returned no frame with symbol, date and a column for each feature.")
    not_numeric = [
        name for name in features.columns if name not in _KEY_COLUMNS and not features[name].dtype.is_numeric()
    ]
    if not_numeric or features.select(pl.struct(_KEY_COLUMNS).is_duplicated().any()).item():
        reason = (
            f"{not_numeric[0]} holds {features[not_numeric[0]].dtype}"
            if not_numeric
            else "a day of an instrument is there twice"
        )
        raise DataError(f"--features {import_path}: {reason}. Return one number for each symbol and date.")
    return features.select(*_KEY_COLUMNS, pl.exclude(_KEY_COLUMNS).cast(pl.Float64).fill_nan(None))


def _check_causal(import_path: str, function: UserFunction, prices: pl.DataFrame, values: pl.DataFrame) -> None:
    """Check that a function does not look ahead: its values of the first half of the days need no later days.

    Args:
        import_path: the function as the user wrote it, `signals:alpha`.
        function: the user's function from frame to frame, as in `_call_function`.
        prices: symbol, date, prices and kept columns of all days.
        values: frame that the function returned for all days.

    Raises:
        DataError: a value of an early day depends on later days, or the function fails on the first half.
    """
    days = prices["date"].unique().sort()
    # Called again on the first half of the days, the function must return the same values as for all days.
    # On half of the days a look ahead of one day shows on the last of these, and a look over all days on each.
    middle = days[(len(days) - 1) // 2]
    first_half = _call_function(import_path, function, prices.filter(pl.col("date") <= middle))
    joined_values = first_half.join(values, on=_KEY_COLUMNS, how="left", suffix=" of all")
    feature_names = [name for name in first_half.columns if name not in _KEY_COLUMNS]
    for name in feature_names:
        early_value, late_value = pl.col(name), pl.col(f"{name} of all")
        # With a tolerance, as a sum over fewer days may round differently; 1e-6 is far above the rounding of float64.
        is_alike = (early_value == late_value) | (
            (early_value - late_value).abs() <= 1e-6 * (early_value.abs() + late_value.abs())
        )
        # Two missing values are alike, a missing value and a number are not.
        is_unchanged = (
            pl.when(early_value.is_null() | late_value.is_null())
            .then(early_value.is_null() & late_value.is_null())
            .otherwise(is_alike)
        )
        changed_rows = joined_values.filter(~is_unchanged)
        if not changed_rows.is_empty():
            raise DataError(
                f"--features {import_path}: {name} of {changed_rows['symbol'][0]} on {changed_rows['date'][0]} is "
                f"{changed_rows[name][0]} as of {middle} and {changed_rows[f'{name} of all'][0]} with later days "
                "known: it looks ahead. Use days up to its own alone."
            )


def custom_features(origins: Mapping[str, str]) -> tuple[str, ...]:
    """Return the own features that a panel has beyond the nine of every panel."""
    return tuple(name for name in origins if name not in FEATURES)
