"""Orders of a trader that buys and sells whole positions, as a sheet: a table, and the positions after the orders."""

from typing import TYPE_CHECKING

from flatwater_trading.cli.order_sheet import price_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from flatwater_trading.cli.order_sheet import OrderSheet
    from flatwater_trading.market.orders import Orders
    from flatwater_trading.recipe.trader import Reason

COLUMNS = ("order", "instrument", "shares", "price", "limit", "days", "date", "reason")
Row = tuple[str, str, float, float, float | None, int | None, str, str]
"""Values of `COLUMNS` for an order."""


def position_order_sheet(orders: "Orders", reasons: "Sequence[Reason]") -> "OrderSheet":
    """Return the sheet of a trader that buys and sells whole positions."""
    from dataclasses import asdict

    from flatwater_trading.cli.order_sheet import OrderSheet
    from flatwater_trading.recipe.positions import Portfolio

    return OrderSheet(
        date=orders.date,
        json=orders.to_json() | {"reasons": [asdict(reason) for reason in reasons]},
        csv=_orders_as_csv(orders),
        table=_orders_table(orders),
        lines=_closing_sentences(orders, reasons),
        holdings=Portfolio(orders.positions, orders.cash),
    )


def _order_rows(orders: "Orders") -> "Iterator[Row]":
    """Yield the values of `COLUMNS` for each order: sales, holdings, then purchases."""
    for sale in orders.sales:
        # None: a sale has no limit and no days to be held.
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
        exit_phrase = ""
        if reason:  # only a sale has one: it ends a position at its target or, for any other reason, at the close
            exit_phrase = " at its target" if reason == "target" else " at the close"
        due_phrase = "" if date == orders.date else f", due {date}"
        order_cell = f"{order}{exit_phrase}{due_phrase}"
        limit_cells = ("", "") if limit is None else (f"{limit:,.2f}", f"{days} {orders.unit}s")
        style = "bold" if order == "buy" else None
        table.add_row(order_cell, instrument, f"{shares:,.2f}", f"{price:,.2f}", *limit_cells, style=style)
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
    lines += price_sentences(orders)
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
    """Return the sentence on why nothing is bought today.

    Either a call on the same day has bought already, or nothing has a price, or no coefficient reaches the threshold.
    """
    bought_instruments = [
        holding.position.instrument for holding in orders.holdings if holding.position.entry_date == orders.date
    ]
    # The ranking begins with the largest coefficient; it is empty if nothing can be bought.
    reaches_threshold = any(coefficient >= orders.threshold for _, coefficient in orders.ranking[:1])
    if bought_instruments and reaches_threshold:
        return (
            f"Nothing is bought: {', '.join(bought_instruments)} was bought on this day already, "
            "and env.trade.purchases_a_day allows no more."
        )
    if not orders.ranking:
        return f"Nothing can be bought: no instrument that is not held has a price on {orders.date}."
    return f"Nothing is bought: no coefficient reaches {orders.threshold:g}."
