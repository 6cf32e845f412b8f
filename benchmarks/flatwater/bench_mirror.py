"""The mirror keeps its promises: nothing is lost, the run hardly notices, memory stays where it is.

    python benchmarks/flatwater/bench_mirror.py [--parts trip faulty slowed growth kills] [--pairs 3] [--rounds 30]
        [--json]

Parts:
  trip    50 MB to S3, to Google's store and to a folder, and back: the same hash.
  faulty  runs at S with a mirror at a store that answers 30 % of the requests with 503 and cuts 20 % of the
          connections, over runs without a mirror, in pairs: 1.02 or less in time (median). Beside it stand what a
          run waits in the mirror while it trains, counted inside, the seconds at its end in which the rest is sent,
          and what the mirror's thread computes on another core: on a noisy machine these say more. After each run
          the newest checkpoint at the store is the newest in the folder.
  slowed  small torch calls while a thread sends to such a store without a pause, over those while it does not, in 60
          pairs of two seconds: 1.02 or less (median). A run sends in a part of its time only.
  growth  resident memory over 200 checkpoints of 12 MB, sent to a store that takes 10 MB/s: 2 MB or less beyond what
          sending may hold.
  kills   kill -9 while something is being sent, 20 times, going on from the URL in an empty folder each time: the
          newest checkpoint there is whole each time, and the end is that of a run that nobody killed, bit for bit.

The stores are moto, in a process of its own on loopback. Exits with 1 where a claim fails.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim
from fresh import run_fresh
from mirror_runs import STORE, brought_back, growth, killed_again_and_again, measure_slowdown, run_beside, use
from parts import measure_parts, report_parts

from flatwater.storage.objects import open_objects
from flatwater.storage.upload import BUFFER_BYTES, QUEUE_BYTES, SendBuffer, send_file

TRIP_BYTES = 50_000_000
COST, GROWTH = 1.02, 2_000_000
CHECKPOINTS, KILLS, LIFE_ROUNDS, TURNS = 200, 20, 150, 60
FAULTS = {"busy": 0.3, "cut": 0.2}
SLOW = {"rate": 10e6, "delay": 0.05}


def bench_trip(store: Any) -> dict[str, Any]:  # noqa: ANN401  (an ObjectStore)
    """There and back."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="flatwater-mirror-") as name:
        path = Path(name) / "large"
        content = os.urandom(TRIP_BYTES)
        path.write_bytes(content)
        for kind in ("s3", "gs", "file"):
            objects = open_objects(f"file://{name}/far" if kind == "file" else f"{kind}://{store.new_bucket()}")
            began = time.perf_counter()
            sent = send_file(objects, "large", path, SendBuffer(), lambda _: None)
            there, back = time.perf_counter(), hashlib.sha256()
            for piece in objects.pieces("large", sent.bytes):
                back.update(piece)
            found[kind] = {
                "equal": sent.sha256 == back.hexdigest() == hashlib.sha256(content).hexdigest(),
                "up": TRIP_BYTES / (there - began),
                "down": TRIP_BYTES / (time.perf_counter() - there),
            }
    return found


def bench_faulty(store: Any, pairs: int, rounds: int) -> dict[str, Any]:  # noqa: ANN401
    """Pairs of runs, in alternating order."""
    ratios: dict[str, list[float]] = {"wall": [], "cpu": []}
    inside: dict[str, list[float]] = {"waited": [], "end": [], "thread": []}
    lost, refused = 0, 0
    for n in range(pairs):
        bucket = f"s3://{store.new_bucket()}"
        runs = {}
        for kind in ("with", "without") if n % 2 else ("without", "with"):
            store.set(**(FAULTS if kind == "with" else {}))
            url = bucket if kind == "with" else ""
            runs[kind] = run_fresh(__file__, ["--in-process", "faulty", "--url", url, "--rounds", str(rounds)])
            refused += store.counts().refused + store.counts().cut
        store.set()
        with tempfile.TemporaryDirectory(prefix="flatwater-mirror-") as name:
            there = [[at, leaves] for at, leaves in brought_back(f"{bucket}/run", Path(name))]
        lost += there != runs["with"]["here"]
        for what, listed in ratios.items():
            listed.append(runs["with"][what] / runs["without"][what])
        for what, listed in inside.items():
            listed.append(runs["with"][what])
    return ratios | inside | {"lost": lost, "faults": refused}


def bench_slowed(store: Any) -> dict[str, Any]:  # noqa: ANN401
    """The store works on the same machine, as it does for `faulty`."""
    bucket = f"s3://{store.new_bucket()}"
    store.set(**FAULTS)
    found = run_fresh(__file__, ["--in-process", "slowed", "--url", f"{bucket}/sent"])
    store.set()
    return found


def bench_growth(store: Any) -> dict[str, Any]:  # noqa: ANN401
    """Measure growth from the 20th checkpoint to the 200th."""
    bucket = f"s3://{store.new_bucket()}"
    store.set(**SLOW)
    found = run_fresh(__file__, ["--in-process", "growth", "--url", f"{bucket}/run"])
    store.set()
    first = found["resident"][1]
    return found | {"growth": found["resident"][-1] - first, "most": max(found["resident"][1:]) - first}


def bench_kills(store: Any) -> dict[str, Any]:  # noqa: ANN401
    """At a store that takes its time, so that something is on its way at nearly every moment."""
    bucket = f"s3://{store.new_bucket()}"
    store.set(delay=0.03)
    with tempfile.TemporaryDirectory(prefix="flatwater-mirror-") as name:
        found = killed_again_and_again(bucket, Path(name), KILLS, LIFE_ROUNDS)
    store.set()
    return found


def in_process(part: str, url: str, rounds: int) -> dict[str, Any]:
    """Measure a part in this process, which is fresh."""
    with tempfile.TemporaryDirectory(prefix="flatwater-mirror-") as name:
        folder = Path(name) / "run"
        if part == "slowed":
            return measure_slowdown(url, Path(name), TURNS)
        return growth(url, folder, CHECKPOINTS) if part == "growth" else run_beside(url, folder, rounds)


def failures(found: dict[str, Any]) -> list[str]:
    """The claims that do not hold."""
    wrong = [f"trip: {kind}" for kind, part in found.get("trip", {}).items() if not part["equal"]]
    if "faulty" in found:
        part = found["faulty"]
        wrong += ["faulty: lost"] * (part["lost"] > 0)
        wrong += ["faulty: time"] * (median(part["wall"]) > COST)
    if "slowed" in found:
        wrong += ["slowed"] * (median(found["slowed"]["ratios"]) > COST)
        wrong += ["slowed: hardly anything was sent"] * (found["slowed"]["sent"] < TURNS)
    if "growth" in found:
        wrong += ["growth"] * (found["growth"]["most"] > GROWTH + QUEUE_BYTES - BUFFER_BYTES)
        wrong += ["growth: the store was not slow"] * (found["growth"]["dropped"] < CHECKPOINTS / 4)
    if "kills" in found:
        part = found["kills"]
        wrong += ["kills"] * (part["valid"] < part["kills"] or not part["bit_equal"] or part["exit"] != 0)
    return wrong


def claims(found: dict[str, Any]) -> Iterator[Claim]:
    """Yield the claims of each part."""
    if part := found.get("faulty"):
        name = "checkpoints lost at a store that refuses 30 % of all requests and cuts 20 % of all connections"
        yield Claim("flatwater", "lost", name, f"{part['lost']}", "0", part["lost"] == 0)
        waited, name = median(part["waited"]), "share of its time that a run waits for its mirror while it trains"
        yield Claim("flatwater", "waited", name, f"{waited:.2%}", f"≤ {COST - 1:.0%}", waited <= COST - 1)
    if part := found.get("slowed"):
        ratio = median(part["ratios"])
        name = "computing beside a mirror that sends without a pause, over computing alone"
        yield Claim("flatwater", "slowed", name, f"{ratio:.3f} ×", f"≤ {COST} ×", ratio <= COST)
    if part := found.get("kills"):
        name = "killed while it sends, gone on with from its mirror in an empty folder: whole, and bit-equal at the end"
        right = part["valid"] == part["kills"] and part["bit_equal"]
        yield Claim("flatwater", "kills", name, f"{part['valid']} of {part['kills']}", "all", right)


def show(found: dict[str, Any]) -> None:
    """Print what was measured."""
    for kind, part in found.get("trip", {}).items():
        print(
            f"50 MB, {kind}: equal {part['equal']}, up {part['up'] / 1e6:.0f} MB/s, down {part['down'] / 1e6:.0f} MB/s"
        )
    if "faulty" in found:
        part = found["faulty"]
        for what in ("wall", "cpu"):
            listed = " ".join(f"{ratio:.3f}" for ratio in part[what])
            print(f"{what}, mirrored at a faulty store over not mirrored: median {median(part[what]):.3f} ({listed})")
        print(f"  while it trains a run waits {median(part['waited']):.2%} of its time in it (limit {COST - 1:.0%})")
        print(f"  and {median(part['end']):.1f} s at its end; the thread takes {median(part['thread']):.2%} of the CPU")
        print(f"  {part['faults']} requests refused or cut; lost: {part['lost']}")
    if "slowed" in found:
        low, middle, high = quantiles(found["slowed"]["ratios"], n=4)
        print(f"computing beside what is sent without a pause: median {middle:.3f} (quarters {low:.3f} to {high:.3f})")
        print(f"  {found['slowed']['sent']} shards of 8 MiB sent whole")
    if "growth" in found:
        part = found["growth"]
        print(f"resident over {CHECKPOINTS} checkpoints, {part['sent']:.0f} sent, {part['dropped']:.0f} dropped:")
        print(f"  end {part['growth'] / 1e6:+.2f} MB, most {part['most'] / 1e6:+.2f} MB; resident after each 10:")
        print("  " + " ".join(f"{size / 1e6:.1f}" for size in part["resident"]))
    if "kills" in found:
        print("kills: " + ", ".join(f"{name} {value}" for name, value in found["kills"].items()))


def main() -> int:
    """Measure what was asked for, print it, compare it with the claims."""
    names = ["trip", "faulty", "slowed", "growth", "kills"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=names, default=names)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--in-process", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_process:
        print(json.dumps(in_process(options.in_process, options.url, options.rounds)))
        return 0
    store = STORE()
    use(store)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "trip": lambda: bench_trip(store),
        "faulty": lambda: bench_faulty(store, options.pairs, options.rounds),
        "slowed": lambda: bench_slowed(store),
        "growth": lambda: bench_growth(store),
        "kills": lambda: bench_kills(store),
    }
    found = measure_parts(parts, options.parts)
    store.stop()
    return report_parts(found, show, failures, claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
