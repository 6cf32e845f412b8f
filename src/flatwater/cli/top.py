"""`flatwater top RUN`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Top:
    """Watch a run: memory by owner against the budget, phases, fitness, and what grows.

    The screen looks at the run's folder once a second and does not touch the run. Of a finished or stopped run it shows
    the end. Where the output is no terminal it is printed once.
    """

    run: Annotated[Path | None, tyro.conf.Positional] = None
    """The run's folder. Left out: the newest run in ./runs, one that is training first."""
    once: bool = False
    """Print the screen once as text, and end."""
    json: bool = False
    """Print what is known of the run as one JSON object, and end."""

    def __call__(self) -> int:
        """Show the run until the user quits, or print it once.

        Raises:
            RunError: there is no run, or one of its files is damaged.
        """
        import time

        from flatwater.rundir.listing import newest_run
        from flatwater.terminal import terminal
        from flatwater.tui.follow import follow

        followed = follow(self.run or newest_run(Path("runs"), "training", "stopped", "finished"))
        if self.json:
            import json
            import sys

            from flatwater.tui.once import as_json

            sys.stdout.write(json.dumps(as_json(followed, time.time()), indent=1) + "\n")
            return 0
        console = terminal()
        if self.once or not console.is_terminal:
            from flatwater.tui.once import print_once

            print_once(followed, console, time.time())
            return 0
        from flatwater.tui.app import Top as Screen

        screen = Screen(followed)
        fault = screen.run()
        if fault is not None:
            raise fault
        return screen.return_code or 0
