"""The market of a simulator: exogenous tensors, shared by every episode and never written.

A row is usable for an instrument if its close is finite and positive. Other rows have neither a close nor a high:
nothing can be bought, no target can be met, and open positions keep the value of the last usable close.
"""

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.state.tree import derived_field, state
from flatwater_trading.panel.panel import Panel
from flatwater_watch.errors import DataError


@state
class Market:
    """Prices of the K investable instruments, and the observations of all N columns, over T days."""

    observations: Float[Tensor, "N T F"] = derived_field()
    """Normalised features; missing cells are 0."""
    close: Float[Tensor, "T K"] = derived_field()
    """Closes; NaN on rows that are not usable."""
    high: Float[Tensor, "T K"] = derived_field()
    """Highs, never below the close; NaN on rows that are not usable. Stored instrument by instrument, because a
    purchase reads an instrument's next days."""
    mark: Float[Tensor, "T K"] = derived_field()
    """The last usable close so far, for mark-to-market; 0 before the first."""
    last_day: Int[Tensor, " K"] = derived_field()
    """Row of the last usable close, which may be read only after it; -1 for an instrument without a usable close."""
    investable: Int[Tensor, " K"] = derived_field()
    """Numbers of the instruments among the N columns."""


def build_market(panel: Panel, observations: Float[Tensor, "N T F"], device: torch.device) -> Market:
    """Build the market of a panel's investable instruments.

    Args:
        panel: days, prices and validity.
        observations: features normalised by statistics of the training days, without NaN; kept, not copied, if they are
            on `device` already.
        device: device on which the simulator will run.

    Raises:
        DataError: the observations do not cover the panel's columns and days.
    """
    days, columns = panel.valid.shape
    if tuple(observations.shape[:2]) != (columns, days):
        raise DataError(
            f"observations: expected [{columns}, {days}, features] for this panel, got {list(observations.shape)}. "
            "Normalise this panel, not another."
        )
    # The columns are copied: the panel is read-only and often mapped from a file.
    close = _investable_columns(panel.feature("close"), panel)
    usable = panel.valid[:, panel.investable]
    close[~usable] = np.nan
    # A day's high is at least its close; a missing high on a usable day becomes the close.
    high = np.fmax(_investable_columns(panel.feature("high"), panel), close)
    high[~usable] = np.nan
    return Market(
        observations=observations.to(device),
        close=torch.from_numpy(close).to(device),
        # [K, T] in memory, a view [T, K]: an instrument's next days are adjacent.
        high=torch.from_numpy(np.ascontiguousarray(high.T)).to(device).T,
        mark=torch.from_numpy(last_usable(close)).to(device),
        last_day=torch.from_numpy(last_usable_rows(usable)).to(device),
        investable=torch.from_numpy(np.array(panel.investable, dtype=np.int64)).to(device),
    )


def market_tensors(market: Market) -> dict[str, Tensor]:
    """Return the fields of a market by name, each contiguous, as a file stores them: `high` is [K, T]."""
    return {f.name: getattr(market, f.name) for f in fields(market)} | {"high": market.high.T}


def make_market(tensors: Mapping[str, Tensor]) -> Market:
    """Build a market from the fields that `market_tensors` gave."""
    return Market(**(dict(tensors) | {"high": tensors["high"].T}))


def outline_market(*, columns: int, days: int, features: int, investable: int, device: torch.device) -> Market:
    """Build a market of this size without contents; on the meta device, for a plan.

    Args:
        columns: number N of columns, context columns included.
        days: number T of days.
        features: number F of features of a column on a day.
        investable: number K of columns that can be bought.
        device: device of the tensors.

    Returns:
        A market whose tensors are allocated and not written.
    """

    def prices() -> Tensor:
        return torch.empty((days, investable), device=device)

    return Market(
        observations=torch.empty((columns, days, features), device=device),
        close=prices(),
        high=prices(),
        mark=prices(),
        last_day=torch.empty(investable, dtype=torch.int64, device=device),
        investable=torch.empty(investable, dtype=torch.int64, device=device),
    )


def _investable_columns(feature: np.ndarray, panel: Panel) -> np.ndarray:
    return np.ascontiguousarray(feature[:, panel.investable], dtype=np.float32)


def last_usable(close: np.ndarray) -> np.ndarray:
    """Fill each row with the last close up to it that is not NaN; 0 before the first. [T, K] -> [T, K]."""
    rows = np.where(np.isnan(close), -1, np.arange(len(close))[:, None])
    # A running maximum of usable row numbers: no later close is read.
    newest_rows = np.maximum.accumulate(rows, axis=0)
    return np.where(newest_rows >= 0, np.take_along_axis(close, np.maximum(newest_rows, 0), axis=0), 0).astype(
        np.float32
    )


def last_usable_rows(usable: np.ndarray) -> np.ndarray:
    """Return the last usable row of each column; -1 for a column without a usable row. [T, K] -> [K]."""
    # argmax of booleans is the first True: from the end, the last usable row.
    last = len(usable) - 1 - np.argmax(usable[::-1], axis=0)
    return np.where(usable.any(axis=0), last, -1).astype(np.int64)
