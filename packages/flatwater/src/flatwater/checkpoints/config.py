"""Number of checkpoints kept of a run, and the size of their files."""

from flatwater_watch.options.bounds import Number, OptionalNumber
from flatwater_watch.options.declare import config


@config(table="checkpoints")
class CheckpointConfig:
    """Which checkpoints stay on the disk, and the size of their files."""

    every: OptionalNumber = 0
    """Save every n-th round, and the last. 0 saves as often as an eighth of a percent of the time allows: the first
    four rounds, the last, and others at least every 30 s; a round that takes longer is always saved."""
    keep: Number = 3
    """Checkpoints kept, counted from the newest. Older checkpoints are removed after each save; 1 leaves nothing to
    fall back on when the newest is damaged."""
    keep_every: OptionalNumber = 0
    """Keep every n-th round as well, for good. 0 keeps none beyond `keep`."""
    shard_bytes: Number = 8 << 20
    """Bytes to which small leaves are packed into one file; a larger leaf has a file of its own. Saving and loading
    hold at most this much, or the largest leaf, in addition to the run itself."""
