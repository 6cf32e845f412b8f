"""`flatwater runs`."""

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Runs:
    """List the runs in a folder: what they train, state, rounds, score, size, last change."""

    folder: Annotated[str, tyro.conf.Positional] = "runs"
    """Folder that holds run folders, or the URL at which runs are mirrored."""
    json: bool = False
    """Print JSON instead of a table."""

    def __call__(self) -> int:
        """List and print."""
        import json
        import sys
        from dataclasses import asdict
        from pathlib import Path

        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        from flatwater.runs.listing import list_runs
        from flatwater.runs.remote_listing import list_runs_at
        from flatwater.storage.objects import is_url
        from flatwater.terminal import say, terminal
        from flatwater.units import format_bytes

        found = list_runs_at(self.folder) if is_url(self.folder) else list_runs(Path(self.folder))
        if self.json:
            sys.stdout.write(json.dumps({"runs": [asdict(run) for run in found]}, indent=1) + "\n")
            return 0
        if not found:
            say(f"no runs in {self.folder}. Start one with: flatwater train erl")
            return 0
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for title in ("run", "trainer", "state"):
            table.add_column(title)
        for title in ("rounds", "score", "size", "last change"):
            table.add_column(title, justify="right")
        for run in found:
            table.add_row(
                run.name,
                run.trainer,
                run.state,
                f"{run.done}/{run.rounds}",
                "" if run.score is None else f"{run.measured} {run.score:.3g}",
                format_bytes(run.bytes),
                run.changed,
            )
        console = terminal()
        console.print(table)
        for run in found:
            if run.problem:
                console.print(Text.assemble((run.name, "red"), ": ", run.problem), soft_wrap=True)
        return 0
