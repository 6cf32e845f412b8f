"""A count of the scooters in the zones that are in force, with a prepared shape for each zone.

Thread: https://github.com/shapely/shapely/issues/556, https://github.com/python/cpython/issues/88846
Looks like: zones that are over stay, although the dictionary of their prepared shapes is weak.
Cause: a prepared shape holds the zone that it was made of, so the value keeps its own key.
Fix: `shapely.prepare(zone)`, which needs no dictionary, or take out a zone that is over.
"""

import random
import sys
import weakref

import numpy as np
from shapely import Point
from shapely.prepared import prep


class ZoneChecker:
    def __init__(self):
        self._prepared = weakref.WeakKeyDictionary()

    def count_inside(self, zone, points):
        if zone not in self._prepared:
            self._prepared[zone] = prep(zone)
        prepared = self._prepared[zone]
        return sum(prepared.contains(point) for point in points)


def draw_zone():
    angles = np.linspace(0, 6.28, 40)
    corners = np.c_[np.cos(angles), np.sin(angles)] * random.uniform(0.5, 2)
    disc = Point(random.random(), random.random()).buffer(random.uniform(0.5, 1), quad_segs=120)
    return disc.union(Point(*corners[random.randrange(40)]).buffer(0.4, quad_segs=120))  # <- here


random.seed(3)
checker = ZoneChecker()


def main(hours: int) -> None:
    inside = 0
    for _ in range(hours):
        scooters = [Point(random.uniform(-3, 3), random.uniform(-3, 3)) for _ in range(900)]
        for _ in range(5):
            inside = checker.count_inside(draw_zone(), scooters)
    print("inside the last zone:", inside)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 450)
