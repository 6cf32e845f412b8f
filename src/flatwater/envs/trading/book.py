"""The books of B episodes: the positions that can be open, and a log with one column for each day.

A day buys at most one instrument, so its purchase is a cell [episode, day] and no list ever grows.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.state.tree import state


@state
class Positions:
    """The last H purchases. Row `clock % H` is today's; the trade it replaces has closed by today."""

    instrument: Int[Tensor, "H B"]
    exit_day: Int[Tensor, "H B"]
    """Row of the panel; a position is open before it. -1 where nothing was bought."""
    entry_price: Float[Tensor, "H B"]
    shares: Float[Tensor, "H B"]


@state
class Logs:
    """What happened on each day of each episode; the extra column takes what episodes that have ended write.

    Columns after the current day hold what earlier episodes left, except for `exit_day`, `equity` and `invested`.
    """

    instrument: Int[Tensor, "B D1"]
    """Bought on the day; means nothing where `exit_day` is -1."""
    exit_day: Int[Tensor, "B D1"]
    """Row of the panel on which the day's purchase closes, the future until that row has come; -1 for no purchase."""
    coefficient: Float[Tensor, "B D1"]
    target: Float[Tensor, "B D1"]
    """Percent."""
    entry_price: Float[Tensor, "B D1"]
    exit_price: Float[Tensor, "B D1"]
    shares: Float[Tensor, "B D1"]
    equity: Float[Tensor, "B D1"]
    """At the start (column 0) and at the close of each day (column d + 1 for day d); NaN after the end."""
    invested: Float[Tensor, "B D1"]
    """Value of the open positions at the same times as `equity`."""


def build_positions(*, hold_days: int, batch: int, device: torch.device) -> Positions:
    """No positions, and room for `hold_days` of them in each episode."""
    shape = (hold_days, batch)
    return Positions(
        instrument=whole(0, *shape, device=device),
        exit_day=whole(-1, *shape, device=device),
        entry_price=real(*shape, device=device),
        shares=real(*shape, device=device),
    )


def build_logs(*, batch: int, max_days: int, device: torch.device) -> Logs:
    """Empty logs of `batch` episodes of at most `max_days` days."""
    shape = (batch, max_days + 1)
    return Logs(
        instrument=whole(0, *shape, device=device),
        exit_day=whole(-1, *shape, device=device),
        coefficient=real(*shape, device=device),
        target=real(*shape, device=device),
        entry_price=real(*shape, device=device),
        exit_price=real(*shape, device=device),
        shares=real(*shape, device=device),
        equity=real(*shape, device=device),
        invested=real(*shape, device=device),
    )


def clear_(logs: Logs, chosen: Bool[Tensor, " B"], cash: float) -> None:
    """Begin the logs of the chosen episodes again, with `cash`."""
    rows = chosen[:, None]
    logs.exit_day.masked_fill_(rows, -1)
    logs.equity.masked_fill_(rows, torch.nan)
    logs.invested.masked_fill_(rows, torch.nan)
    logs.equity[:, 0].masked_fill_(chosen, cash)
    logs.invested[:, 0].masked_fill_(chosen, 0)


def whole(fill: int, *shape: int, device: torch.device) -> Int[Tensor, "..."]:
    """Whole numbers, all `fill`; written at once, so that resident memory does not creep up later."""
    return torch.empty(shape, dtype=torch.int64, device=device).fill_(fill)


def real(*shape: int, device: torch.device) -> Float[Tensor, "..."]:
    """Zeros; written at once, so that resident memory does not creep up later."""
    return torch.empty(shape, dtype=torch.float32, device=device).fill_(0)
