"""`flatwater orders`: the orders of a trained trader after the newest day."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from flatwater.cli.settings import WithBudget, WithTrust
from flatwater_watch.options.bounds import Bounds

if TYPE_CHECKING:
    from flatwater.memory.planner import Plan
    from flatwater_trading.cli.order_sheet import OrderSheet

MAXIMUM_REASONS = 4
"""Number of reasons that are shown: the features and columns that moved the coefficient most."""


@dataclass(frozen=True, kw_only=True)
class OrdersCommand(WithTrust, WithBudget):
    """List what the champion of a run sells and buys after the newest day of a file of prices.

    The file needs the columns of the training panel, and newer days. --after writes positions and cash to a file, for
    --positions on the next day; both may be the same file.

    The simulator buys at the close that the trader has just seen. So buy near the close: the next morning's price
    differs.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or a .safetensors file of `flatwater export`."""
    prices: str | None = None
    """A stored panel, a Parquet, CSV or Excel file, or `synthetic:60x1500`. Left out: the training panel."""
    positions: Path | None = None
    """CSV file of the positions that are held: instrument, entry_date, entry_price, target (percent above it) and
    shares, and a row `cash` with its amount under shares; of target weights instrument and shares alone, with the
    rows `stop.peak` and `stop.since` for an account that has a stop. Left out: nothing is held."""
    raw_prices: str | None = None
    """Closes as they were traded, if the prices are adjusted for splits and dividends and the file has no others.
    Prices, limits and shares are then those that a broker takes, and so are those of --positions."""
    cash: Annotated[float, Bounds(0, 1e15)] | None = None
    """The cash, if --positions has no such row. Left out if nothing is held: the cash of an episode's start."""
    after: Path | None = None
    """Write positions and cash after these orders to this .csv file."""
    json: bool = False
    """Print one JSON object instead of tables."""
    csv: bool = False
    """Print a row for each order as CSV instead: order, instrument, shares, price, limit, days, date, reason. A name
    that a spreadsheet would run as a formula has an apostrophe before it."""

    def __call__(self) -> int:
        """Decide on the orders, print them and write the positions. Returns the exit code.

        Raises:
            ConfigError: both `--json` and `--csv` are given.
        """
        import json

        from flatwater.cli.plan import print_plan
        from flatwater.memory.planner import Plan
        from flatwater_trading.recipe.positions import SHARES
        from flatwater_watch.errors import ConfigError
        from flatwater_watch.files.output import check_output
        from flatwater_watch.terminal import say, terminal

        if self.json and self.csv:
            raise ConfigError("--json, --csv: only one of them can be printed. Leave out the other.")
        if self.after is not None:
            # Checked before anything is read, as orders that took seconds must not fail when they are written. Every
            # trader writes at least a table of shares; `decide` checks again once the trader's kind is known.
            check_output("--after", self.after, SHARES)
        with terminal(to_stderr=True).status("reading the run and the prices …"):
            answer = self.decide()
        if isinstance(answer, Plan):
            return print_plan(answer, as_json=self.json)
        if self.after is not None:
            # The file is written before the output, as a closed pipe must not lose the positions.
            answer.holdings.write(self.after)
        if self.json:
            print(json.dumps(answer.json, indent=1))
            return 0
        if self.csv:
            print(answer.csv, end="")
            return 0
        console = terminal()
        console.print(f"after the close of {answer.date}", style="italic", highlight=False)
        console.print(answer.table)
        for line in answer.lines:
            console.print(line, highlight=False, markup=False)
        if self.after is not None:
            say(f"positions and cash after these orders, for --positions of the next: {self.after}")
        return 0

    def decide(self) -> "OrderSheet | Plan":
        """Return the orders, ready to be shown and written; with --plan the plan of their memory."""
        from flatwater_trading.cli.position_orders import position_order_sheet
        from flatwater_trading.cli.trained_trader import load_trader, trained_panel
        from flatwater_trading.cli.weight_orders import portfolio_order_sheet
        from flatwater_trading.panel.locate import load_panel
        from flatwater_trading.recipe.positions import POSITIONS, Portfolio, ShareTable, read_positions, read_shares
        from flatwater_trading.recipe.weights.trader import WeightsTrader
        from flatwater_watch.files.output import check_output

        trader = load_trader(self.run, "Orders")
        if self.after is not None and not isinstance(trader, WeightsTrader):
            check_output("--after", self.after, POSITIONS)  # whole positions also have entry days and targets
        prices = trained_panel(self.run) if self.prices is None else self.prices
        options: dict[str, Any] = {"raw_prices": self.raw_prices, "budget": self.budget}
        # A trader of target weights needs the shares that are held; another trader also entry days and sale targets.
        if isinstance(trader, WeightsTrader):
            table = ShareTable({}, cash=None, stop=None) if self.positions is None else read_shares(self.positions)
            panel = trader.align_panel(load_panel(prices))
            if self.plan:
                return trader.plan_orders(panel, self.budget)
            cash = table.cash if self.cash is None else self.cash
            return portfolio_order_sheet(trader.orders(panel, table.shares, cash, stop=table.stop, **options))
        # From here on: the trader buys and sells whole positions.
        portfolio = Portfolio() if self.positions is None else read_positions(self.positions)
        panel = trader.align_panel(load_panel(prices))
        if self.plan:
            return trader.plan_orders(panel, self.budget)
        cash = portfolio.cash if self.cash is None else self.cash
        orders = trader.orders(panel, portfolio.positions, cash, **options)
        if not orders.ranking:  # nothing can be bought, so that there is no coefficient to explain
            return position_order_sheet(orders, reasons=())
        top_instrument, _ = orders.ranking[0]
        reasons = trader.reasons(panel, orders, top_instrument, budget=self.budget)[:MAXIMUM_REASONS]
        return position_order_sheet(orders, reasons)
