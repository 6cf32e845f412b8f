"""A nightly audit that compares each catalogue with the one before and keeps what changed.

Thread: https://github.com/qlustered/deepdiff/issues/197
Looks like: a night in which twelve prices changed costs as much as the whole catalogue.
Cause: a `DeepDiff` holds both catalogues that it compared, and the tree of all that it met.
Fix: keep `diff.to_dict()` or `diff.to_json()`, or the newest nights alone (`deque(maxlen=7)`).
"""

import json
import random
import sys

from deepdiff import DeepDiff


class CatalogAudit:
    def __init__(self, catalog):
        self.catalog = catalog
        self.changes = []

    def compare(self, newer):
        self.changes.append(DeepDiff(self.catalog, newer, ignore_numeric_type_changes=True))  # <- here
        self.catalog = newer


def first_catalog(rows=200):
    return {
        f"sku-{row}": {
            "name": f"Article {row} of the winter range",
            "text": f"Warm, light and made in Porto, number {row}. " * 12,
            "price": random.uniform(1, 900),
            "stock": {"berlin": row, "lyon": row + 3, "porto": row * 2},
            "tags": [f"tag-{row % 17}", f"season-{row % 4}"],
        }
        for row in range(rows)
    }


def next_night(catalog):
    newer = json.loads(json.dumps(catalog))
    for sku in random.sample(sorted(newer), 12):
        newer[sku]["price"] *= random.uniform(0.9, 1.1)
        newer[sku]["stock"]["berlin"] += 5
    return newer


random.seed(4)
audit = CatalogAudit(first_catalog())


def main(nights: int) -> None:
    for _ in range(nights):
        audit.compare(next_night(audit.catalog))
    print(sum(len(change.affected_paths) for change in audit.changes[-7:]), "changes this week")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 130)
