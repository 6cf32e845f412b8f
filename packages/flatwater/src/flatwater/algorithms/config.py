"""The settings of every algorithm: the shared settings, and a table of its own for each.

They stand apart from the algorithms because the command line reads them, and must not wait for torch to be imported.
An algorithm of your own is named by where it is, and its settings stand in the table `own`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

from flatwater.config.code import Code
from flatwater.config.convert import did_you_mean
from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.named_imports import import_object
from flatwater.plugins import group_faults, group_rows
from flatwater_watch.errors import ConfigError, require
from flatwater_watch.options.bounds import Bounds, Count, Number, OptionalNumber, Rate, Weight
from flatwater_watch.options.declare import config, refuse_given_settings
from flatwater_watch.sanitize import short_repr

Noise = Annotated[float, Bounds(0, 100)]

PLACES = {
    "ddpg": "flatwater.algorithms.ddpg:DDPG",
    "td3": "flatwater.algorithms.ddpg:TD3",
    "sac": "flatwater.algorithms.sac:SAC",
    "dqn": "flatwater.algorithms.dqn:DQN",
}
"""Import path `package.module:NAME` of each `Algorithm`, by the name of the table that has its settings."""


def custom_algorithm_place(name: str) -> str:
    """Return the place `package.module:NAME` of an algorithm that Flatwater does not ship; empty for any other name.

    Args:
        name: a place, which is returned as it is, or the short name of an installed package's algorithm (`plugins.py`).
    """
    return name if ":" in name else str(group_rows("algorithms").get(name, ""))


class CheckedSettings:
    """Settings of one algorithm, whatever it learns from."""

    __slots__ = ()

    def check_together(self, table: str) -> None:
        """Refuse settings that are within their bounds and do not fit together. Here all fit; subclasses override it.

        Args:
            table: the dotted path of these settings, for messages.

        Raises:
            ConfigError: settings do not fit together; the message names one of them.
        """


@config(table="learner.own")
class Settings(CheckedSettings):
    """Settings that every algorithm has; each has a subclass of this class."""

    replays: ClassVar[bool] = True
    """Whether the algorithm learns from played transitions; False where a trader learns from the computed outcome of
    every purchase."""
    noisy: ClassVar[bool] = False
    """Whether noise is added to its actions in training."""

    updates: Count = 1
    """Updates of each member: in a round of traders, after each step in other environments."""
    batch_size: Count = 128
    """Transitions of each member in one micro-batch."""

    @property
    def updates_per_cycle(self) -> int:
        """Number of updates after which every part of an update has run once.

        It is more than 1 where a part is left out of some updates. A memory plan measures the last of these updates.
        """
        return 1

    @property
    def reward_steps(self) -> tuple[int, float]:
        """Number of rewards that are summed in a transition, and the discount of each step."""
        return 1, 1.0

    @property
    def duels(self) -> bool:
        """Whether networks of choices give the value of a state, and the advantage of each choice, apart."""
        return False


@config(table="learner.ddpg")
class DDPGConfig(Settings):
    """Learning from played transitions, with a critic: for environments that react."""

    noisy: ClassVar[bool] = True

    actor_lr: Rate = 5e-4
    """Learning rate of the actors (AdamW)."""
    critic_lr: Rate = 1e-3
    """Learning rate of the critics (AdamW)."""
    updates: Count = 64
    """Updates of each member in a round."""
    batch_size: Count = 32
    """Transitions of each member in one micro-batch."""
    gamma: Annotated[float, Bounds(0, 1, above=True)] = 0.99
    """A reward one step later counts this much."""
    tau: Annotated[float, Bounds(0, 1, above=True)] = 0.005
    """Share of the way that the target networks move to the online networks at each update."""
    noise: Noise = 0.125
    """Deviation of exploration noise at the start, of half the action's range."""
    noise_decay: Annotated[float, Bounds(0, 1, above=True)] = 0.99995
    """Factor on the exploration noise for each update."""
    noise_floor: Noise = 0.01
    """Exploration noise does not fall below this."""

    def check_together(self, table: str) -> None:
        """Refuse noise that begins below its floor."""
        floor = self.noise_floor
        require(self.noise >= floor, f"{table}.noise", self.noise, f"{table}.noise_floor ({floor}) or more")


@config(table="learner.td3")
class TD3Config(DDPGConfig):
    """TD3: the smaller of two critics, delayed actor updates, target policy smoothing."""

    critic_lr: Rate = 2e-3
    """Learning rate of the critics (AdamW)."""
    policy_delay: Number = 2
    """The actor and the targets move at every n-th update."""
    target_noise: Noise = 0.2
    """Deviation of the noise on the target's action, of half the action's range."""
    target_noise_clip: Noise = 0.5
    """Bound of that noise."""

    @property
    def updates_per_cycle(self) -> int:
        """Number of updates in which the actor moves once."""
        return self.policy_delay


@config(table="learner.sac")
class SACConfig(Settings):
    """Learning from played transitions with a random policy, a reward for its entropy, and two critics."""

    actor_lr: Rate = 1e-3
    """Learning rate of the actors (AdamW)."""
    critic_lr: Rate = 1e-3
    """Learning rate of the critics (AdamW)."""
    temperature_lr: Rate = 1e-3
    """Learning rate of each member's temperature (Adam)."""
    updates: Count = 64
    """Updates of each member in a round."""
    batch_size: Count = 32
    """Transitions of each member in one micro-batch."""
    gamma: Annotated[float, Bounds(0, 1, above=True)] = 0.99
    """A reward one step later counts this much."""
    tau: Annotated[float, Bounds(0, 1, above=True)] = 0.005
    """Share of the way that the target networks move to the online networks at each update."""
    temperature: Annotated[float, Bounds(0, 1e3, above=True)] = 1.0
    """Weight of the entropy at the start, in units of the reward; it is learned from there."""
    entropy: Annotated[float, Bounds(-100, 0.69)] = -1.0
    """Entropy wanted of each part of an action in [-1, 1]: 0.69 is uniform, -1 a deviation of 0.09."""


@config
class Ramp:
    """A number that changes in a straight line over the steps of a run, and stays where it ends."""

    first: Weight
    """Value until `begins`."""
    last: Weight
    """Value from `ends` on."""
    begins: OptionalNumber = 0
    """Steps of the whole run after which the change begins."""
    ends: OptionalNumber = 0
    """Steps of the whole run after which the change ends; not before `begins`."""

    def __post_init__(self) -> None:
        """Refuse an end before the beginning."""
        require(self.begins <= self.ends, "begins", self.begins, f"0 to {self.ends} (ends)")

    def scheduled_value(self, step: int) -> float:
        """Return the value after `step` steps: `first`, from `begins` to `ends` on a straight line, and then `last`."""
        if step >= self.ends:
            return self.last
        if step <= self.begins:
            return self.first
        share = (step - self.begins) / (self.ends - self.begins)
        return self.first + share * (self.last - self.first)


SLOWEST_TARGET = 1e-4
"""Least share of the way that a target of DQN moves for each update, where it is not copied."""


@config(table="learner.dqn")
class DQNConfig(Settings):
    """Learning from played transitions where an action is a choice from a list, by the values of all choices."""

    lr: Rate = 5e-4
    """Learning rate (AdamW)."""
    batch_size: Count = 64
    """Transitions of each member in one micro-batch."""
    gamma: Annotated[float, Bounds(0, 1, above=True)] = 0.99
    """A reward one step later counts this much."""
    double: bool = False
    """The network chooses the next action, and its target values it (van Hasselt et al. 2016); else the target does
    both."""
    duelling: bool = False
    """The network gives the value of a state and the advantage of each choice (Wang et al. 2016)."""
    n_steps: Count = 1
    """Rewards that are summed before a value is taken from the target."""
    tau: Annotated[float, Bounds(0, 1, above=True)] = 0.005
    """Share of the way that the target moves to the network each time; 1 copies it, as is usual with a `target_every`
    of hundreds or thousands."""
    target_every: Number = 1
    """The target moves at every n-th update."""
    epsilon: Ramp = Ramp(first=1.0, last=0.05, begins=0, ends=10_000)
    """Share of random actions while it learns, by the steps of each environment from the first update on."""

    @property
    def reward_steps(self) -> tuple[int, float]:
        """Number of rewards that are summed in a transition, and the discount of each step."""
        return self.n_steps, self.gamma

    @property
    def duels(self) -> bool:
        """Whether its networks give value and advantages apart."""
        return self.duelling

    def check_together(self, table: str) -> None:
        """Refuse a share of random actions outside of 0 to 1, and a target that would hardly move."""
        # A user who raises `target_every` alone expects a copy at every n-th update, as in other libraries, and a small
        # `tau` would hardly move the target.
        does_move = self.tau == 1 or self.tau >= SLOWEST_TARGET * self.target_every
        expected = f"1, which copies, with {table}.target_every = {self.target_every}"
        require(does_move, f"{table}.tau", self.tau, expected)
        for end in ("first", "last"):
            require(getattr(self.epsilon, end) <= 1, f"{table}.epsilon.{end}", getattr(self.epsilon, end), "0 to 1")


@dataclass(frozen=True, kw_only=True)  # without slots, as it is the first base of `OneAlgorithmConfig`s
class AlgorithmConfig:
    """How every member of a population learns. The settings of one algorithm stand in the table of its name.

    A trainer has a subclass of this class with a table for each algorithm that it offers.
    """

    places: ClassVar[Mapping[str, str]] = PLACES
    """Places of the algorithms that have a table of their own, by name."""

    algorithm: Annotated[str, Code()] = ""
    """The name of the table that counts."""
    weight_decay: Annotated[float, Bounds(0, 100)] = 5e-4
    """Decoupled: each step shrinks every weight by this share of the learning rate. 0 gives Adam."""
    grad_clip: Weight = 1.0
    """Largest gradient norm of one member's network; longer gradients are scaled down to it. 0 turns it off."""
    micro_batches: Count = 1
    """Batches whose gradients are averaged for one update: more of them need no more memory."""
    autocast: Literal["off", "bf16"] = "off"
    """bf16: forward and backward passes in bfloat16; weights, moments and losses stay in float32."""
    compile: bool | None = False
    """Compile the gradients: about half a minute at the start, then faster. Needs a C++ compiler."""

    @property
    def own(self) -> Any:  # noqa: ANN401  (of the algorithm's class)
        """The settings of the chosen algorithm."""
        return getattr(self, self.algorithm)

    @property
    def lr_course(self) -> tuple[str, int]:
        """Name of the schedule of all learning rates, and the updates that it runs over."""
        return "constant", 0

    @property
    def settings_field(self) -> str:
        """Name of the field that holds the chosen algorithm's settings."""
        return "own" if custom_algorithm_place(self.algorithm) else self.algorithm

    def with_algorithm_settings(self, **changes: Any) -> Self:  # noqa: ANN401  (fields of the algorithm's class)
        """Return the configuration with other settings of the chosen algorithm."""
        return replace(self, **{self.settings_field: replace(self.own, **changes)})

    @classmethod
    def __variant__(cls, given_settings: Mapping[str, Any]) -> "type[AlgorithmConfig]":
        """Return the class of which `given_settings` become an object: this one, or a subclass for a user's algorithm.

        The subclass has a table `own`, with the settings of that algorithm. `options.declare` calls this method before
        it reads the settings.
        """
        name = given_settings.get("algorithm", "")
        is_custom = isinstance(name, str) and bool(custom_algorithm_place(name))
        return cls.class_for_algorithm(name) if is_custom else cls

    @classmethod
    def class_for_algorithm(cls, name: str) -> "type[AlgorithmConfig]":
        """Return a subclass of this class for the user's algorithm `name`, whose settings are its field `own`.

        Args:
            name: `package.module:NAME`, or a name that an installed package has.

        Raises:
            ConfigError: `name` names no algorithm.
        """
        custom: type[AlgorithmConfig] = custom_algorithm_class(cls, name, "flatwater.algorithms.api:import_algorithm")
        return custom

    def with_algorithm(self, name: str) -> "AlgorithmConfig":
        """Return the configuration with the algorithm `name`, and the other settings that both algorithms read.

        A user's algorithm has its settings in a table `own`, for which the class of the configuration changes.

        Args:
            name: a shipped algorithm, a name that an installed package has, or `package.module:NAME`.

        Raises:
            ConfigError: `name` names no algorithm, or settings were given that the algorithm does not read.
        """
        is_custom, becomes_custom = bool(custom_algorithm_place(self.algorithm)), bool(custom_algorithm_place(name))
        if name == self.algorithm or not (is_custom or becomes_custom):
            return replace(self, algorithm=name)  # this class has a table for each shipped algorithm
        config_class = type(self)
        values = to_mapping(self) | {"algorithm": name}
        if is_custom:
            refuse_given_settings(self.own, "learner.own", f"with learner.algorithm = '{name}', which does not read it")
            # The first base class without `own`, because that table was made for the other algorithm.
            bases = config_class.__mro__[1:]
            config_class = next(cls for cls in bases if is_dataclass(cls) and issubclass(cls, AlgorithmConfig))
            values.pop("own")
        # `__variant__` adds the table `own` again if `name` needs it.
        return from_mapping(config_class, values, "the command line")

    def __post_init__(self) -> None:
        """Check that only the chosen algorithm's table was given, and that its settings fit together.

        Raises:
            ConfigError: another algorithm's table was given, or no algorithm of this name is known, or settings do not
                fit.
        """
        tables = [f.name for f in fields(self) if is_dataclass(getattr(self, f.name))]  # one for each algorithm
        if self.settings_field not in tables:
            raise unknown_algorithm(self.algorithm, tables)
        for name in tables:
            if name != self.settings_field:
                refuse_given_settings(
                    getattr(self, name),
                    f"learner.{name}",
                    f"with learner.algorithm = '{self.algorithm}', which does not read it. Choose learner.algorithm = "
                    f"'{name}', or leave it out",
                )
        self.own.check_together(f"learner.{self.settings_field}")


def unknown_algorithm(name: str, shipped_names: Sequence[str]) -> ConfigError:
    """Return the error for a name that stands for none of these algorithms, nor for one of an installed package."""
    names = [*shipped_names, *group_rows("algorithms")]
    quoted_names = ", ".join(f'"{known_name}"' for known_name in names)
    return ConfigError(
        f"learner.algorithm = {short_repr(name)}: expected one of {quoted_names}, or package.module:NAME of your "
        f"algorithm.{did_you_mean(name, names)}{group_faults('algorithms')}"
    )


def custom_algorithm_class(base_class: Any, name: str, finder_path: str) -> type[Any]:  # noqa: ANN401  (a class of settings)
    """Return a settings class derived from `base_class`, whose table `own` has the settings of the algorithm `name`.

    Args:
        base_class: class of the settings that all algorithms share.
        name: `package.module:NAME`, or a name that an installed package has.
        finder_path: import path of the function that takes an algorithm's import path and returns the algorithm. It is
            a text, because importing its module imports torch.

    Raises:
        ConfigError: `name` names no algorithm.
    """
    algorithm: Any = import_object(finder_path)(custom_algorithm_place(name))
    return _make_algorithm_class(base_class, name, algorithm.settings)


@cache
def _make_algorithm_class(base_class: Any, name: str, settings: Any) -> type[Any]:  # noqa: ANN401  (hashable, for the cache)
    """Return a subclass of `base_class` for one algorithm of the user's, with its settings in the field `own`.

    It is cached, because configurations of two such classes would never be equal.
    """

    def reduce_to_mapping(self: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        # Pickle cannot import a class that was made here, so it rebuilds a configuration from its settings.
        return from_mapping, (base_class, to_mapping(self), "a copy")

    # The class statement that a user would write: the base's names, the field `algorithm`, and the field `own`.
    body = {
        "__module__": base_class.__module__,
        "__qualname__": base_class.__qualname__,
        "__annotations__": {"algorithm": Annotated[str, Code()], "own": settings},
        "algorithm": name,
        "own": field(default_factory=settings),
        "__reduce__": reduce_to_mapping,
    }
    return config(table="learner")(type(base_class.__name__, (base_class,), body))
