"""Settings by which a generation is made from the generation before."""

from typing import Annotated

from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Bounds, Count, OptionalNumber, Share, Weight
from flatwater_watch.options.declare import config


@config(table="evolution")
class EvolutionConfig:
    """Shares of the population and the size of random changes. Elites survive; the others are written over."""

    elite_share: Annotated[float, Bounds(0, 1, above=True)] = 0.375
    """Members with the best fitness; they keep their slots, weights and moments."""
    offspring_share: Share = 0.375
    """Members replaced by blends of two parents. The rest are replaced by mutants of one parent."""
    tournament: Count = 3
    """Candidates drawn for each parent; the fittest of them is taken."""
    blend_low: Share = 0.2
    """Least share of the first parent in a blend."""
    blend_high: Share = 0.8
    """Greatest share of the first parent in a blend."""
    mutation_rate: Share = 0.20
    """Probability that a weight of a mutant changes."""
    mutation_deviation: Weight = 0.025
    """Standard deviation of that change."""
    mutation_rate_max: Share = 0.4
    """Ceiling of the rate on a plateau."""
    mutation_deviation_max: Weight = 0.05
    """Ceiling of the deviation on a plateau."""
    plateau_rounds: Count = 3
    """Generations over which the best validation value must improve."""
    plateau_improvement: Weight = 0.02
    """Least relative improvement; below it rate and deviation grow by `plateau_factor`."""
    plateau_factor: Annotated[float, Bounds(1, 1e6)] = 1.5
    """Growth of rate and deviation on a plateau; both fall back on improvement."""
    champion_injection: OptionalNumber = 5
    """In every n-th generation one mutant is an exact copy of the champion instead; 0 never."""

    def __post_init__(self) -> None:
        """Refuse shares and bounds that do not fit together."""
        require(
            self.elite_share + self.offspring_share <= 1,
            "evolution.offspring_share",
            self.offspring_share,
            f"at most 1 - evolution.elite_share ({1 - self.elite_share:g})",
        )
        require(
            self.blend_low <= self.blend_high,
            "evolution.blend_low",
            self.blend_low,
            f"at most blend_high ({self.blend_high})",
        )
        for name in ("mutation_rate", "mutation_deviation"):
            ceiling = getattr(self, f"{name}_max")
            expected = f"at least evolution.{name} ({getattr(self, name)})"
            require(ceiling >= getattr(self, name), f"evolution.{name}_max", ceiling, expected)
