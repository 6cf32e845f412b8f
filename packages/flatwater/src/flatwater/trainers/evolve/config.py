"""Settings of evolution in any environment, apart from its machine."""

from dataclasses import field
from typing import Annotated, Literal

from flatwater.algorithms.config import AlgorithmConfig, DDPGConfig, Noise, SACConfig, TD3Config
from flatwater.config.code import Code
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.evolution.config import EvolutionConfig
from flatwater.replay.config import ReplayConfig
from flatwater_watch.options.bounds import Bounds, Count, OptionalNumber, Rate, Seed, Share, Weight
from flatwater_watch.options.declare import config


@config(table="population")
class PoliciesConfig:
    """The policies that evolve together, and where they play."""

    size: Annotated[int, Bounds(2, 1 << 16)] = 4
    """Members. The champion is kept beside them in a slot of its own."""
    envs: Annotated[int, Bounds(1, 1 << 16)] = 1
    """Environments of each member: it plays in all of them side by side."""


@config(table="evaluation")
class EpisodesConfig:
    """Episodes without noise, on seeds that are drawn anew in each generation: all members play the same ones."""

    episodes: Annotated[int, Bounds(1, 1 << 16)] = 4
    """Episodes of every member and of the champion. Fitness is their mean return."""


@config(table="wrapped")
class VectorsConfig(WrappedConfig):
    """Copies of an environment that Gymnasium or PettingZoo names, or of a class of yours."""

    steps: OptionalNumber = 0
    form: Literal["vector"] = "vector"
    """Observations are vectors: all numbers in a row."""


@config(table="net")
class LayersConfig:
    """Actor and critic of one member: layers of ReLU."""

    hidden: Annotated[int, Bounds(1, 1 << 16)] = 64
    """Width of each hidden layer."""
    layers: Annotated[int, Bounds(1, 64)] = 2
    """Hidden layers."""


@config(table="learner.ddpg")
class PolicyDDPGConfig(DDPGConfig):
    """Deterministic policies and one critic each."""

    actor_lr: Rate = 1e-3
    updates: Count = 1
    """Updates of each member after each step of its environments."""
    batch_size: Count = 128
    noise: Noise = 0.1
    noise_decay: Annotated[float, Bounds(0, 1, above=True)] = 1.0


@config(table="learner.td3")
class PolicyTD3Config(TD3Config):
    """TD3: the smaller of two critics, delayed actor updates, target policy smoothing."""

    actor_lr: Rate = 1e-3
    critic_lr: Rate = 1e-3
    updates: Count = 1
    """Updates of each member after each step of its environments."""
    batch_size: Count = 128
    noise: Noise = 0.1
    noise_decay: Annotated[float, Bounds(0, 1, above=True)] = 1.0


@config(table="learner.sac")
class PolicySACConfig(SACConfig):
    """Random policies with a reward for their entropy, and two critics each."""

    updates: Count = 1
    """Updates of each member after each step of its environments."""
    batch_size: Count = 128


@config(table="learner")
class PolicyLearnerConfig(AlgorithmConfig):
    """How every member learns. The settings of an algorithm are in the table of its name."""

    algorithm: Annotated[str, Code()] = "td3"
    """ddpg, td3, sac: all learn from the transitions of the whole population, with critics of their own.
    package.module:NAME: an algorithm of yours, with its settings in the table `own`."""
    weight_decay: Annotated[float, Bounds(0, 100)] = 0.0
    grad_clip: Weight = 0.0
    ddpg: PolicyDDPGConfig = field(default_factory=PolicyDDPGConfig)
    td3: PolicyTD3Config = field(default_factory=PolicyTD3Config)
    sac: PolicySACConfig = field(default_factory=PolicySACConfig)


@config(table="replay")
class SharedReplayConfig(ReplayConfig):
    """One replay shared by the whole population."""

    capacity: Annotated[int, Bounds(1, 1 << 40)] = 200_000


@config(table="evolution")
class PolicyEvolutionConfig(EvolutionConfig):
    """Shares of the population and the size of random changes. Elites survive; the others are written over."""

    elite_share: Annotated[float, Bounds(0, 1, above=True)] = 0.75
    offspring_share: Share = 0.0
    mutation_rate: Share = 0.1
    mutation_deviation: Weight = 0.01
    mutation_rate_max: Share = 0.2
    mutation_deviation_max: Weight = 0.02


@config
class EvolveConfig:
    """A population that plays, learns from the transitions of all members, and is selected by its returns."""

    seed: Seed = 0
    """Every random number of the run follows from it."""
    steps: Count = 1000
    """Steps of every environment in a generation; members learn after each of them."""
    allow_nan: bool = False
    """Train on although an environment gives NaN or infinity. Left out: that ends the run, and names the environment,
    the step and the number."""
    population: PoliciesConfig = field(default_factory=PoliciesConfig)
    evaluation: EpisodesConfig = field(default_factory=EpisodesConfig)
    wrapped: VectorsConfig = field(default_factory=VectorsConfig)
    net: LayersConfig = field(default_factory=LayersConfig)
    learner: PolicyLearnerConfig = field(default_factory=PolicyLearnerConfig)
    replay: SharedReplayConfig = field(default_factory=SharedReplayConfig)
    evolution: PolicyEvolutionConfig = field(default_factory=PolicyEvolutionConfig)
