"""`flatwater paper`: a trained trader on a paper account, evening by evening."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from flatwater.cli.settings import WithBudget, WithTrust
from flatwater_watch.options.bounds import Bounds

if TYPE_CHECKING:
    from flatwater.memory.planner import Plan
    from flatwater_trading.recipe.paper import PlayedEvenings


@dataclass(frozen=True, kw_only=True)
class PaperCommand(WithTrust, WithBudget):
    """Trade a paper account by the orders of a run's champion: each evening since its last one, at the close.

    Call it after every close, by hand or by cron; an evening that was missed is played as well, and a second call on
    the same evening does nothing. The account is a folder: `journal.jsonl` with a line for each evening, and
    `held.csv`, which may be edited where a real broker has filled an order otherwise. Costs are those of the run's
    settings. `flatwater report FOLDER` draws the account.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or a .safetensors file of `flatwater export`. Another run may go on with an account."""
    account: Path = Path("paper")
    """Folder of the account; made if it is not there."""
    prices: str | None = None
    """A stored panel, a Parquet, CSV or Excel file, or `synthetic:60x1500`. Left out: the training panel."""
    raw_prices: str | None = None
    """Closes as they were traded, if the prices are adjusted and the file has no others; the account is in these."""
    first: Annotated[str | None, tyro.conf.arg(name="from", metavar="YYYY-MM-DD")] = None
    """First evening of a new account. Left out: the newest day of the prices."""
    cash: Annotated[float, Bounds(0, 1e15)] | None = None
    """Money of a new account. Left out: that of the run's settings."""
    json: bool = False
    """Print the evenings that were played now as JSON, one in a line, in place of a table."""

    def __call__(self) -> int:
        """Play the account's missing evenings and print the newest; with --plan the plan. Returns the exit code."""
        from dataclasses import asdict

        from flatwater.cli.plan import print_plan
        from flatwater.memory.planner import Plan
        from flatwater_watch.files.json_values import encode_json
        from flatwater_watch.terminal import say, terminal

        with terminal(to_stderr=True).status("reading the run and the prices …"):
            played_evenings = self.play_evenings()
        if isinstance(played_evenings, Plan):
            return print_plan(played_evenings, as_json=self.json)
        for note in played_evenings.notes:
            terminal(to_stderr=True).print(note, highlight=False, markup=False)
        if self.json:
            # The last `new` evenings; not `[-new:]`, which would be all of them if none is new.
            new_evenings = played_evenings.evenings[len(played_evenings.evenings) - played_evenings.new :]
            for evening in new_evenings:
                print(encode_json(asdict(evening)).decode())
            return 0
        self._show_newest(played_evenings)
        say(f"the account as a page: flatwater report {self.account}")
        return 0

    def play_evenings(self) -> "PlayedEvenings | Plan":
        """Play the evenings that the account lacks; with --plan return the plan of one evening's memory instead."""
        from flatwater_trading.cli.trained_trader import load_trader, trained_panel
        from flatwater_trading.panel.locate import load_panel
        from flatwater_trading.recipe.backtest import find_date_rows
        from flatwater_trading.recipe.paper import hold_account, play_account

        trader = load_trader(self.run, "Paper accounts")
        prices = trained_panel(self.run) if self.prices is None else self.prices
        panel = trader.align_traded_panel(load_panel(prices), self.raw_prices)
        if self.plan:
            return trader.plan_orders(panel, self.budget)
        if self.first is not None:
            # Only for its check, which refuses a text that is no date; the rows are not needed.
            find_date_rows(panel, self.first, last=None, chosen_until=self.first)
        with hold_account(self.account):  # locks it against other processes
            return play_account(
                trader, panel, self.account, run=self.run, first=self.first, cash=self.cash, budget=self.budget
            )

    def _show_newest(self, played_evenings: "PlayedEvenings") -> None:
        """Print the orders of the newest evening, and the account's equity, cash and costs."""
        from flatwater_trading.cli.position_orders import position_order_sheet
        from flatwater_trading.cli.weight_orders import portfolio_order_sheet
        from flatwater_trading.recipe.weights.orders import WeightOrders
        from flatwater_watch.phrases import count_phrase
        from flatwater_watch.terminal import terminal

        evenings = played_evenings.evenings
        newest, first = evenings[-1], evenings[0]
        console = terminal()
        orders = played_evenings.orders
        if orders is None:
            console.print(f"nothing to do: the account has been played up to {newest.date}", highlight=False)
        else:
            sheet = (
                portfolio_order_sheet(orders)
                if isinstance(orders, WeightOrders)
                else position_order_sheet(orders, reasons=())
            )
            console.print(f"after the close of {newest.date}", style="italic", highlight=False)
            console.print(sheet.table)
        spent_money = sum(evening.cost for evening in evenings)
        console.print(
            f"{count_phrase(played_evenings.new, 'evening')} played. Equity {newest.equity:,.2f} after "
            f"{count_phrase(len(evenings), 'evening')} since {first.date}, {newest.cash:,.2f} of it in cash; "
            f"costs so far {spent_money:,.2f}.",
            highlight=False,
        )
