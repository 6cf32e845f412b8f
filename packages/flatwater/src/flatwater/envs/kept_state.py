"""State that environments keep over episodes, as bytes of a size that is known before a run begins.

A user's environment gives it by `state_dict` and `load_state_dict`; for Gymnasium's wrappers it is known here.
Nothing is pickled: a head in JSON describes how dicts, lists and numbers are put together, arrays follow as bytes.
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
from flatwater_watch.errors import CheckpointError

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
"""Attributes that Gymnasium's wrappers keep over episodes. All others are forgotten at a reset."""
SPARE_BYTES = 4096
"""Bytes left for numbers and text that become longer, besides twice their first size."""
_SIZE_BYTES = 8
"""Size of each of the two lengths at the beginning, in bytes."""


@runtime_checkable
class StateKeeper(Protocol):
    """An object that gives its state and takes it back."""

    def state_dict(self) -> Any:  # noqa: ANN401  (a state of any form)
        """Return nested dicts, lists and tuples of numbers, text, arrays and tensors."""

    def load_state_dict(self, state: Any, /) -> object:  # noqa: ANN401  (a state of any form)
        """Take a state back."""


def wrapper_layers(env: object) -> Iterator[object]:
    """Yield an environment's wrappers, the outermost first, and the environment itself."""
    layer: object | None = env
    while layer is not None:
        yield layer
        layer = _instance_attributes(layer).get("env")


def _instance_attributes(layer: object) -> Mapping[str, Any]:
    """Return a layer's attributes; none of an object that has slots alone."""
    try:
        return vars(layer)
    except TypeError:
        return {}


def _kept_attributes(layer: object) -> tuple[str, ...]:
    """Return the names of a layer's kept attributes: those of its class, and statistics wherever they are."""
    fixed = next((names for kind, names in KNOWN_WRAPPERS.items() if isinstance(layer, kind)), ())
    items = _instance_attributes(layer).items()
    return fixed + tuple(name for name, value in items if isinstance(value, RunningMeanStd) and name not in fixed)


def keeps_state(env: object) -> bool:
    """Return whether an environment, or one of its wrappers, can give the state that it keeps over episodes."""
    return any(isinstance(layer, StateKeeper) or _kept_attributes(layer) for layer in wrapper_layers(env))


def read_env_state(env: object) -> list[Any]:
    """Return the state of the layers of an environment, an entry each, the outermost first."""
    return [_layer_state(layer) for layer in wrapper_layers(env)]


def _layer_state(layer: object) -> Any:  # noqa: ANN401  (whatever an environment keeps)
    """Return a layer's own `state_dict()` if it has one, else its kept attributes by name."""
    if isinstance(layer, StateKeeper):
        return layer.state_dict()
    return {name: _saved_value(vars(layer)[name]) for name in _kept_attributes(layer)}


def _saved_value(value: Any) -> Any:  # noqa: ANN401  (whatever an environment keeps)
    """Return a plain value for one attribute: statistics as a dict, a bounded deque as an array of its full length."""
    if isinstance(value, RunningMeanStd):
        return {name: getattr(value, name) for name in STATISTIC_NAMES}
    if isinstance(value, deque):  # as long as it will be, so that its full length is allocated from the beginning
        values = np.zeros(value.maxlen or len(value))
        values[: len(value)] = value
        return {"filled": len(value), "values": values}
    return value


def load_state_(env: object, state: Sequence[Any]) -> None:
    """Give the layers of an environment back the result of `read_env_state`.

    Raises:
        CheckpointError: the state is of other layers.
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
    """Write one saved attribute into a layer: the way back from `_saved_value`."""
    current = vars(layer).get(name)
    if isinstance(current, RunningMeanStd):
        for part in STATISTIC_NAMES:
            setattr(current, part, value[part])
    elif isinstance(current, deque):
        current.clear()
        # Gymnasium's lengths are whole numbers, and the saved array is float64.
        is_integer = name == "length_queue"
        current.extend(int(number) if is_integer else float(number) for number in value["values"][: value["filled"]])
    else:
        setattr(layer, name, value)


class EpisodeStarts:
    """States of copies of one environment when their running episodes began, from which these are played again.

    Not their present states: an outer wrapper may hold an observation that earlier statistics made, and an episode that
    is played again brings both to where they were.
    """

    def __init__(self, copies: Sequence[Any], make: Callable[[], Any]) -> None:
        """Measure the state of one more environment after a reset.

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
            self._measure_(make())

    def _measure_(self, env: Any) -> None:  # noqa: ANN401  (whatever an environment keeps)
        """Set `state_bytes`, of all copies together, or `unsaved`, why there are none; closes the spare copy `env`."""
        try:
            read_env_state(env)
        except AttributeError:  # a class that has nothing before its first reset
            for copy in self.copies:
                copy.reset(seed=0)
        try:
            env.reset(seed=0)
            self.state_bytes = len(self.copies) * buffer_size(read_env_state(env))
        except TypeError as error:
            self.unsaved = f"its {error}, which cannot be saved"
        finally:
            env.close()

    def record_starts_(self, which: Array) -> None:
        """Record the states of the copies of `which`, bool [E]; called before they are reset."""
        if self.state_bytes:
            # Only once there is something to record: an empty list says that nothing has begun.
            self._states = self._states or [None] * len(self.copies)
            for env in np.flatnonzero(which).tolist():
                # A deep copy: the environment goes on writing into the arrays that it gave.
                self._states[env] = deepcopy(read_env_state(self.copies[env]))

    def states(self) -> list[Any]:
        """Return the state of each copy; none where nothing has begun."""
        return self._states

    def load_(self, which: Array, states: Sequence[Any]) -> None:
        """Give the copies of `which` their states back; called before they are reset.

        Raises:
            CheckpointError: the states are of other copies.
        """
        if len(states) != len(self.copies):
            raise CheckpointError(f"expected the state of {len(self.copies)} environments, got {len(states)}")
        for env in np.flatnonzero(which).tolist():
            load_state_(self.copies[env], states[env])


@runtime_checkable
class ReplayableWorld(Protocol):
    """A world of copies whose episodes are played again from their states when these began."""

    beginnings: EpisodeStarts


def encode_state(state: object) -> bytes:
    """Return a state as bytes, from which `decode_state` makes an equal state.

    Sizes of head and body as two little-endian integers of 8 bytes, the head (JSON, see `_to_plain`), the body: the
    bytes of all arrays one after another, at offsets that the head names.

    Raises:
        TypeError: a value inside is not a number, text, array or tensor; the message names its place.
    """
    blobs: list[bytes] = []
    head = json.dumps(_to_plain(state, "state", blobs)).encode()
    body = b"".join(blobs)
    return len(head).to_bytes(_SIZE_BYTES, "little") + len(body).to_bytes(_SIZE_BYTES, "little") + head + body


def _to_plain(value: Any, place: str, blobs: list[bytes]) -> Any:  # noqa: ANN401  (whatever an environment keeps)
    """Return the value for JSON: anything but numbers, text and None is a list of its kind and its content.

    `["dict", [[key, value], ...]]`, `["list" or "tuple", [value, ...]]`, `["bytes", [offset, size]]`, and
    `["array" or "tensor" or "number", [dtype, shape, [offset, size]]]`. Places are in the body, from its beginning.

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
            [[_key(key, place), _to_plain(below, f"{place}[{key!r}]", blobs)] for key, below in value.items()],
        ]
    if type(value) in {list, tuple}:
        return [
            type(value).__name__,
            [_to_plain(below, f"{place}[{index}]", blobs) for index, below in enumerate(value)],
        ]
    if isinstance(value, bytes):
        return ["bytes", _put(value, blobs)]
    kind = "tensor" if isinstance(value, torch.Tensor) else "array" if isinstance(value, np.ndarray) else "number"
    if not isinstance(value, torch.Tensor | np.ndarray | np.generic):
        raise TypeError(f"{place} is a {type(value).__name__}")
    array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.dtype.hasobject or array.dtype.fields is not None:
        raise TypeError(f"{place} is an array of {array.dtype}")
    return [kind, [array.dtype.str, list(array.shape), _put(array.tobytes(), blobs)]]


def _key(key: object, place: str) -> str | int:
    """Return a dict's key as it is; refuse any but text and whole numbers, which alone come back as they were.

    Raises:
        TypeError: the key is of another type.
    """
    if type(key) is str or type(key) is int:
        return key
    raise TypeError(f"{place} has the key {key!r}")


def _put(content: bytes, blobs: list[bytes]) -> list[int]:
    """Append bytes to the blobs; return where they lie behind one another: [offset, size]."""
    offset = sum(map(len, blobs))
    blobs.append(content)
    return [offset, len(content)]


def decode_state(content: bytes) -> Any:  # noqa: ANN401  (a state of any form)
    """Return the state that was encoded.

    Raises:
        CheckpointError: the bytes are not encoded state.
    """
    try:
        size = int.from_bytes(content[:_SIZE_BYTES], "little")
        head, body = content[2 * _SIZE_BYTES : 2 * _SIZE_BYTES + size], memoryview(content)[2 * _SIZE_BYTES + size :]
        return _decode_value(json.loads(head), body)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise CheckpointError(f"the environments' state in the checkpoint cannot be read ({error})") from error


def _decode_value(form: Any, body: memoryview) -> Any:  # noqa: ANN401  (whatever an environment keeps)
    """Return the value that `_to_plain` described; `body` holds the bytes of arrays.

    Raises:
        ValueError: the bytes do not fit the shape of an array.
    """
    if not isinstance(form, list):
        return form
    kind, content = form
    if kind == "dict":
        return {key: _decode_value(below, body) for key, below in content}
    if kind in {"list", "tuple"}:
        items = [_decode_value(below, body) for below in content]
        return items if kind == "list" else tuple(items)
    if kind == "bytes":
        return bytes(_slice_blob(content, body))
    name, shape, span = content
    dtype = np.dtype(name)
    # Before `frombuffer`: bytes of a checkpoint never become Python objects.
    if dtype.hasobject or prod(shape) * dtype.itemsize != span[1]:
        raise ValueError(f"{shape} of {name}")
    # A copy, as an array on bytes is read-only.
    array: Array = np.frombuffer(_slice_blob(span, body), dtype).reshape(shape).copy()
    makers: dict[str, Callable[[], Any]] = {
        "array": lambda: array,
        "number": lambda: array[()],
        "tensor": lambda: torch.from_numpy(array),
    }
    return makers[kind]()


def _slice_blob(place: Sequence[int], body: memoryview) -> memoryview:
    """Return the bytes at `place`, (offset, size); refuse a place outside of the body.

    Raises:
        ValueError: the place is outside of the body.
    """
    offset, size = place
    if min(offset, size) < 0 or offset + size > len(body):
        raise ValueError(f"{size} bytes at {offset} of {len(body)}")
    return body[offset : offset + size]


def buffer_size(state: object) -> int:
    """Return the bytes to allocate for a state of this form: its arrays keep their sizes, the rest may grow.

    Raises:
        TypeError: the state cannot be encoded.
    """
    content = encode_state(state)
    head = int.from_bytes(content[:_SIZE_BYTES], "little")
    return len(content) + head + SPARE_BYTES


def write_state_(buffer: Array, state: object) -> str:
    """Write a state into its allocated bytes; return why it cannot be written, empty if it was."""
    try:
        content = encode_state(state)
    except TypeError as error:
        # Zeros are read as no state: never half of one.
        buffer[:] = 0
        return f"{error}, which cannot be saved: expected numbers, text, arrays, and dicts, lists and tuples of them"
    if len(content) > len(buffer):
        buffer[:] = 0
        return f"its state grew to {len(content):,} bytes, and {len(buffer):,} bytes were allocated for it"
    buffer[: len(content)] = np.frombuffer(content, np.uint8)
    buffer[len(content) :] = 0
    return ""


def read_state(buffer: Array) -> Any:  # noqa: ANN401  (a state of any form)
    """Return the state in these bytes, or None if nothing was written: a head of size 0."""
    head, body = (int.from_bytes(buffer[start : start + _SIZE_BYTES].tobytes(), "little") for start in (0, _SIZE_BYTES))
    return decode_state(buffer[: 2 * _SIZE_BYTES + head + body].tobytes()) if head else None
