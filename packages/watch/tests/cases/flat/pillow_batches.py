"""Images that are made smaller, one after the other."""

import sys
import time

from PIL import Image


def main(rounds: int) -> None:
    total = 0
    for n in range(rounds):
        image = Image.new("RGB", (800, 800), (n % 256, 0, 0))
        total += image.resize((100, 100)).getpixel((0, 0))[0]
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
