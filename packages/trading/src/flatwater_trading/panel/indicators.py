"""Five indicators, by TA-Lib: RSI(14), MACD(12, 26, 9) and its signal, TRIX(15), close minus its 20-day mean.

Each column is computed on its valid days alone, without its holes, and the result is scattered back, so a halt of three
days does not blank the 14 days after it. Warm-up days and holes are NaN. TRIX has no customary period; with 15 days it
turns about as late as the MACD's signal, and its warm-up (43 days) is within the first quarter of the shortest context.
"""

import numpy as np
import talib

from flatwater_trading.panel.panel import FEATURES
from flatwater_watch.progress import count_steps

# RSI(14): Wilder 1978; MACD(12, 26, 9): Appel. The module's docstring has the reason of TRIX(15).
RSI_DAYS, TRIX_DAYS, SMA_DAYS = 14, 15, 20
MACD_FAST, MACD_SLOW, MACD_SIGNAL = 12, 26, 9

_CLOSE = FEATURES.index("close")
_INDICATORS = slice(FEATURES.index("rsi"), len(FEATURES))


def compute_indicators(close: np.ndarray) -> np.ndarray:
    """Compute RSI, MACD, its signal, TRIX and the distance to the 20-day mean of one instrument without holes.

    Args:
        close: finite closes [D], float64.

    Returns:
        Indicators [D, 5] float64 in the order of `FEATURES`, NaN in the warm-up of each (14, 33, 33, 43 and 19 days).
        RSI is 0 to 100, TRIX percent a day, the others are in units of the price. TRIX is NaN from the first close at
        or below 0 on: such a close has no percentage.
    """
    days = len(close)
    if days < 2:  # noqa: PLR2004  (TA-Lib refuses a single price)
        return np.full((days, 5), np.nan)
    macd, signal, _ = talib.MACD(close, MACD_FAST, MACD_SLOW, MACD_SIGNAL)  # the last is their difference
    mean = talib.SMA(close, SMA_DAYS)
    # Accumulated, so that days before the first close at or below 0 keep the value that they had when they were newest.
    trix = np.where(np.minimum.accumulate(close) > 0, talib.TRIX(close, TRIX_DAYS), np.nan)
    return np.stack([talib.RSI(close, RSI_DAYS), macd, signal, trix, close - mean], axis=1)


def write_indicators_(values: np.ndarray) -> None:
    """Fill the indicator features of `values` [T, N, F] from its closes, one column at a time, in place."""
    for n in count_steps("instruments", range(values.shape[1])):
        close = values[:, n, _CLOSE]
        valid_rows = np.flatnonzero(np.isfinite(close))
        values[:, n, _INDICATORS] = np.nan
        # TA-Lib needs float64; the panel is float32.
        values[valid_rows, n, _INDICATORS] = compute_indicators(close[valid_rows].astype(np.float64))
