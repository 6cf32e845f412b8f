"""What an episode of growing networks is: hosts, training, lifecycle and what is paid."""

from dataclasses import field
from typing import Literal

from flatwater.config.declare import config
from flatwater.errors import require


@config
class HostConfig:
    """The networks that are grown."""

    kind: Literal["conv", "mlp"] = "conv"
    """conv: three convolutional blocks. mlp: three dense ones, cheaper and with less to gain from seeds."""
    channels: tuple[int, int, int] = (4, 8, 16)
    """conv: channels after each block, even. (66, 132, 264) makes a host with its seeds 1.2 million weights."""
    hidden: tuple[int, int, int] = (24, 24, 24)
    """mlp: width of each block."""
    rank: int = 4
    """mlp: rank of a low-rank seed."""
    impaired: Literal["odd", "all", "none"] = "odd"
    """conv: which hosts see single pixels only (3 x 3 kernels cut to their centre): those of odd env seeds, all, or
    none. What is worth growing differs between the two kinds, and the agent is not told which it has."""

    def __post_init__(self) -> None:
        channels = self.channels
        require(min(channels) > 0 and not any(c % 2 for c in channels), "env.host.channels", channels, "even, positive")
        require(min(self.hidden) >= 1, "env.host.hidden", self.hidden, "positive")
        require(1 <= self.rank <= min(self.hidden), "env.host.rank", self.rank, "1 to the narrowest of env.host.hidden")


@config
class FitConfig:
    """How hosts and seeds are trained in each step."""

    optimizer: Literal["adam", "sgd"] = "adam"
    """sgd: with momentum 0.9. Each host and each seed has moments and a count of updates of its own."""
    updates: int = 4
    """Optimizer updates of every host in one step."""
    batch_size: int = 16
    """Images in one update of one host."""
    lr: float = 0.01
    """Learning rate of the host."""
    seed_lr: float = 0.01
    """Learning rate of the seeds."""
    spike: float = 4.0
    """A host whose validation loss is above `spike` x the last good one + 1, or not finite, goes back to its last good
    weights with zero moments."""

    def __post_init__(self) -> None:
        require(self.updates >= 1, "env.fit.updates", self.updates, "1 or more")
        require(self.batch_size >= 1, "env.fit.batch_size", self.batch_size, "1 or more")
        require(self.lr > 0, "env.fit.lr", self.lr, "positive")
        require(self.seed_lr > 0, "env.fit.seed_lr", self.seed_lr, "positive")
        require(self.spike >= 1, "env.fit.spike", self.spike, "1 or more")


@config
class LifecycleConfig:
    """What an agent can choose, and how long the stages last."""

    alpha_targets: tuple[float, ...] = (0.5, 0.75, 1.0)
    """How much of a seed is blended in, the choices of the head `alpha_target`. A new seed aims at the last."""
    tempos: tuple[int, ...] = (1, 3, 6)
    """Steps of a ramp of alpha from 0 to 1, the choices of the head `tempo`."""
    embargo: int = 3
    """Steps for which a pruned slot stays closed."""

    def __post_init__(self) -> None:
        targets = self.alpha_targets
        require(
            bool(targets) and all(0 < a <= 1 for a in targets),
            "env.lifecycle.alpha_targets",
            targets,
            "above 0, up to 1",
        )
        require(bool(self.tempos) and min(self.tempos) >= 1, "env.lifecycle.tempos", self.tempos, "1 step or more each")
        require(self.embargo >= 1, "env.lifecycle.embargo", self.embargo, "1 step or more")


@config
class GrowRewardConfig:
    """What is paid in a step; accuracies are shares of the validation images, 0 to 1."""

    contribution: float = 0.05
    """For each seed: accuracy with it minus accuracy without it, at most what the host gained since its germination."""
    rent: float = 0.002
    """Taken for the weights of live seeds, as a multiple of the host's own."""
    churn: float = 0.01
    """Taken for each germination and each pruning."""
    terminal: float = 4.0
    """For the accuracy after the last step."""

    def __post_init__(self) -> None:
        for name in ("contribution", "rent", "churn", "terminal"):
            require(getattr(self, name) >= 0, f"env.reward.{name}", getattr(self, name), "0 or more")


@config
class GrowingConfig:
    """An episode of growing a network."""

    env_states: Literal["pooled", "fresh"] = "pooled"
    """pooled: envs are built once and reset in place. fresh: built anew for every batch, as many programs do; the same
    numbers, with two generations in memory while the one follows the other."""
    steps: int = 30
    """Steps of an episode: some optimizer updates, a validation and one operation each."""
    history: int = 4
    """Past validations that an observation shows."""
    host: HostConfig = field(default_factory=HostConfig)
    fit: FitConfig = field(default_factory=FitConfig)
    lifecycle: LifecycleConfig = field(default_factory=LifecycleConfig)
    reward: GrowRewardConfig = field(default_factory=GrowRewardConfig)

    def __post_init__(self) -> None:
        require(self.steps >= 1, "env.steps", self.steps, "1 or more")
        require(self.history >= 1, "env.history", self.history, "1 or more")

    @property
    def slots(self) -> int:
        """Slots of a host, one after each block."""
        return len(self.host.channels)
