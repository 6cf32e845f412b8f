"""How a generation is made from the one before."""

from flatwater.config.declare import config
from flatwater.errors import require


@config
class EvolutionConfig:
    """Shares of the population and the size of random changes. Elites survive; the others are written over."""

    elite_share: float = 0.375
    """Members with the best fitness; they keep their slots, weights and moments."""
    offspring_share: float = 0.375
    """Members replaced by blends of two parents. The rest are replaced by mutants of one parent."""
    tournament: int = 3
    """Candidates drawn for each parent; the fittest of them is taken."""
    blend_low: float = 0.2
    """Least share of the first parent in a blend."""
    blend_high: float = 0.8
    """Greatest share of the first parent in a blend."""
    mutation_rate: float = 0.20
    """Probability that a weight of a mutant changes."""
    mutation_deviation: float = 0.025
    """Standard deviation of that change."""
    mutation_rate_max: float = 0.4
    """Ceiling of the rate on a plateau."""
    mutation_deviation_max: float = 0.05
    """Ceiling of the deviation on a plateau."""
    plateau_rounds: int = 3
    """Generations over which the best validation value must improve."""
    plateau_improvement: float = 0.02
    """Least relative improvement; below it rate and deviation grow by `plateau_factor`."""
    plateau_factor: float = 1.5
    """Growth of rate and deviation on a plateau; both fall back on improvement."""
    champion_injection: int = 5
    """Every so many generations one mutant is an exact copy of the champion instead; 0 never."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("elite_share", "offspring_share", "mutation_rate", "blend_low", "blend_high"):
            require(0 <= getattr(self, name) <= 1, f"evolution.{name}", getattr(self, name), "between 0 and 1")
        require(
            self.elite_share + self.offspring_share <= 1,
            "evolution.offspring_share",
            self.offspring_share,
            f"at most 1 - evolution.elite_share ({1 - self.elite_share:g})",
        )
        require(self.elite_share > 0, "evolution.elite_share", self.elite_share, "above 0")
        require(
            self.blend_low <= self.blend_high, "evolution.blend_low", self.blend_low, f"up to {self.blend_high} (high)"
        )
        require(self.tournament >= 1, "evolution.tournament", self.tournament, "1 or more")
        require(self.plateau_rounds >= 1, "evolution.plateau_rounds", self.plateau_rounds, "1 or more")
        require(self.plateau_factor >= 1, "evolution.plateau_factor", self.plateau_factor, "1 or more")
        for name in ("mutation_deviation", "plateau_improvement", "champion_injection"):
            require(getattr(self, name) >= 0, f"evolution.{name}", getattr(self, name), "0 or more")
        for name in ("mutation_rate", "mutation_deviation"):
            ceiling = getattr(self, f"{name}_max")
            wanted = f"at least evolution.{name} ({getattr(self, name)})"
            require(ceiling >= getattr(self, name), f"evolution.{name}_max", ceiling, wanted)
