"""`flatwater prune RUN --keep N`."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from flatwater.config.bounds import Number


@dataclass(frozen=True, kw_only=True)
class Prune:
    """Remove checkpoints of a run but the newest, and the files that only they need.

    The newest checkpoint that is kept is read through first: one that is damaged does not count, so the last good one
    always stays. Records and results are not touched.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or the URL at which it is mirrored."""
    keep: Number
    """Checkpoints that stay, counted from the newest; 1 or more."""

    def __call__(self) -> int:
        """Remove, and say what is left."""
        from flatwater.mirror.pruning import prune_run
        from flatwater.terminal import say
        from flatwater.units import format_bytes

        done = prune_run(self.run, self.keep)
        say(f"{self.run}  {done.kept} kept, {done.removed} removed, {format_bytes(done.bytes)} freed")
        if done.unread:
            say(f"{done.unread} more cannot be read now, and stay with every file: flatwater checkpoints {self.run}")
        return 0
