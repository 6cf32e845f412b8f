"""What proximal policy optimisation is told: how far it looks, how far it steps, how often."""

from flatwater.config.bounds import Count, Rate, Share, Weight
from flatwater.config.declare import config


@config(table="learner")
class PPOConfig:
    """PPO on whole episodes (Schulman et al. 2017)."""

    gamma: Share = 0.995
    """A reward one step later counts this much."""
    lam: Share = 0.95
    """Generalised advantage: 0 trusts the critic after one step, 1 sums all rewards of the episode."""
    clip: Rate = 0.2
    """A probability may move by this share before a step's gain no longer pulls it further."""
    epochs: Count = 10
    """Times that each round's episodes are learned from."""
    minibatches: Count = 4
    """Parts that the episodes are dealt into, anew in each epoch: one update each. Divides the environments."""
    lr: Rate = 2e-3
    """Learning rate (Adam)."""
    grad_clip: Weight = 0.5
    """Largest norm of a gradient; a longer one is scaled down to it. 0 turns it off."""
    value_weight: Weight = 0.5
    """Weight of the critic's loss beside the policy's."""
    entropy_weight: Weight = 0.003
    """Weight of the policy's entropy: what being undecided is worth."""
