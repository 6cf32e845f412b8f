"""A replay that stores its windows gives the same numbers, bit for bit, in much more memory."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flatwater.cli.main import main


def leaves(run: Path) -> dict[str, str]:
    newest = max((run / "checkpoints").glob("*.json"))
    return {leaf["path"]: leaf["sha256"] for leaf in json.loads(newest.read_text())["leaves"]}


@pytest.mark.slow
def test_both_ways_learn_the_same(train: Callable[..., Path]) -> None:
    rows = train("rows", "--rounds", "3", algorithm="ddpg")
    stored = train("stored", "--rounds", "3", "--replay.windows", "stored", algorithm="ddpg")
    assert "replay.row" in leaves(rows)
    assert leaves(rows) == {path: digest for path, digest in leaves(stored).items() if path != "replay.windows"}


def test_a_resumed_run_has_its_windows_again(train: Callable[..., Path]) -> None:
    whole = train("whole", "--rounds", "3", "--replay.windows", "stored", algorithm="ddpg")
    halves = train("halves", "--rounds", "2", "--replay.windows", "stored", algorithm="ddpg")
    assert main(["resume", str(halves), "--rounds", "3"]) == 0
    assert leaves(whole) == leaves(halves)
