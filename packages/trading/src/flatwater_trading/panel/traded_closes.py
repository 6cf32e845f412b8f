"""Prices as they were traded, for prices that are adjusted for splits and dividends.

A trader observes adjusted prices, because a split is not a loss. A broker takes orders in traded prices. The ratio of
both on a day converts between them; it changes with each split and dividend, so a price is converted by the ratio of
its own day.
"""

import hashlib
from dataclasses import replace

import numpy as np

from flatwater_trading.panel.panel import Panel
from flatwater_watch.errors import DataError

SPLIT_FACTOR = 1.3
"""Least factor by which a split changes the ratio, up or down: no share pays a dividend of 30 %."""
PRICE_TOLERANCE_FACTOR = 1.3
"""Largest factor by which a purchase price may differ from the day's traded close, up or down."""


def traded_ratio(panel: Panel, row: int, instrument: int) -> float:
    """Return the traded over the panel's close on the last day up to `row` that has both; 1 if there is none.

    Args:
        panel: panel; 1 is returned if it has no closes as traded.
        row: row of the panel.
        instrument: number of the instrument among those that can be bought.
    """
    if panel.raw_close is None:
        return 1.0
    column = panel.investable[instrument]
    raw, close = panel.raw_close[: row + 1, column], panel.feature("close")[: row + 1, column]
    # Only up to `row`, as a later split must not change the ratio of an earlier day.
    rows_with_both = np.flatnonzero((raw > 0) & (close > 0))
    if not len(rows_with_both):
        return 1.0
    last_row = rows_with_both[-1]
    return float(raw[last_row]) / float(close[last_row])


def traded_fingerprint(panel: Panel) -> str:
    """Return the sha256 (hex) of the traded closes, which the panel's fingerprint leaves out; empty without any."""
    if panel.raw_close is None:
        return ""
    raw = np.array(panel.raw_close, dtype="<f4", order="C")
    # Every NaN becomes the same, as in the panel's fingerprint.
    raw[np.isnan(raw)] = np.nan
    return hashlib.sha256(raw.data).hexdigest()


def with_raw_closes(panel: Panel, traded_panel: Panel) -> Panel:
    """Return the panel with the closes of another file as its traded closes, NaN where that file has none.

    Args:
        panel: panel of adjusted prices.
        traded_panel: panel of prices as traded; its `raw_close` is used if it has one, else its closes. Days and
            instruments may differ.

    Raises:
        DataError: an instrument that can be bought has a close on the newest day, but no traded close.
    """
    source = traded_panel.feature("close") if traded_panel.raw_close is None else traded_panel.raw_close
    raw = np.full(panel.valid.shape, np.nan, dtype=np.float32)
    # Matched by date, as the other file may begin earlier, or lack days: rows of both on their common days.
    _, rows, source_rows = np.intersect1d(panel.dates, traded_panel.dates, assume_unique=True, return_indices=True)
    columns_by_name = {name: n for n, name in enumerate(traded_panel.instruments)}
    for n, name in enumerate(panel.instruments):
        if name in columns_by_name:
            raw[rows, n] = source[source_rows, columns_by_name[name]]
    for n in panel.investable:
        if panel.valid[-1, n] and not raw[-1, n] > 0:  # `not >` is true of NaN, too
            raise DataError(
                f"--raw-prices: {panel.instruments[n]} has no close on {panel.dates[-1]}, the newest day of the "
                "prices. Give the closes as traded up to and with that day."
            )
    return replace(panel, raw_close=raw)
