"""Settings of a trader's network."""

from typing import Annotated, Literal

from flatwater_watch.options.bounds import Bounds
from flatwater_watch.options.declare import config


@config(table="net")
class TraderNetConfig:
    """Actor and critic of one member: an encoder of each column's history, attention over columns, heads."""

    encoder: Literal["tcn", "lstm"] = "tcn"
    """tcn: causal convolutions, each day computed once. lstm: a pass over the whole window for each day (slow)."""
    channels: Annotated[int, Bounds(1, 1 << 16)] = 16
    """Numbers that summarise one column's history on one day."""
    hidden: Annotated[int, Bounds(1, 1 << 16)] = 32
    """Width of the heads that turn a column's summary into an action or a value."""
    attention_heads: Annotated[int, Bounds(1, 1 << 10)] = 2
    """Separate attentions over the columns."""
