"""The shape of a recurrent policy."""

from typing import Annotated

from flatwater.config.bounds import Bounds
from flatwater.config.declare import config

Odds = Annotated[float, Bounds(0, 1e6, above=True)]


@config(table="policy")
class PolicyConfig:
    """Actor and critic of one agent that remembers: an encoder, an LSTM, and two heads."""

    hidden: Annotated[int, Bounds(1, 1 << 16)] = 64
    """Width of the layer that reads an observation."""
    memory: Annotated[int, Bounds(1, 1 << 16)] = 64
    """Cells of the LSTM."""
    floor: Annotated[float, Bounds(0, 1, below=True)] = 0.05
    """Share of operations that are drawn uniformly among the legal ones while learning, so that none dies out."""
    prior: tuple[Odds, ...] = (1.0, 1.0, 1.0, 0.2, 1.0, 0.05)
    """How often the first policy does each legal operation, beside the others: wait, germinate, advance, set the alpha
    target, fossilise, prune. What is learned moves it. Were all alike, a seed would hardly ever live until it helps."""
