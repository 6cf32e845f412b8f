"""Observations of Gymnasium's spaces as rows of a world: vectors, images or tokens.

An observation is one vector of float32. If it has images, it is a row of bytes instead: the numbers next to images, as
float32, and then the images; words next to images are left out. As tokens, an image of at most 254 pixels has a token
for each channel of each pixel: its position is the pixel's number, row by row, its feature the channel. Discrete
numbers next to the image are tokens at no pixel, with features after the channels. MiniGrid's views are read as tokens,
because their numbers are labels.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from gymnasium import spaces as gym

from flatwater.envs.world import PADDING, Array
from flatwater.envs.wrapped.checks import check_observation
from flatwater.nets.observation import FLOAT_BYTES, Part, Parts, count_numbers, nest_parts, row_bytes, view_numbers
from flatwater_watch.errors import ConfigError

# A number that no float32 can hold becomes an infinity, and the world reports it in a sentence of its own.
warnings.filterwarnings("ignore", "overflow encountered in cast", RuntimeWarning, re.escape(__name__))

BESIDE_POSITION = PADDING - 1
"""Position of a token that is at no pixel. Pixels are numbered from 0 to the number below."""
TOKEN, TOKEN_AXES = 3, 2
"""Bytes of a token, and axes of an array of tokens."""
ObservationForm = Literal["auto", "tokens", "image", "vector"]
MAXIMUM_NUMBERS = 1 << 24
"""Most numbers of an observation."""
READABLE_SPACES = gym.Box | gym.Discrete | gym.MultiDiscrete | gym.MultiBinary
"""Spaces of numbers; others have no fixed number of them, as words, graphs, sequences, and spaces of the user's."""
_IMAGE_RANKS = (2, 3, 4)
"""Number of axes of an image of one channel, of an image with channels, and of a stack of images."""
_PIXEL_TYPES = (np.dtype(np.uint8), np.dtype(np.bool_))
MISSION_KEY = "mission"
"""Key of the words next to an image of labels, as MiniGrid's environments show it."""


class ObservationReader(NamedTuple):
    """A function that writes observations into rows of a world's array, and the form of these rows."""

    form: Literal["tokens", "vector", "image"]
    shape: tuple[int, ...]
    write: Callable[[Any, Array], None]
    """Write an observation into an array of `shape`."""
    measures: tuple[int, ...] = ()
    """Positions of the numbers that are measurements; see `Spaces.measures`."""
    keys: tuple[tuple[int, str], ...] = ()
    """For each part of a vector, the position behind its last number, and its access in an observation: `['speed']`."""
    parts: Parts = ()
    """Parts of a row; empty for tokens."""

    def part_name(self, number: int) -> str:
        """Return the name of the vector's number at position `number`: `observation['speed'][2]`."""
        return f"observation{self.part_access(number)}"

    def part_access(self, number: int) -> str:
        """Return the access to the vector's number at position `number` in an observation: `['speed'][2]`."""
        start = 0
        for end, key in self.keys:
            if number < end:
                return f"{key}[{number - start}]"
            start = end
        return f"[{number}]"

    def numbers(self, obs: Array) -> Array:
        """Return rows [..., *shape] without their images, as float32; other forms are returned unchanged."""
        numbers: Array = view_numbers(obs, self.parts, np.float32) if self.form == "image" else obs
        return numbers

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Type of a row's array."""
        return np.dtype(np.float32 if self.form == "vector" else np.uint8)

    @property
    def padding(self) -> int:
        """Value that fills the observation of an agent that is over: `PADDING` for tokens, else 0."""
        return PADDING if self.form == "tokens" else 0


def make_reader(space: gym.Space[Any], name: str, form: ObservationForm = "auto") -> ObservationReader:
    """Return the reader that writes observations of a space as rows.

    Args:
        space: observation space of one agent.
        name: name of the environment, for errors.
        form: form of the rows, as in `WrappedConfig.form`.

    Raises:
        ConfigError: observations of the space cannot be written in this form.
    """
    form = _find_form(space, name) if form == "auto" else form
    if form == "vector":
        return _numbers_reader(space, name)
    if form == "tokens":
        # An image becomes tokens, unless it may be tokens already; any other space is refused by the native reader.
        is_of_tokens = _has_rows_of_three_bytes(space) or not _has_main_image(space)
        return _native_tokens_reader(space, name) if is_of_tokens else _image_tokens_reader(space, name)
    if not any(_is_image(leaf.space) for leaf in _leaf_spaces(space)):
        raise ConfigError(
            f"{name}: wrapped.form = image: expected observations of a Box of uint8 or bool with 2 to 4 axes, or of a "
            f"Dict with such a Box, got {space}"
        )
    return _images_reader(space, name)


def _find_form(space: gym.Space[Any], name: str) -> ObservationForm:
    """Return the form in which observations of a space are read if the user has named none.

    Images, and MiniGrid's views as tokens; all else as vectors. `name` is the environment's, for messages.

    Raises:
        ConfigError: observations may be tokens or an image.
    """
    # Three bytes in a row may be a token or three pixels, and a network would train with either: the user must say.
    if any(_has_rows_of_three_bytes(leaf.space) for leaf in _leaf_spaces(space)):
        raise ConfigError(
            f'{name}: observations of {space} may be tokens or an image. Give wrapped.form = "tokens" where each '
            'row is a position, a feature and a value; else "image" or "vector"'
        )
    # A mission is next to MiniGrid's views, whose numbers are labels; larger images are pictures of the same world.
    if isinstance(space, gym.Dict) and MISSION_KEY in space.spaces and _has_main_image(space):
        pixels, _ = _image_size(space["image"])
        return "tokens" if pixels <= BESIDE_POSITION else "image"
    return "image" if any(_is_image(leaf.space) for leaf in _leaf_spaces(space)) else "vector"


def _has_main_image(space: gym.Space[Any]) -> bool:
    """Return whether a space is an image, or a Dict with an image under the key `image`."""
    return _is_image(space.get("image")) if isinstance(space, gym.Dict) else _is_image(space)


def network_input_space(parts: Parts) -> gym.Space[Any]:
    """Return the space of a network's inputs: images [C, H, W] as uint8, numbers as float32, nested as in `parts`."""
    boxes: list[Any] = []
    for part in parts:
        if part.is_image:
            boxes.append(gym.Box(0, 255, part.read_shape, np.uint8))
            continue
        # Bounds are one number for all, or a number for each.
        low = np.broadcast_to(np.array(part.low, np.float32), part.size)
        high = np.broadcast_to(np.array(part.high, np.float32), part.size)
        boxes.append(gym.Box(low.reshape(part.shape), high.reshape(part.shape), dtype=np.float32))
    return _gather_spaces(nest_parts(parts, boxes))


def _gather_spaces(nested_spaces: Any) -> gym.Space[Any]:  # noqa: ANN401  (a space, or spaces in dicts and tuples)
    """Return one space of nested dicts and tuples of spaces: a Dict for each dict, a Tuple for each tuple."""
    if isinstance(nested_spaces, dict):
        return gym.Dict({key: _gather_spaces(inside) for key, inside in nested_spaces.items()})
    if isinstance(nested_spaces, tuple):
        # None is in place of a part that no network reads, such as text.
        return gym.Tuple([_gather_spaces(inside) for inside in nested_spaces if inside is not None])
    space: gym.Space[Any] = nested_spaces
    return space


def _has_rows_of_three_bytes(space: gym.Space[Any]) -> bool:
    """Return whether a space is of tokens, or of images of one channel that are 3 pixels wide, which look alike."""
    return _is_image(space) and len(space.shape or ()) == TOKEN_AXES and (space.shape or ())[1] == TOKEN


def _native_tokens_reader(space: gym.Space[Any], name: str) -> ObservationReader:
    """Return a reader that copies tokens, uint8 [K, 3], which the environment itself gives.

    Raises:
        ConfigError: the space is not one of tokens.
    """
    shape = space.shape or ()
    if not isinstance(space, gym.Box) or space.dtype != np.uint8 or len(shape) != TOKEN_AXES or shape[1] != TOKEN:
        raise ConfigError(
            f"{name}: wrapped.form = tokens: expected observations of a Box of uint8 [K, 3] whose rows are position, "
            f"feature and value (the position {PADDING} pads), got {space}"
        )

    return ObservationReader("tokens", shape=(shape[0], TOKEN), write=_array_copier(shape))


def _numbers_reader(space: gym.Space[Any], name: str) -> ObservationReader:
    """Return a reader that writes all numbers of an observation, those of images too, as one vector of float32.

    Raises:
        ConfigError: the space holds no numbers, or cannot be flattened.
    """
    leaves = [*_leaf_spaces(space)]
    _require_fixed_sizes(space, leaves, name)
    parts = tuple(_number_part(leaf) for leaf in leaves)
    if not parts:
        raise ConfigError(f"{name}: observations of {space} have no numbers: nothing can be learned from them")
    keys = _vector_part_ends(parts)
    spans = [slice(end - part.size, end) for part, (end, _) in zip(parts, keys, strict=True)]
    writers = [_value_writer(leaf.space) for leaf in leaves]
    getters = [leaf.get_value for leaf in leaves]

    def write_all(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        """Write the numbers of all parts into the vector `out`."""
        for get_value, write_value, span in zip(getters, writers, spans, strict=True):
            write_value(get_value(observation), out[span])

    return ObservationReader(
        form="vector",
        shape=(count_numbers(parts),),
        # Without keys the space is a single leaf, as in most environments, and is written without the loop.
        write=write_all if parts[0].keys else writers[0],
        measures=_measured_numbers(leaves),
        keys=keys,
        parts=parts,
    )


def _images_reader(space: gym.Space[Any], name: str) -> ObservationReader:
    """Return a reader that writes a row of bytes: first the numbers next to images, as float32, then the images.

    Words are left out. A single image without a Dict keeps its shape.

    Raises:
        ConfigError: a part of the space is neither an image nor of a fixed number of numbers.
    """
    leaves = [leaf for leaf in _leaf_spaces(space) if not _is_words(leaf.space)]
    _require_fixed_sizes(space, leaves, name)
    # Numbers before images (False sorts before True), so that their floats are aligned in the row.
    leaves.sort(key=lambda leaf: _is_image(leaf.space))
    parts = tuple(_image_part(leaf) if _is_image(leaf.space) else _number_part(leaf) for leaf in leaves)
    if len(parts) == 1 and not parts[0].keys:
        return ObservationReader("image", shape=parts[0].shape, write=_array_copier(parts[0].shape), parts=parts)
    number_leaves = [leaf for leaf in leaves if not _is_image(leaf.space)]
    write_parts, start = [], 0
    for leaf, part in zip(leaves, parts, strict=True):
        end = start + part.size * (1 if part.is_image else FLOAT_BYTES)
        write_value = _array_copier(part.shape) if part.is_image else _value_writer(leaf.space)
        # How a part is read and written, its bytes in the row, and the shape of an image, or None for numbers.
        write_parts.append((leaf.get_value, write_value, slice(start, end), part.shape if part.is_image else None))
        start = end

    def write(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        """Write all parts into the row `out`, uint8 [bytes]."""
        for get_value, write_value, span, image_shape in write_parts:
            view = out[span].view(np.float32) if image_shape is None else out[span].reshape(image_shape)
            write_value(get_value(observation), view)

    return ObservationReader(
        form="image",
        shape=(row_bytes(parts),),
        write=write,
        measures=_measured_numbers(number_leaves),
        keys=_vector_part_ends(parts),
        parts=parts,
    )


class _Leaf(NamedTuple):
    """A space that is no Dict or Tuple, within an observation space."""

    keys: tuple[str | int, ...]
    """Keys of the access to its value in an observation."""
    get_value: Callable[[Any], Any]
    """Return its value in an observation."""
    space: gym.Space[Any]

    @property
    def has_varying_size(self) -> bool:
        """Whether its values have no fixed number of numbers that we know."""
        return not isinstance(self.space, READABLE_SPACES)


def _leaf_spaces(
    space: gym.Space[Any],
    keys: tuple[str | int, ...] = (),
    get_value: Callable[[Any], Any] = lambda observation: observation,
) -> Iterator[_Leaf]:
    """Yield the spaces within a space that are no Dict or Tuple, in the order of Gymnasium's flattening.

    Spaces without any numbers are left out.

    Args:
        space: the whole space, or in recursive calls a space within it.
        keys: keys of the access to the value of `space` in a whole observation.
        get_value: returns that value.
    """
    if not isinstance(space, gym.Dict | gym.Tuple):
        leaf = _Leaf(keys, get_value, space)
        if leaf.has_varying_size or gym.flatdim(space):
            yield leaf
        return
    for name, child in space.items() if isinstance(space, gym.Dict) else enumerate(space.spaces):
        # `name` is bound as a default: a closure would read the last name alone.
        def read_part(observation: Any, name: Any = name) -> Any:  # noqa: ANN401  (a key, or a position)
            return get_value(observation)[name]

        yield from _leaf_spaces(child, (*keys, name), read_part)


def _require_fixed_sizes(space: gym.Space[Any], leaves: Sequence[_Leaf], name: str) -> None:
    """Refuse a space of which some part has no fixed number of numbers; the message names a wrapper to leave it out.

    Args:
        space: space of observations.
        leaves: its parts, spaces that are no Dict or Tuple.
        name: name of the environment, for the message.

    Raises:
        ConfigError: a part has no fixed number of numbers, or all parts together have too many.
    """
    unreadable_leaves = [leaf for leaf in leaves if leaf.has_varying_size]
    if not unreadable_leaves:
        count = sum(gym.flatdim(leaf.space) for leaf in leaves)
        if count > MAXIMUM_NUMBERS:
            raise ConfigError(
                f"{name}: observations of {space} are {count:,} numbers, a place for each value of a choice: expected "
                f"at most {MAXIMUM_NUMBERS:,}. Wrap the environment with gymnasium.wrappers.TransformObservation, "
                "which makes a Box of them"
            )
        return
    keys: Sequence[Any] = ()  # of another space nothing can be left out
    if isinstance(space, gym.Dict):
        keys = [*space]
    elif isinstance(space, gym.Tuple):
        keys = range(len(space))
    readable_keys = [key for key in keys if key not in {leaf.keys[0] for leaf in unreadable_leaves}]
    advice = "Wrap the environment with gymnasium.wrappers.TransformObservation, which makes an array of it"
    if readable_keys:
        advice = f'To leave it out: --wrapped.wrappers "FilterObservation(filter_keys={readable_keys})"'
    place = "".join(f"[{key!r}]" for key in unreadable_leaves[0].keys)
    raise ConfigError(
        f"{name}: observation{place}: expected a Box, a Discrete, a MultiDiscrete, a MultiBinary, or a Dict or Tuple "
        f"of these, got a {type(unreadable_leaves[0].space).__name__}, which has no fixed number of numbers. {advice}"
    )


def _number_part(leaf: _Leaf) -> Part:
    """Return the `Part` of a row that has a leaf's numbers: those of a Box in its shape, others as Gymnasium flattens.

    A leaf is a space within the observation space that is no Dict or Tuple.
    """
    box = leaf.space if isinstance(leaf.space, gym.Box) else gym.flatten_space(leaf.space)
    assert isinstance(box, gym.Box)  # noqa: S101  (for the type checker: a space that is not a container is flattened to a Box)
    bounds = []
    for bound in (box.low, box.high):
        is_shared = (bound == bound.flat[0]).all()
        # A bound that all numbers share is kept once.
        bounds.append(tuple(map(float, bound.flat[:1] if is_shared else bound.flat)))
    return Part(leaf.keys, box.shape, channels=None, low=bounds[0], high=bounds[1])


def _image_part(leaf: _Leaf) -> Part:
    """Return the `Part` of a row that has an image; the shorter of its first and its last axis has the channels.

    The axes of a stack of images, before these three, count as channels too.
    """
    shape, highest = leaf.space.shape or (), float(np.max(cast("gym.Box", leaf.space).high))
    first_axis, last_axis = len(shape) - 3, len(shape) - 1  # of an image's three; negative for two axes
    channels: tuple[int, ...] = ()  # an image of two axes has no channels
    if first_axis >= 0:
        channels = (*range(first_axis), first_axis if shape[first_axis] < shape[last_axis] else last_axis)
    return Part(leaf.keys, shape, channels, low=(0.0,), high=(highest,))


def _vector_part_ends(parts: Parts) -> tuple[tuple[int, str], ...]:
    """Return for each part where it ends in the vector of all numbers, and how it is accessed in an observation.

    For two numbers `speed` and one `angle` this is ((2, "['speed']"), (3, "['angle']")). An image has no numbers in the
    vector.
    """
    ends = accumulate(0 if part.is_image else part.size for part in parts)
    return tuple((end, "".join(f"[{key!r}]" for key in part.keys)) for end, part in zip(ends, parts, strict=True))


def _measured_numbers(leaves: Iterable[_Leaf]) -> tuple[int, ...]:
    """Return the positions of numbers from Boxes of floats, in the vector of all numbers of the leaves."""
    masks = [np.full(gym.flatdim(leaf.space), _is_float(leaf.space)) for leaf in leaves]
    # An empty mask before them, as `concatenate` refuses an empty list.
    return tuple(np.flatnonzero(np.concatenate([np.zeros(0, np.bool_), *masks])).tolist())


def _is_float(space: gym.Space[Any]) -> bool:
    """Return whether a space is a Box of floats."""
    return isinstance(space, gym.Box) and np.issubdtype(space.dtype, np.floating)


def _array_copier(shape: tuple[int, ...]) -> Callable[[Any, Array], None]:
    """Return the function that writes an image, or tokens, into an array of this shape."""

    def write_array(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        """Copy an observation, whose shape must be `shape`, into `out`."""
        out[...] = check_observation(observation, shape)

    return write_array


def _value_writer(space: gym.Space[Any]) -> Callable[[Any, Array], None]:
    """Return the function that writes a value of the space, no Dict or Tuple, as float32 numbers into an array."""
    shape = space.shape or ()

    def write_box(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        """Write the numbers of a Box's value, one row after another, into `out`."""
        # Equal to Gymnasium's flattening of a Box, which takes five times as long.
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


def _is_image(space: gym.Space[Any] | None) -> bool:
    """Return whether a space is a Box of bytes or bools with 2 to 4 axes: images, or tokens."""
    return isinstance(space, gym.Box) and space.dtype in _PIXEL_TYPES and len(space.shape) in _IMAGE_RANKS


def _is_words(space: gym.Space[Any]) -> bool:
    """Return whether the values of a space are text."""
    return isinstance(space, gym.Text) or (space.dtype is not None and space.dtype.kind == "U")


def _discrete_minima(space: gym.Dict) -> dict[str, int]:
    """Return the smallest value of each Discrete in a Dict, by key; those with more than 255 values are left out."""
    discrete = {key: child for key, child in space.items() if isinstance(child, gym.Discrete) and child.n <= PADDING}
    return {key: int(child.start) for key, child in discrete.items()}


def _pixel_tokens_reader(space: gym.Space[Any], numbers: dict[str, int], name: str) -> ObservationReader:
    """Return a reader that turns an image, and discrete numbers next to it, into tokens, uint8 [K, 3].

    Each channel of each pixel is a token (number of the pixel, row by row; channel; value). Then each discrete number
    is a token (`BESIDE_POSITION`; number of channels + index of the number; value minus minimum).

    Args:
        space: space of the image, uint8.
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
    # Position and feature of each token, which are the same in every observation.
    columns = np.zeros((size + len(numbers), 2), np.uint8)
    columns[:size, 0] = np.repeat(np.arange(pixels), channels)
    columns[:size, 1] = np.tile(np.arange(channels), pixels)
    columns[size:, 0] = BESIDE_POSITION
    columns[size:, 1] = channels + np.arange(len(numbers))

    def write(observation: dict[str, Any], out: Array) -> None:
        """Write the tokens of an observation into `out`, uint8 [K, 3]."""
        # Written each time, as the row may have the padding of an agent that was over.
        out[:, :2] = columns
        out[:size, 2] = check_observation(observation["image"], shape).ravel()
        for index, (key, minimum) in enumerate(numbers.items()):
            out[size + index, 2] = observation[key] - minimum

    return ObservationReader("tokens", shape=(len(columns), TOKEN), write=write)


def _image_tokens_reader(space: gym.Space[Any], name: str) -> ObservationReader:
    """Return a reader that turns observations that are an image, or a Dict with an `image`, into tokens."""
    if isinstance(space, gym.Dict):
        return _pixel_tokens_reader(space["image"], _discrete_minima(space), name)
    reader = _pixel_tokens_reader(space, {}, name)
    # It reads a dict: a bare image is put into one.
    return reader._replace(write=lambda observation, out: reader.write({"image": observation}, out))


def _image_size(space: gym.Space[Any]) -> tuple[int, int]:
    """Return the number of pixels and the number of channels of a space of images [H, W] or [H, W, C]."""
    shape = space.shape or ()
    channels = shape[2] if len(shape) == 3 else 1  # noqa: PLR2004  (height, width and channels)
    return int(np.prod(shape)) // channels, channels
