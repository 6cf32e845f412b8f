"""The settings of algorithms that learn from blocks of steps (`ppo`, `teach`, `grow`), which are PPO's own.

They stand apart from the algorithms for the reason that `config.py` gives. A learner's settings are of two kinds: those
that every algorithm of this kind is given, and the settings of one algorithm, which are its property `own`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from flatwater.algorithms.config import (
    CheckedSettings,
    Ramp,
    custom_algorithm_class,
    custom_algorithm_place,
    unknown_algorithm,
)
from flatwater.config.code import Code
from flatwater.user_code import is_flatwater_module
from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Bounds, Count, OptionalNumber, Rate, Share, Weight
from flatwater_watch.options.declare import config, refuse_given_settings

Passes = Annotated[int, Bounds(0, 1 << 20)]
"""A number of epochs or minibatches; 0 leaves the choice to the recipe, which knows the observations."""


@config(table="learner.own")
class OnPolicySettings(CheckedSettings):
    """Settings that every algorithm has that learns from blocks of steps; each has a subclass of this class."""

    gamma: Share = 0.99
    """A reward one step later counts this much."""
    lam: Share = 0.95
    """Generalised advantage: 0 trusts the critic after one step, 1 sums all rewards of the block."""
    epochs: Count = 1
    """Times that each block is learned from."""
    minibatches: Count = 1
    """Minibatches of sequences of all agents, drawn again in each epoch, with one update each."""
    lr: Rate = 1e-3
    """Learning rate (Adam)."""


@dataclass(frozen=True, kw_only=True)  # without slots, as it is the first base of `PPOConfig`
class OnPolicyConfig:
    """How a policy learns from blocks of steps, whatever the algorithm."""

    scheduled: ClassVar[Mapping[str, str]] = {"lr": "lr_schedule"}
    """Settings of the algorithm that may have a schedule, and the settings of this class that name it."""

    grad_clip: Weight = 0.5
    """Largest norm of a gradient; a longer gradient is scaled down to it. 0 turns it off."""
    lr_schedule: Annotated[str, Code()] = "constant"
    """Course of the learning rate over the run: constant, linear (down to 0), cosine (the same, in half a wave), or
    package.module:function of yours, which gives a factor for the progress from 0 to 1."""
    schedule_rounds: OptionalNumber = 0
    """Rounds over which schedules run; after them values stay. 0: the rounds that the run is begun with."""
    target_kl: Weight = 0.0
    """A round's updates end when the policy has moved on by 1.5 times this (`approx_kl` of the next minibatch), as
    in Stable-Baselines3. 0 turns it off."""
    autocast: Literal["off", "bf16"] = "off"
    """bf16: passes in bfloat16, to act and to learn; weights, moments and losses stay in float32."""
    compile: bool | None = None
    """Compile the step of the policy, the loss and its gradient by torch's compiler: slow at the start, by minutes
    where the sequences of a policy with a memory are long, then faster. Needs a C++ compiler. Left out: a new run that
    is long enough to gain is compiled, of a policy without a memory and without images or a module of yours; other
    runs are not. A run that is resumed keeps what it began with."""

    @property
    def own(self) -> Any:  # noqa: ANN401  (of the algorithm's class)
        """The settings of the algorithm."""
        raise NotImplementedError

    @property
    def place(self) -> str:
        """Place `package.module:NAME` of the algorithm."""
        raise NotImplementedError

    @property
    def table(self) -> str:
        """Path of the table that has the algorithm's settings, for messages."""
        return "learner"

    @property
    def is_shipped(self) -> bool:
        """Whether the algorithm comes with Flatwater."""
        return is_flatwater_module(self.place)

    def for_rounds(self, rounds: int) -> Self:
        """Return the settings with schedules that end after `rounds` rounds, unless the user gave `schedule_rounds`.

        The number is kept with the settings, so a resumed run's schedules end where the first run's would have.
        """
        schedule_names = {getattr(self, field_name) for field_name in self.scheduled.values()}
        if schedule_names == {"constant"} or self.schedule_rounds:
            return self
        return replace(self, schedule_rounds=rounds)

    def progress(self, round_: int) -> float:
        """Return the share of the schedules' rounds, 0 to 1, that is complete before round `round_`, counted from 0."""
        return min(1.0, round_ / self.schedule_rounds) if self.schedule_rounds else 0.0

    def learning_rate(self, updates: int) -> float:  # noqa: ARG002  (it stays)
        """Return the learning rate after a number of updates."""
        rate: float = self.own.lr
        return rate


@config(table="learner")
class PPOConfig(OnPolicyConfig, OnPolicySettings):
    """PPO (Schulman et al. 2017), apart from how a block of steps is cut into sequences."""

    scheduled: ClassVar[Mapping[str, str]] = {
        "lr": "lr_schedule",
        "clip": "clip_schedule",
        "entropy_weight": "entropy_schedule",
    }

    clip: Rate = 0.2
    """A probability may move by this share before a step's gain no longer pulls it further."""
    value_clip: Weight = 0.0
    """A value may move this far from the value at acting before a step's gain no longer pulls it further. 0 turns it
    off."""
    epochs: Count = 8
    minibatches: Count = 8
    value_weight: Weight = 0.05
    """Weight of the critic's loss, half of its squared error: it is in units of squared returns, and a large one leaves
    little of a clipped gradient to the policy."""
    entropy_weight: Weight = 0.0
    """Weight of the policy's entropy in the loss."""
    clip_schedule: Annotated[str, Code()] = "constant"
    """Course of `clip`, as that of the learning rate."""
    entropy_schedule: Annotated[str, Code()] = "constant"
    """Course of `entropy_weight`, as that of the learning rate."""

    @property
    def own(self) -> Self:
        """The settings of PPO, which are these."""
        return self

    @property
    def place(self) -> str:
        """Place of PPO."""
        return "flatwater.algorithms.ppo:PPO"


@dataclass(frozen=True, kw_only=True)  # without slots, as in `OnPolicyConfig`
class BlockLearnerConfig(OnPolicyConfig):
    """How a policy learns from blocks of steps that are cut into sequences, whatever the algorithm."""

    unroll: Count = 1
    """Steps of a sequence, over which gradients flow; a block is cut into as many as it has. More than 1 is for
    policies with a memory."""


@config(table="learner")
class BlockConfig(BlockLearnerConfig, PPOConfig):
    """PPO on blocks of steps (Schulman et al. 2017)."""

    epochs: Passes = 0
    """Times that each block is learned from. 0: 4 where images are seen, else 8; a run keeps what it began with."""
    minibatches: Passes = 0
    """Minibatches of sequences of all agents, drawn anew in each epoch, with one update each. 0: as for `epochs`."""


@dataclass(frozen=True, kw_only=True)  # without slots, as in `OnPolicyConfig`
class BlockAlgorithmConfig(BlockLearnerConfig):
    """How a policy learns from blocks of steps, by the algorithm of a name: PPO, or one of the user's."""

    algorithm: Annotated[str, Code()] = "ppo"
    """ppo, with its settings in this table.
    package.module:NAME: an algorithm of yours, with its settings in the table `own`."""

    @property
    def place(self) -> str:
        """Place of the algorithm."""
        return custom_algorithm_place(self.algorithm) or super().place

    @property
    def table(self) -> str:
        """Path of the table that has the algorithm's settings, for messages."""
        return "learner.own" if custom_algorithm_place(self.algorithm) else "learner"

    @classmethod
    def __variant__(cls, given_settings: Mapping[str, Any]) -> "type[BlockAlgorithmConfig]":
        """Return the class of which `given_settings` become an object: this one, or a subclass for a user's algorithm.

        The subclass has a table `own`, with the settings of that algorithm. `options.declare` calls this method before
        it reads the settings.
        """
        name = given_settings.get("algorithm", "")
        is_custom = isinstance(name, str) and bool(custom_algorithm_place(name))
        return _class_for_algorithm(name) if is_custom else cls

    def with_algorithm(self, name: str) -> "BlockAlgorithmConfig":
        """Return the configuration with the algorithm `name`, and the other settings that both algorithms read.

        Args:
            name: `ppo`, a name that an installed package has, or `package.module:NAME`.

        Raises:
            ConfigError: `name` names no algorithm, or settings were given that the algorithm does not read.
        """
        if name == self.algorithm:
            return self
        shared_settings = {f.name: getattr(self, f.name) for f in fields(BlockAlgorithmConfig)}
        reason = f"with learner.algorithm = '{name}', which does not read it"
        # `refuse_given_settings` refuses settings that differ from their defaults. Those that all algorithms read are
        # kept, so they get their defaults here.
        defaults = type(self)()
        shared_defaults = {setting: getattr(defaults, setting) for setting in shared_settings}
        refuse_given_settings(replace(self, **shared_defaults).own, self.table, reason)
        config_class = _class_for_algorithm(name) if custom_algorithm_place(name) else PpoLearnerConfig
        return config_class(**{**shared_settings, "algorithm": name})

    def __post_init__(self) -> None:
        """Check that the algorithm has its settings here, and that they fit together.

        Raises:
            ConfigError: no algorithm of this name is known, or settings do not fit.
        """
        has_own_table = "own" in {f.name for f in fields(self)}
        # A user's algorithm has a table `own`, which `__variant__` adds; the only other algorithm is PPO.
        if custom_algorithm_place(self.algorithm):
            is_known = has_own_table
        else:
            is_known = self.algorithm == "ppo" and not has_own_table
        if not is_known:
            raise unknown_algorithm(self.algorithm, ["ppo"])
        self.own.check_together(self.table)


def _class_for_algorithm(name: str) -> type[BlockAlgorithmConfig]:
    """Return a subclass of `BlockAlgorithmConfig` whose field `own` has the settings of the user's algorithm `name`."""
    place = "flatwater.algorithms.on_policy_algorithm:import_on_policy_algorithm"
    custom: type[BlockAlgorithmConfig] = custom_algorithm_class(BlockAlgorithmConfig, name, place)
    return custom


@config(table="learner")
class PpoLearnerConfig(BlockAlgorithmConfig, BlockConfig):
    """PPO on blocks of steps (Schulman et al. 2017), or an algorithm of yours."""


@config(table="learner")
class EpisodeConfig(PPOConfig):
    """PPO on whole episodes (Schulman et al. 2017)."""

    gamma: Share = 0.995
    epochs: Count = 10
    minibatches: Count = 4
    """Minibatches of episodes, drawn again in each epoch, with one update each. Divides the environments."""
    lr: Rate = 2e-3
    cooling: OptionalNumber = 60
    """Rounds over which the learning rate falls in a straight line to a tenth, where it stays. 0 keeps it."""
    value_weight: Weight = 1.0
    entropy_weight: Weight = 0.003
    compile: bool = False
    """Compile the step of the policy, the loss and its gradient by torch's compiler: minutes at the start, then faster.
    Needs a C++ compiler."""

    def __post_init__(self) -> None:
        """Refuse `cooling` with another schedule, or with `target_kl`.

        `cooling` counts rounds by their updates, and `target_kl` may end a round's updates early.
        """
        expected = f"0 with learner.lr_schedule = '{self.lr_schedule}' and learner.target_kl = {self.target_kl}"
        may_cool = self.lr_schedule == "constant" and not self.target_kl
        require(may_cool or not self.cooling, "learner.cooling", self.cooling, expected)

    def learning_rate(self, updates: int) -> float:
        """Return the learning rate after a number of updates: it falls to a tenth over `cooling` rounds, and stays."""
        if not self.cooling:
            return self.lr
        rounds = updates // (self.epochs * self.minibatches)
        # To a tenth: the rate loses 0.9 of itself.
        return self.lr * (1 - 0.9 * min(1, rounds / self.cooling))


@config(table="learner")
class TeachingConfig(BlockConfig):
    """Cross-entropy on the teacher's actions, a critic, and PPO once the teacher lets go."""

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
    """Weight of the cross-entropy on the teacher's actions, by the steps of all agents, as the next two."""
    reinforcement: Ramp = Ramp(first=0.0, last=1.0, begins=300_000, ends=500_000)
    """Weight of PPO's loss: the hand-over is where this rises and `supervision` falls."""
    lead: Ramp = Ramp(first=0.5, last=0.0, begins=0, ends=300_000)
    """Probability that the teacher's action of an agent is executed; drawn for each agent and block."""

    def __post_init__(self) -> None:
        """Refuse a probability of the teacher's lead above 1, at its begin or end."""
        for end in ("first", "last"):
            require(getattr(self.lead, end) <= 1, f"learner.lead.{end}", getattr(self.lead, end), "0 to 1")

    @property
    def place(self) -> str:
        """Place of PPO with a teacher."""
        return "flatwater.algorithms.ppo:TAUGHT_PPO"
