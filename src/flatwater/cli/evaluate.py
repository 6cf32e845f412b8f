"""`flatwater evaluate`."""

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Play what a run has trained, of its newest checkpoint, against what it is compared with.

    The champion plays against buy and hold, equal weights and random traders; the policy that grows networks against
    waiting, a heuristic and chance; the student against its teacher and chance. Without --holdout it is on the days or
    episodes by which training was judged. --holdout plays others, which no part of training has seen; each look is
    logged in the run's holdout_looks.jsonl, because a holdout that is looked at often is none.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or the URL at which it is mirrored."""
    holdout: bool = False
    """Play the holdout days or episodes, and log the look."""
    panel: str | None = None
    """Where the panel of a run of traders lies now. It may have newer days than the run began with, which are left out
    (`flatwater backtest` plays those). Left out: where it was."""
    json: bool = False
    """Print the result as JSON instead of a table."""

    def __call__(self) -> int:
        """Evaluate and print."""
        import json
        import sys

        from flatwater.cli.outcome import show_result
        from flatwater.runs.evaluate import evaluate
        from flatwater.terminal import terminal

        errors = terminal(errors=True)
        with errors.status("reading the run and playing what it has trained …"):
            result = evaluate(self.run, holdout=self.holdout, say=errors.print, panel=self.panel)
        if self.json:
            sys.stdout.write(json.dumps(result, indent=1) + "\n")
        else:
            show_result(result, terminal())
        return 0
