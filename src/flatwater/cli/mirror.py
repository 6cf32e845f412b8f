"""`flatwater mirror RUN`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class MirrorCommand:
    """Send what the mirror of a run does not have yet: checkpoints, records, result.

    A run with --mirror does so by itself while it trains. This sends the rest where the store could not be reached, and
    makes a mirror of a run that has none.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The run's folder."""
    to: str | None = None
    """s3://bucket/path, gs://bucket/path, az://container/path or file:///path; the run gets a folder of its name there.
    Left out: where the run is mirrored already."""

    def __call__(self) -> int:
        """Send, and say what was sent."""
        from flatwater.runs.catch_up import catch_up
        from flatwater.terminal import say as print_line
        from flatwater.terminal import terminal
        from flatwater.units import format_bytes

        errors = terminal(errors=True)
        sent = 0

        def step(count: int) -> None:
            nonlocal sent
            sent += count
            status.update(f"sending … {format_bytes(sent)}")

        def say(line: str) -> None:
            errors.print(line, highlight=False, markup=False, soft_wrap=True)

        with errors.status("asking the store what it has …") as status:
            done = catch_up(self.run, self.to, say=say, step=step)
        print_line(
            f"{done.url}  {done.checkpoints} checkpoint(s) and the files that had changed, {format_bytes(done.bytes)}"
        )
        return 0
