"""The shape of one trader's networks."""

from typing import Literal

from flatwater.config.declare import config
from flatwater.errors import require


@config
class NetConfig:
    """Actor and critic of one member: an encoder of each column's history, attention over columns, heads."""

    encoder: Literal["tcn", "lstm"] = "tcn"
    """tcn: causal convolutions, each day computed once. lstm: a pass over the whole window for each day (slow)."""
    channels: int = 16
    """Numbers that summarise one column's history on one day."""
    hidden: int = 32
    """Width of the heads that turn a column's summary into an action or a value."""
    attention_heads: int = 2
    """Separate attentions over the columns; their mean is the reported importance."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("channels", "hidden", "attention_heads"):
            require(getattr(self, name) >= 1, f"net.{name}", getattr(self, name), "1 or more")
