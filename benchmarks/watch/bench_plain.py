"""What `flatwater watch` says of plain ways to hold what nobody needs: found, verdict, owner, line, and its own CPU.

    python benchmarks/watch/bench_plain.py                     # all, two at a time: about seven minutes
    python benchmarks/watch/bench_plain.py set:text weak_keys --wide 1

Of `packages/watch/tests/plain/holding.py`, which needs no library but NumPy. The threads of `bench_cases.py` are other
people's; these
are the ways that Python itself offers, each with the container that a person would name and the line that makes what
is held.
"""

import argparse
import inspect
import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path += [
    str(Path(__file__).parents[1] / "shared"),
    str(Path(__file__).parents[2] / "packages" / "watch" / "tests" / "plain"),
]

import holding
from claims import Claim, record_claims

WATCH = "import sys; from flatwater.cli.main import main; sys.exit(main())"
PROGRAM = Path(holding.__file__)
SOURCE = PROGRAM.read_text().splitlines()


@dataclass(frozen=True)
class Row:
    """The answer about one program."""

    said: str
    found: bool
    verdict: bool
    owner: bool
    line: bool
    cpu: float
    """Seconds that the watch took."""


def marked_line(name: str) -> int:
    """The line that makes what is held: of the way itself, of the kind of item, or of `large`."""
    _, _, item = name.partition(":")
    body = inspect.getsource(holding.WAYS[name]) if not item else ""
    if lines := [line for line in body.splitlines() if holding.MARK in line]:
        return SOURCE.index(lines[0]) + 1
    wanted = f'"{item}": ' if item else "return bytes(3000)"
    return next(n for n, line in enumerate(SOURCE, 1) if wanted in line and holding.MARK in line)


def watch_program(name: str, seconds: float, folder: Path) -> Row:
    """One program under the watch."""
    told = folder / f"{name.replace(':', '-')}.json"
    program = [sys.executable, str(PROGRAM), name, str(seconds)]
    command = [sys.executable, "-c", WATCH, "watch", "--json", str(told), "--", *program]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if ended.returncode:
        raise RuntimeError(f"{name} ended with {ended.returncode}: {ended.stderr[-500:]}")
    found = json.loads(told.read_text())
    cost = found["cost"]["cpu_share"] * found["cost"]["cpu_seconds"]
    if not found["findings"]:
        return Row("nothing", found=False, verdict=False, owner=False, line=False, cpu=cost)
    first, kind = found["findings"][0], name.partition(":")[0]
    made = first["made_at"]
    return Row(
        f"{first['verdict']} {first['owner']} :{made and made['line']}",
        found=True,
        verdict=first["verdict"] == holding.VERDICTS.get(kind, "leak"),
        owner=holding.OWNERS.get(kind, "kept") in first["owner"],
        line=made is not None and made["line"] == marked_line(name),
        cpu=cost,
    )


def main() -> None:
    """Runs the programs, and prints the table and its totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--wide", type=int, default=2, help="programs at a time")
    given = parser.parse_args()
    names = given.names or [*holding.PAIRS, *holding.WAYS]
    totals: Counter[str] = Counter()
    cpu = 0.0
    print(f"{'program':<24} {'found':>5} {'verdict':>7} {'owner':>5} {'line':>4} {'CPU s':>6}  said")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.wide) as pool:
        ran = partial(watch_program, seconds=given.seconds, folder=Path(folder))
        for name, row in zip(names, pool.map(ran, names), strict=True):
            marks = ["yes" if one else "NO" for one in (row.found, row.verdict, row.owner, row.line)]
            print(
                f"{name:<24} {marks[0]:>5} {marks[1]:>7} {marks[2]:>5} {marks[3]:>4} {row.cpu:6.2f}  {row.said}",
                flush=True,
            )
            totals.update(found=row.found, verdict=row.verdict, owner=row.owner, line=row.line)
            cpu += row.cpu
    parts = ("found", "verdict", "owner", "line")
    name = f"plain ways to hold things, {len(names)}: {', '.join(parts)} right"
    listed = ", ".join(f"{totals[part]:d}" for part in parts)
    record_claims([Claim("watch", "right", name, listed, "all", all(totals[part] == len(names) for part in parts))])
    for part in parts:
        print(f"{part:<10} {totals[part]} of {len(names)}")
    print(f"CPU        {cpu / len(names):.2f} s of the watch in the mean, {given.seconds:g} s each")


if __name__ == "__main__":
    main()
