"""Observations of a day: the rows of the normalised panel and, if configured, the open positions.

The day is the day that the next step acts on, and nothing later than its close is used. The positions are those that
remain after the day's exits, which the day's high and close determine.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater_trading.market.market import Market
from flatwater_trading.market.simulator import Simulator

ACCOUNT_FEATURES = ("open", "held", "gain")
"""Last axis of the account block: 1 if open, days held / hold_days, unrealised gain as a fraction; else 0."""


def observed_rows(sim: Simulator) -> Int[Tensor, " B"]:
    """Return the last row that each episode sees now: today's, or the last day's if the episode has ended."""
    return torch.minimum(sim.day, sim.end - 1)


@torch.no_grad()
def account_block(sim: Simulator, market: Market) -> Float[Tensor, "B K 3"]:
    """Return each instrument's open position on the day that the next step acts on; zeros where nothing is held.

    The three numbers are 1, the days held as a share of the holding time, and the gain as a fraction.
    """
    positions, hold = sim.positions, len(sim.days_ahead)
    row = observed_rows(sim)
    # Positions are a ring over `hold` days of `purchases` rows each: a purchase at clock c is in slot c modulo `hold`,
    # so what is in slot s was bought (clock - 1 - s) % hold + 1 days ago.
    slots = torch.arange(len(positions.exit_day), device=row.device) // sim.purchases_a_day
    days_held = ((sim.clock - 1 - slots) % hold + 1)[:, None].expand_as(positions.exit_day)
    # Strictly later, as an exit of this row happens before the step that acts on the row buys.
    is_open = positions.exit_day > row
    price = torch.take(market.last_close, row * sim.instruments + positions.instrument)
    # A closed position divides by 1, as its entry price is 0 if nothing was ever bought.
    gain = price / positions.entry_price.where(is_open, 1) - 1
    position_numbers = torch.stack([torch.ones_like(gain), days_held / hold, gain], dim=-1).where(is_open[..., None], 0)
    block = torch.zeros(len(row), sim.instruments, len(ACCOUNT_FEATURES), device=row.device)
    # Several closed positions may name one instrument and add 0; at most one is open.
    instruments = positions.instrument.T[..., None].expand(-1, -1, len(ACCOUNT_FEATURES))
    return block.scatter_add_(1, instruments, position_numbers.transpose(0, 1))
