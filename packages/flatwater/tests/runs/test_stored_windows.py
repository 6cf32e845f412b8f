"""A replay that stores its windows gives the same numbers, bit for bit, in much more memory."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import tiny_of

from flatwater.cli.main import main

PROGRAM = Path(__file__).parents[4] / "benchmarks" / "flatwater" / "stored_windows.py"


def run_stored_windows(*words: str) -> None:
    """A command of runs that store their windows, in a process of its own."""
    ended = subprocess.run([sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def owners(run: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((run / "plan.json").read_text())["owners"]
    return found


def leaves(run: Path) -> dict[str, str]:
    newest = max((run / "checkpoints").glob("*.json"))
    return {leaf["path"]: leaf["sha256"] for leaf in json.loads(newest.read_text())["leaves"]}


@pytest.mark.slow
@pytest.mark.parametrize("account", [(), ("--env.account-observation",)], ids=["windows alone", "with the account"])
def test_both_ways_learn_the_same(account: tuple[str, ...], train: Callable[..., Path]) -> None:
    rows = train("rows", "--rounds", "3", *account, algorithm="ddpg")
    run_stored_windows("train", "erl", *tiny_of("ddpg"), *account, "--rounds", "2", "--run", "stored")
    run_stored_windows("resume", "stored", "--rounds", "3")
    assert "replay.row" in leaves(rows)
    assert leaves(rows) == {path: digest for path, digest in leaves(Path("stored")).items() if path != "replay.windows"}
    assert owners(Path("stored")).keys() - owners(rows).keys() == {"replay.windows.seen", "replay.windows.following"}
    assert sum(owners(Path("stored")).values()) > 5 * sum(owners(rows).values())


@pytest.mark.long
def test_a_folder_that_names_the_setting_is_refused_with_the_remedy(
    train: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    config = train("run", "--rounds", "1") / "config.toml"
    config.write_text(config.read_text().replace("[replay]\n", '[replay]\nwindows = "rows"\n'))
    assert main(["resume", "run", "--rounds", "2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "replay.windows: " in said
    assert "since November 2026" in said
