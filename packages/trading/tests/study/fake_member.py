"""Trains nothing, in milliseconds: speaks as the process of a study's run does, and leaves the numbers of one.

The panel has the days that the file DAYS names, or 600, and room for the folds that FOLDS names, or 5. Equity follows
from fold and seed alone. In the round that the file HOLD names a run says so in the file HELD, and waits; words after
the round are what names of held runs begin with. A run whose name is in the file BROKEN has failed.
"""

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

HOLD, HELD, BROKEN, DAYS, FOLDS = (Path(name) for name in ("hold", "held", "broken", "days", "folds"))
RULES = ("buy and hold", "equal weight", "ridge", "random")
stopped: list[int] = []


def main() -> dict[str, object]:
    order = json.load(sys.stdin)
    config, days = order["config"], int(DAYS.read_text()) if DAYS.exists() else 600
    if order["run"] is None:
        answer = {
            "config": config,
            "folds": order.get("folds") or (int(FOLDS.read_text()) if FOLDS.exists() else 5),
            "about": [],
            "splits_note": "",
            "data": f"{days} days",
            "days": days,
            "needed_bytes": 1 << 30,
            "limit_bytes": 1 << 33,
        }
        return answer | {"first_day": "2000-01-03", "last_day": "2001-01-01"}
    run = Path(order["run"])
    with Path("started").open("a") as file:
        file.write(f"{run.name} {time.monotonic()}\n")
    if BROKEN.exists() and run.name in BROKEN.read_text():
        return {"error": "The run would take 9.0 GiB, and 8.0 GiB are allowed.", "exit_code": 3}
    run.mkdir(exist_ok=True)
    (run / "order.json").write_text(json.dumps(config))
    # As a run does: who goes on with a killed study waits for its processes that still write.
    lock = (run / ".lock").open("a")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    metrics = run / "metrics.jsonl"
    done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
    for n in range(done + 1, config["rounds"] + 1):
        if os.getppid() != order["parent"]:
            return {"finished": False, "exit_code": 143}
        with metrics.open("a") as file:
            value = n + config["learner"]["weight_decay"]  # by which trials of a search are judged
            file.write(json.dumps({"round": n, "validation/champion": value}) + "\n")
        if is_held(run, n):
            HELD.touch()
            while not stopped and os.getppid() == order["parent"]:
                time.sleep(0.01)
        if stopped:
            return {"finished": False, "exit_code": 143}
    if not run.name.startswith("trial"):  # a trial plays no test days
        leave_result(run, config)
    with Path("ended").open("a") as file:
        file.write(f"{run.name} {time.monotonic()}\n")
    return {"finished": True, "exit_code": 0}


def is_held(run: Path, round_number: int) -> bool:
    if not HOLD.exists():
        return False
    held_round, *beginnings = HOLD.read_text().split()
    return round_number == int(held_round) and run.name.startswith(tuple(beginnings) or "")


def leave_result(run: Path, config: dict) -> None:
    import numpy as np  # a trial, and who asks for a plan, need neither: a tenth of the time
    import polars as pl

    splits = config["splits"]
    first, stop = splits["days"] - splits["holdout_days"], splits["days"]
    curves = {}
    for at, name in enumerate(("champion", *RULES)):
        rng = np.random.default_rng([stop, at, config["seed"] if name in ("champion", "random") else 0])
        curves[name] = 1e5 * np.cumprod(np.concatenate([[1.0], 1 + rng.normal(0.0005, 0.01, stop - first)]))
    dates = np.datetime64("2000-01-01") + np.arange(first - 1, stop)
    pl.DataFrame({"date": dates} | curves).write_parquet(run / "holdout_equity.parquet")
    rows = {name: {"total_return": curve[-1] / curve[0] - 1} for name, curve in curves.items()}
    for name in ("champion", "ridge", "random"):
        rows[name]["turnover"] = 3.0
    chance = np.random.default_rng([stop, config["seed"]]).normal(0, 0.1, 20).tolist()
    result = {
        "split": "holdout",
        "first_day": str(dates[1]),
        "last_day": str(dates[-1]),
        "days": stop - first,
        "note": "made up",
        "traders": rows,
        "chance": chance,
        "comparison": {},
        "tries": config["rounds"] * config["population"]["size"],
        "tried": "members x generations",
        "rule": {
            "chosen": (chosen := {"hold_days": 5 + 5 * (config["seed"] % 2), "purchases_a_day": 2, "target": None}),
            "tried": [chosen | {"return": 0.1}, {"hold_days": 20, "purchases_a_day": 1, "target": 3.0, "return": 0.05}],
            "unchosen_return": 0.03 if config["seed"] % 2 else None,
        },
        "holding_times": {"20": 0.01, "5" if config["seed"] % 2 else "10": 0.02},
    }
    (run / "holdout.json").write_text(json.dumps(result))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    sys.stdout.write(json.dumps(main()))
