"""Statistics of the newest 240,000 readings of all sensors, in polars."""

import sys

import numpy as np
import polars as pl

WINDOW = 240_000


def next_readings(draw: np.random.Generator, start: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "second": np.arange(start, start + 4000),
            "sensor": draw.integers(0, 60, 4000),
            "value": draw.normal(20, 3, 4000),
            "quality": draw.random(4000),
        }
    )


def statistics(window: pl.DataFrame) -> pl.DataFrame:
    return (
        window.with_columns((pl.col("value") - pl.col("value").mean()).alias("difference"))
        .group_by("sensor")
        .agg(pl.col("value").mean().alias("mean"), pl.col("difference").std().alias("spread"))
        .sort("spread")
    )


def main(rounds: int) -> None:
    draw = np.random.default_rng(9)
    window = next_readings(draw, 0)
    for start in range(4000, 4000 * (rounds + 1), 4000):
        window = pl.concat([window, next_readings(draw, start)]).tail(WINDOW).rechunk()
        table = statistics(window)
        if start % 400_000 == 0:
            sys.stdout.write(f"{window.height} rows, widest spread {table['spread'][-1]:.3f}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2750)
