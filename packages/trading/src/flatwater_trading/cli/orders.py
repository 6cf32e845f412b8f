"""`flatwater orders`: the orders of a trained trader after the newest day."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from flatwater.cli.settings import WithBudget, WithTrust
from flatwater_watch.options.bounds import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from flatwater.memory.planner import Plan
    from flatwater_trading.cli.order_sheet import OrderSheet
    from flatwater_trading.market.orders import Orders
    from flatwater_trading.recipe.trader import Reason, Trader
    from flatwater_trading.recipe.weights.trader import WeightsTrader

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
            # Checked before anything is read, as orders that took seconds must not fail when they are written. A table
            # of positions is also a table of shares.
            check_output("--after", self.after, SHARES)
        with terminal(to_stderr=True).status("reading the run and the prices …"):
            answer = self.decide()
        if isinstance(answer, Plan):
            return print_plan(answer, as_json=self.json)
        if self.after is not None:
            # The file is written before the output, as a closed pipe must not lose the positions.
            answer.write_holdings(self.after)
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
            say(f"positions and cash after these orders: {self.after}")
        return 0

    def decide(self) -> "OrderSheet | Plan":
        """Return the orders, ready to be shown and written; with --plan the plan of their memory."""
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
        portfolio = Portfolio() if self.positions is None else read_positions(self.positions)
        panel = trader.align_panel(load_panel(prices))
        if self.plan:
            return trader.plan_orders(panel, self.budget)
        cash = portfolio.cash if self.cash is None else self.cash
        orders = trader.orders(panel, portfolio.positions, cash, **options)
        if not orders.ranking:
            return purchase_order_sheet(orders, ())
        top_instrument, _ = orders.ranking[0]
        reasons = trader.reasons(panel, orders, top_instrument, budget=self.budget)[:MAXIMUM_REASONS]
        return purchase_order_sheet(orders, reasons)


def purchase_order_sheet(orders: "Orders", reasons: "Sequence[Reason]") -> "OrderSheet":
    """Return the sheet of a trader that buys and sells whole positions."""
    from dataclasses import asdict

    from flatwater_trading.cli.order_sheet import OrderSheet
    from flatwater_trading.recipe.positions import write_positions

    return OrderSheet(
        date=orders.date,
        json=orders.to_json() | {"reasons": [asdict(reason) for reason in reasons]},
        csv=_orders_as_csv(orders),
        table=_orders_table(orders),
        lines=_closing_sentences(orders, reasons),
        write_holdings=lambda file: write_positions(file, orders.positions, orders.cash),
    )


def load_trader(run: str, use: str) -> "Trader | WeightsTrader":
    """Load the trader of a run or of a file.

    Args:
        run: folder of a run or exported file, as for `flatwater.load`.
        use: use of the trader, in the plural and capitalised, for the message.

    Raises:
        FlatwaterError: the run cannot be used, or its policy is not a trader.
    """
    from flatwater.api import load
    from flatwater_trading.recipe.trader import Trader
    from flatwater_trading.recipe.weights.trader import WeightsTrader
    from flatwater_watch.errors import ConfigError

    trader = load(run)
    if not isinstance(trader, Trader | WeightsTrader):
        raise ConfigError(f"{run}: what it has trained buys nothing. {use} belong to `train erl` and `train weights`.")
    return trader


def trained_panel(run: str) -> str | None:
    """Return the panel that a run was trained on, as a value of `--panel`; None for the shipped panel.

    Raises:
        ConfigError: `run` is an exported file, which does not name a panel.
    """
    from flatwater.config.toml import read_toml
    from flatwater.rundir.layout import open_folder
    from flatwater_watch.errors import ConfigError

    if Path(run).is_file():
        raise ConfigError(f"{run}: an exported trader has no prices of its own. Give them with --prices.")
    panel = read_toml(open_folder(Path(run)).config).get("panel")
    return panel if isinstance(panel, str) else None


COLUMNS = ("order", "instrument", "shares", "price", "limit", "days", "date", "reason")
Row = tuple[str, str, float, float, float | None, int | None, str, str]
"""Values of `COLUMNS` for an order."""


def _order_rows(orders: "Orders") -> "Iterator[Row]":
    """Yield the values of `COLUMNS` for each order: sales, holdings, then purchases."""
    for sale in orders.sales:
        yield "sell", sale.instrument, sale.shares, sale.price, None, None, sale.date, sale.reason
    for holding in orders.holdings:
        position = holding.position
        yield (
            "hold",
            position.instrument,
            position.shares,
            holding.price,
            holding.target_price,
            holding.days_left,
            orders.date,
            "",
        )
    for purchase in orders.purchases:
        yield (
            "buy",
            purchase.instrument,
            purchase.shares,
            purchase.price,
            purchase.target_price,
            purchase.hold_days,
            orders.date,
            "",
        )


def _orders_as_csv(orders: "Orders") -> str:
    """Return the orders as CSV text with the header `COLUMNS`, a row for each order."""
    import polars as pl

    from flatwater_trading.recipe.positions import spreadsheet_cell

    # A spreadsheet that opens the file would run a name that begins like a formula.
    rows = [(order, spreadsheet_cell(name), *other_values) for order, name, *other_values in _order_rows(orders)]
    return pl.DataFrame(rows, schema=COLUMNS, orient="row").write_csv()


def _orders_table(orders: "Orders") -> "Table":
    """Return the orders as a table for the terminal: sales first, then holdings, then purchases."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("order", no_wrap=True)
    table.add_column("instrument", no_wrap=True)
    for title in ("shares", "price", "limit", "until"):
        table.add_column(title, justify="right", no_wrap=True)
    for order, instrument, shares, price, limit, days, date, reason in _order_rows(orders):
        # A sale ends a position at its target or, for any other reason, at the close; other orders have no reason.
        due_phrase = "" if date == orders.date else f", due {date}"
        exit_rule = {"": "", "target": " at its target"}.get(reason, " at the close") + due_phrase
        limit_cells = ("", "") if limit is None else (f"{limit:,.2f}", f"{days} {orders.unit}s")
        style = "bold" if order == "buy" else None
        table.add_row(f"{order}{exit_rule}", instrument, f"{shares:,.2f}", f"{price:,.2f}", *limit_cells, style=style)
    if not table.rows:
        table.add_row("nothing", "", "", "", "", "")
    return table


def _closing_sentences(orders: "Orders", reasons: "Sequence[Reason]") -> list[str]:
    """Return the sentences below the table: purchases or why nothing is bought, coefficients, prices, reasons."""
    purchases = orders.purchases
    lines = []
    if purchases:
        subject, pronoun = ("The purchase takes", "it") if len(purchases) == 1 else ("The purchases take", "each")
        lines.append(
            f"{subject} {sum(purchase.share for purchase in purchases):.1%} of the equity of {orders.equity:,.0f}; "
            f"{orders.cash:,.0f} are left in cash. Sell {pronoun} at its limit, or at the close after "
            f"{purchases[0].hold_days} {_periods(orders)}."
        )
    else:
        lines.append(f"{_reason_for_no_purchase(orders)} Cash {orders.cash:,.0f} of an equity of {orders.equity:,.0f}.")
    if orders.sales or purchases:
        lines.append(f"The orders cost {orders.cost:,.2f}.")
    if orders.ranking:
        lines.append("coefficients: " + ", ".join(f"{name} {value:.2f}" for name, value in orders.ranking))
    if orders.as_traded:
        lines.append("Prices, limits and shares are as traded; the trader looks at adjusted prices.")
    else:
        lines.append(
            "Prices, limits and shares are as in the file. If it is adjusted for splits or dividends, so are they: "
            "give the closes as traded with --raw-prices FILE."
        )
    if orders.splits:
        lines.append(f"Split since the purchase: {', '.join(orders.splits)}. Give the shares that are held now.")
    if reasons:
        parts = ", ".join(f"{reason.what} {reason.effect:+.3f}" for reason in reasons)
        lines.append(f"what moved {orders.ranking[0][0]}: {parts}")
    return lines


def _periods(orders: "Orders") -> str:
    return "trading days" if orders.unit == "day" else f"{orders.unit}s"


def _reason_for_no_purchase(orders: "Orders") -> str:
    """Return the sentence with the reason why nothing is bought today; for orders without a purchase."""
    bought_instruments = [
        holding.position.instrument for holding in orders.holdings if holding.position.entry_date == orders.date
    ]
    # The ranking begins with the largest coefficient.
    reaches_threshold = any(coefficient >= orders.threshold for _, coefficient in orders.ranking[:1])
    if bought_instruments and reaches_threshold:
        return (
            f"Nothing is bought: {', '.join(bought_instruments)} was bought on this day already, "
            "and env.trade.purchases_a_day allows no more."
        )
    if not orders.ranking:
        return f"Nothing can be bought: no instrument that is not held has a price on {orders.date}."
    return f"Nothing is bought: no coefficient reaches {orders.threshold:g}."
