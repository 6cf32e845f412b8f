"""Rendered map tiles, the last hundred of which cachetools keeps."""

import random
import sys
import time

import numpy as np
from cachetools import LRUCache


class Tiles:
    def __init__(self) -> None:
        self.recent = LRUCache(maxsize=100)
        self.rendered = 0

    def render(self, x: int, y: int) -> np.ndarray:
        rows, columns = np.mgrid[0:256, 0:256]
        self.rendered += 1
        return np.sin((rows + 256 * y) / 90) + np.cos((columns + 256 * x) / 70)

    def tile(self, x: int, y: int) -> np.ndarray:
        if (x, y) not in self.recent:
            self.recent[x, y] = self.render(x, y)
        return self.recent[x, y]


def main(requests: int) -> None:
    draw = random.Random(6)
    tiles = Tiles()
    for request in range(requests):
        tile = tiles.tile(draw.randrange(40), draw.randrange(40))
        if request % 50 == 0:
            sys.stdout.write(f"{request} requests, {tiles.rendered} rendered, mean {tile.mean():.3f}\n")
        time.sleep(0.03)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 370)
