"""Run folders made up whole: as many generations as asked for, with a plan, a ledger and findings, in milliseconds."""

import json
import math
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flatwater_watch.files.json_values import encode_json

MIB = 1 << 20
OWNERS = {
    "replay.action": 210 * MIB,
    "replay.reward": 12 * MIB,
    "market.observations": 96 * MIB,
    "learner.actor": 48 * MIB,
    "learner.critics.0": 40 * MIB,
    "learner.actor_adam.exp_avg": 48 * MIB,
    "learner.actor_adam.exp_avg_sq": 48 * MIB,
    "eval_env.history": 9 * MIB,
    "progress.round": 8,
}
LEAK = 3 * MIB
"""Bytes a round that `train.HALL` keeps from generation 20 on."""
LEAK_BEGINS = 20
PLAN = {
    "owners": OWNERS,
    "total_bytes": sum(OWNERS.values()),
    "transient_bytes": 190 * MIB,
    "transients": {"evaluate": 60 * MIB, "validate": 40 * MIB, "learn": 190 * MIB, "evolve": 30 * MIB},
    "base_bytes": 300 * MIB,
    "limit_bytes": 1500 * MIB,
    "limits": {"cgroup v2": 1500 * MIB, "memory of the machine": 24_000 * MIB},
    "budget_bytes": 1350 * MIB,
    "fits": True,
    "suggestions": [],
}
CONFIG = """\
trainer = "erl"
# Every random number of the run follows from it.
seed = 0
# Generations in all.
rounds = {rounds}
panel = "{panel}"
device = "cpu"
threads = 2

[population]
# Members.
size = 16
"""
TRADERS = {"champion": 0.184, "buy and hold": 0.121, "equal weight": 0.103, "random": 0.041}


def make_run(folder: Path, rounds: int = 60, *, wanted: int | None = None, panel: str = "synthetic:60x1500") -> Path:
    """A finished run of so many generations, or one that was stopped where `wanted` asks for more."""
    folder.mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    (folder / "config.toml").write_text(CONFIG.format(rounds=wanted or rounds, panel=panel))
    (folder / "plan.json").write_text(json.dumps(PLAN))
    write_lines(folder / "metrics.jsonl", metrics(rounds))
    write_lines(folder / "ledger.jsonl", [ledger_line(n) for n in range(1, rounds + 1)])
    write_lines(folder / "findings.jsonl", [finding() | {"round": 29}, filling() | {"round": 8}] if rounds > 29 else [])
    alarms = [{"round": n, "alarms": ["constant policy: member 3 gives the same action every day"]} for n in (4, 9)]
    write_lines(folder / "alarms.jsonl", alarms if rounds > 9 else [])
    if wanted is None:
        write_end(folder)
    return folder


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_bytes(b"".join(encode_json(record) + b"\n" for record in records))  # as a run writes them


def append_line(path: Path, record: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(encode_json(record) + b"\n")


def metrics(rounds: int) -> list[dict[str, Any]]:
    draw = np.random.default_rng(5)
    champion, lines = -20.0, []
    for n in range(1, rounds + 1):
        mean = 60 * (1 - math.exp(-n / 18)) - 30 + 4 * draw.standard_normal()
        best = mean + 22 + 5 * draw.standard_normal()
        crowned = best > champion + 1.5
        champion = best if crowned else champion + 1.2 * draw.standard_normal()
        lines.append(
            {
                "round": n,
                "fitness/mean": mean,
                "fitness/max": mean + 18 + 3 * draw.random(),
                "fitness/min": -10_000.0 if n == 3 else mean - 25 - 4 * draw.random(),
                "validation/best": best,
                "validation/champion": champion,
                "champion/crowned": float(crowned),
                "validation/return": 0.05 + 0.01 * math.sin(n),
                "validation/holding": 0.04 + 0.02 * math.cos(n),
                "trades/count": 1200.0 + n,
                "trades/win_rate": 0.5 + 0.002 * min(n, 60),
                "time/evaluate": 1.1,
                "time/validate": 0.6,
                "time/learn": 9.5,
                "time/evolve": 0.1,
                "memory/resident": resident(n),
            }
        )
    return lines


def leaked_bytes(n: int) -> int:
    return LEAK * max(0, n - LEAK_BEGINS)


def resident(n: int) -> int:
    return 180 * MIB + 120 * MIB + sum(OWNERS.values()) + 14 * MIB + leaked_bytes(n) + (n * 7919 % 64) * 4096


def ledger_line(n: int) -> dict[str, Any]:
    owned = {path: size for path, size in OWNERS.items() if size > 8}
    rest = resident(n) - 180 * MIB - 120 * MIB - sum(OWNERS.values()) - 14 * MIB
    speed = 1 + 0.1 * math.sin(n)
    work = {"evaluate": (1.1, 2000), "validate": (0.6, 400), "learn": (9.5, 32), "evolve": (0.1, 1)}
    peaks = {"evaluate": 58, "validate": 41, "learn": 183, "evolve": 12}
    phases = {
        name: {
            "seconds": seconds * speed,
            "cpu_seconds": 1.8 * seconds * speed,
            "steps": steps,
            "steps_per_second": steps / (seconds * speed),
            "peak": peaks[name] * MIB,
        }
        for name, (seconds, steps) in work.items()
    }
    return {
        "round": n,
        "resident": resident(n),
        "private": resident(n) - 120 * MIB,
        "file_mapped": 120 * MIB,
        "owned": owned,
        "owned_bytes": sum(OWNERS.values()),
        "base": 180 * MIB,
        "slack": 14 * MIB,
        "unaccounted": rest,
        "allocator": {"in_use": resident(n) - 134 * MIB, "free": 14 * MIB},
        "cuda": None,
        "processes": 1,
        "envs": 2,
        "threads": 5,
        "files": 12,
        "budget": PLAN["budget_bytes"],
        "phases": phases,
    }


def finding() -> dict[str, Any]:
    return {
        "verdict": "leak",
        "owner": "train.HALL",
        "holders": ["train.py, global HALL", "list of 120", "Tensor with its autograd graph"],
        "made_at": {"file": "/home/me/train.py", "line": 41, "function": "keep", "operation": "aten::mm"},
        "bytes_per_step": float(LEAK),
        "interval": [2.9 * MIB, 3.1 * MIB],
        "share": 0.97,
        "count": 120,
        "what": "120 × float32[64, 504]",
        "plateau_bytes": None,
        "plateau_step": None,
        "limit_bytes": PLAN["budget_bytes"],
        "limit_step": 191,
        "advice": "Keep `loss.item()` instead of the loss, or detach it.",
        "fingerprint": "a1b2c3d4e5f6",
        "unit": "round",
        "redundancy": None,
    }


def filling() -> dict[str, Any]:
    return finding() | {
        "verdict": "filling",
        "owner": "replay.action",
        "holders": [],
        "made_at": None,
        "bytes_per_step": 2.1 * MIB,
        "what": "pages touched for the first time",
        "share": 0.02,
        "plateau_bytes": 210 * MIB,
        "plateau_step": 100,
        "limit_step": None,
        "advice": "Nothing to do: it was planned.",
        "fingerprint": "b1b2c3d4e5f6",
    }


def write_end(folder: Path, days: int = 250) -> None:
    """What a run writes when it finishes."""
    draw = np.random.default_rng(8)
    dates = [date(2013, 1, 2) + timedelta(days=round(1.45 * n)) for n in range(days)]
    curves = {}
    for name, total in TRADERS.items():
        walk = np.cumsum(0.006 * draw.standard_normal(days))
        walk += np.linspace(0, math.log1p(total) - walk[-1], days) - walk[0]
        curves[name] = 100_000 * np.exp(walk - walk[0])
    pl.DataFrame({"date": dates} | curves).write_parquet(folder / "equity.parquet")
    entries = sorted(int(n) for n in draw.integers(0, days - 21, 90))
    prices = {f"S{n}": 50 * np.exp(np.cumsum(0.01 * draw.standard_normal(days))) for n in range(6)}
    prices["S3"][:9] = math.nan
    pl.DataFrame({"date": dates} | prices).write_parquet(folder / "prices.parquet")
    gains = 4 * draw.standard_normal(90) + 0.9
    log = {
        "instrument": [f"S{n % 17}" for n in range(90)],
        "entry_date": [dates[n] for n in entries],
        "exit_date": [dates[n + 20] for n in entries],
        "entry_price": [float(prices.get(f"S{n % 17}", prices["S0"])[entries[n]]) for n in range(90)],
        "exit_price": [float(prices.get(f"S{n % 17}", prices["S0"])[entries[n] + 20]) for n in range(90)],
        "gain": gains,
        "profit": 50 * gains,
        "reason": ["target" if gain > 5 else "held" for gain in gains],
    }
    pl.DataFrame(log).write_parquet(folder / "trades.parquet")
    rows = {
        name: {"total_return": total, "sharpe": 1.1, "drawdown": 0.08, "exposure": 0.4}
        for name, total in TRADERS.items()
    }
    rows["champion"] |= {"trades": 90.0, "win_rate": 0.58, "mean_gain": 0.9, "turnover": 4.4}
    result = {
        "split": "validation",
        "first_day": str(dates[1]),
        "last_day": str(dates[-1]),
        "days": days - 1,
        "traders": rows,
        "effects": {f"return_{n}": 0.2 / n for n in range(1, 9)},
        "column_effects": {f"S{n}": 1 / (n + 2) for n in range(20)},
        "champion_born": 41,
        "note": "the champion was chosen on these days: expect less on days that nobody has looked at",
    }
    (folder / "result.json").write_text(json.dumps(result))
