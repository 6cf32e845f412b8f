"""`flatwater evaluate`."""

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Play the champion of a run's newest checkpoint against buy and hold, equal weights and random traders.

    Without --holdout it plays the walk-forward days, on which it was chosen. --holdout plays the last days of the
    panel, which no part of training has seen; each look is logged in the run's holdout_looks.jsonl, because a
    holdout that is looked at often is none.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or the URL at which it is mirrored."""
    holdout: bool = False
    """Play the holdout days, and log the look."""
    json: bool = False
    """Print the result as JSON instead of a table."""

    def __call__(self) -> int:
        """Evaluate and print."""
        import json
        import sys

        from rich.console import Console

        from flatwater.cli.outcome import show_result
        from flatwater.cli.terminal import terminal
        from flatwater.runs.evaluate import evaluate

        errors = Console(stderr=True)
        with errors.status("reading the run and playing its champion …"):
            result = evaluate(self.run, holdout=self.holdout, say=lambda line: errors.print(line, highlight=False))
        if self.json:
            sys.stdout.write(json.dumps(result, indent=1) + "\n")
        else:
            show_result(result, terminal())
        return 0
