"""Frames that a report keeps on its class.

Thread: https://github.com/pandas-dev/pandas/issues/60897
Looks like: memory climbs with the frames.
Fix: keep them on the instance, or keep their sums.
"""

import sys
import time
from typing import ClassVar

import numpy as np
import pandas as pd


class Report:
    frames: ClassVar[list[pd.DataFrame]] = []


def main(rounds: int) -> None:
    for n in range(rounds):
        frame = pd.DataFrame({"a": np.arange(100_000), "b": np.full(100_000, float(n))})  # <- here
        Report.frames.append(frame)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
