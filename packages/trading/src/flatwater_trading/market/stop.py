"""The stop of an account of target weights: cash for a while, once its equity has fallen far enough from its highest.

Equity is that of a close, before the trades at it, so an account that is played day by day knows it when the orders are
due.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater_trading.market.config import PortfolioConfig


@dataclass(frozen=True)
class StopState:
    """The memory of B accounts' stops from one close to the next."""

    peak: Float[Tensor, "B"]
    """Highest equity since the account began, or since it came back after its last stop."""
    stopped_row: Int[Tensor, "B"]
    """Row of the close at which the account was stopped; -1 for an account that may trade."""


def initial_stop(cash: Float[Tensor, "B"]) -> StopState:
    """Return the state of accounts that begin with this cash."""
    return StopState(cash, torch.full_like(cash, -1, dtype=torch.int64))


def update_stop(
    previous: StopState, equity: Float[Tensor, "B"], row: int, config: PortfolioConfig
) -> tuple[StopState, Bool[Tensor, "B"]]:
    """Stop the accounts whose equity fell by `config.stop` from its peak; let them back after `config.stop_rows` rows.

    A second call for the same close, with the state of the first, changes nothing.

    Args:
        previous: state after the close before, or after this close.
        equity: equity at this close, before its trades.
        row: row of this close.
        config: largest fall, as a share of the peak, or None for no stop; and the rows that a stop lasts.

    Returns:
        The state after the close, and the mask of the accounts that go to cash or stay in it.
    """
    if config.stop is None:
        return previous, torch.zeros_like(equity, dtype=torch.bool)
    comes_back = (previous.stopped_row >= 0) & (row >= previous.stopped_row + config.stop_rows)
    stays_out = (previous.stopped_row >= 0) & ~comes_back
    # An account that stays out keeps its peak. For one that comes back, falls count from its equity on that day.
    peak = torch.maximum(previous.peak, equity)
    peak = torch.where(stays_out, previous.peak, peak)
    peak = torch.where(comes_back, equity, peak)
    is_stopped_now = ~stays_out & (equity <= peak * (1 - config.stop))
    stopped_row = torch.where(is_stopped_now, row, previous.stopped_row.masked_fill(comes_back, -1))
    return StopState(peak, stopped_row), stopped_row >= 0
