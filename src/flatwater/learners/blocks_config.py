"""What learning from blocks of steps is told: how far it looks, how far it moves, and how much it trusts a teacher."""

from flatwater.config.bounds import Count, OptionalNumber, Rate, Share, Weight
from flatwater.config.declare import config
from flatwater.errors import require


@config
class Ramp:
    """A number that changes in a straight line over the agents' steps, and stays where it ends."""

    first: Weight
    """Until `begins`."""
    last: Weight
    """From `ends` on."""
    begins: OptionalNumber = 0
    """Agent steps of the whole run."""
    ends: OptionalNumber = 0
    """Agent steps of the whole run; not before `begins`."""

    def __post_init__(self) -> None:
        """Check the order."""
        require(self.begins <= self.ends, "begins", self.begins, f"0 to {self.ends} (ends)")

    def at(self, step: int) -> float:
        """The number after so many agent steps."""
        if step >= self.ends:
            return self.last
        if step <= self.begins:
            return self.first
        share = (step - self.begins) / (self.ends - self.begins)
        return self.first + share * (self.last - self.first)


@config(table="learner")
class BlockConfig:
    """PPO on blocks of steps (Schulman et al. 2017)."""

    gamma: Share = 0.99
    """A reward one step later counts this much."""
    lam: Share = 0.95
    """Generalised advantage: 0 trusts the critic after one step, 1 sums all rewards of the block."""
    clip: Rate = 0.2
    """A probability may move by this share before a step's gain no longer pulls it further."""
    value_clip: Weight = 0.0
    """A value may move this far from the one that acted before a step's gain no longer pulls it further. 0 turns it
    off."""
    unroll: Count = 1
    """Steps of a sequence, over which gradients flow; a block is cut into as many as it has. More than 1 is for
    policies with a memory."""
    epochs: Count = 8
    """Times that each block is learned from."""
    minibatches: Count = 8
    """Parts that the sequences of all agents are dealt into, anew in each epoch: one update each."""
    lr: Rate = 1e-3
    """Learning rate (Adam)."""
    grad_clip: Weight = 0.5
    """Largest norm of a gradient; a longer one is scaled down to it. 0 turns it off."""
    value_weight: Weight = 0.05
    """Weight of the critic's loss, which is in units of squared returns: a large one leaves little of a clipped
    gradient to the policy."""
    entropy_weight: Weight = 0.0
    """Weight of the policy's entropy beside PPO's loss."""
    compile: bool = False
    """Compile the loss and its gradient with torch.compile: slow at the start, then faster. Needs a C++ compiler."""


@config(table="learner")
class TeachingConfig(BlockConfig):
    """Cross-entropy on what the teacher would do, a critic beside it, and PPO once the teacher lets go."""

    gamma: Share = 0.977
    lam: Share = 0.891
    value_clip: Weight = 0.5
    unroll: Count = 16
    epochs: Count = 3
    minibatches: Count = 16
    lr: Rate = 2e-3
    grad_clip: Weight = 1.0
    value_weight: Weight = 0.25
    entropy_weight: Weight = 0.01
    supervision: Ramp = Ramp(first=1.0, last=0.1, begins=300_000, ends=500_000)
    """Weight of the cross-entropy on the teacher's actions."""
    reinforcement: Ramp = Ramp(first=0.0, last=1.0, begins=300_000, ends=500_000)
    """Weight of PPO's loss: the hand-over is where this rises and `supervision` falls."""
    lead: Ramp = Ramp(first=0.5, last=0.0, begins=0, ends=300_000)
    """Probability that the teacher's action of an agent is executed; drawn for each agent and block."""

    def __post_init__(self) -> None:
        """The lead is a probability, also at its ends."""
        for end in ("first", "last"):
            require(getattr(self.lead, end) <= 1, f"learner.lead.{end}", getattr(self.lead, end), "0 to 1")
