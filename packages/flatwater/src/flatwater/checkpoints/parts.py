"""Exact checkpoints of any training loop: modules, optimizers, environments, generators and tensors, by name.

    parts = {"agent": agent, "optimizer": optimizer, "envs": envs.envs, "obs": obs}
    first_step = restore_checkpoint("checkpoints", parts)  # 0 if there is none
    for update in range(first_step, updates):
        ...
        save_checkpoint("checkpoints", parts, update + 1)

A part is saved whole and restored bit for bit. Objects with `state_dict` and `load_state_dict` are restored by these
methods; tensors, arrays, `@state` classes and torch's generators in place. The global generators of Python, NumPy and
torch belong to every checkpoint, since most loops draw from them.
"""

import random
import warnings
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from flatwater.checkpoints.catalogue import newest_intact
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.manifest import JSON, SCALAR_KINDS, LeafRecord
from flatwater.checkpoints.reader import restore_state_
from flatwater.checkpoints.verification import VerifiedCheckpoint
from flatwater.checkpoints.writer import save_checkpoint as write_checkpoint
from flatwater.state.tree import Scalar
from flatwater_watch.errors import CheckpointError, require
from flatwater_watch.files.directory import expand_home

_GENERATORS_NAME = "global generators"
_PARTS_FACT = "parts"


def save_checkpoint(folder: Path | str, parts: Mapping[str, object], step: int, *, keep: int = 3) -> Path:
    """Write a checkpoint, whole or not at all, and remove older checkpoints.

    Args:
        folder: a folder for checkpoints only; created if it is missing.
        parts: objects with the state of the loop, by name; a restore needs the same names. The global random generators
            of Python, NumPy and torch are saved as well.
        step: number of the loop's steps so far; `restore_checkpoint` returns it.
        keep: number of checkpoints that stay, counted from the newest.

    Returns:
        The checkpoint's manifest: the file that names its other files.

    Raises:
        RunError: the disk is full, or the folder cannot be written. Earlier checkpoints stay.
        TypeError: a part cannot be saved exactly; the message names its place.
    """
    require(step >= 0, "step", step, "0 or more")
    tree: dict[str, object] = {}
    # For each part the form from which its state_dict is built again; None for a part that is restored in place.
    forms: dict[str, JSON] = {}
    for name, value in _with_generators(parts).items():
        access = _find_state_access(value)
        if access is None:
            tree[name], forms[name] = value, None
        else:
            tree[name], forms[name] = flatten_state(access.get(), name)
    # A manifest has a round, and a step within the round; the user's loop counts steps alone, saved as the round.
    return write_checkpoint(
        expand_home(folder), tree, round=step, step=0, facts={_PARTS_FACT: forms}, config=CheckpointConfig(keep=keep)
    )


def restore_checkpoint(folder: Path | str, parts: MutableMapping[str, Any]) -> int:
    """Restore parts from the newest intact checkpoint.

    Args:
        folder: the folder that was given to `save_checkpoint`.
        parts: objects of the same names and kinds. Tensors and arrays are written in place; numbers in `parts` are
            replaced.

    Returns:
        The step that was given to `save_checkpoint`; 0 if there is no checkpoint.

    Raises:
        CheckpointError: the checkpoint has other parts; the message names them.
    """
    intact = newest_intact(expand_home(folder), say=lambda line: warnings.warn(line, stacklevel=3))
    if intact is None:
        return 0
    forms = _saved_forms(intact)
    accesses = {name: _find_state_access(part) for name, part in _with_generators(parts).items()}
    # All parts are compared before the first is written, so that no restore stops half-way.
    _check_parts(intact, forms, accesses)
    named_parts: dict[str, object] = dict(_with_generators(parts))
    # State for `load_state_dict` is read into new buffers first; all other parts are filled in place.
    tree = named_parts | {name: _make_buffers(intact, name) for name, form in forms.items() if form is not None}
    restore_state_(tree, intact)
    for name, access in accesses.items():
        if access is not None:
            access.put(unflatten_state(forms[name], tree[name], name))
        elif isinstance(parts.get(name), Scalar):  # a number has no memory that `restore_state_` could fill
            parts[name] = tree[name]
    return intact.manifest.round


@runtime_checkable
class Stateful(Protocol):
    """An object with a state: a module, an optimizer, a scheduler, an environment in `Resumable`, or the user's own."""

    def state_dict(self) -> Any:  # noqa: ANN401  (a state of any form)
        """Return nested dicts, lists and tuples of tensors, arrays and numbers."""

    def load_state_dict(self, state: Any, /) -> object:  # noqa: ANN401  (a state of any form)
        """Restore a state that `state_dict` returned."""


@dataclass(frozen=True)
class _StateAccess:
    """Functions that read and write the state of a part that cannot be restored in place."""

    get: Callable[[], Any]
    put: Callable[[Any], object]


@dataclass(frozen=True)
class _GlobalGenerators:
    """A placeholder among the parts for the global generators of Python, NumPy and torch."""


def _with_generators(parts: Mapping[str, object]) -> dict[str, object]:
    """Return the parts with the global generators added; no part may have their name."""
    require(
        _GENERATORS_NAME not in parts,
        "parts",
        _GENERATORS_NAME,
        "another name: this name belongs to the global generators",
    )
    return {**parts, _GENERATORS_NAME: _GlobalGenerators()}


def _find_state_access(part: object) -> _StateAccess | None:
    """Return the functions that access the state of a part; None if the part can be restored in place."""
    if isinstance(part, _GlobalGenerators):
        return _StateAccess(get=_read_generator_states, put=_restore_generator_states)
    if isinstance(part, np.random.Generator):
        bit_generator = part.bit_generator
        return _StateAccess(get=lambda: bit_generator.state, put=lambda state: setattr(bit_generator, "state", state))
    if isinstance(part, Stateful):
        return _StateAccess(get=part.state_dict, put=part.load_state_dict)
    # A list of such parts, as `envs.envs`: its state is the list of their states.
    if isinstance(part, list | tuple) and part and all(_find_state_access(item) is not None for item in part):
        accesses = [access for item in part if (access := _find_state_access(item)) is not None]
        return _StateAccess(
            get=lambda: [access.get() for access in accesses],
            put=lambda states: [access.put(state) for access, state in zip(accesses, states, strict=True)],
        )
    return None


def _read_generator_states() -> dict[str, Any]:
    """Return the states of the generators of Python, NumPy, torch and, where CUDA has begun, each GPU."""
    # The words are 624 and a position; `gauss` is the next normal number, or None.
    version, state_words, gauss = random.getstate()
    cuda_began = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # reading its state would start CUDA
    gpu_states = torch.cuda.get_rng_state_all() if cuda_began else []
    return {
        "python": {"version": version, "words": np.array(state_words, np.uint64), "gauss": gauss},
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002  (the loop itself draws from it)
        "torch": torch.get_rng_state(),
        "cuda": gpu_states,
    }


def _restore_generator_states(state: dict[str, Any]) -> None:
    """Restore the global generators to states that `_read_generator_states` returned."""
    python = state["python"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    np.random.set_state(state["numpy"])  # noqa: NPY002  (the state of NumPy's global generator)
    torch.set_rng_state(state["torch"])
    # This machine may have fewer GPUs than the one that saved the states.
    for number, gpu_state in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(gpu_state, number)


def flatten_state(value: object, name: str) -> tuple[dict[str, Any], JSON]:
    """Split nested dicts, lists and tuples. Returns their leaves by path, and the form that `unflatten_state` needs.

    The form of `{"a": [tensor]}` is `{"dict": [["a", {"list": ["a.0"]}]]}`: JSON with paths in place of leaves.

    Raises:
        TypeError: a value has a type that cannot be saved; the message names its path.
    """
    leaves: dict[str, Any] = {}

    def split_value(value: Any, path: str) -> JSON:  # noqa: ANN401  (a state of any form)
        """Return the form of a value, and add its leaves to `leaves`.

        Raises:
            TypeError: a key is neither text nor a whole number, or two values have the same path, or a value cannot be
                saved.
        """
        if isinstance(value, Mapping):
            # Exact types, as a key of a subclass would be restored as a plain one.
            if not all(type(key) in {str, int} for key in value):
                raise TypeError(f"{name}.{path}: keys of dicts must be text or whole numbers")
            return {
                "dict": [[key, split_value(item, f"{path}.{key}" if path else str(key))] for key, item in value.items()]
            }
        if type(value) in {list, tuple}:
            item_forms = [
                split_value(item, f"{path}.{index}" if path else str(index)) for index, item in enumerate(value)
            ]
            return {type(value).__name__: item_forms}
        if path in leaves:
            raise TypeError(f"{name}.{path}: two values have this path. Rename the keys with dots")
        # Marked as a number, so that a NumPy scalar is not restored as an array.
        if isinstance(value, np.generic):
            leaves[path] = np.array(value)
            return {"number": path}
        if not isinstance(value, torch.Tensor | np.ndarray | torch.Generator | Scalar):
            raise TypeError(
                f"{name}.{path}: a checkpoint cannot hold a {type(value).__name__}. Leave it out of state_dict(), or "
                "save the values that make it"
            )
        # `detach` drops the autograd graph and keeps the memory.
        leaves[path] = value.detach() if isinstance(value, torch.Tensor) else value
        return path

    return leaves, split_value(value, "")


def unflatten_state(form: Any, leaves: Any, name: str) -> Any:  # noqa: ANN401  (a state of any form)
    """Return nested dicts, lists and tuples, from a form and the leaves by path that `flatten_state` returned.

    Raises:
        CheckpointError: the form is invalid, or does not fit the leaves.
    """

    # The form comes from a file: only `number`, `dict`, `list` and `tuple` build a value, all else is an error.
    def build_value(form: Any) -> Any:  # noqa: ANN401  (a state of any form)
        """Return the value of a form: the inverse of `split_value` in `flatten_state`."""
        if isinstance(form, str):
            return leaves[form]
        ((kind, content),) = form.items()
        if kind == "number":
            return leaves[content][()]  # the NumPy scalar of a 0-d array
        if kind == "dict":
            return {key: build_value(item) for key, item in content}
        return {"list": list, "tuple": tuple}[kind](build_value(item) for item in content)

    try:
        return build_value(form)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{name}: the checkpoint does not describe how its state is put together") from error


def _saved_forms(intact: VerifiedCheckpoint) -> Mapping[str, Any]:
    """Return the form of each part's `state_dict` in a checkpoint, by name; None for a part restored in place.

    Raises:
        CheckpointError: `save_checkpoint` did not write the checkpoint.
    """
    forms = intact.manifest.facts.get(_PARTS_FACT)
    if not isinstance(forms, Mapping):
        raise CheckpointError(
            f"{intact.manifest.file} was not written by save_checkpoint. Resume a run of `flatwater train` with "
            "`flatwater resume`."
        )
    return forms


def _check_parts(
    intact: VerifiedCheckpoint, forms: Mapping[str, Any], accesses: Mapping[str, _StateAccess | None]
) -> None:
    """Refuse parts that differ from the checkpoint's parts, before any part is written.

    Raises:
        CheckpointError: the parts differ; the message lists each difference.
    """
    lines = [f"{name}: in the checkpoint, not given" for name in forms if name not in accesses]
    lines += [f"{name}: given, not in the checkpoint" for name in accesses if name not in forms]
    for name in forms.keys() & accesses.keys():
        if (forms[name] is None) != (accesses[name] is None):  # only one of both is restored in place
            saving_way = "in place" if forms[name] is None else "by state_dict()"
            lines.append(f"{name}: saved {saving_way}, and a part of another kind is given")
    if lines:
        listing = "".join(f"\n  {line}" for line in sorted(lines))
        raise CheckpointError(f"{intact.manifest.file} has other parts:{listing}\nGive the parts that were saved.")


def _make_buffers(intact: VerifiedCheckpoint, part_name: str) -> dict[str, Any]:
    """Return a buffer for each leaf of a part, by the leaf's path within the part; for a scalar, its value."""
    prefix = f"{part_name}."
    records = [record for record in intact.manifest.leaves if record.path.startswith(prefix)]
    return {record.path.removeprefix(prefix): _make_buffer(intact, record) for record in records}


def _make_buffer(intact: VerifiedCheckpoint, record: LeafRecord) -> Any:  # noqa: ANN401  (a state of any form)
    """Return an empty tensor or array, or a new generator, for a saved leaf to be read into; for a scalar, its value.

    Raises:
        CheckpointError: the record's dtype is unknown, or the leaf's bytes in the checkpoint do not match its shape.
    """
    if record.kind in SCALAR_KINDS:
        return record.value
    if record.kind == "generator":
        return torch.Generator()  # on the CPU: only the bytes of its state are needed
    try:
        # The dtype's name comes from a file: it is looked up in torch or NumPy, and never evaluated.
        dtype: Any = np.dtype(record.dtype) if record.kind == "array" else vars(torch)[record.dtype]
        size = prod(record.shape) * dtype.itemsize
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(f"{record.path}: {record.dtype!r} is not a dtype of a {record.kind}") from error
    if intact.spans[record.path].bytes != size:  # before the memory is allocated
        raise CheckpointError(f"{record.path}: {record} does not match the value in the checkpoint")
    return np.empty(record.shape, dtype) if record.kind == "array" else torch.empty(record.shape, dtype=dtype)
