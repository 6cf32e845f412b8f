"""`flatwater export`: what was trained as one file that runs without Flatwater."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write the champion of a run of traders as one file that torch alone can load and run.

    Inside are the network, the scales of its features, the bounds of its actions, and `trader.json` with the names of
    instruments and features. What was written is loaded again and compared.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder."""
    to: Path
    """The file to write, .pt2 (torch.export)."""

    def __call__(self) -> int:
        """Load, export, compare."""
        from flatwater.api import load
        from flatwater.cli.output_file import check_output
        from flatwater.errors import ConfigError
        from flatwater.recipes.erl.export import export_trader
        from flatwater.recipes.erl.trader import Trader
        from flatwater.terminal import say, terminal

        check_output("--to", self.to, ".pt2")
        with terminal(errors=True).status("reading the run and tracing its champion …"):
            trader = load(self.run)
            if not isinstance(trader, Trader):
                raise ConfigError(f"{self.run}: only traders can be exported yet, the champions of `train erl`.")
            difference = export_trader(trader, self.to)
        say(f"{self.to}: loaded again, its actions differ by at most {difference:.1g}")
        return 0
