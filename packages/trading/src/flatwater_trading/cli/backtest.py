"""`flatwater backtest`: a trained trader, played over days of the user's choice."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from flatwater.cli.settings import WithBudget, WithTrust

if TYPE_CHECKING:
    from flatwater.memory.planner import Plan
    from flatwater_trading.panel.panel import Panel
    from flatwater_trading.panel.splits import Days
    from flatwater_trading.recipe.backtest import Backtest


@dataclass(frozen=True, kw_only=True)
class BacktestCommand(WithTrust, WithBudget):
    """Play the champion of a run over a stretch of days, against buy and hold, equal weights and random traders.

    Without --from it begins after the days on which the champion was chosen: with newer prices these are the run's
    holdout and all days since. The rules, the costs and the baselines are those of
    `flatwater evaluate`; a look at holdout days is logged as there. Day by day the trades are those of
    `flatwater orders`, except that nothing is bought on the last days (env.episode.settlement_days).
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or a .safetensors file of `flatwater export`."""
    prices: str | None = None
    """A stored panel, a Parquet, CSV or Excel file, or `synthetic:60x1500`. Left out: the training panel."""
    first: Annotated[str | None, tyro.conf.arg(name="from", metavar="YYYY-MM-DD")] = None
    """The first day to play, as 2024-01-31. Left out: the first after those on which the champion was chosen."""
    last: Annotated[str | None, tyro.conf.arg(name="to", metavar="YYYY-MM-DD")] = None
    """The last day. Left out: the newest."""
    benchmark: str | None = None
    """A column of the prices, a file of prices with one column, or FILE:COLUMN: it is bought and held besides, and
    alpha, beta and the tear sheet are against it. Left out: that of the run's settings, or equal weight."""
    out: Path | None = None
    """Folder for equity.parquet, trades.parquet, sheet.parquet and result.json. Left out: backtest-FIRST-LAST in the
    run's folder, or in the folder of the file."""
    force: bool = False
    """Replace earlier files of that name."""
    json: bool = False
    """Print the result as JSON instead of a table."""

    def __call__(self) -> int:
        """Play the champion, write the files and print the result. Returns the exit code."""
        import json

        # Imported here, as in all commands: `--help` and completion import neither torch nor NumPy.
        from flatwater.cli.outcome import show_result
        from flatwater.cli.plan import print_plan
        from flatwater.memory.planner import Plan
        from flatwater_trading.recipe.recipe import ERL
        from flatwater_trading.recipe.weights.recipe import WEIGHTS
        from flatwater_watch.terminal import say, terminal

        with terminal(to_stderr=True).status("reading the run and playing its champion …"):
            answer = self.play_days()
            if isinstance(answer, Plan):
                return print_plan(answer, as_json=self.json)
            backtest, folder = answer
            backtest.write(folder, force=self.force)
        if self.json:
            print(json.dumps(dict(backtest.result), indent=1))
            return 0
        recipe = WEIGHTS if backtest.result["trainer"] == WEIGHTS.name else ERL
        show_result(dict(backtest.result), terminal(), recipe)
        say(f"equity, trades and result: {folder}")
        say(f"as a page, with its tear sheet: flatwater report {folder}")
        return 0

    def play_days(self) -> "tuple[Backtest, Path] | Plan":
        """Play the days; return the backtest and the folder for its files, or with --plan the plan of its memory."""
        from flatwater.memory.planner import require_fit
        from flatwater_trading.cli.trained_trader import load_trader, trained_panel
        from flatwater_trading.panel.locate import load_panel
        from flatwater_trading.recipe.backtest import known_true_returns, require_free_folder
        from flatwater_trading.recipe.benchmark import find_benchmark
        from flatwater_watch.terminal import terminal

        # Checked before the run is read, and again once the folder is chosen, so that no result is lost after playing.
        if self.out is not None:
            require_free_folder(self.out, force=self.force)
        trader = load_trader(self.run, "Backtests")
        prices = trained_panel(self.run) if self.prices is None else self.prices
        all_columns = load_panel(prices)
        panel = trader.align_panel(all_columns)
        days = trader.find_days(panel, self.first, self.last)
        benchmark = None if self.benchmark is None else find_benchmark(self.benchmark, all_columns)
        plan = trader.plan_backtest(panel, days, self.budget)
        if self.plan:
            return plan
        require_fit(plan)  # raises only if the plan does not fit
        folder = self._choose_folder(panel, days)
        require_free_folder(folder, force=self.force)
        # Each use of holdout days is logged as a look before they are played, as an interrupted one has seen them too.
        if look_note := trader.log_holdout_look(panel, days):
            terminal(to_stderr=True).print(look_note, highlight=False)
        return trader.play_backtest(panel, days, known_true_returns(prices, panel), benchmark), folder

    def _choose_folder(self, panel: "Panel", days: "Days") -> Path:
        """Return the folder of the result: that of `--out`, else a new one that is named by the days.

        It is in the run's folder or, for an exported file, beside the file.
        """
        if self.out is not None:
            return self.out
        run = Path(self.run)
        name = f"backtest-{panel.dates[days.first]}-{panel.dates[days.stop - 1]}"
        if run.is_dir():
            return run / name
        # With the file's name, which tells the folders of several files apart.
        return run.with_name(f"{run.stem}-{name}")
