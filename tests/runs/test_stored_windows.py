"""A replay that stores its windows gives the same numbers, bit for bit, in much more memory."""

import json
from collections.abc import Callable
from pathlib import Path

from flatwater.cli.main import main

DDPG = ("--learner.algorithm", "ddpg")


def leaves(run: Path) -> dict[str, str]:
    newest = max((run / "checkpoints").glob("*.json"))
    return {leaf["path"]: leaf["sha256"] for leaf in json.loads(newest.read_text())["leaves"]}


def test_both_ways_learn_the_same(train: Callable[..., Path]) -> None:
    rows = train("rows", *DDPG, "--rounds", "3")
    stored = train("stored", *DDPG, "--rounds", "3", "--replay.windows", "stored")
    assert "replay.row" in leaves(rows)
    assert leaves(rows) == {path: digest for path, digest in leaves(stored).items() if path != "replay.windows"}


def test_a_resumed_run_has_its_windows_again(train: Callable[..., Path]) -> None:
    whole = train("whole", *DDPG, "--rounds", "3", "--replay.windows", "stored")
    halves = train("halves", *DDPG, "--rounds", "2", "--replay.windows", "stored")
    assert main(["resume", str(halves), "--rounds", "3"]) == 0
    assert leaves(whole) == leaves(halves)
