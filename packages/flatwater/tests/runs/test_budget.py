"""Near its budget a run stops with a checkpoint and exits with 4; it is never killed, and it can be resumed."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from small_runs import entries

PROGRAM = Path(__file__).parent / "leaking.py"
MIB = 1 << 20
RESUME = """
import sys
from flatwater.cli.main import main
sys.exit(main(["resume", sys.argv[1], "--rounds", sys.argv[2]]))
"""


def leaking(folder: Path, *, seed: int, address_space: int | None) -> subprocess.CompletedProcess[str]:
    """A run that loses 12 MiB a round, in a process of its own, under the shell's limit or under a budget."""

    def limit_memory() -> None:
        if address_space is not None:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

    return subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(seed), "limit" if address_space else "budget"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit_memory,
    )


def check(folder: Path, ended: subprocess.CompletedProcess[str]) -> None:
    assert ended.returncode == 4, (ended.returncode, ended.stdout[-2000:], ended.stderr[-2000:])
    newest = max((folder / "checkpoints").glob("*.json"))
    rounds = len((folder / "ledger.jsonl").read_text().splitlines())
    assert int(newest.name.split(".")[0]) == rounds >= 5
    assert "flatwater resume" in ended.stdout
    found = entries(folder / "findings.jsonl")
    assert any(f["verdict"] == "leak" and "LOST" in f["owner"] for f in found)
    resumed = subprocess.run(
        [sys.executable, "-c", RESUME, str(folder), str(rounds + 1)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert len((folder / "ledger.jsonl").read_text().splitlines()) == rounds + 1


@pytest.mark.slow
def test_a_leaking_run_stops_at_its_budget_and_is_resumed(tmp_path: Path) -> None:
    check(tmp_path / "run", leaking(tmp_path / "run", seed=0, address_space=None))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_twenty_leaking_runs_under_a_limit_of_the_shell_are_never_killed(tmp_path: Path, seed: int) -> None:
    """Without a budget: 90 % of what `ulimit -v` leaves is the budget, and 95 % of that the end."""
    check(tmp_path / "run", leaking(tmp_path / "run", seed=seed, address_space=(2200 + 37 * seed) * MIB))
