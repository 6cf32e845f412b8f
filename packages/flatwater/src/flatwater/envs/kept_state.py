"""State that environments keep over episodes, as bytes of a size that is known before a run begins.

A user's environment gives it by `state_dict` and `load_state_dict`; of Gymnasium's wrappers the attributes are known.
Nothing is pickled: a header in JSON describes the dicts, lists and numbers, and the bytes of all arrays follow it.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from gymnasium import wrappers
from gymnasium.wrappers.utils import RunningMeanStd

from flatwater.envs.world import Array
from flatwater_watch.errors import CheckpointError, ConfigError

STATISTIC_NAMES = ("mean", "var", "count")
"""Attributes of a `RunningMeanStd`."""
_EPISODE_STATISTICS = ("episode_count", "return_queue", "length_queue")
"""Attributes of recorders; times of episodes are left out, as they follow from the clock and never repeat."""
KNOWN_WRAPPERS: dict[type, tuple[str, ...]] = {
    wrappers.NormalizeObservation: ("obs_rms",),
    wrappers.NormalizeReward: ("return_rms", "discounted_reward"),
    wrappers.RecordEpisodeStatistics: _EPISODE_STATISTICS,
    wrappers.vector.NormalizeObservation: ("obs_rms",),
    wrappers.vector.NormalizeReward: ("return_rms", "accumulated_reward", "_prev_dones"),
    wrappers.vector.RecordEpisodeStatistics: (*_EPISODE_STATISTICS, "prev_dones"),
}
"""Attributes that Gymnasium's wrappers keep over episodes, by class. A reset sets all others anew."""
SPARE_BYTES = 4096
"""Bytes left for numbers and text that become longer, besides twice their first size."""
_SIZE_BYTES = 8
"""Bytes of each of the two lengths before the header: that of the header, and that of the body."""


@runtime_checkable
class StateKeeper(Protocol):
    """An object that gives its state and takes it back."""

    def state_dict(self) -> Any:  # noqa: ANN401  (a state of any form)
        """Return nested dicts, lists and tuples of numbers, text, arrays and tensors."""

    def load_state_dict(self, state: Any, /) -> object:  # noqa: ANN401  (a state of any form)
        """Take a state back."""


def require_keeper(world: object, kept: int) -> StateKeeper:
    """Return a world whose spaces say that it keeps `kept` bytes, as an object that keeps state.

    Raises:
        ConfigError: the world lacks `state_dict` or `load_state_dict`.
    """
    if not isinstance(world, StateKeeper):
        raise ConfigError(
            f"{type(world).__name__}: its spaces have kept = {kept}: give it state_dict and load_state_dict"
        )
    return world


def wrapper_layers(env: object) -> Iterator[object]:
    """Yield an environment's wrappers, the outermost first, and the environment itself."""
    layer: object | None = env
    while layer is not None:
        yield layer
        layer = _instance_attributes(layer).get("env")  # where a wrapper holds what it wraps


def _instance_attributes(layer: object) -> Mapping[str, Any]:
    """Return an object's attributes by name; none for an object that has slots alone."""
    try:
        return vars(layer)
    except TypeError:
        return {}


def _kept_attributes(layer: object) -> tuple[str, ...]:
    """Return the names of the attributes that a wrapper or an environment, `layer`, keeps over episodes.

    They are those that `KNOWN_WRAPPERS` lists for its class, and any others that are a `RunningMeanStd`.
    """
    listed_names = next((names for kind, names in KNOWN_WRAPPERS.items() if isinstance(layer, kind)), ())
    items = _instance_attributes(layer).items()
    return listed_names + tuple(
        name for name, value in items if isinstance(value, RunningMeanStd) and name not in listed_names
    )


def keeps_state(env: object) -> bool:
    """Return whether an environment, or one of its wrappers, keeps a state over episodes and can return it."""
    return any(isinstance(layer, StateKeeper) or _kept_attributes(layer) for layer in wrapper_layers(env))


def read_env_state(env: object) -> list[Any]:
    """Return the states that an environment's wrappers keep, the outermost first, and last the environment's own."""
    return [_layer_state(layer) for layer in wrapper_layers(env)]


def _layer_state(layer: object) -> Any:  # noqa: ANN401  (whatever an environment keeps)
    """Return the state of one wrapper or environment: its own `state_dict()` if it has one, else the kept attributes.

    The attributes are a dict by name; it is empty if nothing is kept.
    """
    if isinstance(layer, StateKeeper):
        return layer.state_dict()
    return {name: _saved_value(vars(layer)[name]) for name in _kept_attributes(layer)}


def _saved_value(value: Any) -> Any:  # noqa: ANN401  (whatever an environment keeps)
    """Return an attribute's value in a form that can be encoded: statistics as a dict, a deque as an array."""
    if isinstance(value, RunningMeanStd):
        return {name: getattr(value, name) for name in STATISTIC_NAMES}
    if isinstance(value, deque):
        # As long as the deque can become, so that the checkpoint has space for it from the beginning.
        values = np.zeros(value.maxlen or len(value))
        values[: len(value)] = value
        return {"filled": len(value), "values": values}
    return value


def load_state_(env: object, state: Sequence[Any]) -> None:
    """Load a result of `read_env_state` into an environment and its wrappers.

    Raises:
        CheckpointError: the state is of another number of wrappers.
    """
    layers = list(wrapper_layers(env))
    if len(layers) != len(state):
        raise CheckpointError(
            f"expected the state of {len(layers)} environments and wrappers, got {len(state)} "
            "wrappers and an environment"
        )
    for layer, attributes in zip(layers, state, strict=True):
        if isinstance(layer, StateKeeper):
            layer.load_state_dict(attributes)
            continue
        for name, value in attributes.items():
            _write_attribute_(layer, name, value)


def _write_attribute_(layer: object, name: str, value: Any) -> None:  # noqa: ANN401  (whatever an environment keeps)
    """Write one saved attribute into a wrapper or an environment, `layer`; `value` is a result of `_saved_value`."""
    current_value = vars(layer).get(name)
    if isinstance(current_value, RunningMeanStd):
        for statistic in STATISTIC_NAMES:
            setattr(current_value, statistic, value[statistic])
    elif isinstance(current_value, deque):
        current_value.clear()
        # Gymnasium's lengths are whole numbers, and the saved array is float64.
        is_integer = name == "length_queue"
        current_value.extend(
            int(number) if is_integer else float(number) for number in value["values"][: value["filled"]]
        )
    else:
        setattr(layer, name, value)


class EpisodeStarts:
    """The state of each copy of an environment at the beginning of its running episode, to replay the episode from.

    Present states would not do: an outer wrapper may hold an observation that was normalised by earlier statistics.
    Replaying the episode restores both.
    """

    def __init__(self, copies: Sequence[Any], make: Callable[[], Any]) -> None:
        """Measure how many bytes the states of all copies take; nothing is recorded yet.

        Args:
            copies: copies of the environment, just made.
            make: returns another copy.
        """
        self.copies = copies
        self._states: list[Any] = []
        """State of each copy, once all have begun."""
        self.state_bytes = 0
        """Bytes for all states; 0 if nothing is kept, or it cannot be saved."""
        self.unsaved = ""
        """Reason why the states cannot be saved."""
        if keeps_state(copies[0]):
            self._measure_states_(make())

    def _measure_states_(self, env: Any) -> None:  # noqa: ANN401  (whatever an environment keeps)
        """Set `state_bytes` from the state of `env` after a reset, or `unsaved` if it cannot be saved; close `env`."""
        try:
            read_env_state(env)
        # An attribute does not exist before the first reset: each copy is reset here, so that the state at the start of
        # its first episode can be recorded.
        except AttributeError:
            for copy in self.copies:
                copy.reset(seed=0)
        try:
            env.reset(seed=0)
            self.state_bytes = len(self.copies) * buffer_size(read_env_state(env))
        except TypeError as error:  # of `buffer_size`: a value that cannot be encoded
            self.unsaved = f"its {error}, which cannot be saved"
        finally:
            env.close()

    def record_starts_(self, env_mask: Array) -> None:
        """Record the states of the copies of `env_mask`, bool [E], before the reset that begins their episodes."""
        if self.state_bytes:
            if not self._states:  # the first episodes: until then an empty list says that none has begun
                self._states = [None] * len(self.copies)
            for env in np.flatnonzero(env_mask).tolist():
                # A deep copy: the environment goes on writing into the arrays that it gave.
                self._states[env] = deepcopy(read_env_state(self.copies[env]))

    def states(self) -> list[Any]:
        """Return the recorded state of each copy; an empty list before the first episode."""
        return self._states

    def load_(self, env_mask: Array, states: Sequence[Any]) -> None:
        """Give the copies of `env_mask` the states of their recorded starts back, before the reset of a replay.

        Raises:
            CheckpointError: the states are of other copies.
        """
        if len(states) != len(self.copies):
            raise CheckpointError(f"expected the state of {len(self.copies)} environments, got {len(states)}")
        for env in np.flatnonzero(env_mask).tolist():
            load_state_(self.copies[env], states[env])


@runtime_checkable
class ReplayableWorld(Protocol):
    """A world of copies of one environment, whose episodes can be replayed from their recorded beginnings."""

    episode_starts: EpisodeStarts


def encode_state(state: object) -> bytes:
    """Return a state as bytes, from which `decode_state` makes an equal state.

    The bytes are: the sizes of header and body, two little-endian integers of 8 bytes; the header, JSON as
    `_describe_value` makes it; the body, the bytes of all arrays one after another, at offsets that the header names.

    Raises:
        TypeError: a value inside is not a number, text, array or tensor; the message names its place.
    """
    blobs: list[bytes] = []  # the bytes of arrays, which `_describe_value` appends
    header = json.dumps(_describe_value(state, "state", blobs)).encode()
    body = b"".join(blobs)
    return len(header).to_bytes(_SIZE_BYTES, "little") + len(body).to_bytes(_SIZE_BYTES, "little") + header + body


def _describe_value(value: Any, place: str, blobs: list[bytes]) -> Any:  # noqa: ANN401  (whatever an environment keeps)
    """Return a value's description for the JSON header; the bytes of its arrays are appended to `blobs`.

    Numbers, text and None stand for themselves. All else is a list: `["dict", [[key, value], ...]]`,
    `["list" or "tuple", [value, ...]]`, `["bytes", [offset, size]]`, or
    `["array" or "tensor" or "number", [dtype, shape, [offset, size]]]`, with offsets from the body's beginning.

    Args:
        value: part of a state.
        place: place of the value in the state, for messages.
        blobs: the bytes of the body so far; those of `value` are appended.

    Raises:
        TypeError: `value` cannot be saved.
    """
    # By type and not `isinstance`: np.float64 is a float, and would come back as Python's.
    if value is None or type(value) in {bool, int, float, str}:
        return value
    if isinstance(value, Mapping):
        return [
            "dict",
            [
                [_checked_key(key, place), _describe_value(item, f"{place}[{key!r}]", blobs)]
                for key, item in value.items()
            ],
        ]
    if type(value) in {list, tuple}:
        return [
            type(value).__name__,
            [_describe_value(item, f"{place}[{index}]", blobs) for index, item in enumerate(value)],
        ]
    if isinstance(value, bytes):
        return ["bytes", _append_blob_(blobs, value)]
    if not isinstance(value, torch.Tensor | np.ndarray | np.generic):
        raise TypeError(f"{place} is a {type(value).__name__}")
    # `number` is a scalar of NumPy's.
    kind = "tensor" if isinstance(value, torch.Tensor) else "array" if isinstance(value, np.ndarray) else "number"
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.dtype.hasobject or array.dtype.fields is not None:
        raise TypeError(f"{place} is an array of {array.dtype}")
    return [kind, [array.dtype.str, list(array.shape), _append_blob_(blobs, array.tobytes())]]


def _checked_key(key: object, place: str) -> str | int:
    """Return a dict's key unchanged; refuse keys other than text and whole numbers, which would not come back equal.

    Raises:
        TypeError: the key is of another type.
    """
    if type(key) is str or type(key) is int:
        return key
    raise TypeError(f"{place} has the key {key!r}")


def _append_blob_(blobs: list[bytes], content: bytes) -> list[int]:
    """Append bytes to the blobs; return their [offset, size] in the body, which is all blobs joined."""
    offset = sum(map(len, blobs))
    blobs.append(content)
    return [offset, len(content)]


def decode_state(content: bytes) -> Any:  # noqa: ANN401  (a state of any form)
    """Return the state that `encode_state` has encoded.

    Raises:
        CheckpointError: the bytes are not encoded state.
    """
    try:
        # The size of the body is skipped: the header names the place of each array in it.
        header_start = 2 * _SIZE_BYTES
        header_end = header_start + int.from_bytes(content[:_SIZE_BYTES], "little")
        return _decode_value(json.loads(content[header_start:header_end]), memoryview(content)[header_end:])
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise CheckpointError(f"the environments' state in the checkpoint cannot be read ({error})") from error


def _decode_value(description: Any, body: memoryview) -> Any:  # noqa: ANN401  (whatever an environment keeps)
    """Return the value that `_describe_value` has described; `body` holds the bytes of its arrays.

    Raises:
        ValueError: the bytes do not fit the shape of an array.
        KeyError: the description has an unknown kind.
    """
    if not isinstance(description, list):
        return description
    kind, content = description
    if kind == "dict":
        return {key: _decode_value(item, body) for key, item in content}
    if kind in {"list", "tuple"}:
        items = [_decode_value(item, body) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "bytes":
        return bytes(_slice_blob(content, body))
    return _decode_array(kind, content, body)


def _decode_array(kind: str, description: Sequence[Any], body: memoryview) -> Any:  # noqa: ANN401  (an array, a tensor or a number)
    """Return the array, the tensor or NumPy's number, as `kind` says, of a description [dtype, shape, [offset, size]].

    Raises:
        ValueError: the bytes do not fit the shape.
    """
    dtype_name, shape, (offset, size) = description
    dtype = np.dtype(dtype_name)
    # Before `frombuffer`: bytes of a checkpoint never become Python objects.
    if dtype.hasobject or prod(shape) * dtype.itemsize != size:
        raise ValueError(f"{shape} of {dtype_name}")
    # A copy, as an array on bytes is read-only.
    array: Array = np.frombuffer(_slice_blob((offset, size), body), dtype).reshape(shape).copy()
    if kind == "array":
        return array
    if kind == "number":
        return array[()]
    if kind == "tensor":
        return torch.from_numpy(array)
    raise KeyError(kind)  # `decode_state` reports it


def _slice_blob(span: Sequence[int], body: memoryview) -> memoryview:
    """Return the bytes of the body in a span, (offset, size).

    Raises:
        ValueError: the span is not within the body.
    """
    offset, size = span
    if min(offset, size) < 0 or offset + size > len(body):
        raise ValueError(f"{size} bytes at {offset} of {len(body)}")
    return body[offset : offset + size]


def buffer_size(state: object) -> int:
    """Return the number of bytes to allocate for states like this one: arrays keep their sizes, the header may grow.

    Raises:
        TypeError: the state cannot be encoded.
    """
    content = encode_state(state)
    header_bytes = int.from_bytes(content[:_SIZE_BYTES], "little")
    # The header counts twice: its numbers and texts may become longer.
    return len(content) + header_bytes + SPARE_BYTES


def write_state_(buffer: Array, state: object) -> str:
    """Write a state into `buffer`, uint8 [bytes]; return the reason if it cannot be written, else an empty text."""
    try:
        content = encode_state(state)
    except TypeError as error:
        # Zeros are read as no state; half of a state must never stay behind.
        buffer[:] = 0
        return f"{error}, which cannot be saved: expected numbers, text, arrays, and dicts, lists and tuples of them"
    if len(content) > len(buffer):
        buffer[:] = 0
        return f"its state grew to {len(content):,} bytes, and {len(buffer):,} bytes were allocated for it"
    buffer[: len(content)] = np.frombuffer(content, np.uint8)
    buffer[len(content) :] = 0
    return ""


def read_state(buffer: Array) -> Any:  # noqa: ANN401  (a state of any form)
    """Return the state that `write_state_` wrote into `buffer`, uint8 [bytes]; None if the buffer has no state."""
    header_bytes = int.from_bytes(buffer[:_SIZE_BYTES].tobytes(), "little")
    body_bytes = int.from_bytes(buffer[_SIZE_BYTES : 2 * _SIZE_BYTES].tobytes(), "little")
    if not header_bytes:  # the buffer is all zeros
        return None
    return decode_state(buffer[: 2 * _SIZE_BYTES + header_bytes + body_bytes].tobytes())
