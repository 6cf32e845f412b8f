"""Settings of policies that learn from blocks of steps: the learner, its possible worlds, evaluation, opponents."""

from dataclasses import field
from typing import Annotated, Literal

from flatwater.algorithms.on_policy_config import BlockConfig, BlockLearnerConfig
from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.nets.config import ActorCriticConfig
from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Bounds, Count, Number, Seed
from flatwater_watch.options.declare import config


@config(table="evaluation")
class EvaluationConfig:
    """Episodes on seeds that are never trained on, the same for all players."""

    envs: Annotated[int, Bounds(1, 1 << 16)] = 8
    """Environments of the world that they are played in, one episode of each."""
    every: Number = 10
    """The policy is evaluated in every n-th round."""


@config
class BlocksConfig:
    """A policy and a critic that learn from blocks of steps of many agents."""

    seed: Seed = 0
    """Every random number of the run follows from it."""
    envs: Annotated[int, Bounds(1, 1 << 16)] = 8
    """Environments that are stepped side by side."""
    block: Count = 128
    """Steps of every environment in a round; the policy learns from them. A multiple of `learner.unroll`."""
    rewards: Literal["plain", "normalised"] = "plain"
    """Rewards that the learner reads. plain: those of the environment. normalised: divided by the deviation of
    discounted returns so far, at most 10. Returns are told as the environment pays them."""
    allow_nan: bool = False
    """Train on although an environment gives NaN or infinity. Left out: that ends the run, and names the environment,
    the step and the number."""
    # The run's `env`, or the `world` of `teach`, says which of these two is used.
    foraging: ForagingConfig = field(default_factory=ForagingConfig)
    wrapped: WrappedConfig = field(default_factory=WrappedConfig)
    policy: ActorCriticConfig = field(default_factory=ActorCriticConfig)
    learner: BlockLearnerConfig = field(default_factory=BlockConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        """Refuse a block that is not cut into whole sequences."""
        unroll = self.learner.unroll
        require(self.block % unroll == 0, "block", self.block, f"a multiple of learner.unroll ({unroll})")


@config(table="opponents")
class OpponentsConfig:
    """Opponents in games in turns: earlier policies of the run, and random play. Other environments have none."""

    policies: Annotated[int, Bounds(2, 1 << 10)] = 4
    """Earlier policies that are kept: the first for good, the others until newer ones take their places."""
    every: Number = 10
    """Rounds after which the present policy becomes one of them. Before the first, opponents act at random."""
