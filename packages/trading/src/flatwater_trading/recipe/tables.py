"""The tables in a run's folder (equity, trades, prices, exposure): read and checked, as they may be damaged."""

import io
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from flatwater.rundir.layout import FolderFile, RunFolder
from flatwater.rundir.results import damaged_file_error
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.regular_files import RESULT_BYTES, read_regular

EQUITY = {"date": False, "champion": True}
TRADES = {"entry_date": False, "gain": True}
PRICES = {"date": False}
SHEET = {"date": False, "exposure": True, "turnover": True}
"""Columns that a page draws -> whether they must have numbers; of `EQUITY`, `TRADES` and `PRICES` as well."""


class TraderFolder(RunFolder):
    """The files of a run of traders."""

    trades = FolderFile("trades.parquet")
    """The champion's trades on the validation days."""
    equity = FolderFile("equity.parquet")
    """Equity of the champion and the baselines on the validation days."""
    weights = FolderFile("weights.parquet")
    """Weights of the instruments that a policy of target weights held most, on the validation days."""
    prices = FolderFile("prices.parquet")
    """Closes of the instruments that the champion traded most, on the validation days."""
    sheet = FolderFile("sheet.parquet")
    """The champion's exposure and turnover on each of the validation days, and how its scores agree with returns."""
    holdout_sheet = FolderFile("holdout_sheet.parquet")
    """The same on the holdout days."""
    holdout_trades = FolderFile("holdout_trades.parquet")
    """The champion's trades on the holdout days."""
    holdout_equity = FolderFile("holdout_equity.parquet")
    """Equity of the champion and the baselines on the holdout days."""

    @classmethod
    def from_folder(cls, folder: RunFolder) -> "TraderFolder":
        """Return `folder` as the folder of a run of traders, with the files of this class."""
        return cls(folder.path, folder.held_path)


def read_table(path: Path, columns: Mapping[str, bool]) -> pl.DataFrame | None:
    """Read a Parquet table that a run wrote, and check its columns; None if there is no file.

    Args:
        path: file of the table.
        columns: names of the columns that it must have, each with whether it must be numeric; others may be there.

    Raises:
        RunError: the file is damaged, or a column is missing, has gaps or is not numeric where it must be.
    """
    try:
        # From memory: polars would map the file, which another process may truncate meanwhile.
        table = pl.read_parquet(io.BytesIO(read_regular(path, RESULT_BYTES, follow_links=False)))
        _require_columns(table, columns)
    except FileNotFoundError:
        return None
    # PanicException: a damaged Parquet file can make the Rust code in polars panic.
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise damaged_file_error(path, error) from error
    return table


def _require_columns(table: pl.DataFrame, columns: Mapping[str, bool]) -> None:
    """Check that a table has each of `columns`, with a value in each row: a number if the column is mapped to True.

    Raises:
        ValueError: a column is missing, or lacks a value, or is not numeric.
    """
    for name, numeric in columns.items():
        is_whole = name in table.columns and not table[name].null_count()
        if not is_whole or (numeric and not table[name].dtype.is_numeric()):
            raise ValueError(f"column {name} does not hold a {'number' if numeric else 'value'} in each row")


def read_equity(path: Path) -> pl.DataFrame | None:
    """Read the equity curves of a run's validation days; None if the run has no result.

    Raises:
        RunError: the file of the curves is damaged.
    """
    return read_table(TraderFolder(path).equity, EQUITY)


def write_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write a table as Parquet, atomically."""
    content = io.BytesIO()
    frame.write_parquet(content)
    with content.getbuffer() as packed_bytes:  # released also if writing fails
        write_object(path, packed_bytes)
