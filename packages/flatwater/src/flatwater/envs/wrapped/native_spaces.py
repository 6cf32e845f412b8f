"""An environment's own spaces: observations in the form that `reset` returns, actions in the form that `step` takes.

A network reads the rows of a world. Here observations of Gymnasium's spaces become such rows, a single observation or
any number of them, with any axes before those of the space; and a network's actions become the environment's again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, Protocol, cast, get_args, runtime_checkable

import numpy as np
from gymnasium import spaces as gym
from torch import Tensor

from flatwater.envs.world import Array, World
from flatwater.envs.wrapped.actions import as_multi_discrete, fit_actions
from flatwater.envs.wrapped.checks import CONVERSION_ERRORS, RESET_PARTS
from flatwater.envs.wrapped.masks import masked_reader, split_mask_space
from flatwater.envs.wrapped.spaces import (
    MAXIMUM_NUMBERS,
    READABLE_SPACES,
    ObservationForm,
    ObservationReader,
    make_reader,
)
from flatwater_watch.errors import ConfigError

FRAMES_PER_SECOND = 30
"""Frames of a second for an environment whose metadata do not say."""
OTHER_KIND = "other"
"""Name in a file of a space that holds no numbers."""


class Rows(NamedTuple):
    """Observations as a world's rows."""

    obs: Array
    """Each observation, [B, *obs]."""
    axes: tuple[int, ...]
    """Lengths of the axes before those of one observation, none for a single observation; B is their product."""


@dataclass(frozen=True)
class NativeSpaces:
    """The spaces of an environment, and how its observations are read."""

    observation: gym.Space[Any]
    """Space of observations, without a mask of legal actions next to them."""
    action: gym.Space[Any]
    form: ObservationForm
    """Form of observations, as in `WrappedConfig.form`."""
    reader: ObservationReader
    """Reads observations without a mask."""
    has_mask: bool = False
    """Whether the environment's observations have a mask next to them."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the function and its arguments by which pickle makes these spaces again, without the reader."""
        return _restore_native, (self.observation, self.action, self.form, self.has_mask)

    @property
    def env_reader(self) -> ObservationReader:
        """The reader of observations as the environment gives them, with a mask if it `has_mask`."""
        return masked_reader(self.reader) if self.has_mask else self.reader

    @property
    def keys(self) -> frozenset[Any]:
        """Keys of a Dict observation; none where it is not a Dict."""
        return frozenset(self.observation) if isinstance(self.observation, gym.Dict) else frozenset()

    def rows(self, obs: Any) -> Rows:  # noqa: ANN401  (whatever the space holds)
        """Return one or several observations of the space as rows that a network reads.

        Raises:
            ConfigError: an observation is not of the space.
        """
        try:
            # The axes before those of one observation, such as (8,) for eight: all parts must have the same.
            all_axes = set(_leading_axes(self.observation, obs, "obs"))
            if len(all_axes) > 1:
                raise ValueError(f"its parts are of different numbers of observations: {sorted(all_axes)}")
            (axes,) = all_axes
            batch = _flatten_axes(self.observation, obs, axes)
            rows = np.zeros((prod(axes), *self.reader.shape), self.reader.dtype)
            for number, row in enumerate(rows):
                self.reader.write(_pick_observation(batch, number), row)
        except CONVERSION_ERRORS as fault:
            problem = f"no entry {fault}" if isinstance(fault, KeyError) else str(fault)
            if isinstance(obs, tuple) and len(obs) == RESET_PARTS and isinstance(obs[1], Mapping):
                problem = "got a pair, as env.reset() returns: give its first part"
            raise ConfigError(f"obs: expected one of {self.observation}, or several side by side: {problem}") from fault
        return Rows(rows, axes)

    def to_env(self, actions: Array) -> Array:
        """Return a network's actions as the environment's `step` takes them, [B, *action].

        Args:
            actions: int64 [B] or [B, H], positions in lists of choices, or float32 [B, D].
        """
        space = as_multi_discrete(self.action) if isinstance(self.action, gym.Tuple) else self.action
        if isinstance(space, gym.Box):  # clipped to the bounds, of the space's type
            return fit_actions(actions.reshape(-1, *space.shape), space)
        # A network counts choices from 0, the space from its own start; a MultiBinary has none.
        start = space.start if isinstance(space, gym.Discrete | gym.MultiDiscrete) else 0
        return (actions + start).astype(space.dtype).reshape(-1, *(space.shape or ()))

    def header(self) -> dict[str, Any]:
        """Return the spaces as plain values for a file, from which `read_native` makes them again."""
        return {
            "observation": _space_to_plain(self.observation),
            "action": _space_to_plain(self.action),
            "form": self.form,
        }


def native_spaces(
    observation: gym.Space[Any], action: gym.Space[Any], form: ObservationForm, name: str
) -> NativeSpaces:
    """Return the spaces of an environment, with the reader of its observations.

    Args:
        observation: observation space of the environment.
        action: action space of the environment.
        form: form of observations, as in `WrappedConfig.form`.
        name: name of the environment, for errors.

    Raises:
        ConfigError: observations of the space cannot be read in this form.
    """
    bare_space, has_mask = split_mask_space(observation, action)
    reader = make_reader(bare_space, name, form)
    return NativeSpaces(bare_space, action, form, reader=reader, has_mask=has_mask)


def _restore_native(
    observation: gym.Space[Any],
    action: gym.Space[Any],
    form: ObservationForm,
    has_mask: bool,  # noqa: FBT001  (pickle gives positions)
) -> NativeSpaces:
    """Return the `NativeSpaces` of unpickled spaces, with a new reader."""
    reader = make_reader(observation, "env", form)
    return NativeSpaces(observation, action, form, reader=reader, has_mask=has_mask)


@runtime_checkable
class NativeWorld(Protocol):
    """A world of an environment with Gymnasium's spaces."""

    @property
    def native(self) -> NativeSpaces:
        """The environment's spaces."""


@runtime_checkable
class RenderedWorld(World, Protocol):
    """A world whose first environment can be rendered."""

    @property
    def frames_per_second(self) -> float:
        """Number of frames of `render` that make a second."""

    def render(self) -> object:
        """Return the frame that the first environment's `render` gives."""


def frame_rate(env: Any) -> float:  # noqa: ANN401  (an environment of any kind)
    """Return an environment's frames per second, by its metadata; `FRAMES_PER_SECOND` where they do not say."""
    return float(env.metadata.get("render_fps") or FRAMES_PER_SECOND)


def find_native_spaces(world: World) -> NativeSpaces | None:
    """Return the spaces of Gymnasium that a world's environment has; None if it has none."""
    return world.native if isinstance(world, NativeWorld) else None


def to_array(values: Any) -> Array:  # noqa: ANN401  (numbers, an array or a tensor)
    """Return numbers as an array on the CPU."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def split_axes(array: Array, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """Return the lengths of the axes of an array that come before those of `shape`.

    Raises:
        ValueError: the array does not end in `shape`.
    """
    count = array.ndim - len(shape)  # negative if the array has fewer axes than one observation
    if count < 0 or array.shape[count:] != shape:
        raise ValueError(f"{name} is an array {[*array.shape]}, expected {[*shape]} or {['...', *shape]} of several")
    return tuple(array.shape[:count])


def _readable_children(space: gym.Space[Any]) -> Iterator[tuple[Any, gym.Space[Any]]]:
    """Yield (key, child) for each child of a Dict or a Tuple that holds numbers, or is a Dict or Tuple itself."""
    children = space.items() if isinstance(space, gym.Dict) else enumerate(cast("gym.Tuple[Any]", space).spaces)
    return ((key, child) for key, child in children if isinstance(child, READABLE_SPACES | gym.Dict | gym.Tuple))


def _leading_axes(space: gym.Space[Any], obs: Any, name: str) -> Iterator[tuple[int, ...]]:  # noqa: ANN401  (whatever the space holds)
    """Yield for each array within `obs` the lengths of its axes before those of one observation.

    Raises:
        TypeError: a part of the observation has another structure than the space.
    """
    if isinstance(space, gym.Dict | gym.Tuple):
        expected_type: Any = Mapping if isinstance(space, gym.Dict) else (tuple, list)
        if not isinstance(obs, expected_type):
            raise TypeError(f"{name} is a {type(obs).__name__}")
        for key, child in _readable_children(space):
            yield from _leading_axes(child, obs[key], f"{name}[{key!r}]")
    else:
        yield split_axes(to_array(obs), space.shape or (), name)


def _flatten_axes(space: gym.Space[Any], obs: Any, axes: tuple[int, ...]) -> Any:  # noqa: ANN401  (whatever the space holds)
    """Return the same observations with one axis, B, in place of the leading `axes`: each array is [B, *part].

    The arrays are in nested dicts by key, those of a Tuple by position.
    """
    if isinstance(space, gym.Dict | gym.Tuple):
        return {key: _flatten_axes(child, obs[key], axes) for key, child in _readable_children(space)}
    return to_array(obs).reshape(prod(axes), *(space.shape or ()))


def _pick_observation(observations: Any, number: int) -> Any:  # noqa: ANN401  (numbers, an array or a tensor)
    """Return observation `number` of a result of `_flatten_axes`: row `number` of each array, in the same dicts."""
    if isinstance(observations, dict):
        return {key: _pick_observation(part, number) for key, part in observations.items()}
    return observations[number]


def _space_to_plain(space: gym.Space[Any]) -> dict[str, Any]:
    """Return a space as plain values for JSON; of a space without numbers, only `OTHER_KIND`."""
    plain: dict[str, Any] = {"space": type(space).__name__}
    if isinstance(space, gym.Dict):
        return plain | {"parts": {key: _space_to_plain(child) for key, child in space.items()}}
    if isinstance(space, gym.Tuple):
        return plain | {"parts": [_space_to_plain(child) for child in space.spaces]}
    if not isinstance(space, READABLE_SPACES):
        return {"space": OTHER_KIND}
    plain |= {"shape": [*(space.shape or ())], "dtype": np.dtype(space.dtype).name}
    if isinstance(space, gym.Box):
        return plain | {"low": _bound_to_plain(space.low), "high": _bound_to_plain(space.high)}
    if isinstance(space, gym.Discrete):
        return plain | {"n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.MultiDiscrete):
        plain |= {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
    return plain  # of a MultiBinary, the shape says all


def _bound_to_plain(bound: Array) -> Any:  # noqa: ANN401  (a number, None for infinity, or nested lists of these)
    """Return a bound of a Box: one number if all are equal, else nested lists; None stands for infinity.

    JSON has no infinity; its sign follows from the bound, which is the lower one or the upper one.
    """
    if bound.size and (bound == bound.flat[0]).all():
        return None if np.isinf(bound.flat[0]) else bound.flat[0].item()
    numbers_or_none = bound.astype(object)
    numbers_or_none[np.isinf(bound)] = None
    return numbers_or_none.tolist()


def read_native(header: Mapping[str, Any], obs: tuple[int, ...]) -> NativeSpaces:
    """Return the spaces that `NativeSpaces.header` has described.

    Args:
        header: result of `NativeSpaces.header`, from a file.
        obs: shape of the row that a network reads, which the reader must write.

    Raises:
        ValueError: the values describe no such spaces.
    """
    try:
        form = header["form"]
        if form not in get_args(ObservationForm):
            raise ValueError(f"form = {form!r}: expected one of {get_args(ObservationForm)}")
        native = native_spaces(
            _space_from_plain(header["observation"]), _space_from_plain(header["action"]), form, "env"
        )
    # Gymnasium's spaces assert that their arguments fit.
    except (KeyError, TypeError, AttributeError, AssertionError, ConfigError) as fault:
        raise ValueError(f"env: describes no spaces: {type(fault).__name__} {fault}") from fault
    if native.reader.shape != obs:
        raise ValueError(f"env: observations have the shape {[*native.reader.shape]}, the network reads {[*obs]}")
    return native


def _space_from_plain(plain: Mapping[str, Any]) -> gym.Space[Any]:
    """Return the space that plain values describe, the reverse of `_space_to_plain`.

    Raises:
        ValueError: the space would have too many numbers.
    """
    kind, shape, dtype = plain["space"], tuple(plain.get("shape", ())), plain.get("dtype", "float32")
    # A file may claim any size: refused before anything is allocated. `n` values of a Discrete are read as n numbers.
    if not 0 <= prod(shape) * plain.get("n", 1) <= MAXIMUM_NUMBERS:
        raise ValueError(f"env: a {kind} {shape}: expected at most {MAXIMUM_NUMBERS} numbers")
    match kind:
        case "Dict":
            # Pairs and not a dict, whose keys Gymnasium would sort: parts must be read in the order of training.
            space: gym.Space[Any] = gym.Dict([(key, _space_from_plain(part)) for key, part in plain["parts"].items()])
        case "Tuple":
            space = gym.Tuple([_space_from_plain(part) for part in plain["parts"]])
        case "Box":
            low, high = _bound_array(plain["low"], shape, -np.inf), _bound_array(plain["high"], shape, np.inf)
            space = gym.Box(low.astype(dtype), high.astype(dtype), shape, np.dtype(dtype).type)
        case "Discrete":
            space = gym.Discrete(plain["n"], start=plain["start"])
        case "MultiDiscrete":
            space = gym.MultiDiscrete(plain["nvec"], np.dtype(dtype).type, start=plain["start"])
        case "MultiBinary":
            # An int if there is one axis: for Gymnasium, MultiBinary(3) and MultiBinary((3,)) are different spaces.
            space = gym.MultiBinary(shape[0] if len(shape) == 1 else shape)
        case _:
            # Any space without numbers will do for `OTHER_KIND`, as nobody reads its values.
            space = gym.Text(1)
    return space


def _bound_array(bound: Any, shape: Sequence[int], infinity: float) -> Array:  # noqa: ANN401  (as `_bound_to_plain` gives it)
    """Return a bound from `_bound_to_plain` as an array of `shape`, with `infinity` in place of None."""
    # Of objects, as an array of numbers has no None.
    numbers = np.array(bound, object)
    numbers[numbers == None] = infinity  # noqa: E711  (of each element)
    return np.broadcast_to(numbers.astype(np.float64), shape)
