"""Real leaks of public projects under `flatwater watch`: found, verdict, owner, line, and the same in every run.

    python benchmarks/watch/bench_cases.py --seen              # with those of the unseen half that were opened
    python benchmarks/watch/bench_cases.py --unseen            # totals alone: the finder is not tuned on this half
    python benchmarks/watch/bench_cases.py graph_views --runs 5

FLATWATER_CASE_LIBRARIES names a folder `…/site-packages` with libraries that are not installed.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path += [
    str(Path(__file__).parents[1] / "shared"),
    str(Path(__file__).parents[2] / "packages" / "watch" / "tests" / "cases"),
]

from claims import Claim, record_claims
from expected_cases import FLAT, OPENED, growing, halves
from watched_cases import Right, Said, judge, missing, watch

CELL = {None: "-", True: "yes", False: "NO"}


def first_of(said: Said) -> tuple[str, str]:
    """The verdict and the owner that are told first."""
    findings = said.found["findings"]
    return (findings[0]["verdict"], findings[0]["owner"]) if findings else ("", "")


def ran(name: str, runs: int, folder: Path, report: Path | None, kept: Path | None) -> tuple[Right, bool]:
    """The worst of the runs, and whether all said the same."""
    said = []
    for number in range(runs):
        said.append(watch(name, folder))
        if kept is not None:
            (kept / f"{name}.{number}.json").write_text(json.dumps(said[-1].found))
    rights = [judge(name, one) for one in said]
    worst = min(rights, key=lambda right: (right.found, right.verdict, right.owner, right.line is not False))
    if report is not None and not worst.all:
        wanted = growing().get(name, "no finding")
        heads = "\n".join("\n".join(one.text.splitlines()[:14]) for one in said)
        with report.open("a") as file:
            file.write(f"== {name}\n{heads}\n-- wanted: {wanted}\n\n")
    return worst, len({first_of(one) for one in said}) == 1


def main() -> None:
    """Runs the programs, and prints the table and its totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seen", action="store_true")
    parser.add_argument("--unseen", action="store_true")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--reveal", action="store_true", help="print each program of the unseen half too")
    parser.add_argument("--report", type=Path, help="append what was said of each seen program that failed")
    parser.add_argument("--keep", type=Path, help="folder for the JSON of each run, for bench_thresholds.py")
    given = parser.parse_args()
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    seen, unseen = halves()
    names = given.names or [*((*seen, *sorted(OPENED)) if given.seen else ()), *(unseen if given.unseen else ())]
    totals: Counter[str] = Counter()
    print(f"{'program':<28} {'found':>6} {'verdict':>8} {'owner':>6} {'line':>5} {'same':>5}")
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            shown = given.reveal or name not in unseen
            why = missing(name)
            if why:
                totals["skipped"] += 1
                print(f"skipped: {why}" if shown else "skipped: a library is absent")
                continue
            try:
                right, same = ran(name, given.runs, Path(folder), given.report if shown else None, given.keep)
            except RuntimeError as error:
                totals["broken"] += 1
                if shown:
                    print(error)
                continue
            totals["same"] += same
            count(totals, name, right)
            if shown:
                marks = [CELL[one] for one in (right.found, right.verdict, right.owner, right.line, same)]
                print(f"{name:<28} {marks[0]:>6} {marks[1]:>8} {marks[2]:>6} {marks[3]:>5} {marks[4]:>5}", flush=True)
    print_totals(totals)
    record_claims(claims(totals))


def claims(totals: Counter[str]) -> Iterator[Claim]:
    """Yield the claims of all cases together."""
    found, owner, growing, line, lines = (totals[key] for key in ("found", "owner", "growing", "line", "lines"))
    name = "real leaks of public projects: found; owner right; line right"
    right = found == growing and owner >= 0.9 * growing and line >= 0.9 * lines
    measured = f"{found} of {growing}; {owner} of {growing}; {line} of {lines}"
    yield Claim("watch", "found", name, measured, "all; 90 %; 90 %", right)
    if flat := totals["flat"]:
        name, accused = "programs of libraries that do not leak, with a finding", flat - totals["quiet"]
        yield Claim("watch", "flat", name, f"{accused} of {flat}", "0", accused == 0)


def count(totals: Counter[str], name: str, right: Right) -> None:
    """Adds one program to the totals."""
    totals["ran"] += 1
    if name in FLAT:
        totals.update(flat=1, quiet=right.found)
        return
    totals.update(growing=1, found=right.found, verdict=right.verdict, owner=right.owner)
    if right.line is not None:
        totals.update(lines=1, line=right.line)


def print_totals(totals: Counter[str]) -> None:
    """The lines below the table."""
    for part in ("found", "verdict", "owner"):
        print(f"{part:<10} {totals[part]} of {totals['growing']}")
    print(f"line       {totals['line']} of {totals['lines']}")
    print(f"flat       {totals['quiet']} of {totals['flat']} without a finding")
    print(f"same       {totals['same']} of {totals['ran']}")
    print(f"not run    {totals['skipped']} skipped, {totals['broken']} broken")


if __name__ == "__main__":
    main()
