"""Flat programs for an hour under `flatwater watch`: no finding, and a watch whose own memory is constant.

    python benchmarks/watch/bench_hours.py PROGRAM ROUNDS [PROGRAM ROUNDS ...] [--every 60] [--kept FILE]

Beside each watched program runs the same one by itself. Each minute gives what both hold of their own, and what the
runner does; the difference is the watch's. Says at the end how far that rose from a tenth of the time on.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim, record_claims

WATCH = "import sys; from flatwater.cli.main import main; sys.exit(main())"


def own_bytes(pid: int) -> int:
    """Return the bytes that no other process shares; 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def children(pid: int) -> list[int]:
    """The processes that it started and that are there."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


class Pair:
    """A watched program and the same one by itself."""

    def __init__(self, program: str, rounds: str, folder: Path) -> None:
        ran = [sys.executable, str(Path(program).resolve()), rounds]
        self.told = folder / "found.json"
        self.name = Path(program).stem
        watched = [sys.executable, "-c", WATCH, "watch", "--json", str(self.told), "--", *ran]
        self.watched = subprocess.Popen(watched, cwd=folder, stdout=subprocess.DEVNULL)
        self.bare = subprocess.Popen(ran, cwd=folder, stdout=subprocess.DEVNULL)
        self.rows: list[dict[str, float]] = []
        self.began = time.monotonic()

    def read(self) -> dict[str, float] | None:
        """A row of bytes; None before both have begun and after one of them has ended."""
        inside = children(self.watched.pid)
        held = [own_bytes(pid) for pid in (self.bare.pid, self.watched.pid, *inside[:1])]
        if len(held) < 3 or 0 in held:
            return None
        row = dict(zip(("bare", "runner", "program"), held, strict=True), seconds=time.monotonic() - self.began)
        self.rows.append(row)
        return row

    def say(self) -> int:
        """Print what was found, and what the watch held at the beginning and at the end; return how many findings."""
        self.watched.wait()
        self.bare.wait()
        findings = json.loads(self.told.read_text())["findings"]
        kept = self.rows[len(self.rows) // 10 :]
        tenth = max(1, len(kept) // 10)
        for what in ("runner", "program", "bare"):
            first, last = (median(row[what] for row in part) / 1e6 for part in (kept[:tenth], kept[-tenth:]))
            print(f"{self.name:<20} {what:<8} {first:8.2f} MB, {last:8.2f} MB at the end")
        print(f"{self.name:<20} {len(findings)} findings in {kept[-1]['seconds'] / 60:.0f} minutes, {len(kept)} rows")
        return len(findings)


def main() -> None:
    """Runs the pairs side by side and reads them until all have ended."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="+", help="a program and its rounds, one after the other")
    parser.add_argument("--every", type=float, default=60.0)
    parser.add_argument("--kept", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pairs = []
        for n in range(0, len(given.programs), 2):
            (own := Path(folder) / str(n)).mkdir()
            pairs.append(Pair(given.programs[n], given.programs[n + 1], own))
        running = list(pairs)
        while running:
            time.sleep(given.every)
            for pair in list(running):
                row = pair.read()
                if None not in (pair.watched.poll(), pair.bare.poll()):
                    running.remove(pair)
                elif row and given.kept:
                    with given.kept.open("a") as file:
                        file.write(json.dumps({"program": pair.name, **row}) + "\n")
        findings = sum(pair.say() for pair in pairs)
    name = f"findings in {len(pairs)} flat programs, each watched to its end"
    record_claims([Claim("watch", "findings", name, str(findings), "0", findings == 0)])


if __name__ == "__main__":
    main()
