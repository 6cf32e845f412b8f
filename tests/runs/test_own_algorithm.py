"""A fourth algorithm is one file and its place among the settings: it trains, is saved, resumed and evaluated."""

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from regression import OwnLearnerConfig, OwnRunConfig
from rich.console import Console

from flatwater.cli.main import interface_of, main
from flatwater.runs.session import start


@pytest.fixture
def small(replayed: list[str]) -> OwnRunConfig:
    """A small run of the algorithm."""
    settings = interface_of(("train", "erl")).read("train erl", replayed).settings()
    given = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name != "trainer"}
    return OwnRunConfig(**given | {"learner": OwnLearnerConfig()})


def test_it_trains_and_is_resumed_bit_for_bit(small: OwnRunConfig, same: Callable[[Path, Path], None]) -> None:
    for name, rounds in (("whole", 3), ("parted", 1)):
        start(replace(small, rounds=rounds), Path(name), Console(quiet=True))
    assert main(["resume", "parted", "--rounds", "3"]) == 0
    same(Path("whole"), Path("parted"))
    assert main(["evaluate", "parted"]) == 0
    assert main(["report", "parted"]) == 0
    assert '\nalgorithm = "regression"\n' in Path("parted/config.toml").read_text()
