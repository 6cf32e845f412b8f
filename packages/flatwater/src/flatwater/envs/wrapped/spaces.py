"""Tokens or vectors of observations in Gymnasium's spaces, and names of actions.

An image of small numbers (uint8, at most 254 pixels) becomes a token for each channel of each pixel: its position is
the pixel's number, row by row, its feature the channel. Discrete numbers beside it are tokens at no pixel, with
features after the channels. Words beside it are left out. Everything else becomes one vector of float32.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import EnumType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces as gym

from flatwater.envs.world import PADDING, Array
from flatwater.envs.wrapped.checks import check_observation
from flatwater_watch.errors import ConfigError, RunError

# A number that no float32 can hold becomes an infinity, and the world reports it in a sentence of its own.
warnings.filterwarnings("ignore", "overflow encountered in cast", RuntimeWarning, re.escape(__name__))

BESIDE = PADDING - 1
"""Position of a token that is at no pixel. Pixels are numbered up to here."""
TOKEN, TOKEN_AXES = 3, 2
"""Bytes of a token, and axes of an array of them."""
Form = Literal["auto", "tokens", "image", "vector"]
_RANKS = (1, 2, 3)
"""Axes of a row of pixels, of an image of one channel, and of an image with its channels last."""


class ObservationReader(NamedTuple):
    """The way in which observations are written."""

    form: Literal["tokens", "vector"]
    shape: tuple[int, ...]
    write: Callable[[Any, Array], None]
    """Write an observation into an array of `shape`."""
    measures: tuple[int, ...] = ()
    """The indexes of the numbers that are measurements; see `Spaces.measures`."""
    keys: tuple[tuple[int, str], ...] = ()
    """End of each part of a vector, and how the part is read from an observation: `['speed']`."""

    def part_name(self, number: int) -> str:
        """Return the name of the number at a place of the vector: `observation['speed'][2]`."""
        begins = 0
        for end, key in self.keys:
            if number < end:
                return f"observation{key}[{number - begins}]"
            begins = end
        return f"observation[{number}]"

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Type of the numbers."""
        return np.dtype(np.uint8 if self.form == "tokens" else np.float32)

    @property
    def padding(self) -> int:
        """Value of a finished agent's observation: tokens that are padding, or zeros."""
        return PADDING if self.form == "tokens" else 0


def make_reader(space: gym.Space[Any], name: str, form: Form = "auto") -> ObservationReader:
    """Return how observations of a space are written.

    Args:
        space: the space.
        name: name of the environment, for errors.
        form: their form, as in `WrappedConfig.form`.

    Raises:
        ConfigError: observations of the space cannot be written so.
    """
    if form == "tokens":
        return _plain_tokens(space, name)
    if form == "vector":
        return _vector(space, name)
    # The shape does not tell, and either reading would train: the user says which.
    if form == "auto" and _may_be_tokens(space):
        raise ConfigError(
            f'{name}: observations of {space} may be tokens or an image. Give wrapped.form = "tokens" where each '
            'row is a position, a feature and a value; else "image" or "vector"'
        )
    if isinstance(space, gym.Dict) and _is_image(space.get("image")):
        return _tokens(space["image"], _numbers(space), name)
    if _is_image(space):
        return _image(space, name)
    if form == "image":
        raise ConfigError(
            f"{name}: wrapped.form = image: expected observations of a Box of uint8 with 1 to 3 axes, got {space}"
        )
    return _vector(space, name)


def _may_be_tokens(space: gym.Space[Any]) -> bool:
    """Return whether a space has rows of three bytes: tokens, or an image of one channel that is 3 pixels wide."""
    return _is_image(space) and len(space.shape or ()) == TOKEN_AXES and (space.shape or ())[1] == TOKEN


def _plain_tokens(space: gym.Space[Any], name: str) -> ObservationReader:
    """Read tokens that the environment itself gives."""
    shape = space.shape or ()
    if not isinstance(space, gym.Box) or space.dtype != np.uint8 or len(shape) != TOKEN_AXES or shape[1] != TOKEN:
        raise ConfigError(
            f"{name}: wrapped.form = tokens: expected observations of a Box of uint8 [K, 3] whose rows are position, "
            f"feature and value (the position {PADDING} pads), got {space}"
        )

    def write(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        out[...] = check_observation(observation, shape)

    return ObservationReader("tokens", (shape[0], TOKEN), write)


def _vector(space: gym.Space[Any], name: str) -> ObservationReader:
    """Read all numbers into a row."""
    if not space.is_np_flattenable or _has_words(space):
        raise ConfigError(
            f"{name}: expected observations of a Box, a Discrete or a Dict of these, or of a Dict with an `image` of "
            f"uint8, got {space}. Wrap the environment with gymnasium.wrappers.TransformObservation"
        )
    size = gym.flatdim(space)
    if size == 0:
        raise ConfigError(f"{name}: observations of {space} have no numbers: nothing can be learned from them")
    parts = [*_parts(space, "", lambda observation: observation, 0)]
    measures = tuple(np.flatnonzero(_float_mask(space)).tolist())

    def write(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        for part in parts:
            part.write(part.of(observation), out[part.begins : part.ends])

    # A single Box, as most environments have, is written without the loop.
    alone = parts[0].write if len(parts) == 1 and parts[0].key == "" else write
    return ObservationReader("vector", (size,), alone, measures, tuple((part.ends, part.key) for part in parts))


class _VectorPart(NamedTuple):
    """A part of an observation that is written at once."""

    key: str
    """Text of the access to the part, such as `['speed']`."""
    of: Callable[[Any], Any]
    """Reads the part from an observation."""
    begins: int
    ends: int
    """End of the part in the vector, which it fills from `begins` on."""
    write: Callable[[Any, Array], None]


def _parts(space: gym.Space[Any], key: str, of: Callable[[Any], Any], begins: int) -> Iterator[_VectorPart]:
    """Yield the parts of a vector, in the order of Gymnasium's flattening.

    Args:
        space: the whole space, or a space within it.
        key: text of the access to `space`, such as `['body']['speed']`; empty for the whole.
        of: reads the value of `space` from a whole observation.
        begins: position in the vector at which the numbers of `space` begin.
    """
    if isinstance(space, gym.Dict | gym.Tuple):
        inside = space.items() if isinstance(space, gym.Dict) else enumerate(space.spaces)
        for name, child in inside:
            # `name` is bound as a default: a closure would read the last name alone.
            def read_part(observation: Any, name: Any = name) -> Any:  # noqa: ANN401  (a key, or a position)
                return of(observation)[name]

            size = gym.flatdim(child)
            yield from _parts(child, f"{key}[{name!r}]", read_part, begins)
            begins += size
    elif size := gym.flatdim(space):
        yield _VectorPart(key, of, begins, begins + size, _writer(space))


def _writer(space: gym.Space[Any]) -> Callable[[Any, Array], None]:
    """Return the function that writes a value of a space without others inside."""
    shape = space.shape or ()

    def write_box(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        # Gymnasium's flattening of a Box is the same, and takes five times as long.
        out[:] = check_observation(observation, shape).ravel()

    def write_flat(observation: Any, out: Array) -> None:  # noqa: ANN401  (same)
        if not space.contains(observation):
            raise ValueError(f"{observation!r} is not in {space}")
        out[:] = gym.flatten(space, observation)

    return write_box if isinstance(space, gym.Box) else write_flat


def _float_mask(space: gym.Space[Any]) -> Array:
    """Return which numbers of a vector are of a Box of floats, on a scale of its own: neither places nor pixels."""
    if isinstance(space, gym.Dict | gym.Tuple):
        return np.concatenate([_float_mask(child) for child in _child_spaces(space)])
    floats = isinstance(space, gym.Box) and np.issubdtype(space.dtype, np.floating)
    return np.full(gym.flatdim(space), floats)


MASK = "action_mask"
"""Key of an info with the mask of legal actions: 1 for each legal action, 0 for the others; with several lists an
array for each, or all in a row."""


def write_mask(info: dict[str, Any], legal: Array, name: str) -> None:
    """Write the mask of the next step, from an info, into a row [R].

    Args:
        info: of a reset or step; its mask is one array, or an array for each list.
        legal: bool [R], overwritten.
        name: of the environment, for the message.

    Raises:
        RunError: the info has no such mask.
    """
    mask = info.get(MASK)
    parts = mask if isinstance(mask, tuple | list) else (mask,)
    row = np.concatenate([np.ravel(part) for part in parts])
    if mask is None or len(row) != len(legal):
        state = "none" if mask is None else f"{len(row)} numbers"
        raise RunError(
            f"{name}: info[{MASK!r}]: expected {len(legal)} numbers, one for each action, at each reset and step, got "
            f"{state}"
        )
    legal[:] = row


class ActionSpec(NamedTuple):
    """The actions of an agent."""

    names: tuple[str, ...]
    start: int | Array
    """The environment's number of the first action; of each list, where there are several."""
    bounds: tuple[tuple[float, float], ...] | None = None
    """Bounds of each number, where an action is a vector."""
    choices: tuple[int, ...] | None = None
    """Length of each list, where an action is several choices at once."""

    def to_env_actions(self, actions: Array) -> Sequence[Any]:
        """Return actions [N], [N, H] or [N, D] in the environment's own form."""
        # A normal distribution has no bounds, so they are put on here.
        if self.bounds is not None:
            return list(actions.clip(*np.array(self.bounds, np.float32).T))
        if isinstance(self.start, int):
            return [action + self.start for action in actions.tolist()]
        return list((actions + self.start).astype(self.start.dtype))


@runtime_checkable
class HasActionNames(Protocol):
    """An environment with names of its actions, as MiniGrid's have."""

    actions: EnumType


def make_action_spec(space: gym.Space[Any], env: object, name: str) -> ActionSpec:
    """Return the actions, with the environment's own names, if it has an enum of them, or numbers.

    Args:
        space: action space of one agent.
        env: the environment without wrappers, whose `actions` may be an enum.
        name: of the environment, for messages.

    Raises:
        ConfigError: `space` holds neither choices nor a bounded vector.
    """
    if isinstance(space, gym.Box) and len(space.shape) == 1 and np.isfinite([space.low, space.high]).all():
        bounds = tuple((float(low), float(high)) for low, high in zip(space.low, space.high, strict=True))
        if not bounds:
            raise ConfigError(f"{name}: actions of {space} have no numbers: there is nothing to choose")
        return ActionSpec(tuple(str(number) for number in range(len(bounds))), 0, bounds)
    if isinstance(space, gym.MultiDiscrete | gym.MultiBinary) and len(space.shape) == 1:
        return _choices(space)
    if not isinstance(space, gym.Discrete):
        raise ConfigError(
            f"{name}: expected actions of a Discrete, of a MultiDiscrete or MultiBinary with one "
            "axis, or of a Box with "
            f"one axis and finite bounds, got {space}. Wrap the environment with gymnasium.wrappers.TransformAction"
        )
    numbers = range(int(space.start), int(space.start + space.n))
    members: list[Any] = list(env.actions.__members__.values()) if isinstance(env, HasActionNames) else []
    if [member.value for member in members] == list(numbers):
        return ActionSpec(tuple(member.name for member in members), numbers.start)
    return ActionSpec(tuple(str(number) for number in numbers), numbers.start)


def _choices(space: gym.MultiDiscrete | gym.MultiBinary) -> ActionSpec:
    """Return a choice for each place of the action."""
    sizes = space.nvec if isinstance(space, gym.MultiDiscrete) else np.full(space.shape, 2)
    start = space.start if isinstance(space, gym.MultiDiscrete) else np.zeros(space.shape)
    choices = tuple(int(size) for size in sizes)
    return ActionSpec(tuple(str(number) for number in range(len(choices))), start.astype(space.dtype), choices=choices)


def _is_image(space: gym.Space[Any] | None) -> bool:
    return isinstance(space, gym.Box) and space.dtype == np.uint8 and len(space.shape) in _RANKS


def _has_words(space: gym.Space[Any]) -> bool:
    """Return whether flattening would make numbers of letters."""
    return isinstance(space, gym.Text) or any(_has_words(child) for child in _child_spaces(space))


def _child_spaces(space: gym.Space[Any]) -> Iterable[gym.Space[Any]]:
    """Return the spaces of a Dict or a Tuple, as flattening orders them."""
    if isinstance(space, gym.Dict):
        return space.values()
    return space.spaces if isinstance(space, gym.Tuple) else ()


def _numbers(space: gym.Dict) -> dict[str, int]:
    """Return the least of each discrete number beside an image; numbers that are wider than a byte are left out."""
    discrete = {key: child for key, child in space.items() if isinstance(child, gym.Discrete) and child.n <= PADDING}
    return {key: int(child.start) for key, child in discrete.items()}


def _tokens(space: gym.Space[Any], numbers: dict[str, int], name: str) -> ObservationReader:
    """Read an image, and discrete numbers beside it, as tokens.

    A token of an image is (number of the pixel, row by row; channel; byte), one for each channel of each pixel. Those
    of the other numbers follow: (`BESIDE`, number of channels + position among them, value minus minimum).

    Args:
        space: the image's space, uint8.
        numbers: minimum of each discrete number beside the image, by its key in the observation.
        name: of the environment, for messages.

    Raises:
        ConfigError: the image has more than `BESIDE` pixels.
    """
    pixels, channels = _size(space)
    if pixels > BESIDE:
        raise ConfigError(
            f"{name}: images of {pixels} pixels cannot be tokens: the most are {BESIDE} pixels. Make them smaller with "
            "gymnasium.wrappers.ResizeObservation, or floats with gymnasium.wrappers.RescaleObservation"
        )
    size, shape = pixels * channels, space.shape or ()
    columns = np.zeros((size + len(numbers), 2), np.uint8)
    columns[:size, 0] = np.repeat(np.arange(pixels), channels)
    columns[:size, 1] = np.tile(np.arange(channels), pixels)
    columns[size:, 0] = BESIDE
    columns[size:, 1] = channels + np.arange(len(numbers))

    def write(observation: dict[str, Any], out: Array) -> None:
        """Write tokens (position, feature, value) into `out` [K, 3]; discrete numbers count from their minimum."""
        # Each time, as the row may hold the padding of an agent that was over.
        out[:, :2] = columns
        out[:size, 2] = check_observation(observation["image"], shape).ravel()
        for index, (key, minimum) in enumerate(numbers.items()):
            out[size + index, 2] = observation[key] - minimum

    return ObservationReader("tokens", (len(columns), 3), write)


def _image(space: gym.Space[Any], name: str) -> ObservationReader:
    reader = _tokens(space, {}, name)
    return reader._replace(write=lambda observation, out: reader.write({"image": observation}, out))


def _size(space: gym.Space[Any]) -> tuple[int, int]:
    """Return the numbers of pixels and channels."""
    shape = space.shape or ()
    channels = shape[2] if len(shape) == max(_RANKS) else 1
    return int(np.prod(shape)) // channels, channels
