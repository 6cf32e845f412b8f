"""Vectors, images or tokens of observations in Gymnasium's spaces, and names of actions.

An observation is one vector of float32, but where there are images: these are kept as bytes, with the numbers next to
them, and words next to them are left out. As tokens an image (at most 254 pixels) becomes one for each channel of each
pixel: its position is the pixel's number, row by row, its feature the channel; discrete numbers next to it are tokens
at no pixel, with features after the channels. MiniGrid's views are read so, for their numbers are labels.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import EnumType
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
from gymnasium import spaces as gym

from flatwater.envs.world import PADDING, Array
from flatwater.envs.wrapped.checks import check_observation
from flatwater.nets.observation import FLOAT_BYTES, Part, Parts, count_numbers, nest_parts, row_bytes, view_numbers
from flatwater_watch.errors import ConfigError, RunError

# A number that no float32 can hold becomes an infinity, and the world reports it in a sentence of its own.
warnings.filterwarnings("ignore", "overflow encountered in cast", RuntimeWarning, re.escape(__name__))

BESIDE_POSITION = PADDING - 1
"""Position of a token that is at no pixel. Pixels are numbered up to here."""
TOKEN, TOKEN_AXES = 3, 2
"""Bytes of a token, and axes of an array of them."""
ObservationForm = Literal["auto", "tokens", "image", "vector"]
_IMAGE_RANKS = (2, 3, 4)
"""Axes of an image of one channel, of an image with channels, and of a stack of these."""
_PIXEL_TYPES = (np.dtype(np.uint8), np.dtype(np.bool_))
MISSION_KEY = "mission"
"""Key of the words next to an image of labels, as MiniGrid's environments show it."""


class ObservationReader(NamedTuple):
    """The way in which observations are written."""

    form: Literal["tokens", "vector", "image"]
    shape: tuple[int, ...]
    write: Callable[[Any, Array], None]
    """Write an observation into an array of `shape`."""
    measures: tuple[int, ...] = ()
    """The indexes of the numbers that are measurements; see `Spaces.measures`."""
    keys: tuple[tuple[int, str], ...] = ()
    """End of each part of a vector, and how the part is read from an observation: `['speed']`."""
    parts: Parts = ()
    """Parts of the array; empty for tokens."""

    def part_name(self, number: int) -> str:
        """Return the name of the number at a place of the vector: `observation['speed'][2]`."""
        begins = 0
        for end, key in self.keys:
            if number < end:
                return f"observation{key}[{number - begins}]"
            begins = end
        return f"observation[{number}]"

    def numbers(self, obs: Array) -> Array:
        """Return the numbers in observations [..., *shape] that are neither tokens nor in an image."""
        numbers: Array = view_numbers(obs, self.parts, np.float32) if self.form == "image" else obs
        return numbers

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Type of the numbers."""
        return np.dtype(np.float32 if self.form == "vector" else np.uint8)

    @property
    def padding(self) -> int:
        """Value of a finished agent's observation: tokens that are padding, or zeros."""
        return PADDING if self.form == "tokens" else 0


def make_reader(space: gym.Space[Any], name: str, form: ObservationForm = "auto") -> ObservationReader:
    """Return the reader that writes observations of a space as rows.

    Args:
        space: the space.
        name: name of the environment, for errors.
        form: their form, as in `WrappedConfig.form`.

    Raises:
        ConfigError: observations of the space cannot be written so.
    """
    labels = _is_image(space.get("image")) if isinstance(space, gym.Dict) else _is_image(space)
    if form == "tokens" and labels and not _may_be_tokens(space):
        return _image_tokens(space, name)
    if form == "tokens":
        return _plain_tokens(space, name)
    if form == "vector":
        return _numbers_reader(space, name)
    # The shape does not tell, and either reading would train: the user says which.
    if form == "auto" and any(_may_be_tokens(leaf.space) for leaf in _leaf_spaces(space)):
        raise ConfigError(
            f'{name}: observations of {space} may be tokens or an image. Give wrapped.form = "tokens" where each '
            'row is a position, a feature and a value; else "image" or "vector"'
        )
    if form == "auto" and labels and isinstance(space, gym.Dict) and MISSION_KEY in space.spaces:
        small = _image_size(space["image"])[0] <= BESIDE_POSITION  # larger images are pictures of the same world
        return _image_tokens(space, name) if small else _images_reader(space, name)
    if any(_is_image(leaf.space) for leaf in _leaf_spaces(space)):
        return _images_reader(space, name)
    if form == "image":
        raise ConfigError(
            f"{name}: wrapped.form = image: expected observations of a Box of uint8 or bool with 2 to 4 axes, or of a "
            f"Dict with such a Box, got {space}"
        )
    return _numbers_reader(space, name)


def read_space(parts: Parts) -> gym.Space[Any]:
    """Return the space of a network's inputs: images [C, H, W] of shares, numbers as float32, Dicts as they are."""
    boxes: list[Any] = []
    for part in parts:
        low, high = (np.broadcast_to(np.array(bound, np.float32), part.size) for bound in (part.low, part.high))
        if part.is_image:
            boxes.append(gym.Box(0, 255, part.read_shape, np.uint8))
        else:
            boxes.append(gym.Box(low.reshape(part.shape), high.reshape(part.shape), dtype=np.float32))
    return _gather_spaces(nest_parts(parts, boxes))


def _gather_spaces(nested: Any) -> gym.Space[Any]:  # noqa: ANN401  (a space, or spaces in dicts and tuples)
    """Return Dicts of dicts, and Tuples of tuples."""
    if isinstance(nested, dict):
        return gym.Dict({key: _gather_spaces(inside) for key, inside in nested.items()})
    if isinstance(nested, tuple):
        return gym.Tuple([_gather_spaces(inside) for inside in nested if inside is not None])
    space: gym.Space[Any] = nested
    return space


def _may_be_tokens(space: gym.Space[Any]) -> bool:
    """Return whether a space has rows of three bytes: tokens, or an image of one channel that is 3 pixels wide."""
    return _is_image(space) and len(space.shape or ()) == TOKEN_AXES and (space.shape or ())[1] == TOKEN


def _plain_tokens(space: gym.Space[Any], name: str) -> ObservationReader:
    """Return a reader of tokens that the environment itself gives.

    Raises:
        ConfigError: the space is not one of tokens.
    """
    shape = space.shape or ()
    if not isinstance(space, gym.Box) or space.dtype != np.uint8 or len(shape) != TOKEN_AXES or shape[1] != TOKEN:
        raise ConfigError(
            f"{name}: wrapped.form = tokens: expected observations of a Box of uint8 [K, 3] whose rows are position, "
            f"feature and value (the position {PADDING} pads), got {space}"
        )

    def write(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        out[...] = check_observation(observation, shape)

    return ObservationReader("tokens", (shape[0], TOKEN), write)


def _numbers_reader(space: gym.Space[Any], name: str) -> ObservationReader:
    """Return a reader that writes all numbers into a row, those of images too.

    Raises:
        ConfigError: the space holds no numbers, or cannot be flattened.
    """
    leaves = [*_leaf_spaces(space)]
    if any(leaf.is_odd for leaf in leaves):
        raise ConfigError(
            f"{name}: expected observations of a Box, a Discrete or a Dict of these, or of a Dict with an `image` of "
            f"uint8, got {space}. Wrap the environment with gymnasium.wrappers.TransformObservation"
        )
    parts = tuple(_number_part(leaf) for leaf in leaves)
    if not parts:
        raise ConfigError(f"{name}: observations of {space} have no numbers: nothing can be learned from them")
    keys = _part_ends(parts)
    places = [slice(end - part.size, end) for part, (end, _) in zip(parts, keys, strict=True)]
    write_parts = [(leaf.of, _value_writer(leaf.space), place) for leaf, place in zip(leaves, places, strict=True)]

    def write(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        for of, write_part, place in write_parts:
            write_part(of(observation), out[place])

    # A single Box, as most environments have, is written without the loop.
    alone = write_parts[0][1] if not parts[0].keys else write
    return ObservationReader("vector", (count_numbers(parts),), alone, _measured_numbers(leaves), keys, parts)


def _images_reader(space: gym.Space[Any], name: str) -> ObservationReader:
    """Return a reader that writes images as bytes, and the numbers next to them before them as float32.

    Raises:
        ConfigError: a part of the space is neither an image nor of a fixed number of numbers.
    """
    leaves = [leaf for leaf in _leaf_spaces(space) if not _is_words(leaf.space)]
    if fault := next((leaf.space for leaf in leaves if leaf.is_odd), None):
        raise ConfigError(
            f"{name}: expected a Box, a Discrete or the like beside images, got {fault}. Wrap the environment with "
            "gymnasium.wrappers.TransformObservation"
        )
    # Numbers first, so that they are aligned.
    leaves.sort(key=lambda leaf: _is_image(leaf.space))
    parts = tuple(_image_part(leaf) if _is_image(leaf.space) else _number_part(leaf) for leaf in leaves)
    if len(parts) == 1 and not parts[0].keys:
        return ObservationReader("image", parts[0].shape, _image_copier(parts[0].shape), parts=parts)
    numbers, size = [leaf for leaf in leaves if not _is_image(leaf.space)], row_bytes(parts)
    write_parts, begins = [], 0
    for leaf, part in zip(leaves, parts, strict=True):
        ends = begins + part.size * (1 if part.is_image else FLOAT_BYTES)
        write_part = _image_copier(part.shape) if part.is_image else _value_writer(leaf.space)
        write_parts.append((leaf.of, write_part, slice(begins, ends), part.shape if part.is_image else None))
        begins = ends

    def write(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        for of, write_part, place, shape in write_parts:
            write_part(of(observation), out[place].view(np.float32) if shape is None else out[place].reshape(shape))

    return ObservationReader("image", (size,), write, _measured_numbers(numbers), _part_ends(parts), parts)


class _Leaf(NamedTuple):
    """A space without others inside, within the whole."""

    keys: tuple[str | int, ...]
    of: Callable[[Any], Any]
    """Reads its value from an observation."""
    space: gym.Space[Any]

    @property
    def is_odd(self) -> bool:
        """Whether its values vary in their number of numbers, as those of a Graph or a Sequence."""
        return _is_words(self.space) or isinstance(self.space, gym.Graph | gym.Sequence | gym.OneOf)


def _leaf_spaces(
    space: gym.Space[Any],
    keys: tuple[str | int, ...] = (),
    get_value: Callable[[Any], Any] = lambda observation: observation,
) -> Iterator[_Leaf]:
    """Yield the spaces within a space that have numbers or words, in the order of Gymnasium's flattening.

    Args:
        space: the whole space, or a space within it.
        keys: keys of the access to `space`.
        get_value: reads the value of `space` from a whole observation.
    """
    if not isinstance(space, gym.Dict | gym.Tuple):
        leaf = _Leaf(keys, get_value, space)
        if leaf.is_odd or gym.flatdim(space):
            yield leaf
        return
    for name, child in space.items() if isinstance(space, gym.Dict) else enumerate(space.spaces):
        # `name` is bound as a default: a closure would read the last name alone.
        def read_part(observation: Any, name: Any = name) -> Any:  # noqa: ANN401  (a key, or a position)
            return get_value(observation)[name]

        yield from _leaf_spaces(child, (*keys, name), read_part)


def _number_part(leaf: _Leaf) -> Part:
    """Return the part of numbers in a row: a Box as it is, other spaces as Gymnasium flattens them."""
    box = leaf.space if isinstance(leaf.space, gym.Box) else gym.flatten_space(leaf.space)
    assert isinstance(box, gym.Box)  # noqa: S101  (for the type checker: a space that is not a container is flattened to a Box)
    low, high = (
        tuple(map(float, bound.flat[:1] if (bound == bound.flat[0]).all() else bound.flat))
        for bound in (box.low, box.high)
    )
    return Part(leaf.keys, box.shape, None, low, high)


def _image_part(leaf: _Leaf) -> Part:
    """Return the part of an image; its channels are the shorter of its first and its last axis."""
    shape, highest = leaf.space.shape or (), float(np.max(cast("gym.Box", leaf.space).high))
    first = len(shape) - 3
    """The axis behind a stack, if there is a stack."""
    channels: tuple[int, ...] = ()
    if first >= 0:
        channels = (*range(first), first if shape[first] < shape[-1] else len(shape) - 1)
    return Part(leaf.keys, shape, channels, (0.0,), (highest,))


def _part_ends(parts: Parts) -> tuple[tuple[int, str], ...]:
    """Return the end of each part of numbers in the row of them, and the text of the access to it."""
    ends = accumulate(0 if part.is_image else part.size for part in parts)
    return tuple((end, "".join(f"[{key!r}]" for key in part.keys)) for end, part in zip(ends, parts, strict=True))


def _measured_numbers(leaves: Iterable[_Leaf]) -> tuple[int, ...]:
    """Return the positions of numbers from a Box of floats, on a scale of its own: neither choices nor pixels."""
    masks = [np.full(gym.flatdim(leaf.space), _is_float(leaf.space)) for leaf in leaves]
    return tuple(np.flatnonzero(np.concatenate([np.zeros(0, np.bool_), *masks])).tolist())


def _is_float(space: gym.Space[Any]) -> bool:
    return isinstance(space, gym.Box) and np.issubdtype(space.dtype, np.floating)


def _image_copier(shape: tuple[int, ...]) -> Callable[[Any, Array], None]:
    """Return the function that writes an image into an array of its shape."""

    def write_image(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        out[...] = check_observation(observation, shape)

    return write_image


def _value_writer(space: gym.Space[Any]) -> Callable[[Any, Array], None]:
    """Return the function that writes a value of a space without others inside."""
    shape = space.shape or ()

    def write_box(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        # Gymnasium's flattening of a Box is the same, and takes five times as long.
        out[:] = check_observation(observation, shape).ravel()

    def write_flat(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        """Write the flattened observation into `out`.

        Raises:
            ValueError: the observation is not of the space.
        """
        if not space.contains(observation):
            raise ValueError(f"{observation!r} is not in {space}")
        out[:] = gym.flatten(space, observation)

    return write_box if isinstance(space, gym.Box) else write_flat


MASK_KEY = "action_mask"
"""Key of an info with the mask of legal actions: 1 for each legal action, 0 for the others; with several lists an
array for each, or all in a row."""


def write_mask(info: dict[str, Any], legal: Array, name: str) -> None:
    """Write the mask of the next step, from an info, into a row [R].

    Args:
        info: info of a reset or step; its mask is one array, or an array for each list.
        legal: bool [R], overwritten.
        name: name of the environment, for the message.

    Raises:
        RunError: the info has no such mask.
    """
    mask = info.get(MASK_KEY)
    parts = mask if isinstance(mask, tuple | list) else (mask,)
    row = np.concatenate([np.ravel(part) for part in parts])
    if mask is None or len(row) != len(legal):
        state = "none" if mask is None else f"{len(row)} numbers"
        raise RunError(
            f"{name}: info[{MASK_KEY!r}]: expected {len(legal)} numbers, one for each action, at each reset and step, "
            f"got {state}"
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
        name: name of the environment, for messages.

    Raises:
        ConfigError: `space` holds neither choices nor a bounded vector.
    """
    if isinstance(space, gym.Box) and len(space.shape) == 1 and np.isfinite([space.low, space.high]).all():
        bounds = tuple((float(low), float(high)) for low, high in zip(space.low, space.high, strict=True))
        if not bounds:
            raise ConfigError(f"{name}: actions of {space} have no numbers: there is nothing to choose")
        return ActionSpec(tuple(str(number) for number in range(len(bounds))), 0, bounds)
    if isinstance(space, gym.MultiDiscrete | gym.MultiBinary) and len(space.shape) == 1:
        return _action_choices(space)
    if not isinstance(space, gym.Discrete):
        raise ConfigError(
            f"{name}: expected actions of a Discrete, of a MultiDiscrete or MultiBinary with one axis, or of a Box "
            f"with one axis and finite bounds, got {space}. Wrap the environment with "
            "gymnasium.wrappers.TransformAction"
        )
    numbers = range(int(space.start), int(space.start + space.n))
    members: list[Any] = list(env.actions.__members__.values()) if isinstance(env, HasActionNames) else []
    if [member.value for member in members] == list(numbers):
        return ActionSpec(tuple(member.name for member in members), numbers.start)
    return ActionSpec(tuple(str(number) for number in numbers), numbers.start)


def _action_choices(space: gym.MultiDiscrete | gym.MultiBinary) -> ActionSpec:
    """Return a choice for each place of the action."""
    sizes = space.nvec if isinstance(space, gym.MultiDiscrete) else np.full(space.shape, 2)
    start = space.start if isinstance(space, gym.MultiDiscrete) else np.zeros(space.shape)
    choices = tuple(int(size) for size in sizes)
    return ActionSpec(tuple(str(number) for number in range(len(choices))), start.astype(space.dtype), choices=choices)


def _is_image(space: gym.Space[Any] | None) -> bool:
    """Return whether a space is one of images, or of tokens."""
    return isinstance(space, gym.Box) and space.dtype in _PIXEL_TYPES and len(space.shape) in _IMAGE_RANKS


def _is_words(space: gym.Space[Any]) -> bool:
    """Return whether a space is one of words: Gymnasium would flatten a Text to numbers of its letters."""
    return isinstance(space, gym.Text) or (space.dtype is not None and space.dtype.kind == "U")


def _discrete_minima(space: gym.Dict) -> dict[str, int]:
    """Return the least of each discrete number next to an image; numbers that are wider than a byte are left out."""
    discrete = {key: child for key, child in space.items() if isinstance(child, gym.Discrete) and child.n <= PADDING}
    return {key: int(child.start) for key, child in discrete.items()}


def _tokens_reader(space: gym.Space[Any], numbers: dict[str, int], name: str) -> ObservationReader:
    """Return a reader that turns an image, and discrete numbers next to it, into tokens.

    A token of an image is (number of the pixel, row by row; channel; byte), one for each channel of each pixel. Those
    of the other numbers follow: (`BESIDE_POSITION`, number of channels + position among them, value minus minimum).

    Args:
        space: the image's space, uint8.
        numbers: minimum of each discrete number next to the image, by its key in the observation.
        name: name of the environment, for messages.

    Raises:
        ConfigError: the image has more than `BESIDE_POSITION` pixels.
    """
    pixels, channels = _image_size(space)
    if pixels > BESIDE_POSITION:
        raise ConfigError(
            f"{name}: images of {pixels} pixels cannot be tokens: the most are {BESIDE_POSITION} pixels. Leave out "
            "wrapped.form for a network of convolutions, or make them smaller with gymnasium.wrappers.ResizeObservation"
        )
    size, shape = pixels * channels, space.shape or ()
    columns = np.zeros((size + len(numbers), 2), np.uint8)
    columns[:size, 0] = np.repeat(np.arange(pixels), channels)
    columns[:size, 1] = np.tile(np.arange(channels), pixels)
    columns[size:, 0] = BESIDE_POSITION
    columns[size:, 1] = channels + np.arange(len(numbers))

    def write(observation: dict[str, Any], out: Array) -> None:
        """Write tokens (position, feature, value) into `out` [K, 3]; discrete numbers count from their minimum."""
        # Each time, as the row may hold the padding of an agent that was over.
        out[:, :2] = columns
        out[:size, 2] = check_observation(observation["image"], shape).ravel()
        for index, (key, minimum) in enumerate(numbers.items()):
            out[size + index, 2] = observation[key] - minimum

    return ObservationReader("tokens", (len(columns), 3), write)


def _image_tokens(space: gym.Space[Any], name: str) -> ObservationReader:
    """Return a reader that turns an image, alone or in a Dict, into tokens."""
    if isinstance(space, gym.Dict):
        return _tokens_reader(space["image"], _discrete_minima(space), name)
    reader = _tokens_reader(space, {}, name)
    return reader._replace(write=lambda observation, out: reader.write({"image": observation}, out))


def _image_size(space: gym.Space[Any]) -> tuple[int, int]:
    """Return the numbers of pixels and channels."""
    shape = space.shape or ()
    channels = shape[2] if len(shape) == TOKEN else 1
    return int(np.prod(shape)) // channels, channels
