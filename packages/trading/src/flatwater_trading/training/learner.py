"""Settings of the learning of a population of traders."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, ClassVar

from flatwater.algorithms.config import PLACES, AlgorithmConfig, DDPGConfig, SACConfig, Settings, TD3Config
from flatwater.config.code import Code
from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Count, Rate
from flatwater_watch.options.declare import config


@config(table="learner.hindsight")
class HindsightConfig(Settings):
    """Learning from the gain of every purchase that could have been made: for markets, which do not answer."""

    replays: ClassVar[bool] = False

    actor_lr: Rate = 2e-3
    """Learning rate of the actors (AdamW)."""
    updates: Count = 48
    """Updates of each member in a round."""
    batch_size: Count = 32
    """Days of each member in one micro-batch."""
    stretches: Count | None = None
    """A batch is so many stretches of consecutive days, of which each day is encoded once: the more, the less its days
    have in common; the fewer, the cheaper a long context is. Divides `batch_size`. Left out: as many as read at most 20
    rows of the panel a day: days by themselves up to a context of 20, one stretch where it is long."""

    def check_together(self, table: str) -> None:
        """Require that `stretches` divides `batch_size`, so that all stretches are equally long."""
        require(
            self.stretches is None or self.batch_size % self.stretches == 0,
            f"{table}.stretches",
            self.stretches,
            f"a divisor of {table}.batch_size ({self.batch_size})",
        )


@config(table="learner")
class LearnerConfig(AlgorithmConfig):
    """Learning of every trader. The settings of an algorithm are in the table of its name."""

    places: ClassVar[Mapping[str, str]] = PLACES | {"hindsight": "flatwater_trading.training.hindsight:HINDSIGHT"}

    algorithm: Annotated[str, Code()] = "hindsight"
    """hindsight: from the gain of every purchase that could have been made; for markets, which do not answer. ddpg,
    td3, sac: from what was played, with critics; for environments that answer. package.module:NAME: an algorithm of
    yours, with its settings in the table `own`."""
    hindsight: HindsightConfig = field(default_factory=HindsightConfig)
    ddpg: DDPGConfig = field(default_factory=DDPGConfig)
    td3: TD3Config = field(default_factory=TD3Config)
    sac: SACConfig = field(default_factory=SACConfig)
