"""The configuration of a run of evolving traders: what is trained, on which data, and what all runs are given."""

from typing import Literal

from flatwater.config.bounds import Number
from flatwater.config.declare import config
from flatwater.config.given import refuse_given
from flatwater.errors import require
from flatwater.runs.config import RunConfig, check_run
from flatwater.trainers.erl.config import ErlConfig


@config
class ErlRunConfig(RunConfig, ErlConfig):
    """A population of traders, evolved on a panel."""

    trainer: Literal["erl"] = "erl"
    """What the run trains, so that `flatwater resume` knows."""
    rounds: Number = 6
    """Generations in all; `flatwater resume RUN --rounds N` goes on to N."""
    panel: str | None = None
    """A stored panel, a Parquet or CSV file, or `synthetic:60x1500`. Left out: the panel that comes with Flatwater."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_run(self)
        features, episodes = self.observation_features, self.population.size * self.evaluation.train_slices
        require(
            len(features) == len(set(features)) > 0, "observation_features", features, "one or more names, each once"
        )
        own, chosen = self.learner.own, f"learner.algorithm = '{self.learner.algorithm}'"
        if not own.noisy:
            refuse_given(self.exploration, "exploration", f"with {chosen}, which adds no noise. Choose 'ddpg' or 'td3'")
        if not own.replays:
            refuse_given(self.replay, "replay", f"with {chosen}, which replays nothing. Choose 'ddpg' or 'td3'")
            require(
                not self.env.account_observation,
                "env.account_observation",
                self.env.account_observation,
                f"false with {chosen}, which learns from what every purchase came to, whatever "
                "was held. Choose 'ddpg' or 'td3' for traders that see their account",
            )
            return
        require(
            self.replay.capacity >= 2 * episodes,
            "replay.capacity",
            self.replay.capacity,
            f"at least {2 * episodes}: two days of the population.size x evaluation.train_slices = {episodes} episodes",
        )
