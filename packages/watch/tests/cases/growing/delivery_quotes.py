"""Quotes for deliveries; what a request asked for twice is computed once.

Thread: https://github.com/django/asgiref/issues/487
Looks like: memory climbs with the orders ever quoted.
Fix: `delattr(state, name)` when an order is quoted, or a cache with a bound.
"""

import asyncio
import random

from asgiref.local import Local

state = Local()


async def route(depot, customer):
    await asyncio.sleep(0.002)
    return [(random.random(), random.random(), f"street {depot} {customer} {i}") for i in range(160)]  # <- here


async def route_once(depot, customer):
    name = f"route_{depot}_{customer}"
    if not hasattr(state, name):
        setattr(state, name, await route(depot, customer))
    return getattr(state, name)


async def quote(order):
    stops = await route_once(order % 12, order // 2)
    back = await route_once(order % 12, order // 2)
    return len(stops) + len(back)


async def worker(orders):
    total = 0
    while (order := await orders.get()) is not None:
        total += await quote(order)
    print(total, "stops")


async def main():
    orders = asyncio.Queue(20)
    consumer = asyncio.create_task(worker(orders))
    for order in range(2500):
        await orders.put(order)
        await asyncio.sleep(0.001)
    await orders.put(None)
    await consumer


asyncio.run(main())
