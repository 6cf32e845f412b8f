"""Settings of an episode of growing networks: hosts, training, lifecycle and rewards."""

from dataclasses import field
from typing import Annotated, Literal

from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Bounds, Count, Rate, Weight
from flatwater_watch.options.declare import config

Width = Annotated[int, Bounds(1, 1 << 14)]
MAXIMUM_CHOICES = 1 << 10
"""Choices of a head, at most: each is an action that the policy tells apart."""


@config(table="env.host")
class HostConfig:
    """The networks that are grown."""

    kind: Literal["conv", "mlp"] = "conv"
    """conv: three convolutional blocks. mlp: three dense blocks, cheaper and with less to gain from seeds."""
    channels: tuple[Width, Width, Width] = (4, 8, 16)
    """conv: channels after each block, even. (66, 132, 264) makes a host with its seeds 1.2 million weights."""
    hidden: tuple[Width, Width, Width] = (24, 24, 24)
    """mlp: width of each block."""
    rank: Width = 4
    """mlp, and dense slots of a host of yours: rank of a low-rank seed."""
    impaired: Literal["odd", "all", "none"] = "odd"
    """conv: which hosts see single pixels only (3 x 3 kernels cut to their centre): those of odd env seeds, all, or
    none. What is worth growing differs between the two kinds, and the agent is not told which it has."""

    def __post_init__(self) -> None:
        """Check that channels are even, and that a low-rank seed is no wider than the narrowest block."""
        channels = self.channels
        # The norms of blocks and seeds have two groups.
        require(not any(c % 2 for c in channels), "env.host.channels", channels, "even numbers")
        require(self.rank <= min(self.hidden), "env.host.rank", self.rank, "1 to the narrowest of env.host.hidden")


@config(table="env.fit")
class FitConfig:
    """Training of hosts and seeds in each step."""

    optimizer: Literal["adam", "sgd"] = "adam"
    """sgd: with momentum 0.9. Each host and each seed has moments and a count of updates of its own."""
    updates: Count = 4
    """Optimizer updates of every host in one step."""
    batch_size: Annotated[int, Bounds(1, 1 << 16)] = 16
    """Images in one update of one host."""
    lr: Rate = 0.01
    """Learning rate of the host."""
    seed_lr: Rate = 0.01
    """Learning rate of the seeds."""
    spike: Annotated[float, Bounds(1, 1e6)] = 4.0
    """A host whose validation loss is above `spike` x the last good one + 1, or not finite, goes back to its last good
    weights with zero moments."""


@config(table="env.lifecycle")
class LifecycleConfig:
    """The choices of an agent, and the lengths of the stages."""

    alpha_targets: tuple[Annotated[float, Bounds(0, 1, above=True)], ...] = (0.5, 0.75, 1.0)
    """Shares of a seed that can be blended in, the choices of the head `alpha_target`. A new seed aims at the last."""
    tempos: tuple[Count, ...] = (1, 3, 6)
    """Steps of a ramp of alpha from 0 to 1, the choices of the head `tempo`."""
    embargo: Count = 3
    """Steps for which a pruned slot stays closed."""

    def __post_init__(self) -> None:
        """Check the numbers of choices: each is a head of the policy with as many outputs."""
        for name in ("alpha_targets", "tempos"):
            choices = len(getattr(self, name))
            require(
                1 <= choices <= MAXIMUM_CHOICES,
                f"env.lifecycle.{name}",
                getattr(self, name),
                f"1 to {MAXIMUM_CHOICES} numbers",
            )


@config(table="env.reward")
class GrowRewardConfig:
    """The reward of a step; accuracies are shares of the validation images, 0 to 1."""

    contribution: Weight = 0.05
    """Weight of each seed's contribution: accuracy with it minus accuracy without it, at most the host's gain since its
    germination and over hosts of its kind that were left alone."""
    rent: Weight = 0.002
    """Price of the weights of live seeds, as a multiple of the host's own."""
    churn: Weight = 0.01
    """Price of each germination and each pruning."""
    terminal: Weight = 4.0
    """Weight of the accuracy after the last step."""


REMOVED = {
    "env_states": "Environments are reset in place, as with `pooled`, since November 2026. Remove the line; "
    "benchmarks/flatwater/bench_hosts.py measures what `fresh` did."
}
"""Settings of earlier versions, with advice."""


@config(table="env", removed=REMOVED)
class GrowingConfig:
    """An episode of growing a network."""

    steps: Annotated[int, Bounds(1, 1 << 16)] = 30
    """Steps of an episode: some optimizer updates, a validation and one operation each."""
    history: Annotated[int, Bounds(1, 1 << 16)] = 4
    """Past validations that an observation shows."""
    host: HostConfig = field(default_factory=HostConfig)
    fit: FitConfig = field(default_factory=FitConfig)
    lifecycle: LifecycleConfig = field(default_factory=LifecycleConfig)
    reward: GrowRewardConfig = field(default_factory=GrowRewardConfig)
