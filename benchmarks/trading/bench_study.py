"""Purchases and target weights beside equal weight on 108 large US stocks, 1999 to 2021: one command each.

    python benchmarks/trading/bench_study.py [--ways purchases weights] [--folds 2] [--seeds 3] [--panel FILE]
        [--run DIR] [--json]

Each recipe is studied with its defaults by `flatwater study`, one run after the other with one thread. Two folds with
three seeds are 12 runs of about 60 CPU seconds, which train on the first and on the first two thirds of the days. Eight
folds are what the lab notes call the result. With --run the studies stay in the folder, and the same command goes on
with them. The stocks are those that were large in 2021, looked back to 1999, so every trader does better here than it
could have done then.

Skipped with a message where the file is not there.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from bench_real_panel import PANEL
from claims import Claim, record_claims

from flatwater_trading.recipe.trader_names import CHAMPION, EQUAL_WEIGHT
from flatwater_watch.phrases import count_phrase

WORDS: dict[str, list[str]] = {"purchases": [], "weights": ["weights"]}
"""Way of trading -> words after `flatwater study` that choose its recipe."""
ALLOWED_LOSS = 0.02
"""Most that target weights may earn less than equal weight in a year: what is not known is not paid for."""


def study(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train and test a recipe in each fold with each seed, or go on with it; return the contents of study.json.

    Raises:
        SystemExit: the study failed, or was stopped.
    """
    words = [*WORDS[way], str(options.panel.resolve()), "--folds", str(options.folds), "--seeds", str(options.seeds)]
    settings = ["--threads", "1", "--jobs", "1", "--run", str(options.run / way), "--json"]
    command = [sys.executable, "-m", "flatwater", "study", *words, *settings]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"the study of {way} ended with {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def yearly(pooled: dict[str, Any], trader: str) -> float:
    """Return what a trader earned a year over all folds."""
    return float(pooled["traders"][trader]["annual_return"])


def lead(pooled: dict[str, Any]) -> str:
    """Describe the difference of the champions from equal weight, with its interval."""
    difference = pooled["against_equal_weight"]
    return (
        f"{yearly(pooled, CHAMPION) - yearly(pooled, EQUAL_WEIGHT):+.1%} a year, "
        f"90 % interval {difference['low']:+.1%} to {difference['high']:+.1%}"
    )


def claims(found: dict[str, dict[str, Any]], options: argparse.Namespace) -> Iterator[Claim]:
    """Yield a claim for each way: its lead over equal weight, in these folds with these seeds."""
    for way, result in found.items():
        pooled = result["pooled"]
        size = f"{count_phrase(len(pooled['by_fold']), 'fold')}, {count_phrase(len(pooled['by_seed']), 'seed')}"
        name = f"{way} on 108 large US shares of today, less equal weight: {size}, {int(pooled['days']):,} test days"
        behind = yearly(pooled, EQUAL_WEIGHT) - yearly(pooled, CHAMPION)
        wanted, reached = (f"≥ -{ALLOWED_LOSS:.0%} a year", behind <= ALLOWED_LOSS) if way == "weights" else ("", None)
        rival = f"{yearly(pooled, EQUAL_WEIGHT):+.1%} a year (equal weight)"
        key = f"{way}.{options.folds}x{options.seeds}"
        yield Claim("trading", key, name, lead(pooled), wanted, reached, rival, pooled["verdict"])


def main() -> None:
    """Study both, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", choices=[*WORDS], nargs="+", default=[*WORDS])
    parser.add_argument("--panel", type=Path, default=PANEL)
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--run", type=Path, help="keep the studies in this folder; left out, they are removed")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.panel.is_file():
        print(f"skipped: {os.path.normpath(options.panel)} is not there. Give --panel FILE (Parquet or CSV).")
        return
    with tempfile.TemporaryDirectory(prefix="flatwater-study-") as name:
        options.run = options.run or Path(name)
        found = {way: study(way, options) for way in options.ways}
    record_claims(claims(found, options))
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for way, result in found.items():
        pooled = result["pooled"]
        print(f"{way:<10} {yearly(pooled, CHAMPION):+.1%} a year, equal weight {yearly(pooled, EQUAL_WEIGHT):+.1%}")
        print(f"{'':<10} {pooled['verdict']}")
    children = getrusage(RUSAGE_CHILDREN)
    print(f"{children.ru_utime + children.ru_stime:,.0f} CPU seconds in this start")


if __name__ == "__main__":
    main()
