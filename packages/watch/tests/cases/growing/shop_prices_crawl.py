"""The lowest price of each product, from pages of many shops that green threads of eventlet fetch.

Thread: https://github.com/eventlet/eventlet/issues/748
Looks like: pages whose price is noted long ago are still there.
Cause: a `GreenPile` keeps the results for whoever iterates over it, and here nobody does.
Fix: a `GreenPool` with `spawn_n`, or read the results, or do not return the page.
"""

import random
import re
import sys

import eventlet

PRICE = re.compile(rb'data-price="(\d+\.\d\d)"')
lowest = {}


def download(product, shop):
    """A page of the shop's site; the network takes a while."""
    eventlet.sleep(random.uniform(0.01, 0.08))
    price = random.gauss(100 + product % 50, 9)
    head = b'<html>%s <b data-price="%.2f">' % (shop.encode(), price)
    return head + random.randbytes(random.randrange(24_000, 40_000)) + b"</html>"  # <- or here


def visit(product, shop):
    page = download(product, shop)  # <- or here
    found = PRICE.search(page)
    if found:
        price = float(found.group(1))
        lowest[product] = min(price, lowest.get(product, price))
    return page  # <- or here


def main(products: int) -> None:
    random.seed(8)
    shops = [f"shop-{number}" for number in range(12)]
    pile = eventlet.GreenPile(30)
    visits = 0
    for _ in range(products):
        product = random.randrange(400)
        for shop in random.sample(shops, 6):
            pile.spawn(visit, product, shop)  # <- here
            visits += 1
        eventlet.sleep(0.04)
        if visits % 900 == 0:
            print(f"{visits} visits, {len(lowest)} products", flush=True)
    eventlet.sleep(0.2)
    print(f"mean of the lowest prices {sum(lowest.values()) / len(lowest):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 265)
