"""The recipes `sac`, `td3`, `ddpg` and `dqn`: one agent of one algorithm, with the settings that the field starts from.

They are `evolve` with other defaults, on the same trainer; `--population.size N` evolves N of them. Defaults are those
of Stable-Baselines3, where nothing else is said. Rate, batch and target of DQN were chosen on CartPole and Acrobot:
with those of the library, which are for images, the first is not learnt in 25,000 steps, and the second not in 50,000
(`benchmarks/notes/training.md`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from flatwater.algorithms.config import AlgorithmConfig
from flatwater.config.code import EnvName
from flatwater.metrics.short_numbers import format_whole, short_seconds
from flatwater.metrics.table_layout import BUFFER_COLUMN, SECONDS_COLUMN, Column, TableLayout
from flatwater.recipe import Headline, Recipe
from flatwater.recipes.evolve.config import MembersRunConfig
from flatwater.recipes.evolve.recipe import EVOLVE
from flatwater.runs.config import PresetSettings
from flatwater.trainers.evolve.config import (
    MemberLearnerConfig,
    NetworkConfig,
    PolicyDDPGConfig,
    PolicyDQNConfig,
    PolicySACConfig,
    PolicyTD3Config,
    PopulationConfig,
    SharedReplayConfig,
)
from flatwater_watch.errors import ConfigError
from flatwater_watch.options.bounds import Bounds, Count, Number, Rate, Weight
from flatwater_watch.options.declare import config
from flatwater_watch.sanitize import short_repr


@config(table="population")
class AgentsConfig(PopulationConfig):
    """One agent, or a population of them that evolves."""

    size: Annotated[int, Bounds(1, 1 << 16)] = 1
    """Agents. Several learn from the transitions of all, are selected by their returns, and keep a champion."""


@config(table="net")
class WideConfig(NetworkConfig):
    """Actor and critic of one agent: layers of ReLU."""

    hidden: Annotated[int, Bounds(1, 1 << 16)] = 256


@config(table="replay")
class LargeReplayConfig(SharedReplayConfig):
    """One replay, shared by all agents."""

    warmup: Number = 100
    capacity: Annotated[int, Bounds(1, 1 << 40)] = 1_000_000


@dataclass(frozen=True, kw_only=True)  # without slots, as in `AlgorithmConfig`
class OneAlgorithmConfig(MemberLearnerConfig):
    """How the members of a recipe with one algorithm learn: its settings stand next to the shared settings.

    A recipe has a subclass of this class and of the algorithm's settings, whose `algorithm` has one value.
    """

    @property
    def own(self) -> Self:
        """The settings of the algorithm, which are these."""
        return self

    def with_algorithm(self, name: str) -> "AlgorithmConfig":
        """Refuse another algorithm.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"learner.algorithm = {short_repr(name)}: this recipe trains {self.algorithm} alone. Use `flatwater train "
            "evolve`, which trains any"
        )

    @classmethod
    def __variant__(cls, _given: Mapping[str, Any]) -> "type[AlgorithmConfig]":
        """Return this class: no setting asks for another."""
        return cls

    def __post_init__(self) -> None:
        """Check that the settings fit together, by the check of the algorithm's settings, which subclasses inherit."""
        settings: Any = self
        settings.check_together("learner")


@config(table="learner")
class SacConfig(OneAlgorithmConfig, PolicySACConfig):
    """Soft Actor-Critic: a random policy with a reward for its entropy, and two critics."""

    algorithm: Literal["sac"] = "sac"
    """The algorithm of this recipe."""
    actor_lr: Rate = 3e-4
    critic_lr: Rate = 3e-4
    temperature_lr: Rate = 3e-4
    batch_size: Count = 256


@config(table="learner")
class DdpgConfig(OneAlgorithmConfig, PolicyDDPGConfig):
    """DDPG: a deterministic policy and one critic."""

    algorithm: Literal["ddpg"] = "ddpg"
    """The algorithm of this recipe."""
    batch_size: Count = 256


@config(table="learner")
class Td3Config(OneAlgorithmConfig, PolicyTD3Config):
    """TD3: the smaller of two critics, delayed actor updates, target policy smoothing."""

    algorithm: Literal["td3"] = "td3"
    """The algorithm of this recipe."""
    batch_size: Count = 256


@config(table="learner")
class DqnConfig(OneAlgorithmConfig, PolicyDQNConfig):
    """Deep Q-learning, with the parts of Rainbow as switches."""

    algorithm: Literal["dqn"] = "dqn"
    """The algorithm of this recipe."""
    batch_size: Count = 64
    train_every: Count = 4
    grad_clip: Weight = 10.0


@config
class AgentRunConfig(MembersRunConfig, PresetSettings):
    """One agent in an environment, or several that evolve."""

    player: ClassVar[str] = "policy"
    measure: ClassVar[str] = "evaluation/policy"
    rounds: Number = 20
    """Rounds in all, with an evaluation after each; `flatwater resume RUN --rounds N` goes on to N."""
    steps: Count = 1000
    """Steps of every environment in a round."""
    population: AgentsConfig = field(default_factory=AgentsConfig)
    replay: LargeReplayConfig = field(default_factory=LargeReplayConfig)


@config
class NumbersRunConfig(AgentRunConfig):
    """One agent whose actions are numbers."""

    net: WideConfig = field(default_factory=WideConfig)


@config
class SacRunConfig(NumbersRunConfig):
    """An agent of Soft Actor-Critic."""

    trainer: Literal["sac"] = "sac"
    env: EnvName = "Pendulum-v1"
    """An ID of Gymnasium, or package.module:Class: a Gymnasium environment or a world of yours. Actions are numbers
    within bounds, or an action is a choice from a list."""
    learner: SacConfig = field(default_factory=SacConfig)


@config
class Td3RunConfig(NumbersRunConfig):
    """An agent of TD3."""

    trainer: Literal["td3"] = "td3"
    learner: Td3Config = field(default_factory=Td3Config)


@config
class DdpgRunConfig(NumbersRunConfig):
    """An agent of DDPG."""

    trainer: Literal["ddpg"] = "ddpg"
    learner: DdpgConfig = field(default_factory=DdpgConfig)


@config
class DqnRunConfig(AgentRunConfig):
    """An agent of DQN."""

    trainer: Literal["dqn"] = "dqn"
    steps: Count = 2500
    """Steps of every environment in a round."""
    env: EnvName = "CartPole-v1"
    """An ID of Gymnasium, or package.module:Class: a Gymnasium environment or a world of yours. An action is a choice
    from a list."""
    learner: DqnConfig = field(default_factory=DqnConfig)


LAYOUT = TableLayout(
    round="round",
    short_title="round",
    columns=(
        Column("return", "train", 8, "return/mean"),
        Column("return", "policy", 8, "evaluation/policy"),
        Column("", "critic", 8, "train/critic_loss"),
        Column("", "q", 8, "train/q"),
        Column("", "steps", 9, "transitions", format_whole),
        Column("seconds", "train", 6, "time/train", short_seconds),
        Column("seconds", "eval", 5, "time/evaluate", short_seconds),
        SECONDS_COLUMN,
    ),
    dispensable=frozenset({"critic", "q"}),
    live_columns=(Column("", "transitions", 9, "transitions", format_whole), BUFFER_COLUMN),
)


def _agent_recipe(config: type[AgentRunConfig], summary: str) -> Recipe:
    """Return the recipe of an agent with these settings; `summary` begins its help."""
    return replace(
        EVOLVE,
        config=config,
        guide=f"""{summary}, in constant memory.

    --env takes any environment of Gymnasium by its name, and your class as package.module:Class.
    `--population.size N` evolves N agents, which learn from the transitions of all. `--preset zoo` takes the settings
    of RL Baselines3 Zoo for the environment.
    """,
        layout=LAYOUT,
        curves={"return, training": "return/mean", "held out": AgentRunConfig.measure},
        trained=AgentRunConfig.player,
        headline=Headline(
            title="policy's return", key="return", form="{:.2f}", against="random", comparison_form="{} by chance"
        ),
    )


SAC = _agent_recipe(
    SacRunConfig, "Train an agent by Soft Actor-Critic, where actions are numbers or a choice from a list"
)
TD3 = _agent_recipe(Td3RunConfig, "Train an agent by TD3, where actions are numbers")
DDPG = _agent_recipe(DdpgRunConfig, "Train an agent by DDPG, where actions are numbers")
DQN = _agent_recipe(DqnRunConfig, "Train an agent by deep Q-learning, where an action is a choice from a list")
