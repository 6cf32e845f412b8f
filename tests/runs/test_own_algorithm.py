"""A fourth algorithm is one file and its place among the settings: it trains, is saved, resumed and evaluated."""

from collections.abc import Callable
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Literal

import pytest
from flatwater.runs.composers import COMPOSERS
from regression import RegressionConfig
from rich.console import Console

from flatwater.algorithms.config import LearnerConfig
from flatwater.cli.main import interface_of, main
from flatwater.config.declare import config
from flatwater.recipes.erl.config import ErlRunConfig
from flatwater.runs.session import start


@config(table="learner")
class OwnLearnerConfig(LearnerConfig):
    """With one more algorithm."""

    algorithm: Literal["hindsight", "ddpg", "td3", "sac", "regression"] = "regression"  # type: ignore[assignment]
    regression: RegressionConfig = field(default_factory=RegressionConfig)


@config
class OwnRunConfig(ErlRunConfig):
    """A run that may learn so."""

    learner: OwnLearnerConfig = field(default_factory=OwnLearnerConfig)


@pytest.fixture
def small(replayed: list[str], monkeypatch: pytest.MonkeyPatch) -> OwnRunConfig:
    """A small run of the algorithm."""
    monkeypatch.setitem(COMPOSERS, "erl", replace(COMPOSERS["erl"], config=OwnRunConfig))  # type: ignore[arg-type]
    settings = interface_of(("train", "erl")).read("train erl", replayed).settings()
    given = {f.name: getattr(settings, f.name) for f in fields(settings)}
    return OwnRunConfig(**given | {"learner": OwnLearnerConfig()})


def test_it_trains_and_is_resumed_bit_for_bit(small: OwnRunConfig, same: Callable[[Path, Path], None]) -> None:
    for name, rounds in (("whole", 3), ("parted", 1)):
        start(replace(small, rounds=rounds), Path(name), Console(quiet=True))
    assert main(["resume", "parted", "--rounds", "3"]) == 0
    same(Path("whole"), Path("parted"))
    assert main(["evaluate", "parted"]) == 0
    assert main(["report", "parted"]) == 0
    assert '\nalgorithm = "regression"\n' in Path("parted/config.toml").read_text()
