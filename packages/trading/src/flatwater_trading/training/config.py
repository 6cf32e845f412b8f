"""Settings of a run of evolving traders, apart from its data and its machine."""

from dataclasses import field
from typing import Annotated

from flatwater.evolution.config import EvolutionConfig
from flatwater.replay.config import RowReplayConfig
from flatwater_trading.market.config import TradingConfig
from flatwater_trading.panel.config import DEFAULT_OBSERVATION_FEATURES, SplitConfig
from flatwater_trading.panel.splits import Splits, check_episode, split_days
from flatwater_trading.policy.config import TraderNetConfig
from flatwater_trading.training.learner import LearnerConfig
from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Bounds, Count, Seed
from flatwater_watch.options.declare import config


@config(table="population")
class PopulationConfig:
    """The traders that evolve together."""

    size: Annotated[int, Bounds(2, 1 << 16)] = 16
    """Members. The champion has a slot of its own besides them."""
    tile: Annotated[int, Bounds(0, 1 << 16)] = 0
    """Members that are computed at once, however many there are: a worker takes whole tiles, so the run is the same on
    any number of workers. Another tile changes last bits. 0 takes 4, or 16 if a member is little work."""


@config(table="evaluation")
class EvaluationConfig:
    """The slices (episodes) on which members are compared. All members play the same slices."""

    train_slices: Annotated[int, Bounds(1, 1 << 16)] = 5
    """Random slices of the training days that every member plays, with noise, in each generation."""
    validation_slices: Annotated[int, Bounds(1, 1 << 16)] = 3
    """Random slices of the validation days that every member and the champion play, without noise."""
    lowest: Count = 2
    """Fitness and validation value are the mean of this many lowest slices: a trader must not depend on luck."""

    def __post_init__(self) -> None:
        fewest = min(self.train_slices, self.validation_slices)
        require(self.lowest <= fewest, "evaluation.lowest", self.lowest, f"1 to {fewest} (the fewest slices)")


@config(table="exploration")
class ExplorationConfig:
    """Spread of exploration noise over an action, in multiples of the algorithm's `noise`."""

    coefficient: Annotated[float, Bounds(0, 1e3)] = 1.0
    """Independent noise on each instrument's coefficient."""
    target: Annotated[float, Bounds(0, 1e3)] = 1.0
    """Independent noise on each instrument's sale target: it makes trades close earlier and later."""
    day: Annotated[float, Bounds(0, 1e3)] = 4.0
    """Noise common to all coefficients of a day: it makes days with a purchase out of days without, and back."""


@config(table="choice")
class ChoiceConfig:
    """The choice of the champion's rule of purchases, among that of `env.trade` and others.

    The champion's scores of the validation days are played once by each: other holding times first, then other numbers
    of purchases and targets with the rule that was chosen before. A rule is chosen if the 90 % interval of its lead
    over the rule before it lies above 0, and is then that of results, orders and backtests. Nothing is trained for it.
    Each is a try, and counted.
    """

    by_validation: bool = True
    """Whether the rule is chosen on the validation days. If not, it is that of `env.trade`."""
    hold_days: tuple[Annotated[int, Bounds(1, 1 << 16)], ...] | None = None
    """Other holding times. Left out: 5, 10 and 40 rows, or none if `env.trade` has another holding time than usual."""
    purchases_a_day: tuple[Annotated[int, Bounds(1, 1 << 10)], ...] | None = None
    """Other numbers of purchases at a close. Left out: 3, or none if `env.trade` has another number than usual, or the
    panel has fewer instruments."""
    targets: tuple[Annotated[float, Bounds(0, 1e6, above=True)], ...] = ()
    """Sale targets of all purchases, in percent, in the place of those that the trader sets. Left out: these alone."""

    def __post_init__(self) -> None:
        """Check that rules are given only if one of them is chosen."""
        given_choices = {
            "hold_days": self.hold_days,
            "purchases_a_day": self.purchases_a_day,
            "targets": self.targets or None,  # an empty tuple if they are left out
        }
        for name, values in given_choices.items():
            require(
                self.by_validation or values is None,
                f"choice.{name}",
                values,
                "none with choice.by_validation = false, which keeps the rule of env.trade",
            )


@config
class ErlConfig:
    """Evolutionary reinforcement learning of traders on a panel."""

    seed: Seed = 0
    """Every random number of the run follows from it."""
    observation_features: tuple[str, ...] = DEFAULT_OBSERVATION_FEATURES
    """Features of the panel that a trader sees, by name."""
    benchmark: str | None = None
    """Instrument of the panel that results are also compared with: bought on the first day and held. It need not be
    tradable. Left out: no benchmark."""
    splits: SplitConfig = field(default_factory=SplitConfig)
    population: PopulationConfig = field(default_factory=PopulationConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    env: TradingConfig = field(default_factory=TradingConfig)
    choice: ChoiceConfig = field(default_factory=ChoiceConfig)
    net: TraderNetConfig = field(default_factory=TraderNetConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    replay: RowReplayConfig = field(default_factory=RowReplayConfig)
    evolution: EvolutionConfig = field(default_factory=EvolutionConfig)

    @property
    def learns_from_outcomes(self) -> bool:
        """Whether members learn in hindsight, from the panel, and not from transitions that they have played."""
        return not self.learner.own.replays

    def split(self, rows: int) -> Splits:
        """Split the first `rows` rows of a panel into days to train, to validate and to hold out.

        Raises:
            ConfigError: a split is too short for an episode.
        """
        splits = split_days(rows, context=self.env.episode.context, config=self.splits)
        check_episode(splits, self.env.episode.days)
        return splits


def replay_capacity(config: ErlConfig) -> int:
    """Return the number of transitions that the replay holds: those of `replay.generations` generations."""
    played_transitions = config.population.size * config.evaluation.train_slices * config.env.episode.days
    return config.replay.generations * played_transitions
