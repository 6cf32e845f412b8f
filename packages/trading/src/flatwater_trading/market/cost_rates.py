"""Rates of trading costs for each day and instrument, from closes, traded closes and volumes up to that day."""

import numpy as np
import torch

from flatwater_trading.market.config import CostConfig
from flatwater_trading.market.costs import CostRates
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.signals import deviation_so_far, fill_holes, find_moves, mean_so_far
from flatwater_watch.errors import DataError

VOLUME = "volume"
"""Feature of a panel that has the number of shares traded on a day."""
DEVIATION_ROWS, VOLUME_ROWS = 60, 20
"""Rows that the deviation of an instrument, and the money traded in it on a day, are means of."""
COLUMNS_AT_ONCE = 64
"""Columns whose rates are computed at a time, in a dozen tables of their days."""


def rate_tables(panel: Panel, config: CostConfig) -> CostRates | None:
    """Return the rates of all instruments that can be bought, on all days [T, K], float64.

    Args:
        panel: prices, and the volume if there is an impact.
        config: costs.

    Returns:
        The rates; None if all costs are in proportion to the value.

    Raises:
        DataError: there is an impact, and the panel has no volume, or an instrument has a close before its first
            volume.
    """
    if config.is_proportional:
        return None
    columns = panel.investable
    share_rates, impact_rates = torch.empty(2, len(panel.dates), len(columns), dtype=torch.float64)
    for first_column in range(0, len(columns), COLUMNS_AT_ONCE):
        block = slice(first_column, first_column + COLUMNS_AT_ONCE)
        share, impact = _column_rates(panel, config, columns[block])
        share_rates[:, block], impact_rates[:, block] = torch.from_numpy(share), torch.from_numpy(impact)
    return CostRates(share_rates, impact_rates)


def rate_bytes(cells: int) -> int:
    """Return the most bytes that tables of rates take, for a number of cells (days times instruments).

    The memory for computing them, `COLUMNS_AT_ONCE` columns at a time, is not counted.
    """
    # Four tables in double precision: the two of `rate_tables`, and at most two that a market makes of them.
    return 4 * 8 * cells


def _column_rates(panel: Panel, config: CostConfig, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two tables [T, k] of some columns: the commission for each share, and the coefficient of the impact.

    The impact of an order is the coefficient times its value to the power of `impact_power`, as a part of the value.
    """
    close = panel.closes(columns).astype(np.float64)
    ratio = _traded_ratios(panel, columns)
    impact = np.zeros(close.shape)
    if config.impact:
        money = _traded_money(panel, columns, close * ratio, f"{config.table}.impact")
        # True from an instrument's first close on.
        is_listed = np.logical_or.accumulate(np.isfinite(close), axis=0)
        deviation = deviation_so_far(find_moves(close), span=DEVIATION_ROWS, is_listed=is_listed)
        # The money is 0 before the first day of an instrument, when nothing can be traded.
        np.divide(config.impact * deviation, money**config.impact_power, where=money > 0, out=impact)
    # A share of the panel is 1 / ratio shares as traded.
    return config.per_share / ratio, impact


def _traded_ratios(panel: Panel, columns: np.ndarray) -> np.ndarray:
    """Return the ratio [T, K] of traded to panel prices, on the last day so far that has both; 1 before the first."""
    if panel.raw_close is None:
        return np.ones((len(panel.dates), len(columns)))
    raw, close = panel.raw_close[:, columns].astype(np.float64), panel.feature("close")[:, columns].astype(np.float64)
    with np.errstate(invalid="ignore"):
        ratio = np.where((raw > 0) & (close > 0), raw / close, np.nan)
    known_ratio = fill_holes(ratio)  # 0 before the first day with both
    return np.where(known_ratio > 0, known_ratio, 1.0)


def _traded_money(panel: Panel, columns: np.ndarray, price: np.ndarray, setting: str) -> np.ndarray:
    """Return the money [T, K] that was traded in a day, a mean of the last days; 0 before an instrument's first volume.

    Args:
        panel: panel with the feature `volume`.
        columns: numbers of the columns.
        price: closes as traded [T, K]; NaN without one.
        setting: name of the setting that needs the volume, for messages.

    Raises:
        DataError: the panel has no volume, or an instrument has a close before its first volume.
    """
    # Capital letters do not matter: the feature may be called `Volume`.
    name = next((feature for feature in panel.features if feature.lower() == VOLUME), None)
    if name is None:
        raise DataError(
            f"{setting}: the panel has no feature volume, by which an impact is measured. Import the prices with "
            "flatwater panel import FILE --out PANEL --features volume, or leave the setting out."
        )
    volume = panel.feature(name)[:, columns].astype(np.float64)
    # A day whose volume is missing counts as the last known one; a volume of 0 counts as it is.
    money = np.where(volume >= 0, volume * price, np.nan)
    is_listed = np.logical_or.accumulate(np.isfinite(money), axis=0)
    mean = np.where(is_listed, mean_so_far(fill_holes(money), VOLUME_ROWS, is_listed), 0.0)
    # Row and column of each close without a known volume.
    unknown_cells = np.argwhere(panel.valid[:, columns] & (mean <= 0))
    if len(unknown_cells):
        row, k = unknown_cells[0].tolist()
        instrument = panel.instruments[columns[k]]
        raise DataError(
            f"{setting}: {instrument} has a close on {panel.dates[row]}, and no volume up to that day. Give its "
            "volume, leave it out of --investable of the import, or leave the setting out."
        )
    return mean
