"""Orders of target weights as a sheet: a table of purchases and sales, and the holdings after them."""

from typing import TYPE_CHECKING

from flatwater_trading.cli.order_sheet import price_sentences

if TYPE_CHECKING:
    from rich.table import Table

    from flatwater_trading.cli.order_sheet import OrderSheet
    from flatwater_trading.recipe.weights.orders import WeightOrders

COLUMNS = ("order", "instrument", "shares", "price", "value", "weight")


def portfolio_order_sheet(orders: "WeightOrders") -> "OrderSheet":
    """Return the orders of target weights in all forms that `flatwater orders` prints or writes."""
    from flatwater_trading.cli.order_sheet import OrderSheet
    from flatwater_trading.recipe.positions import ShareTable

    return OrderSheet(
        date=orders.date,
        json=orders.to_json(),
        csv=_orders_as_csv(orders),
        table=_orders_table(orders),
        lines=_closing_sentences(orders),
        holdings=ShareTable(orders.shares, orders.cash, orders.stop),
    )


def _order_rows(orders: "WeightOrders") -> list[tuple[str, str, float, float, float, float]]:
    """Return the values of `COLUMNS` for each order, sales first; the weight is the weight after the orders."""
    weights = {each.instrument: each.weight for each in orders.holdings}
    return [
        (each.order, each.instrument, each.shares, each.price, each.value, weights.get(each.instrument, 0.0))
        for each in orders.orders
    ]


def _orders_as_csv(orders: "WeightOrders") -> str:
    """Return the orders as CSV text with the header `COLUMNS`, a row for each order."""
    import csv
    import io

    from flatwater_trading.recipe.positions import spreadsheet_cell

    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    # Names are escaped, as a spreadsheet would run a name that begins like a formula.
    table.writerows((order, spreadsheet_cell(name), *numbers) for order, name, *numbers in _order_rows(orders))
    return text.getvalue()


def _orders_table(orders: "WeightOrders") -> "Table":
    """Return the orders as a table for the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("order", no_wrap=True)
    table.add_column("instrument", no_wrap=True)
    for title in ("shares", "price", "value", "weight after"):
        table.add_column(title, justify="right", no_wrap=True)
    for order, name, shares, price, value, weight in _order_rows(orders):
        style = "bold" if order == "buy" else None
        table.add_row(order, name, _shares_text(shares), f"{price:,.2f}", f"{value:,.2f}", f"{weight:.1%}", style=style)
    if not table.rows:
        table.add_row("nothing", "", "", "", "", "")
    return table


def _shares_text(shares: float) -> str:
    """Return a number of shares; parts of one share with as many digits as they need."""
    return f"{shares:,.2f}" if shares >= 1 else f"{shares:.3g}"


def _closing_sentences(orders: "WeightOrders") -> list[str]:
    """Return the sentences below the table: the account after the orders, its stop, and the kind of the prices."""
    invested_weight = sum(holding.weight for holding in orders.holdings if holding.weight > 0)
    short_share = -sum(holding.weight for holding in orders.holdings if holding.weight < 0)
    and_short = f", {short_share:.1%} are sold short" if short_share else ""
    account = (
        f"After these orders {invested_weight:.1%} of the equity of {orders.equity:,.2f} are invested{and_short}, in "
        f"{len(orders.holdings)} instruments; {orders.cash:,.2f} are cash. The orders cost {orders.cost:,.2f}."
    )
    lines = [
        account,
        f"{orders.held:.0%} of the learned weights are held, the rest is {orders.rest}.",
    ]
    lines += price_sentences(orders)
    if (stop := orders.stop) is not None and stop.since:  # the day of the stop; empty while it is not stopped
        lines.append(
            f"The account was stopped on {stop.since}, and holds cash for {orders.stop_rows_left} rows of the prices, "
            "this one included."
        )
    elif stop is not None:
        lines.append(f"The highest equity so far, from which account.stop counts, is {stop.peak:,.2f}.")
    if orders.as_traded:
        lines.append("Prices and shares are as traded; the weights follow from adjusted prices.")
    else:
        lines.append(
            "Prices and shares are as in the file. If it is adjusted for splits or dividends, so are they: give the "
            "closes as traded with --raw-prices FILE."
        )
    return lines
