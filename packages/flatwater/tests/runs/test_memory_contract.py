"""The contract weighs what is there: pages once they are touched, the budget at every step, workers once."""

import gc
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import torch
from small_runs import entries

from flatwater.cli.main import command_class, main
from flatwater.runs.memory_contract import CENSUS_SHARE, STOP_BUDGET_SHARE, MemoryContract
from flatwater.state.tree import nbytes
from flatwater_trading.market.simulator import count_live_simulators
from flatwater_trading.recipe.run import compose
from flatwater_watch.meters.mappings import family_memory
from flatwater_watch.meters.process import resident_bytes

pytestmark = pytest.mark.usefixtures("own_modules")
CPU = torch.device("cpu")
UNTOUCHED = """
import json, mmap
import torch
from flatwater.memory.planner import Plan
from flatwater.runs.memory_contract import MemoryContract
from flatwater.state.tree import nbytes, state

@state
class Root:
    frames: torch.Tensor

root, path = Root(frames=torch.frombuffer(mmap.mmap(-1, 64 << 20), dtype=torch.float32)), "frames"
plan = Plan(owners=nbytes(root), transients={}, base_bytes=0, limits={"none": 1 << 60})
contract = MemoryContract(root, plan, torch.device("cpu"))
found = [root.frames.nbytes, contract.measure_owned_bytes_()[path]]
for part in (4, 1):
    root.frames[: len(root.frames) // part].fill_(1)
    found.append(contract.measure_owned_bytes_()[path])
print(json.dumps([*found, path in contract.fully_resident]))
"""


def contract(tiny: list[str], *options: str) -> MemoryContract:
    composition = compose(command_class(("train", "erl")).read("train erl", [*tiny, *options]).settings())
    return MemoryContract(composition.trainer.run, composition.plan, CPU)


def test_a_touched_state_is_owned_whole(tiny: list[str]) -> None:
    found = contract(tiny)
    assert found.measure_owned_bytes_() == found.plan.owners
    assert {**found.measure_owned_bytes_(), **found.plan.mapped} == nbytes(found.root)
    statement, grown = found.settle_round_(1, {})
    assert grown == []
    assert statement.explained_share > 0.97


@pytest.mark.long
def test_what_a_recipe_left_untouched_is_owned_once_it_is_written() -> None:
    """In a process of its own: an allocator that has trained before may hand out pages that were touched."""
    ended = subprocess.run([sys.executable, "-c", UNTOUCHED], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    size, before, quarter, whole, full = json.loads(ended.stdout)
    assert before < 64 << 10
    assert quarter == pytest.approx(size / 4, abs=4 << 20)
    assert (whole, full) == (size, True)


@pytest.mark.parametrize(("saved_up", "has_slice"), [(0.02, False), (0.3, True)])
def test_a_paced_census_waits_for_the_seconds_of_a_whole_slice(
    tiny: list[str],
    saved_up: float,
    has_slice: bool,  # noqa: FBT001
) -> None:
    """To begin one took 0.06 CPU seconds, a tenth of all that a run of a second trained."""
    found = contract(tiny)
    assert found._census_seconds() == inf, "without a pace"
    found.paced = True
    found.monitor.cost_seconds = CENSUS_SHARE * time.process_time() - saved_up
    assert (found._census_seconds() > 0) == has_slice


def test_the_budget_is_used_up_at_95_percent(tiny: list[str]) -> None:
    found = contract(tiny)
    resident = resident_bytes()
    found.plan = replace(found.plan, budget=int(resident / STOP_BUDGET_SHARE) + (64 << 20))
    assert not found.is_over_budget_()
    found.plan = replace(found.plan, budget=int(resident / STOP_BUDGET_SHARE) - (64 << 20))
    assert found.is_over_budget_()
    assert abs(found.breach - resident) < 32 << 20


def test_the_ledger_adds_up_in_every_round(tiny: list[str]) -> None:
    family = family_memory().count  # an object store may run below this process, for other tests
    gc.collect()
    envs = count_live_simulators()  # of other tests, which a fixture or a traceback keeps
    run = Path("run")
    assert main(["train", "erl", *tiny, "--run", str(run), "--rounds", "3"]) == 0
    plan = json.loads((run / "plan.json").read_text())
    lines = entries(run / "ledger.jsonl")
    assert [line["round"] for line in lines] == [1, 2, 3]
    for line in lines:
        parts = ("file_mapped", "base", "owned_bytes", "slack", "unaccounted")
        assert sum(line[part] for part in parts) == line["resident"]
        assert line["owned_bytes"] == plan["total_bytes"]
        assert line["mapped"] == sum(plan["mapped"].values()) > 0
        assert (line["envs"], line["processes"], line["cuda"]) == (envs + 2, family, None)
        assert line["phases"].keys() >= {"evaluate", "validate", "evolve"}
        assert line["phases"]["evaluate"]["steps"] == 1, "one tile plays"
    assert lines[-1]["phases"]["learn"]["steps"] == 2
    assert (run / "findings.jsonl").read_text() == ""


@pytest.mark.long
def test_the_terminal_tells_of_memory_where_it_has_changed(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "erl", *tiny, "--rounds", "5", "--run", "run"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if " MiB = " in line]
    assert 1 <= len(lines) < 5
    for word in ("files", "base", "owned", "slack", "unaccounted"):
        assert word in lines[0]


@pytest.mark.long
def test_a_resumed_run_takes_the_new_budget(train: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run", "--rounds", "3")
    assert main(["resume", str(run), "--rounds", "4", "--budget", "10MiB"]) == 3
    assert re.search(r"10\.00 MiB.*\(--budget\)", capsys.readouterr().err)
    assert main(["resume", str(run), "--rounds", "4", "--budget", "64GiB"]) == 0
