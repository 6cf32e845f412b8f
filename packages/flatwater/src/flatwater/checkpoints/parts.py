"""Exact checkpoints of any training loop: modules, optimizers, environments, generators and tensors, by name.

    parts = {"agent": agent, "optimizer": optimizer, "envs": envs.envs, "obs": obs}
    first_step = restore_checkpoint("checkpoints", parts)  # 0 if there is none
    for update in range(first_step, updates):
        ...
        save_checkpoint("checkpoints", parts, update + 1)

A part is saved whole and restored to the bit: what has `state_dict` and `load_state_dict` by these, tensors, arrays,
`@state` classes and torch's generators in place. The global generators of Python, NumPy and torch belong to every
checkpoint, since most loops draw from them.
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
from flatwater.checkpoints.intact import VerifiedCheckpoint
from flatwater.checkpoints.manifest import JSON, SCALAR_KINDS, LeafRecord
from flatwater.checkpoints.reader import restore_state_
from flatwater.checkpoints.writer import save_checkpoint as write_checkpoint
from flatwater.state.tree import Scalar
from flatwater_watch.errors import CheckpointError, require

_GENERATORS_NAME = "global generators"
_PARTS_FACT = "parts"


def save_checkpoint(folder: Path | str, parts: Mapping[str, object], step: int, *, keep: int = 3) -> Path:
    """Write a checkpoint, all of it or nothing, and remove those that `keep` does not keep.

    Args:
        folder: for checkpoints alone; created if need be.
        parts: objects that the loop would lose with its process, by name. Names are compared when they are restored.
            The global random generators of Python, NumPy and torch are saved as well.
        step: number of the loop's steps so far; `restore_checkpoint` returns it.
        keep: checkpoints that stay, counted from the newest.

    Returns:
        The file that names everything in it.

    Raises:
        RunError: the disk is full, or the folder cannot be written. Earlier checkpoints stay.
        TypeError: a part cannot be saved exactly; the message names its place.
    """
    require(step >= 0, "step", step, "0 or more")
    tree: dict[str, object] = {}
    forms: dict[str, JSON] = {}
    for name, value in _with_generators(parts).items():
        access = _find_state_access(value)
        if access is None:
            tree[name], forms[name] = value, None
        else:
            tree[name], forms[name] = flatten_state(access.get(), name)
    # A manifest counts rounds and the steps within one; a loop of the user's has a single counter.
    return write_checkpoint(
        Path(folder), tree, round=step, step=0, facts={_PARTS_FACT: forms}, config=CheckpointConfig(keep=keep)
    )


def restore_checkpoint(folder: Path | str, parts: MutableMapping[str, Any]) -> int:
    """Bring parts to where the newest intact checkpoint has them.

    Args:
        folder: the folder that `save_checkpoint` was given.
        parts: parts of the same names and kinds. Tensors and arrays are written in place, numbers replaced in `parts`.

    Returns:
        The step that was given at the save; 0 if there is no checkpoint.

    Raises:
        CheckpointError: the checkpoint is of other parts; the message names them.
    """
    intact = newest_intact(Path(folder), say=lambda line: warnings.warn(line, stacklevel=3))
    if intact is None:
        return 0
    forms = _saved_forms(intact)
    accesses = {name: _find_state_access(part) for name, part in _with_generators(parts).items()}
    # All parts are compared before the first is touched: half of a restore would be worse than none.
    _check_parts(intact, forms, accesses)
    named_parts: dict[str, object] = dict(_with_generators(parts))
    # What goes through `load_state_dict` is read into buffers first; everything else is filled in place.
    tree = named_parts | {name: _make_buffers(intact, name) for name, form in forms.items() if form is not None}
    restore_state_(tree, intact)
    for name, access in accesses.items():
        if access is not None:
            access.put(unflatten_state(forms[name], tree[name], name))
        elif isinstance(parts.get(name), Scalar):
            parts[name] = tree[name]
    return intact.manifest.round


@runtime_checkable
class Stateful(Protocol):
    """A module, an optimizer, a scheduler, a scaler, an environment in `Resumable`, or a class of the loop's own."""

    def state_dict(self) -> Any:  # noqa: ANN401  (a state of any form)
        """Return nested dicts, lists and tuples of tensors, arrays and numbers."""

    def load_state_dict(self, state: Any, /) -> object:  # noqa: ANN401  (a state of any form)
        """Take such a state back."""


@dataclass(frozen=True)
class _StateAccess:
    """Functions that read and write the state of a part which cannot be written in place."""

    get: Callable[[], Any]
    put: Callable[[Any], object]


@dataclass(frozen=True)
class _GlobalGenerators:
    """Stands for the global generators of Python, NumPy and torch among the parts."""


def _with_generators(parts: Mapping[str, object]) -> dict[str, object]:
    """Return the parts with the global generators as one more; their name must be free."""
    require(
        _GENERATORS_NAME not in parts,
        "parts",
        _GENERATORS_NAME,
        "another name: this name belongs to the global generators",
    )
    return {**parts, _GENERATORS_NAME: _GlobalGenerators()}


def _find_state_access(part: object) -> _StateAccess | None:
    """Return functions that access the state of a part; None if the part is a branch or a leaf of a state tree."""
    if isinstance(part, _GlobalGenerators):
        return _StateAccess(_global_draws, _set_global_draws)
    if isinstance(part, np.random.Generator):
        bits = part.bit_generator
        return _StateAccess(lambda: bits.state, lambda state: setattr(bits, "state", state))
    if isinstance(part, Stateful):
        return _StateAccess(part.state_dict, part.load_state_dict)
    if isinstance(part, list | tuple) and part and all(_find_state_access(item) is not None for item in part):
        accesses = [access for item in part if (access := _find_state_access(item)) is not None]
        return _StateAccess(
            lambda: [access.get() for access in accesses],
            lambda states: [access.put(state) for access, state in zip(accesses, states, strict=True)],
        )
    return None


def _global_draws() -> dict[str, Any]:
    """Return the states of the generators of Python, NumPy, torch and, where CUDA has begun, each GPU."""
    version, state_words, gauss = random.getstate()  # 624 words and a position
    cuda_began = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # asking for its state would begin it
    on_gpu = torch.cuda.get_rng_state_all() if cuda_began else []
    return {
        "python": {"version": version, "words": np.array(state_words, np.uint64), "gauss": gauss},
        "numpy": np.random.get_state(legacy=False),  # noqa: NPY002  (the loop's own draws from it)
        "torch": torch.get_rng_state(),
        "cuda": on_gpu,
    }


def _set_global_draws(state: dict[str, Any]) -> None:
    """Put back the states that `_global_draws` has returned."""
    python = state["python"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    np.random.set_state(state["numpy"])  # noqa: NPY002  (the state of NumPy's global generator)
    torch.set_rng_state(state["torch"])
    # There may be fewer cards than when it was saved.
    for number, draws in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(draws, number)


def flatten_state(value: object, name: str) -> tuple[dict[str, Any], JSON]:
    """Return the leaves of nested dicts, lists and tuples by path, and the form that puts them together again.

    Raises:
        TypeError: a value inside is of another type; the message names its place.
    """
    leaves: dict[str, Any] = {}

    def form(value: Any, path: str) -> JSON:  # noqa: ANN401  (a state of any form)
        """Return where `value` goes in JSON, its leaves by path; adds these to `leaves`.

        Raises:
            TypeError: a key is neither text nor a whole number, or two values have the same path, or a value cannot be
                saved.
        """
        if isinstance(value, Mapping):
            # `type` and not `isinstance`: a subclass would come back as the plain type.
            if not all(type(key) in {str, int} for key in value):
                raise TypeError(f"{name}.{path}: keys of dicts must be text or whole numbers")
            return {"dict": [[key, form(item, f"{path}.{key}" if path else str(key))] for key, item in value.items()]}
        if type(value) in {list, tuple}:
            item_forms = [form(item, f"{path}.{index}" if path else str(index)) for index, item in enumerate(value)]
            return {type(value).__name__: item_forms}
        if path in leaves:
            raise TypeError(f"{name}.{path}: two values have this path. Rename the keys with dots")
        # A numpy scalar is told from an array, so that it comes back as the scalar that it was.
        if isinstance(value, np.generic):
            leaves[path] = np.array(value)
            return {"number": path}
        if not isinstance(value, torch.Tensor | np.ndarray | torch.Generator | Scalar):
            raise TypeError(
                f"{name}.{path}: a checkpoint cannot hold a {type(value).__name__}. Leave it out of state_dict(), or "
                "save the values that make it"
            )
        # Without its graph, and still the same memory.
        leaves[path] = value.detach() if isinstance(value, torch.Tensor) else value
        return path

    return leaves, form(value, "")


def unflatten_state(form: Any, leaves: Any, name: str) -> Any:  # noqa: ANN401  (a state of any form)
    """Return the value that `flatten_state` was given, from leaves that were read.

    Raises:
        CheckpointError: the form is not that of these leaves.
    """

    # The form comes from a file: only its four words build anything, and every other shape of it ends in an error.
    def build_value(form: Any) -> Any:  # noqa: ANN401  (a state of any form)
        """Return the value of a form: the inverse of `form` in `flatten_state`."""
        if isinstance(form, str):
            return leaves[form]
        ((kind, content),) = form.items()
        if kind == "number":
            return leaves[content][()]
        if kind == "dict":
            return {key: build_value(item) for key, item in content}
        return {"list": list, "tuple": tuple}[kind](build_value(item) for item in content)

    try:
        return build_value(form)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{name}: the checkpoint does not describe how its state is put together") from error


def _saved_forms(intact: VerifiedCheckpoint) -> Mapping[str, Any]:
    """Return the form in which each part was saved, by name: None for in place, else that of its `state_dict`.

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
    intact: VerifiedCheckpoint, forms: Mapping[str, Any], doors: Mapping[str, _StateAccess | None]
) -> None:
    """Refuse parts that are not those of the checkpoint, before any is touched.

    Raises:
        CheckpointError: the parts differ; the message lists how.
    """
    lines = [f"{name}: in the checkpoint, not given" for name in forms if name not in doors]
    lines += [f"{name}: given, not in the checkpoint" for name in doors if name not in forms]
    for name in forms.keys() & doors.keys():
        if (forms[name] is None) != (doors[name] is None):
            by = "in place" if forms[name] is None else "by state_dict()"
            lines.append(f"{name}: saved {by}, and a part of another kind is given")
    if lines:
        listing = "".join(f"\n  {line}" for line in sorted(lines))
        raise CheckpointError(f"{intact.manifest.file} has other parts:{listing}\nGive the parts that were saved.")


def _make_buffers(intact: VerifiedCheckpoint, part_name: str) -> dict[str, Any]:
    """Return a buffer for each leaf of a part, by its path within the part; for a scalar its value."""
    prefix = f"{part_name}."
    records = [record for record in intact.manifest.leaves if record.path.startswith(prefix)]
    return {record.path.removeprefix(prefix): _make_buffer(intact, record) for record in records}


def _make_buffer(intact: VerifiedCheckpoint, record: LeafRecord) -> Any:  # noqa: ANN401  (a state of any form)
    """Return an empty tensor or array for a leaf, a new generator, or the value itself where the manifest holds it.

    Raises:
        CheckpointError: the dtype of the record is unknown, or the bytes in the checkpoint do not match its shape.
    """
    if record.kind in SCALAR_KINDS:
        return record.value
    if record.kind == "generator":
        return torch.Generator()  # on the CPU, where its state is bytes
    try:
        # From a file: looked up among torch's names and numpy's dtypes, never evaluated.
        dtype: Any = np.dtype(record.dtype) if record.kind == "array" else vars(torch)[record.dtype]
        size = prod(record.shape) * dtype.itemsize
    except (AttributeError, KeyError, TypeError) as error:
        raise CheckpointError(f"{record.path}: {record.dtype!r} is not a dtype of a {record.kind}") from error
    if intact.spans[record.path].bytes != size:  # before memory is asked for
        raise CheckpointError(f"{record.path}: {record} does not match the value in the checkpoint")
    return np.empty(record.shape, dtype) if record.kind == "array" else torch.empty(record.shape, dtype=dtype)
