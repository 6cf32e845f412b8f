"""Twelve faults, planted one by one in a real run: right owner, right line, right verdict, within ten rounds."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import faults
import pytest
from small_runs import TINY_PPO

from flatwater.cli.main import main

PROGRAM = Path(__file__).parent / "faulty.py"

EXPECTED = {
    "graphs": ("leak", "faults.LOSSES"),
    "envs": ("leak", "faults.ENVS"),
    "history": ("leak", "faults.HISTORY"),
    "clones": ("leak", "faults.HALL"),
    "figures": ("leak", "pyplot"),
    "windows": ("filling", "faults.REPLAY"),
    "closures": ("leak", "faults.CALLBACKS"),
    "holes": ("retention", "the C allocator"),
    "backlog": ("backlog", "faults.QUEUE"),
    "cached": ("cache", "features"),
    "hooks": ("leak", "_forward_hooks"),
    "views": ("leak", "faults.VIEWS"),
}
"""Fault -> verdict, and what the owner's path contains."""
NO_LINE = ("holes",)
ROUNDS = 10


def findings(folder: Path, fault: int, rounds: int = ROUNDS, *options: str) -> list[dict[str, Any]]:
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(fault), str(rounds), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


@pytest.mark.slow  # programs of the zoo, which are watched from outside, are found without
@pytest.mark.parametrize("fault", [pytest.param(number, id=plant.__name__) for number, plant in faults.FAULTS.items()])
def test_a_planted_fault_is_named(fault: int, tmp_path: Path) -> None:
    plant = faults.FAULTS[fault]
    verdict, owner = EXPECTED[plant.__name__]
    found = findings(tmp_path / "run", fault)
    assert found, "nothing was found"
    first = found[0]
    assert (first["verdict"], owner in first["owner"]) == (verdict, True), first
    assert first["round"] <= ROUNDS
    assert first["share"] > 0.5
    if plant.__name__ in NO_LINE:
        return
    made = first["made_at"]
    assert made is not None, first
    assert Path(made["file"]).name == "faults.py"
    lines, start = inspect.getsourcelines(lines_of(plant.__name__))
    assert start <= made["line"] < start + len(lines), made


def lines_of(name: str) -> Any:
    """Where the bytes of a fault are made: in the function itself, or in what it calls."""
    made_in = {
        "graphs": faults.Model.forward,
        "envs": faults.Env.__init__,
        "cached": faults.Model.features,
    }
    return inspect.unwrap(made_in.get(name, getattr(faults, name)))


@pytest.mark.slow
def test_a_filling_says_where_it_ends(tmp_path: Path) -> None:
    (found, *_) = findings(tmp_path / "run", 6)
    item = 504 * 64 * 4
    assert found["plateau_bytes"] == pytest.approx(400 * item, rel=0.02)
    assert found["plateau_step"] == 20  # 20 windows a round, 400 in all
    assert "all rows but one" in found["redundancy"]


@pytest.mark.usefixtures("own_modules")
def test_nothing_is_found_in_a_small_run(tmp_path: Path) -> None:
    options = [*TINY_PPO, "--rounds", str(ROUNDS), "--ledger-every", "1", "--quiet", "--run", str(tmp_path / "run")]
    assert main(["train", "ppo", *options]) == 0
    assert (tmp_path / "run" / "findings.jsonl").read_text() == ""


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [ROUNDS, 15])
def test_nothing_is_found_where_nothing_grows(rounds: int, tmp_path: Path) -> None:
    assert findings(tmp_path / "run", 0, rounds) == []
