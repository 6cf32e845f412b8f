"""What a run of evolving traders is made of, apart from its data and its machine."""

from dataclasses import field

from flatwater.config.declare import config
from flatwater.envs.trading.config import TradingConfig
from flatwater.errors import require
from flatwater.evolution.config import EvolutionConfig
from flatwater.learners.config import DDPGConfig
from flatwater.nets.config import NetConfig
from flatwater.panel.config import DEFAULT_OBSERVATION_FEATURES, SplitConfig
from flatwater.replay.config import ReplayConfig


@config
class PopulationConfig:
    """The traders that evolve together."""

    size: int = 16
    """Members. The champion is kept beside them in a slot of its own."""

    def __post_init__(self) -> None:
        """Check the range: crossover needs two parents."""
        require(self.size > 1, "population.size", self.size, "2 or more")


@config
class EvaluationConfig:
    """The slices (episodes) on which members are compared. All members play the same ones."""

    train_slices: int = 5
    """Random slices of the training days that every member plays, with noise, in each generation."""
    validation_slices: int = 3
    """Random slices of the walk-forward days that every member and the champion play, without noise."""
    lowest: int = 2
    """Fitness and validation value are the mean of this many lowest slices: a trader must not depend on luck."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        fewest = min(self.train_slices, self.validation_slices)
        require(self.train_slices >= 1, "evaluation.train_slices", self.train_slices, "1 or more")
        require(self.validation_slices >= 1, "evaluation.validation_slices", self.validation_slices, "1 or more")
        require(1 <= self.lowest <= fewest, "evaluation.lowest", self.lowest, f"1 to {fewest} (the fewest slices)")


@config
class ExplorationConfig:
    """How the learner's noise is spread over an action, in multiples of `learner.noise` (of half an action's range)."""

    coefficient: float = 1.0
    """Independent noise on each instrument's coefficient."""
    target: float = 1.0
    """Independent noise on each instrument's sale target: it makes trades close earlier and later."""
    day: float = 4.0
    """Noise common to all coefficients of a day: it makes days with a purchase out of days without, and back."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("coefficient", "target", "day"):
            require(getattr(self, name) >= 0, f"exploration.{name}", getattr(self, name), "0 or more")


@config
class ErlConfig:
    """Evolutionary reinforcement learning of traders on a panel."""

    seed: int = 0
    """Every random number of the run follows from it."""
    observation_features: tuple[str, ...] = DEFAULT_OBSERVATION_FEATURES
    """Features of the panel that a trader sees, by name."""
    splits: SplitConfig = field(default_factory=SplitConfig)
    population: PopulationConfig = field(default_factory=PopulationConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    env: TradingConfig = field(default_factory=TradingConfig)
    net: NetConfig = field(default_factory=NetConfig)
    learner: DDPGConfig = field(default_factory=DDPGConfig)
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    evolution: EvolutionConfig = field(default_factory=EvolutionConfig)
