"""Thumbnails of uploads by libvips, whose cache of operations has a bound."""

import sys
import time

import numpy as np
import pyvips


def upload(number: int) -> bytes:
    values = np.random.default_rng(number % 40).integers(0, 255, (400, 500, 3), dtype="uint8")
    return pyvips.Image.new_from_array(values).jpegsave_buffer(Q=70)


def main(rounds: int) -> None:
    sizes = 0
    for n in range(rounds):
        image = pyvips.Image.thumbnail_buffer(upload(n), 128)
        sizes += len(image.sharpen().jpegsave_buffer(Q=80))
        time.sleep(0.03)
    sys.stdout.write(f"{sizes}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
