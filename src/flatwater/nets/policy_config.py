"""The shape of a recurrent policy."""

from flatwater.config.declare import config
from flatwater.errors import require


@config
class PolicyConfig:
    """Actor and critic of one agent that remembers: an encoder, an LSTM, and two heads."""

    hidden: int = 64
    """Width of the layer that reads an observation."""
    memory: int = 64
    """Cells of the LSTM."""
    floor: float = 0.1
    """Share of operations that are drawn uniformly among the legal ones while learning, so that none dies out."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("hidden", "memory"):
            require(getattr(self, name) >= 1, f"policy.{name}", getattr(self, name), "1 or more")
        require(0 <= self.floor < 1, "policy.floor", self.floor, "0 or more and less than 1")
