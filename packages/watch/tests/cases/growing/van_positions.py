"""A search for the delivery van that is nearest to a customer, while the vans move.

Thread: https://github.com/Toblerity/rtree/issues/67, https://github.com/Toblerity/rtree/issues/40
Looks like: three hundred vans need more memory each minute, and a search takes longer.
Cause: each report of a van inserts one more position, and the old ones stay in the tree, which lies in C++.
Fix: `tree.delete(number, box)` of the van's old position before the new one.
"""

import random
import sys

from rtree import index


class Fleet:
    def __init__(self, vans):
        self.tree = index.Index()
        self.places = {van: (random.random(), random.random()) for van in range(vans)}
        self.reports = 0

    def report(self, van):
        x, y = self.places[van]
        x, y = x + random.gauss(0, 0.001), y + random.gauss(0, 0.001)
        self.places[van] = (x, y)
        self.reports += 1
        self.tree.insert(self.reports, (x, y, x, y), obj={"van": van, "route": "A-B-C-D " * 30})  # <- here

    def nearest(self, x, y):
        return next(self.tree.nearest((x, y, x, y), 1, objects="raw"))["van"]


random.seed(2)
fleet = Fleet(300)


def main(minutes: int) -> None:
    van = None
    for _ in range(minutes):
        for van in fleet.places:
            fleet.report(van)
        for _ in range(60):
            van = fleet.nearest(random.random(), random.random())
    print("last van sent:", van)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 420)
