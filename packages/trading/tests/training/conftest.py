"""Small runs of evolving traders: 4 members, 6 synthetic instruments, 20 days of context."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from watchers import Silent

from flatwater.config.mappings import from_mapping
from flatwater.trainers.loop import train_
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.run import ErlRun, compose

TINY: dict[str, Any] = {
    "panel": "synthetic:6x260",
    "threads": 1,
    "population.size": 4,
    "evaluation.train_slices": 2,
    "evaluation.validation_slices": 2,
    "env.episode.context": 20,
    "env.episode.trading_days": 15,
    "env.episode.settlement_days": 5,
    "env.trade.hold_days": 5,
    "splits.holdout_days": 40,
    "splits.validation_days": 40,
    "net.channels": 4,
    "net.hidden": 8,
}
REPLAY = {"replay.generations": 3, "replay.warmup": 50}


def tiny(changes: Mapping[str, Any]) -> ErlRunConfig:
    """The small configuration with some fields, by dotted name, changed."""
    nested: dict[str, Any] = {}
    algorithm = changes.get("learner.algorithm", "hindsight")
    learner = {f"learner.{algorithm}.updates": 2, f"learner.{algorithm}.batch_size": 8}
    replay = {} if algorithm == "hindsight" else REPLAY
    for name, value in (TINY | learner | replay | dict(changes)).items():
        *path, last = name.split(".")
        table = nested
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return from_mapping(ErlRunConfig, nested, "test")


Trained = tuple[ErlRun, list[dict[str, float]]]


@pytest.fixture(scope="session")
def _panel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def compose_run(_panel_cache: None) -> Callable[..., ErlRun]:
    """Build a small run: `compose_run({"learner.algorithm": "td3"})`."""
    return lambda changes=None: compose(tiny(changes or {}))


@pytest.fixture
def silent() -> type[Silent]:
    """A watcher that never stops a run."""
    return Silent


@pytest.fixture
def train_run(compose_run: Callable[..., ErlRun]) -> Callable[..., Trained]:
    """Build a small run and train it: the run, and each round's numbers."""

    def train(rounds: int, changes: Mapping[str, Any] | None = None) -> Trained:
        composition, watcher = compose_run(changes), Silent(done=0)
        assert train_(composition.trainer, rounds, watcher)
        return composition, watcher.rounds

    return train
