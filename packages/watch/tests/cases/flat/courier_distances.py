"""How far couriers are from their depots, in projections of pyproj of which the last ninety are kept."""

import math
import random
import sys
import time
from functools import lru_cache

from pyproj import Transformer

DEPOTS = [(random.Random(number).uniform(47, 55), random.Random(-number).uniform(6, 15)) for number in range(300)]


@lru_cache(maxsize=90)
def projection(depot: int) -> Transformer:
    latitude, longitude = DEPOTS[depot]
    return Transformer.from_crs(
        "EPSG:4326", f"+proj=aeqd +lat_0={latitude} +lon_0={longitude} +datum=WGS84", always_xy=True
    )


def distance(depot: int, latitude: float, longitude: float) -> float:
    east, north = projection(depot).transform(longitude, latitude)
    return math.hypot(east, north)


def main(rounds: int) -> None:
    rng = random.Random(31)
    measured, far = 0, 0
    for _ in range(rounds):
        depot = rng.randrange(len(DEPOTS))
        latitude, longitude = DEPOTS[depot]
        for _ in range(30):
            far += distance(depot, latitude + rng.gauss(0, 0.2), longitude + rng.gauss(0, 0.2)) > 25_000
            measured += 1
        time.sleep(0.03)
    sys.stdout.write(f"{measured} positions, {far} far from their depot\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 345)
