"""What a learner is told: rates, noise, how much it learns in a round."""

from typing import Literal

from flatwater.config.declare import config
from flatwater.errors import require


@config
class DDPGConfig:
    """DDPG or TD3 for every member of a population at once."""

    algorithm: Literal["ddpg", "td3"] = "ddpg"
    """td3: two critics of which the smaller one counts, a delayed actor, and noise on the target's actions."""
    gamma: float = 0.99
    """A reward one step later counts this much."""
    tau: float = 0.005
    """Share of the way that the target networks move to the online ones at each update."""
    actor_lr: float = 1e-4
    """Learning rate of the actors (AdamW)."""
    critic_lr: float = 3e-4
    """Learning rate of the critics (AdamW)."""
    weight_decay: float = 5e-4
    """Decoupled: each step shrinks every weight by this share of the learning rate. 0 gives Adam."""
    grad_clip: float = 1.0
    """Largest gradient norm of one member's network; longer gradients are scaled down to it. 0 turns it off."""
    updates: int = 32
    """Updates of each member in a round."""
    micro_batches: int = 2
    """Batches whose gradients are averaged for one update: more of them need no more memory."""
    batch_size: int = 32
    """Transitions of each member in one micro-batch."""
    policy_delay: int = 2
    """td3: the actor and the targets move at every n-th update."""
    target_noise: float = 0.2
    """td3: deviation of the noise on the target's action, of half the action's range."""
    target_noise_clip: float = 0.5
    """td3: bound of that noise."""
    noise: float = 0.125
    """Deviation of exploration noise at the start, of half the action's range."""
    noise_decay: float = 0.99995
    """Factor on the exploration noise for each update."""
    noise_floor: float = 0.01
    """Exploration noise does not fall below this."""
    autocast: Literal["off", "bf16"] = "off"
    """bf16: forward and backward passes in bfloat16; weights, moments and losses stay in float32."""
    compile: bool = False
    """Compile the update with torch.compile: minutes at the start, then faster. Needs a C++ compiler."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("gamma", "tau", "noise_decay"):
            value = getattr(self, name)
            require(0 < value <= 1, f"learner.{name}", value, "above 0 and at most 1")
        for name in ("actor_lr", "critic_lr"):
            require(getattr(self, name) > 0, f"learner.{name}", getattr(self, name), "positive")
        for name in ("weight_decay", "grad_clip", "target_noise", "target_noise_clip", "noise_floor"):
            require(getattr(self, name) >= 0, f"learner.{name}", getattr(self, name), "0 or more")
        for name in ("updates", "micro_batches", "batch_size", "policy_delay"):
            require(getattr(self, name) >= 1, f"learner.{name}", getattr(self, name), "1 or more")
        floor = self.noise_floor
        require(self.noise >= floor, "learner.noise", self.noise, f"learner.noise_floor ({floor}) or more")
