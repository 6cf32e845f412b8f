"""What proximal policy optimisation is told: how far it looks, how far it steps, how often."""

from flatwater.config.declare import config
from flatwater.errors import require


@config
class PPOConfig:
    """PPO on whole episodes (Schulman et al. 2017)."""

    gamma: float = 0.995
    """A reward one step later counts this much."""
    lam: float = 0.98
    """Generalised advantage: 0 trusts the critic after one step, 1 sums all rewards of the episode."""
    clip: float = 0.2
    """A probability may move by this share before a step's gain no longer pulls it further."""
    epochs: int = 4
    """Times that each round's episodes are learned from."""
    minibatches: int = 2
    """Parts that the episodes are dealt into, anew in each epoch: one update each. Divides the environments."""
    lr: float = 1e-3
    """Learning rate (Adam)."""
    grad_clip: float = 0.5
    """Largest norm of a gradient; a longer one is scaled down to it. 0 turns it off."""
    value_weight: float = 0.5
    """Weight of the critic's loss beside the policy's."""
    entropy_weight: float = 0.01
    """Weight of the policy's entropy: what being undecided is worth."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("gamma", "lam"):
            require(0 <= getattr(self, name) <= 1, f"learner.{name}", getattr(self, name), "0 to 1")
        for name in ("clip", "lr"):
            require(getattr(self, name) > 0, f"learner.{name}", getattr(self, name), "positive")
        for name in ("epochs", "minibatches"):
            require(getattr(self, name) >= 1, f"learner.{name}", getattr(self, name), "1 or more")
        for name in ("grad_clip", "value_weight", "entropy_weight"):
            require(getattr(self, name) >= 0, f"learner.{name}", getattr(self, name), "0 or more")
