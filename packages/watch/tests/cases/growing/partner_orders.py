"""Orders that partners send as JSON, checked and summed.

Thread: https://github.com/reagento/adaptix/issues/461, https://github.com/python-attrs/cattrs/issues/290
Looks like: each order takes some fifty kilobytes for good, although it is dropped at once.
Cause: each `Retort` compiles its loaders anew, and the text of what is compiled stays in `linecache.cache`.
Fix: one `Retort` for all orders, made once outside of `read_order`.
"""

import json
import random
import sys
from dataclasses import dataclass, field
from datetime import date

from adaptix import Retort, loader


@dataclass
class Address:
    street: str
    town: str
    postcode: str
    country: str = "NL"


@dataclass
class Line:
    article: str
    count: int
    price: float
    discount: float = 0.0


@dataclass
class Payment:
    method: str
    paid: bool
    reference: str


@dataclass
class Order:
    number: int
    ordered: date
    deliver_to: Address
    invoice_to: Address
    payment: Payment
    lines: list[Line] = field(default_factory=list)


def incoming_order(number: int) -> str:
    address = {"street": f"Kade {number % 90}", "town": "Delft", "postcode": "2611 AB"}
    lines = [{"article": f"A{random.randrange(900)}", "count": 1 + i, "price": 4.5} for i in range(6)]
    payment = {"method": "card", "paid": True, "reference": f"R{number}"}
    return json.dumps(
        {
            "number": number,
            "ordered": "02.03.2026",
            "deliver_to": address,
            "invoice_to": address,
            "payment": payment,
            "lines": lines,
        }
    )


def german_date(text: str) -> date:
    day, month, year = text.split(".")
    return date(int(year), int(month), int(day))


def read_order(text: str) -> Order:  # <- or here
    retort = Retort(recipe=[loader(date, german_date)])  # <- here
    return retort.load(json.loads(text), Order)  # <- or here


def main(orders: int) -> None:
    worth = 0.0
    for number in range(1, orders + 1):
        order = read_order(incoming_order(number))  # <- or here
        worth += sum(line.count * line.price for line in order.lines)
        if number % 100 == 0:
            print(f"{number} orders, {worth:.2f} euro", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1370)
