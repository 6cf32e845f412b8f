"""Copies of images in a container that is never emptied.

Thread: https://github.com/python-pillow/Pillow/issues/7935
Looks like: the container holds small objects, and the process grows by width x height x 3 for each.
Fix: keep what is shown, `close()` the rest.
"""

import sys
import time

from PIL import Image


def main(rounds: int) -> None:
    source = Image.new("RGB", (800, 800), (1, 2, 3))
    container = []
    for _ in range(rounds):
        container.append(source.copy())  # <- here
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
