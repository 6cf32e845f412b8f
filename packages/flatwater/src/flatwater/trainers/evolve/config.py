"""Settings of evolution in any environment, apart from its machine."""

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self

from flatwater.algorithms.config import AlgorithmConfig, DDPGConfig, DQNConfig, Noise, SACConfig, Settings, TD3Config
from flatwater.config.code import Code
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.evolution.config import EvolutionConfig
from flatwater.replay.config import ReplayConfig
from flatwater_watch.options.bounds import Bounds, Count, OptionalNumber, Rate, Seed, Share, Weight
from flatwater_watch.options.declare import config


@config(table="population")
class PopulationConfig:
    """The policies that evolve together, and where they play."""

    size: Annotated[int, Bounds(1, 1 << 16)] = 4
    """Members. The champion is kept next to them in a slot of its own; one member has none, and does not evolve."""
    envs: Annotated[int, Bounds(1, 1 << 16)] = 1
    """Environments of each member: it plays in all of them side by side."""

    @property
    def evolves(self) -> bool:
        """Whether there are several members, and a champion."""
        return self.size > 1

    @property
    def players(self) -> int:
        """Number of evaluated policies: the members, and the champion if there is one."""
        return self.size + self.evolves


@config(table="evaluation")
class EvaluationConfig:
    """Episodes without noise, on seeds that are drawn in each generation: all members play the same seeds."""

    episodes: Annotated[int, Bounds(1, 1 << 16)] = 4
    """Episodes of every member and of the champion. Fitness is their mean return."""


@config(table="wrapped")
class EnvCopiesConfig(WrappedConfig):
    """Copies of an environment that Gymnasium or PettingZoo names, or of a class of yours."""

    steps: OptionalNumber = 0  # the environment's own limit
    form: Literal["auto", "vector"] = "auto"
    """Form of observations. auto: images of uint8 or bool as images where an action is a choice, all else as a vector.
    vector: all numbers in a row."""


@config(table="net")
class NetworkConfig:
    """Actor and critic of one member: layers of ReLU."""

    hidden: Annotated[int, Bounds(1, 1 << 16)] = 64
    """Width of each hidden layer."""
    layers: Annotated[int, Bounds(1, 64)] = 2
    """Hidden layers."""
    network: Literal["nature", "impala"] = "nature"
    """Network that reads images, before these layers."""


@config(table="learner.own")
class UpdatesConfig(Settings):
    """How often a member learns that steps environments, and from how much."""

    updates: Count = 1
    """Updates of each member after every `train_every` steps of its environments."""
    batch_size: Count = 128


@config(table="learner.ddpg")
class PolicyDDPGConfig(UpdatesConfig, DDPGConfig):
    """Deterministic policies and one critic each."""

    actor_lr: Rate = 1e-3
    noise: Noise = 0.1
    noise_decay: Annotated[float, Bounds(0, 1, above=True)] = 1.0


@config(table="learner.td3")
class PolicyTD3Config(PolicyDDPGConfig, TD3Config):
    """TD3: the smaller of two critics, delayed actor updates, target policy smoothing."""

    critic_lr: Rate = 1e-3


@config(table="learner.sac")
class PolicySACConfig(UpdatesConfig, SACConfig):
    """Random policies with a reward for their entropy, and two critics each."""

    choice_entropy: Share = 0.5
    """Entropy wanted where an action is a choice from a list, as a share of a uniform choice's entropy. `entropy` is
    for numbers."""


@config(table="learner.dqn")
class PolicyDQNConfig(UpdatesConfig, DQNConfig):
    """Deep Q-learning, where an action is a choice from a list."""


@dataclass(frozen=True, kw_only=True)  # without slots, as in `AlgorithmConfig`
class MemberLearnerConfig(AlgorithmConfig):
    """How every member learns, whatever the algorithm."""

    weight_decay: Annotated[float, Bounds(0, 100)] = 0.0
    grad_clip: Weight = 0.0
    train_every: Count = 1
    """Steps of every environment between updates: after each n-th there are as many as `updates` says."""
    lr_schedule: Annotated[str, Code()] = "constant"
    """Course of all learning rates over the run: constant, linear (down to 0), cosine (the same, in half a wave), or
    package.module:function of yours, which gives a factor for the progress from 0 to 1."""
    compile: bool | None = None
    """Compile the gradients: about ten seconds at the start, then a quarter to a third faster. Needs a C++ compiler.
    Left out: a new run on a CPU that is long enough to gain is compiled, of vectors, without autocast and with an
    algorithm that comes with Flatwater; other runs are not. A run that is resumed keeps what it began with."""
    schedule_updates: OptionalNumber = 0
    """Updates over which the schedule runs; then rates stay. 0: those of the rounds that the run is begun with."""

    @property
    def lr_course(self) -> tuple[str, int]:
        """Name of the schedule of all learning rates, and the updates that it runs over."""
        return self.lr_schedule, self.schedule_updates

    def for_updates(self, updates: int) -> Self:
        """Return the settings for a run of `updates` updates, by which the schedule knows its end."""
        needs_length = self.lr_schedule != "constant" and not self.schedule_updates
        return replace(self, schedule_updates=updates) if needs_length else self


@config(table="learner")
class PolicyLearnerConfig(MemberLearnerConfig):
    """How every member learns. The settings of an algorithm are in the table of its name."""

    algorithm: Annotated[str, Code()] = "td3"
    """ddpg, td3, sac where actions are numbers, dqn and sac where they are a choice from a list: all learn from the
    transitions of the whole population, with critics of their own.
    package.module:NAME: an algorithm of yours, with its settings in the table `own`."""
    ddpg: PolicyDDPGConfig = field(default_factory=PolicyDDPGConfig)
    td3: PolicyTD3Config = field(default_factory=PolicyTD3Config)
    sac: PolicySACConfig = field(default_factory=PolicySACConfig)
    dqn: PolicyDQNConfig = field(default_factory=PolicyDQNConfig)


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

    measure: ClassVar[str] = "champion/return"
    """Metric of the return without noise of the trained player: the champion, or the single agent."""

    seed: Seed = 0
    """Every random number of the run follows from it."""
    steps: Count = 1000
    """Steps of every environment in a generation; members learn after each of them."""
    allow_nan: bool = False
    """Train on although an environment gives NaN or infinity. Left out: that ends the run, and names the environment,
    the step and the number."""
    population: PopulationConfig = field(default_factory=PopulationConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    wrapped: EnvCopiesConfig = field(default_factory=EnvCopiesConfig)
    net: NetworkConfig = field(default_factory=NetworkConfig)
    learner: MemberLearnerConfig
    replay: SharedReplayConfig = field(default_factory=SharedReplayConfig)
    evolution: PolicyEvolutionConfig = field(default_factory=PolicyEvolutionConfig)
