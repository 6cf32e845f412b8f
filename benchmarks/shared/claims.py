"""Claims that benchmarks have measured, kept as JSON, and the tables of RESULTS.md that are made of them.

    RECORD=1 python benchmarks/PRODUCT/bench_NAME.py    # keeps its claims in results/NAME.json (`make bench`: all)
    python benchmarks/shared/claims.py                  # writes RESULTS.md anew (`make results`)

A claim that is measured again replaces the one before; the other claims of the file keep the run that they are of.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

HERE = Path(__file__).parents[1]
RESULTS, PAGE = HERE / "results", HERE / "RESULTS.md"
MAXIMUM_ROWS = 15
"""Most rows of a product: a stranger reads no more. The other claims stand in the JSON files."""
Product = Literal["watch", "flatwater", "trading"]
Kept = dict[str, Any]
"""A run of a benchmark: machine, commit, date, command, whether it was transcribed by hand, and its claims."""

TITLES: dict[Product, str] = {
    "watch": "The watch: what grows in a program",
    "flatwater": "The platform: agents in any environment",
    "trading": "Trading: agents on prices",
}
SHOWN: dict[Product, tuple[str, ...]] = {
    "watch": (
        "cases.found",
        "cases.flat",
        "cases_beside_others.line",
        "plain.right",
        "watch.zoo",
        "watch.rivals",
        "hours.findings",
        "watch.overhead",
        "watch.steps",
        "watch.census",
        "watch.holes",
        "watch_start.more",
        "watch_record.most",
        "attach.looks",
        "unfelt.changed",
    ),
    "flatwater": (
        "kill.bit_equal",
        "kill_while_saving.unloadable",
        "contract.plan",
        "contract.explained",
        "signals.lost",
        "mirror.kills",
        "returns.ppo.flatwater.returns",
        "returns.dqn.flatwater.seconds",
        "command.short.times",
        "command.long.times",
        "command.long.bookkeeping",
        "evolve.HalfCheetah-v5.sac",
        "stacked.jax",
        "growing.return",
        "teaching.learning",
    ),
    "trading": (
        "learning.trend",
        "learning.interaction",
        "learning.lead",
        "learning.none",
        "weights.weights.trend",
        "weights.weightsshort.volatility_strong",
        "rules.law",
        "learning_rivals.trend",
        "study.shares",
        "study.weights",
        "orders.year",
        "figures.largest",
        "memory.growth",
        "memory.full",
        "generation.seconds",
    ),
}
"""File and key of each row of a product's table, in their order."""


@dataclass(frozen=True)
class Claim:
    """A claim about a product: its goal, and the measurement."""

    product: Product
    key: str
    """Name within the file: a later claim of this key replaces it."""
    name: str
    """The claim as a stranger reads it."""
    measured: str
    wanted: str = ""
    reached: bool | None = None
    """True where the goal was reached; None where there was no goal."""
    rival: str = ""
    """The strongest other program in the same run, and its measurement."""
    note: str = ""
    """Note below the table: what a reader has to know besides."""


def record_claims(claims: Iterable[Claim], commits: Sequence[str] = ()) -> None:
    """Keep the claims of the benchmark that runs in its JSON file, where RECORD is set.

    Args:
        claims: the claims.
        commits: commits of what the claims rest on, in their order, where earlier runs of the benchmark measured it.
    """
    if not os.environ.get("RECORD"):
        return
    program = Path(sys.argv[0]).resolve()
    kept = [asdict(claim) for claim in claims]
    options = () if commits else sys.argv[1:]  # of one run among several
    run: Kept = {
        "machine": machine(),
        "commit": " to ".join(dict.fromkeys((commits[0], commits[-1]))) if commits else commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "command": shlex.join(("python", f"benchmarks/{program.relative_to(HERE)}", *options)),
        "claims": kept,
    }
    path = RESULTS / f"{program.stem.removeprefix('bench_')}.json"
    before = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps(merge_run(before, run), indent=1, ensure_ascii=False) + "\n")
    print(f"kept in {path.relative_to(HERE.parent)}; `make results` shows it", file=sys.stderr)


def merge_run(before: list[Kept], run: Kept) -> list[Kept]:
    """Return the runs with a new one: its claims are taken out of earlier runs, and runs that are then empty go."""
    new = {claim["key"] for claim in run["claims"]}
    # By key and not by file: a benchmark that measures one claim again leaves the others with their old run.
    left = [each | {"claims": [claim for claim in each["claims"] if claim["key"] not in new]} for each in before]
    return [*(each for each in left if each["claims"]), *([run] if new else [])]


def machine() -> str:
    """Return processor, cores and versions."""
    models = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    # Only where the benchmark uses it: the watch is measured without torch.
    torch = f", torch {version('torch')}" if "torch" in sys.modules else ""
    # The cores that this process may use, and not those of the machine.
    cores = len(os.sched_getaffinity(0))
    return f"{models[0] if models else 'unknown processor'}, {cores} cores, Python {sys.version.split()[0]}{torch}"


def commit() -> str:
    """Return the commit that is checked out, marked with + where the source differs from it."""
    # --exclude=*: a commit by its hash, also where a tag is near.
    asked = ["git", "describe", "--always", "--exclude=*", "--abbrev=7"]
    at = subprocess.run(asked, cwd=HERE, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    # A benchmark that keeps claims one after another has changed the files of results itself.
    differs = ["git", "diff", "--quiet", "HEAD", "--", ":/", f":!{RESULTS.name}", f":!{PAGE.name}"]
    return at + "+" * subprocess.run(differs, cwd=HERE, check=False).returncode


def claims_by_row() -> dict[str, tuple[Kept, Kept]]:
    """Return the claims of all files, each with its run, by file and key."""
    files = ((path.stem, run) for path in sorted(RESULTS.glob("*.json")) for run in json.loads(path.read_text()))
    return {f"{stem}.{claim['key']}": (claim, run) for stem, run in files for claim in run["claims"]}


def page() -> str:
    """Return the text of RESULTS.md."""
    return HEAD + "\n".join(line for product in TITLES for line in table(product))


HEAD = """\
# Results

What is claimed, what was wanted, and what came out. Written by `make results` from the files in `benchmarks/results`,
which benchmarks write (`make bench`, or `RECORD=1 python benchmarks/PRODUCT/bench_NAME.py`); they hold more than is
shown here. Numbers are of two cores of shared machines without a GPU (the files say which), and seconds are CPU
seconds: run a command again before you rely on one. **Rival** is the strongest other program in the same run. † is a
number that was copied by hand from the lab notes, which say how each came about, what else was tried, and what fell
short:
[the watch](notes/watch.md), [its cases](notes/cases.md), [training](notes/training.md), [safety](notes/safety.md),
[workers](notes/workers.md), [trading](notes/trading.md), [until 25 November](notes/first.md).

"""


def table(product: Product) -> Iterator[str]:
    """Yield the lines of a product's table, and below it the notes of its claims."""
    known = claims_by_row()
    # A claim that was never measured has no row.
    rows = [known[row] for row in SHOWN[product] if row in known]
    yield f"## {TITLES[product]}\n"
    yield "| claim | wanted | measured | rival | command | commit, day |\n|---|---|---|---|---|---|"
    for claim, run in rows:
        measured = claim["measured"] + (", **not reached**" if claim["reached"] is False else "")
        at = f"{run['commit']}, {run['date']}{' †' * run.get('transcribed', False)}"
        cells = (claim["name"], claim["wanted"], measured, claim["rival"], f"`{run['command']}`", at)
        yield "| " + " | ".join(cell.replace("|", "\\|") or "–" for cell in cells) + " |"
    yield ""
    yield from (f"- **{claim['name']}**: {claim['note']}" for claim, _ in rows if claim["note"])
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
