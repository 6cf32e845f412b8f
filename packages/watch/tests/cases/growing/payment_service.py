"""Takes payments. When one fails, the log must tell what happened before.

Thread: https://logbook.readthedocs.io/en/stable/api/handlers.html
Looks like: memory climbs with the records ever logged, although no payment failed.
Fix: give the handler a `buffer_size`.
"""

import random
import sys
import time

import logbook

log = logbook.Logger("payments")


def book(number):
    amount = random.randrange(100, 90_000)
    customer = {
        "id": number,
        "name": f"customer {number}",
        "address": f"street {number % 977}",
        "basket": [random.randrange(10**6) for _ in range(14)],
    }
    log.info("payment {} of {} begins", number, amount, extra={"customer": customer})  # noqa: PLE1205
    for step in ("reserved", "checked", "booked"):
        log.debug("payment {} is {}", number, step, extra={"amount": amount, "step": step})  # noqa: PLE1205  # <- here
    return amount


def main():
    total = 0
    handler = logbook.FingersCrossedHandler(
        logbook.StreamHandler(sys.stderr, level=logbook.DEBUG), action_level=logbook.ERROR
    )
    with handler.applicationbound():
        for number in range(8000):
            total += book(number)
            time.sleep(0.0008)
    print(total / 100, "booked")


main()
