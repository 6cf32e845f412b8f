"""Settings of a run of growing networks, apart from its data and its machine."""

from dataclasses import field
from typing import Annotated

from flatwater.algorithms.on_policy_config import EpisodeConfig
from flatwater.cluster.work_division import Span, split_spans
from flatwater.config.code import Code
from flatwater.envs.growing.config import GrowingConfig, HostConfig
from flatwater.envs.growing.spaces import Operation
from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Bounds, Count, Number, Seed
from flatwater_watch.options.declare import config

Odds = Annotated[float, Bounds(0, 1e6, above=True)]


@config(table="policy")
class GrowPolicyConfig:
    """Actor and critic of one agent that remembers: an encoder, an LSTM, and two heads."""

    hidden: Annotated[int, Bounds(1, 1 << 16)] = 64
    """Width of the layer that reads an observation."""
    memory: Annotated[int, Bounds(1, 1 << 16)] = 64
    """Cells of the LSTM."""
    floor: Annotated[float, Bounds(0, 1, below=True)] = 0.05
    """Share of operations that are drawn uniformly among legal operations while learning, so that none dies out."""
    prior: tuple[Odds, ...] = (1.0, 1.0, 1.0, 0.2, 1.0, 0.05)
    """Relative frequency of each legal operation in the first policy: wait, germinate, advance, set the alpha target,
    fossilise, prune. Learning moves it. Were all alike, a seed would hardly ever live until it helps."""


@config(table="evaluation")
class HeldOutConfig:
    """Episodes on seeds that are never trained on, the same for the policy and its baselines."""

    episodes: Count = 16
    """Episodes of one evaluation, at least: the pool of `envs` plays them in full turns, between two rounds."""
    every: Number = 10
    """The policy is evaluated in every n-th round."""


SHIPPED_ONLY = ("kind", "channels", "hidden", "impaired")
"""Settings of `env.host` that apply to shipped hosts alone."""


@config
class GrowConfig:
    """PPO that decides where and when networks grow."""

    seed: Seed = 0
    """Every random number of the run follows from it."""
    envs: Count = 16
    """Hosts that are trained side by side; a round is one episode of each."""
    group: Count = 16
    """Environments that are computed at once, however many there are: a worker takes whole groups, so the run is the
    same on any number of workers. Another group size changes last bits; small groups take more time each."""
    task: Annotated[str, Code()] = "digits"
    """Task of the hosts: digits, those of scikit-learn, or package.module:function of yours, which returns images
    [N, C, H, W] or vectors [N, D] and their classes [N]. Sizes follow from it."""
    host: Annotated[str | None, Code()] = None
    """Class of the hosts: package.module:Class of yours, a torch.nn.Module made from (channels, height, width, classes)
    whose `slots` name the submodules that seeds grow behind. Left out: the hosts of env.host."""
    env: GrowingConfig = field(default_factory=GrowingConfig)
    policy: GrowPolicyConfig = field(default_factory=GrowPolicyConfig)
    learner: EpisodeConfig = field(default_factory=EpisodeConfig)
    evaluation: HeldOutConfig = field(default_factory=HeldOutConfig)

    def __post_init__(self) -> None:
        """Check the number of minibatches and the prior, and refuse settings of shipped hosts next to a user's host."""
        minibatches = self.learner.minibatches
        require(self.envs % minibatches == 0, "envs", self.envs, f"a multiple of learner.minibatches ({minibatches})")
        for name in SHIPPED_ONLY if self.host is not None else ():
            value, default = getattr(self.env.host, name), getattr(HostConfig(), name)
            require(
                value == default,
                f"env.host.{name}",
                value,
                f"its default ({default}): it does not apply to host {self.host}",
            )
        prior = self.policy.prior
        require(
            len(prior) == len(Operation), "policy.prior", prior, f"{len(Operation)} numbers, one for each operation"
        )

    @property
    def groups(self) -> list[Span]:
        """First environment and end of each group."""
        return split_spans(self.envs, self.group)

    @property
    def evaluation_passes(self) -> int:
        """Number of turns of the pool in one evaluation."""
        return -(-self.evaluation.episodes // self.envs)  # `-(-a // b)` divides and rounds up
