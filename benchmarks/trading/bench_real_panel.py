"""Ten generations of 16 traders on 108 large US stocks, 1999 to 2021: it runs to the end; the result is as it is.

    python benchmarks/trading/bench_real_panel.py [--panel FILE] [--rounds 10] [--updates 32] [--seed 0] [--run DIR]
        [--json]

Everything but the size is the default: a context of 504 days, 5 + 3 slices, the last 251 days kept back. The champion
is chosen on the validation days, so only the holdout says what it is worth; both are printed beside buying and
holding, equal weights and 100 random traders. The stocks are those that were large in 2021, looked back to 1999, so
every trader does better here than it could have done then. One seed is one draw.

The panel is imported in a process of its own, as `flatwater panel import` does; the run and the scoring of the holdout
are one process each. Skipped with a message where the file is not there.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim, record_claims
from fresh import peak_of, run_fresh
from rich.console import Console

from flatwater.rundir.layout import RunFolder
from flatwater.runs.evaluate import evaluate
from flatwater.runs.session import start_new_run
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.training.config import PopulationConfig

PANEL = Path(__file__).resolve().parents[2] / "../shared/data/us_equities_adj_108x5402.parquet"
MEMBERS = 16


def config_of(options: argparse.Namespace) -> ErlRunConfig:
    """The defaults, on this panel."""
    config = ErlRunConfig(
        rounds=options.rounds,
        seed=options.seed,
        threads=options.threads,
        panel=str(options.panel.resolve()),
        population=PopulationConfig(size=MEMBERS),
    )
    return replace(config, learner=config.learner.with_algorithm_settings(updates=options.updates))


def in_process(options: argparse.Namespace) -> dict[str, Any]:
    """Train or measure in this process, which is fresh."""
    config, folder = config_of(options), RunFolder(options.run)
    if options.in_process == "import":
        panel = load_panel(config.panel)
        return {"columns": len(panel.instruments), "days": len(panel.dates)}
    if options.in_process == "train":
        # The table of generations goes to stderr, so that the run can be followed.
        finished = start_new_run(config, folder.path, Console(stderr=True)).finished
        return {"finished": finished, "cpu_seconds": time.process_time(), "peak": peak_of(folder)}
    return evaluate(folder.path, holdout=True, say=lambda _: None)


def fresh(part: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a part in a fresh process and read what it printed."""
    names = ("panel", "rounds", "updates", "seed", "threads", "run")
    settings = [text for name in names for text in (f"--{name}", str(vars(options)[name]))]
    return run_fresh(__file__, ["--in-process", part, *settings])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Import, train, score."""
    panel = fresh("import", options)
    trained = fresh("train", options)
    holdout = fresh("holdout", options)
    walk_forward = json.loads(RunFolder(options.run).result.read_text(encoding="utf-8"))
    return panel | trained | {"walk_forward": walk_forward, "holdout": holdout}


def show(found: dict[str, Any], options: argparse.Namespace) -> None:
    """Print what came out."""
    print(
        f"{found['columns']} instruments, {found['days']:,} days; P = {MEMBERS}, {options.rounds} generations, "
        f"{options.updates} updates in each, seed {options.seed}"
    )
    pace = found["cpu_seconds"] / options.rounds
    print(
        f"finished: {found['finished']}; {found['cpu_seconds']:,.0f} CPU s ({pace:.0f} a generation), "
        f"{options.threads} thread(s), peak resident {found['peak'] / 1e9:.2f} GB"
    )
    for split in ("walk_forward", "holdout"):
        part = found[split]
        print(f"\n{part['split']}: {part['first_day']} to {part['last_day']}, {part['days']} days")
        print(f"{'':<14}{'return':>9}{'Sharpe':>8}{'drawdown':>10}{'exposure':>10}{'trades':>8}{'win rate':>10}")
        for trader, row in part["traders"].items():
            trades = f"{row['trades']:>8.0f}{row['win_rate']:>10.0%}" if "trades" in row else ""
            print(
                f"{trader:<14}{row['total_return']:>9.1%}{row['sharpe']:>8.2f}{row['drawdown']:>10.1%}"
                f"{row['exposure']:>10.0%}{trades}"
            )


def main() -> int:
    """Run, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--panel", type=Path, default=PANEL)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--updates", type=int, default=ErlRunConfig().learner.own.updates)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--run", type=Path, help="keep the run in this folder; left out, it is removed")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--in-process", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_process:
        print(json.dumps(in_process(options)))
        return 0
    if not options.panel.is_file():
        print(f"skipped: {os.path.normpath(options.panel)} is not there. Give --panel FILE (Parquet or CSV).")
        return 0
    with tempfile.TemporaryDirectory(prefix="flatwater-real-") as name:
        options.run = options.run or Path(name) / "run"
        found = measure(options)
    traders = {name: row["total_return"] for name, row in found["holdout"]["traders"].items()}
    ours, best = traders.pop("champion"), max(traders, key=lambda name: traders[name])
    name, rival = f"holdout of {found['columns']} real shares, return", f"{traders[best]:+.1%} ({best})"
    record_claims([Claim("trading", "holdout", name, f"{ours:+.1%}", rival=rival)])
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(found, options)
    return 0 if found["finished"] else 1


if __name__ == "__main__":
    sys.exit(main())
