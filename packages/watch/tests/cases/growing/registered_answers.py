"""An answer for each request, registered with the mock that `responses` has for the whole process.

Thread: https://github.com/getmoto/moto/pull/6764
Looks like: requests become slower and slower, and memory climbs with them.
Fix: `responses.reset()` between two scenarios, or `with responses.RequestsMock()` for each.
"""

import sys
import time

import requests
import responses


def scenario(session: requests.Session, number: int) -> int:
    rows = [{"id": row, "name": f"order {number} row {row}"} for row in range(400)]  # <- here
    responses.add(responses.GET, f"http://shop.test/orders/{number}", json=rows)
    return len(session.get(f"http://shop.test/orders/{number}").content)


def main(rounds: int) -> None:
    session = requests.Session()
    with responses.mock:
        for number in range(rounds):
            scenario(session, number)
            time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
