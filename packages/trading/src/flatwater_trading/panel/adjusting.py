"""Splits and dividends: scaling of prices by an adjusted close, and a search for splits without adjustment."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from flatwater_trading.panel.calendar import DAILY, infer_calendar
from flatwater_trading.panel.naming import ADJUSTED_CLOSE
from flatwater_trading.panel.notes import SPLIT_ADVICE, note_about_file
from flatwater_trading.panel.panel import PRICES
from flatwater_watch.errors import DataError
from flatwater_watch.phrases import list_phrase

SPLIT_RATIOS = (1.5, 2.0, 3.0, 4.0)
"""Usual ratios of a split below 5, new shares for an old share; the inverse of each is usual too. Larger
splits, as of penny stocks, come in all whole numbers."""
LEAST_WHOLE_RATIO = 5
"""Least whole number that counts as a ratio, whether or not it is one of `SPLIT_RATIOS`."""
RATIO_DISTANCE, SMALL_RATIO_DISTANCE = 0.08, 0.03
"""Largest distance of a move from such a ratio, in logarithms: the price moves on the day of the split too. On 99 % of
days 108 US shares moved less than 0.08. The second is for ratios below 2, which shares also reach without a split."""
MINIMUM_SPLIT_MOVE_FACTOR = 15
"""Least multiple of a day's usual move that counts as a split, because splits are rare. A yield often moves from 0.1 to
0.2, which is not a split."""
MAXIMUM_JUMPS_SHOWN = 3
FAR_PRICE_FACTOR = 5
"""Multiple of the larger of open and close from which a high is probably a mistake, and so for the low below them."""
RAW_CLOSE = "raw close"
"""Column of closes before they are scaled. A feature cannot have this name, because it is not an identifier."""


def adjust_prices(source: Path, table: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
    """Scale the prices of each row by its adjusted close over its close; the unscaled close is kept as `RAW_CLOSE`.

    Args:
        source: file, for messages.
        table: table of row, symbol, open, high, low, close, adj_close.
        columns: the file's name of the adjusted close, by instrument. Other instruments stay as they are.

    Raises:
        DataError: a row with a close has no adjusted close above 0.
    """
    is_adjusted = pl.col("symbol").is_in(list(columns))
    adjusted_close = pl.col(ADJUSTED_CLOSE)
    unadjusted = table.filter(
        is_adjusted & pl.col("close").is_not_null() & (adjusted_close.is_null() | (adjusted_close <= 0))
    )
    if not unadjusted.is_empty():
        first_row = unadjusted.row(0, named=True)
        column, cell = columns[first_row["symbol"]], first_row[ADJUSTED_CLOSE]
        raise DataError(
            f"{source}: row {first_row['row']}, column {column}: {'empty' if cell is None else cell} for a close of "
            f"{first_row['close']:g}. Fill it, or drop the column to use prices as they are."
        )
    # One factor for all four prices of a row, so that high, low and close keep their order.
    factor = adjusted_close / pl.col("close")
    scaled_columns = [
        pl.when(is_adjusted).then(pl.col(price) * factor).otherwise(pl.col(price)).alias(price) for price in PRICES
    ]
    return table.with_columns(*scaled_columns, pl.col("close").alias(RAW_CLOSE)).drop(ADJUSTED_CLOSE)


def note_adjustment(source: Path, column: str, count: int = 1) -> None:
    """Note that the prices are scaled by `count` columns of adjusted closes, of which `column` is the first."""
    more_columns = f" and {count - 1} more" if count > 1 else ""
    note_about_file(source, f"open, high, low and close are scaled by the adjusted close ({column}{more_columns}).")


def note_unused_columns(source: Path, columns: list[str]) -> None:
    """Note which columns of a file are left out."""
    if columns:
        column_names = [column.strip() or "a column without a name" for column in columns]
        note_about_file(source, f"not used: {list_phrase(column_names, maximum=8)}.")


def find_jumps(instruments: tuple[str, ...], dates: np.ndarray, close: np.ndarray) -> list[str]:
    """Return the moves from one close to the next that look like a split, sorted by date, as text.

    A text is `AAPL -50.0% on 2020-01-03 (2:1)`. If rows are weeks or months, only ratios from 2 on count: shares reach
    smaller ratios without a split.

    Args:
        instruments: names [N].
        dates: days [T].
        close: closes [T, N] above 0; NaN for a missing close.
    """
    jumps = []
    calendar = infer_calendar(dates)
    ratios = SPLIT_RATIOS if calendar.a_year >= DAILY.a_year else SPLIT_RATIOS[1:]  # without 1.5
    for n, name in enumerate(instruments):
        rows = np.flatnonzero(np.isfinite(close[:, n]))
        if len(rows) < 2:  # noqa: PLR2004  (one close has no move)
            continue
        # Across holes too, as a split during a halt is a move between the closes around it.
        moves = np.diff(np.log(close[rows, n].astype(np.float64)))
        # Shares often move by less without a split, and a rate near 0 or a volatility index moves by large ratios. The
        # root scales the usual move to that of a day, as moves grow with the root of the time between rows.
        least_move = MINIMUM_SPLIT_MOVE_FACTOR * np.median(np.abs(moves)) * (calendar.a_year / DAILY.a_year) ** 0.5
        # Most instruments have no move of the smallest ratio, and are not searched ratio by ratio.
        if (np.abs(moves) > max(least_move, np.log(ratios[0]) - RATIO_DISTANCE)).any():
            for step, split in _split_like_moves(moves, ratios, least_move):
                jumps.append((str(dates[rows[step + 1]]), name, float(np.expm1(moves[step])), split))
    return [f"{name} {move:+.1%} on {day} ({split})" for day, name, move, split in sorted(jumps)]


def _split_like_moves(moves: np.ndarray, ratios: Sequence[float], least_move: float) -> Iterator[tuple[int, str]]:
    """Yield the number of each move that looks like a split, with the split such as `2:1`.

    Args:
        moves: logarithmic moves from one close to the next.
        ratios: ratios of splits, new shares for an old share.
        least_move: size that a move must exceed.
    """
    sizes, usual_ratios = np.abs(moves), np.asarray(ratios)
    # Of each move: the nearest usual ratio, or the nearest whole number where that is a ratio by itself.
    nearest_usual = usual_ratios[np.abs(sizes[:, None] - np.log(usual_ratios)).argmin(1)]
    whole_ratio = np.exp(sizes).round()
    ratio_of_move = np.where(whole_ratio >= LEAST_WHOLE_RATIO, whole_ratio, nearest_usual)
    tolerance = np.where(ratio_of_move >= 2, RATIO_DISTANCE, SMALL_RATIO_DISTANCE)  # noqa: PLR2004  (two for one)
    is_split = (np.abs(sizes - np.log(ratio_of_move)) < tolerance) & (sizes > least_move)
    for step in map(int, np.flatnonzero(is_split)):
        # At 2:1 the number of shares doubles and their price halves, so the logarithm of the move is below 0.
        yield step, f"{ratio_of_move[step]:g}:1" if moves[step] < 0 else f"1:{ratio_of_move[step]:g}"


def note_jumps(source: Path, jumps: list[str]) -> None:
    """Note the moves that look like a split."""
    if jumps:
        more_jumps = f"; and {len(jumps) - MAXIMUM_JUMPS_SHOWN} more" if len(jumps) > MAXIMUM_JUMPS_SHOWN else ""
        jumps_text = "; ".join(jumps[:MAXIMUM_JUMPS_SHOWN])
        note_about_file(
            source,
            f"moves that look like splits: {jumps_text}{more_jumps}. {SPLIT_ADVICE}",
        )


def note_far_prices(source: Path, table: pl.DataFrame, investable_names: Sequence[str]) -> None:
    """Note the first price of a day that is far above or below both its open and its close, such as a point left out.

    Args:
        source: file, for messages.
        table: table of symbol, date, open, high, low and close.
        investable_names: instruments that can be bought; others may have any sign.
    """
    # A missing open is left out of both.
    upper, lower = pl.max_horizontal("open", "close"), pl.min_horizontal("open", "close")
    is_far = (pl.col("high") >= FAR_PRICE_FACTOR * upper) | (pl.col("low") * FAR_PRICE_FACTOR <= lower)
    far_rows = table.filter(is_far & pl.col("symbol").is_in(list(investable_names)))
    if far_rows.is_empty():
        return
    name, day = far_rows["symbol"][0], far_rows["date"][0]
    prices = ", ".join(f"{price} = {far_rows[price][0]:.7g}" for price in ("high", "low", "close"))
    more_rows = f"; and {far_rows.height - 1} more rows" if far_rows.height > 1 else ""
    note_about_file(
        source,
        f"prices of a day that are far apart: {name} on {day}: {prices}{more_rows}. A high that was never paid reaches "
        "sale targets: correct such cells, or leave them empty.",
    )
