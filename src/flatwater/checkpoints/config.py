"""What is kept of a run, and in pieces of what size."""

from flatwater.config.declare import config
from flatwater.errors import require


@config
class CheckpointConfig:
    """Which checkpoints stay on the disk, and how they are cut into files."""

    keep: int = 3
    """Checkpoints kept, counted from the newest. Older ones are removed after each save; 1 leaves nothing to fall back
    on when the newest is damaged."""
    keep_every: int = 0
    """Keep every n-th round as well, for good. 0 keeps none beyond `keep`."""
    shard_bytes: int = 8 << 20
    """Bytes to which small leaves are packed into one file; a larger leaf has a file of its own. Saving and loading
    hold at most this much, or the largest leaf, beside the run itself."""

    def __post_init__(self) -> None:
        require(self.keep >= 1, "checkpoints.keep", self.keep, "1 or more")
        require(self.keep_every >= 0, "checkpoints.keep_every", self.keep_every, "0 (off) or more")
        require(self.shard_bytes >= 1, "checkpoints.shard_bytes", self.shard_bytes, "1 or more")
