"""The thresholds of a drift over the recorded readings of all cases: growing programs found against flat ones accused.

    python benchmarks/watch/bench_cases.py --seen --unseen --runs 3 --keep runs/
    python benchmarks/watch/bench_thresholds.py runs/

Each threshold is changed alone, by factors. *Proven* is what makes an investigation go on: its objects are judged
afterwards. *Native* is told without an object, so that nothing else guards a flat program against it.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path += [
    str(Path(__file__).parents[1] / "shared"),
    str(Path(__file__).parents[2] / "packages" / "watch" / "tests" / "cases"),
]

from claims import Claim, record_claims
from expected_cases import growing

from flatwater_watch.series import slope
from flatwater_watch.thresholds import DRIFT, Drift

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
SWEPT = (
    "least_bytes",
    "blocks_rising",
    "participating_share",
    "minimum_rise_deviations",
    "minimum_late_slope_share",
    "minimum_points",
    "minimum_points_without_object",
    "judgements_in_row",
)
COUNTS = frozenset({"blocks_rising", "minimum_points", "minimum_points_without_object", "judgements_in_row"})
"""Whole numbers: they are moved by one and by two."""
SURE = (0.8, 0.95, 0.99, 0.999)


def settings() -> Iterator[tuple[str, Drift]]:
    """Each changed value, with its name."""
    shipped = DRIFT
    yield "as shipped", shipped
    for name in SWEPT:
        now = getattr(shipped, name)
        values = [now + step for step in (-2, -1, 1, 2)] if name in COUNTS else [now * factor for factor in FACTORS]
        for value in values:
            if value > 0 and value != now and (name != "minimum_points" or value >= shipped.blocks):
                yield f"{name} = {value:.4g}", shipped._replace(**{name: value})
    for value in SURE:
        if value != shipped.confidence:
            yield f"confidence = {value}", shipped._replace(confidence=value)


def series_of(path: Path) -> tuple[list[float], list[float]]:
    """Seconds, and what neither files nor freed memory explain."""
    columns = json.loads(path.read_text())["series"]
    parts = zip(columns["resident_bytes"], columns["file_bytes"], columns["freed_bytes"], strict=True)
    return columns["seconds"], [float(resident - mapped - (freed or 0)) for resident, mapped, freed in parts]


def judge_series(steps: Sequence[float], values: Sequence[float], drift: Drift) -> tuple[bool, bool]:
    """Whether a drift is proven at some reading, and whether native growth is sure at some."""
    vars(slope)["DRIFT"] = drift
    proven = native = False
    in_a_row = 0
    for end in range(1, len(values) + 1):
        part = steps[:end], values[:end]
        least = max(drift.least_bytes, drift.least_share * values[end - 1])
        proven = proven or slope.drift_slope(*part, minimum=least, fewest=drift.minimum_points) is not None
        sure = slope.drift_slope(
            *part, minimum=2 * least, fewest=drift.minimum_points_without_object, confidence=drift.confidence
        )
        in_a_row = in_a_row + 1 if sure is not None else 0
        native = native or in_a_row >= drift.judgements_in_row
    return proven, native


def main() -> None:
    """Replays all recordings under each setting, and prints the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    recorded = sorted(parser.parse_args().folder.glob("*.json"))
    grow = [series_of(path) for path in recorded if path.name.split(".")[0] in growing()]
    flat = [series_of(path) for path in recorded if path.name.split(".")[0] not in growing()]
    print(f"{len(grow)} recordings of growing programs, {len(flat)} of flat ones")
    print(f"{'threshold':<32} {'proven':>8} {'of flat':>8} {'native':>8} {'of flat':>8}")
    for name, drift in settings():
        found = [[judge_series(*series, drift) for series in each] for each in (grow, flat)]
        shares = [
            sum(one[kind] for one in each) / max(1, len(each)) for kind in range(2) for each in found
        ]  # proven of growing, of flat; native of growing, of flat
        print(f"{name:<32} " + " ".join(f"{share:>8.0%}" for share in shares), flush=True)
        if name == "as shipped":
            what = "recordings that are proven to grow by numbers alone: of growing; of flat programs"
            record_claims([Claim("watch", "proven", what, "; ".join(f"{share:.0%}" for share in shares[:2]))])


if __name__ == "__main__":
    main()
