"""A service that leaves crumbs for its error reports: the newest hundred are kept."""

import sys
import time

import sentry_sdk


def main(rounds: int) -> None:
    sentry_sdk.init(dsn="", default_integrations=False, max_breadcrumbs=100)
    for n in range(2 * rounds):
        for k in range(20):
            sentry_sdk.add_breadcrumb(category="query", message=f"{n} {k} " * 2_000)
        time.sleep(0.06)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
