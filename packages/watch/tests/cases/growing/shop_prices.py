"""The offers of a shop: each product page is read, and its price compared with that of the page before.

Thread: https://github.com/rushter/selectolax/issues/112, https://github.com/rushter/selectolax/issues/90
Looks like: an offer of two numbers takes more than a megabyte, outside of Python.
Cause: a node that is kept keeps the whole document that it is part of.
Fix: hold the price (`float(offer.css_first("span.price").text())`) in the place of the node.
"""

import random
import sys
import time

from selectolax.lexbor import LexborHTMLParser


def product_page(number: int) -> str:
    draw = random.Random(number)
    reviews = "".join(
        f"<li class='review'><b>Reader {draw.randrange(9999)}</b><p>{'good value ' * draw.randint(2, 9)}</p></li>"
        for _ in range(900)
    )
    price = draw.randrange(500, 9900) / 100
    return (
        f"<html><body><h1>Product {number}</h1><div class='offer'><span class='price'>{price}</span>"
        f"<span class='stock'>{draw.randrange(60)}</span></div><ul>{reviews}</ul></body></html>"
    )


class PriceList:
    def __init__(self):
        self.offers = {}

    def read(self, number: int) -> None:
        page = LexborHTMLParser(product_page(number))  # <- or here
        offer = page.css_first("div.offer")  # <- or here
        if offer is not None:
            self.offers[number] = offer  # <- here

    def price(self, number: int) -> float:
        return float(self.offers[number].css_first("span.price").text())

    def rise(self, number: int) -> float:
        return self.price(number) - self.price(number - 1)


def main(pages: int) -> None:
    prices = PriceList()
    prices.read(0)
    for number in range(1, pages + 1):
        prices.read(number)
        if number % 20 == 0:
            print(f"product {number}: {prices.rise(number):+.2f}", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 105)
