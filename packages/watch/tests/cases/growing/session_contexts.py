"""Sessions by tenant, each with an adapter with a context of its own.

Thread: https://github.com/psf/requests/issues/4322
Looks like: memory climbs with the tenants, outside of Python.
Fix: share one context among the adapters.
"""

import ssl
import sys
import time
from typing import ClassVar

import certifi
import requests
from requests.adapters import HTTPAdapter


class Own(HTTPAdapter):
    def init_poolmanager(self, *given: object, **settings: object) -> None:
        context = ssl.create_default_context(cafile=certifi.where())  # <- here
        super().init_poolmanager(*given, ssl_context=context, **settings)


class Tenants:
    sessions: ClassVar[dict[int, requests.Session]] = {}


def main(rounds: int) -> None:
    for tenant in range(2 * rounds):
        session = requests.Session()
        session.mount("https://", Own())
        Tenants.sessions[tenant] = session
        time.sleep(0.06)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
