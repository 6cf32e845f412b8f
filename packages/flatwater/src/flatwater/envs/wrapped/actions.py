"""Actions of Gymnasium's spaces in a world, and the `Spaces` of a world of such environments."""

from collections.abc import Sequence
from enum import EnumType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces as gym

from flatwater.envs.world import Array, Spaces
from flatwater.envs.wrapped.spaces import ObservationReader
from flatwater_watch.errors import ConfigError

MAXIMUM_CHOICES = 1 << 20
"""Most actions that an agent chooses from, those of all its choices together."""


class ActionSpec(NamedTuple):
    """The actions of an agent."""

    names: tuple[str, ...]
    start: int | Array
    """The environment's number for action 0; if an action is several choices at once, an array with one for each."""
    bounds: tuple[tuple[float, float], ...] | None = None
    """Lowest and highest value of each number, if an action is a vector."""
    choices: tuple[int, ...] | None = None
    """Number of options of each choice, if an action is several choices at once."""
    box: gym.Box | None = None
    """The environment's space of actions that are vectors."""
    is_tuple: bool = False
    """Whether several choices at once are a tuple."""

    def to_env_actions(self, actions: Array) -> Sequence[Any]:
        """Return a list of N actions for the environment's `step`, from a world's actions [N], [N, H] or [N, D]."""
        if self.box is not None:  # vectors, [N, D]
            return list(fit_actions(actions, self.box))
        if isinstance(self.start, int):  # one choice, [N]: Python's numbers
            return [action + self.start for action in actions.tolist()]
        # Several choices, [N, H]: arrays of the space's type, or tuples of Python's numbers.
        rows = (actions + self.start).astype(self.start.dtype)
        return [tuple(row) for row in rows.tolist()] if self.is_tuple else list(rows)


def fit_actions(actions: Array, space: gym.Box) -> Array:
    """Return actions [B, *action] as members of a Box: clipped to its bounds, of its type, rounded if that is integer.

    They may be beyond the bounds, as they are drawn from a normal distribution.
    """
    # In the type of the space, as float32's nearest number to a bound of doubles may lie beyond it.
    if np.issubdtype(space.dtype, np.floating):
        return actions.astype(space.dtype, copy=False).clip(space.low, space.high)
    return np.rint(actions).clip(space.low, space.high).astype(space.dtype)


@runtime_checkable
class HasActionNames(Protocol):
    """An environment that may name its actions, as MiniGrid's do."""

    actions: Any
    """An enum, or anything else of the user's."""


def make_action_spec(space: gym.Space[Any], env: object, name: str) -> ActionSpec:
    """Return the actions of a space, named by the environment's enum of actions if it has one, else by numbers.

    Args:
        space: action space of one agent.
        env: the environment without wrappers, whose `actions` may be an enum.
        name: name of the environment, for messages.

    Raises:
        ConfigError: `space` is neither one of choices nor one of bounded vectors.
    """
    if isinstance(space, gym.Box) and len(space.shape) == 1 and np.isfinite([space.low, space.high]).all():
        bounds = tuple((float(low), float(high)) for low, high in zip(space.low, space.high, strict=True))
        if not bounds:
            raise ConfigError(f"{name}: actions of {space} have no numbers: there is nothing to choose")
        return ActionSpec(tuple(str(number) for number in range(len(bounds))), start=0, bounds=bounds, box=space)
    if isinstance(space, gym.MultiDiscrete | gym.MultiBinary) and len(space.shape) == 1:
        return _choices_spec(space, name)
    if isinstance(space, gym.Tuple) and len(space) and all(isinstance(part, gym.Discrete) for part in space):
        return _choices_spec(as_multi_discrete(space), name)._replace(is_tuple=True)
    if not isinstance(space, gym.Discrete):
        raise ConfigError(
            f"{name}: expected actions of a Discrete, of a MultiDiscrete or MultiBinary with one axis, of a Tuple of "
            f"Discrete, or of a Box with one axis and finite bounds, got {space}. Wrap the environment with "
            "gymnasium.wrappers.TransformAction"
        )
    _require_few_choices(int(space.n), space, name)
    numbers = range(int(space.start), int(space.start + space.n))
    # The enum names the actions only if its values are exactly their numbers, in order.
    enum = env.actions if isinstance(env, HasActionNames) else None  # such as left = 0, right = 1, forward = 2
    members: list[Any] = list(enum.__members__.values()) if isinstance(enum, EnumType) else []
    if [member.value for member in members] == list(numbers):
        return ActionSpec(tuple(member.name for member in members), numbers.start)
    return ActionSpec(tuple(str(number) for number in numbers), numbers.start)


def _require_few_choices(count: int, space: gym.Space[Any], name: str) -> None:
    """Refuse a space of so many choices that no network has a place for each.

    Raises:
        ConfigError: there are more than `MAXIMUM_CHOICES`.
    """
    if count > MAXIMUM_CHOICES:
        raise ConfigError(
            f"{name}: {space} has {count:,} actions: expected at most {MAXIMUM_CHOICES:,}, as each has a place "
            "in the network. Wrap the environment with gymnasium.wrappers.TransformAction"
        )


def as_multi_discrete(space: "gym.Tuple[Any]") -> gym.MultiDiscrete:
    """Return a Tuple of Discrete as the MultiDiscrete of the same choices."""
    parts: Any = space.spaces
    return gym.MultiDiscrete([part.n for part in parts], start=[part.start for part in parts])


def _choices_spec(space: gym.MultiDiscrete | gym.MultiBinary, name: str) -> ActionSpec:
    """Return the actions of a space of several choices at once; a MultiBinary has choices of two, 0 and 1."""
    sizes = space.nvec if isinstance(space, gym.MultiDiscrete) else np.full(space.shape, 2)
    start = space.start if isinstance(space, gym.MultiDiscrete) else np.zeros(space.shape)
    choices = tuple(int(size) for size in sizes)
    _require_few_choices(sum(choices), space, name)
    return ActionSpec(tuple(str(number) for number in range(len(choices))), start.astype(space.dtype), choices=choices)


def world_spaces(
    reader: ObservationReader, actions: ActionSpec, *, envs: int, agents: int = 1, steps: int, masked: bool, kept: int
) -> Spaces:
    """Return the `Spaces` of a world, from the reader and the actions of its agents; keyword arguments are fields."""
    return Spaces(
        envs=envs,
        agents=agents,
        form=reader.form,
        obs=reader.shape,
        actions=actions.names,
        steps=steps,
        bounds=actions.bounds,
        choices=actions.choices,
        masked=masked,
        measures=reader.measures,
        kept=kept,
        parts=reader.parts,
    )
