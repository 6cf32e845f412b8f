"""What a learner is told: rates, noise, how much it learns in a round."""

from typing import Annotated, Literal

from flatwater.config.bounds import Bounds, Count, Number, Rate, Weight
from flatwater.config.declare import config
from flatwater.errors import require


@config(table="learner")
class LearnerConfig:
    """How every member of a population learns."""

    algorithm: Literal["hindsight", "ddpg", "td3"] = "hindsight"
    """hindsight: from the gain of every purchase that could have been made; for markets, which do not answer. ddpg:
    from what was played, with a critic; for environments that answer. td3: the same with two critics of which the
    smaller one counts, a delayed actor, and noise on the target's actions."""
    gamma: Annotated[float, Bounds(0, 1, above=True)] = 0.99
    """ddpg, td3: a reward one step later counts this much."""
    tau: Annotated[float, Bounds(0, 1, above=True)] = 0.005
    """ddpg, td3: share of the way that the target networks move to the online ones at each update."""
    actor_lr: Rate = 2e-3
    """Learning rate of the actors (AdamW)."""
    critic_lr: Rate = 1e-3
    """ddpg, td3: learning rate of the critics (AdamW)."""
    weight_decay: Annotated[float, Bounds(0, 100)] = 5e-4
    """Decoupled: each step shrinks every weight by this share of the learning rate. 0 gives Adam."""
    grad_clip: Weight = 1.0
    """Largest gradient norm of one member's network; longer gradients are scaled down to it. 0 turns it off."""
    updates: Count = 48
    """Updates of each member in a round."""
    micro_batches: Count = 1
    """Batches whose gradients are averaged for one update: more of them need no more memory."""
    batch_size: Count = 32
    """Transitions of each member in one micro-batch; days with hindsight."""
    stretches: Count | None = None
    """hindsight: a batch is so many stretches of consecutive days, of which each day is encoded once: the more, the
    less its days have in common; the fewer, the cheaper a long context is. Divides `batch_size`. Left out: as many as
    read at most 20 rows of the panel a day: days by themselves up to a context of 20, one stretch where it is long."""
    policy_delay: Number = 2
    """td3: the actor and the targets move at every n-th update."""
    target_noise: Annotated[float, Bounds(0, 100)] = 0.2
    """td3: deviation of the noise on the target's action, of half the action's range."""
    target_noise_clip: Annotated[float, Bounds(0, 100)] = 0.5
    """td3: bound of that noise."""
    noise: Annotated[float, Bounds(0, 100)] = 0.125
    """ddpg, td3: deviation of exploration noise at the start, of half the action's range."""
    noise_decay: Annotated[float, Bounds(0, 1, above=True)] = 0.99995
    """ddpg, td3: factor on the exploration noise for each update."""
    noise_floor: Annotated[float, Bounds(0, 100)] = 0.01
    """ddpg, td3: exploration noise does not fall below this."""
    autocast: Literal["off", "bf16"] = "off"
    """bf16: forward and backward passes in bfloat16; weights, moments and losses stay in float32."""
    compile: bool = False
    """ddpg, td3: compile the update with torch.compile: minutes at the start, then faster. Needs a C++ compiler."""

    def __post_init__(self) -> None:
        """A batch is whole stretches, and noise falls from its beginning to its floor."""
        require(
            self.algorithm != "hindsight" or self.stretches is None or self.batch_size % self.stretches == 0,
            "learner.stretches",
            self.stretches,
            f"a divisor of learner.batch_size ({self.batch_size})",
        )
        floor = self.noise_floor
        require(self.noise >= floor, "learner.noise", self.noise, f"learner.noise_floor ({floor}) or more")
