"""The configuration of a run of evolving traders: the training, the data, and the settings that all runs share."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from flatwater.runs.config import WorkersRunConfig, check_workers_run
from flatwater_trading.training.config import ErlConfig, replay_capacity
from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Number
from flatwater_watch.options.declare import config, refuse_given_settings


@config
class ErlRunConfig(WorkersRunConfig, ErlConfig):
    """A population of traders, evolved on a panel."""

    changeable_settings: ClassVar = WorkersRunConfig.changeable_settings | {"benchmark"}
    former_tables: ClassVar[Mapping[str, Any]] = MappingProxyType({"choice": {"by_validation": False}})
    absent: ClassVar = WorkersRunConfig.absent | {
        "act": "traders of this recipe buy and sell whole positions. For target weights: flatwater train weights",
    }

    trainer: Literal["erl"] = "erl"
    """The recipe, by which `flatwater resume` knows the run."""
    rounds: Number = 6
    """Generations in all; `flatwater resume RUN --rounds N` goes on to N."""
    panel: str | None = None
    """A stored panel, a Parquet, CSV or Excel file, or `synthetic:60x1500`. Left out: the panel that comes with
    Flatwater."""

    from_run: str | None = None
    """Folder of a run of traders whose champion and members this run begins with: the same networks and instruments, on
    a panel that may have newer days. Their learning goes on with fresh optimizers. Left out: random weights."""

    def __post_init__(self) -> None:
        """Check that features, exploration and replay fit the algorithm and each other."""
        check_workers_run(self)
        features = self.observation_features
        require(
            len(features) == len(set(features)) > 0, "observation_features", features, "one or more names, each once"
        )
        settings, algorithm = self.learner.own, f"learner.algorithm = '{self.learner.algorithm}'"
        # `noisy` and `replays` are facts about the algorithm: it adds noise to actions; it learns from a replay.
        if not settings.noisy:
            refuse_given_settings(
                self.exploration, "exploration", f"with {algorithm}, which adds no noise. Choose 'ddpg' or 'td3'"
            )
        if not settings.replays:
            refuse_given_settings(
                self.replay, "replay", f"with {algorithm}, which replays nothing. Choose 'ddpg' or 'td3'"
            )
            require(
                not self.env.account_observation,
                "env.account_observation",
                self.env.account_observation,
                f"false with {algorithm}, which learns from what every purchase came to, whatever "
                "was held. Choose 'ddpg' or 'td3' for traders that see their account",
            )
            # Without a replay there is no capacity to check.
            return
        capacity = replay_capacity(self)
        expected = f"1 to {capacity}, the transitions of replay.generations = {self.replay.generations}"
        require(self.replay.warmup <= capacity, "replay.warmup", self.replay.warmup, expected)
