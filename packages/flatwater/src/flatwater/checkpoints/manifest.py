"""The manifest of a checkpoint: one JSON file that names every leaf and every shard by its hash.

It is written after all shards, so a checkpoint with a manifest is complete. Its last entry is the hash of the other
entries, and the file must equal the file that is written for its content, byte for byte, so every flipped bit is found.
Since whoever forges a file can compute its hash, the content is checked against a schema, and for contradictions.
Nothing in it is executable. This module does not need torch.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, Literal, TypeAlias

from flatwater.checkpoints.schema import InlineLeaf, ManifestContent, ShardLeaf
from flatwater_watch.files.directory import read_whole
from flatwater_watch.files.json_values import MAXIMUM_BYTES, convert_to_type, indent_json, parse_json, require_shallow

FORMAT = 1
"""Version of the manifests that are written here; a manifest of a later version is not read."""

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""Values of facts about a run: plain JSON."""

Scalar = int | float | bool | str | None
LeafKind = Literal["tensor", "array", "generator", "float", "int", "bool", "str", "none"]
SCALAR_KINDS = ("float", "int", "bool", "str", "none")
"""Kinds of leaves whose value is in the manifest itself; the bytes of others are in shards."""

# Six digits at least, as `manifest_path` pads; 18 at most, so that each fits 64 bits.
_FILE_NAME = re.compile(r"([0-9]{6,18})\.([0-9]{6,18})\.json")
_VALUE_TYPES: Mapping[str, tuple[type, ...]] = {
    "float": (float, str),  # text for NaN and infinities
    "int": (int,),
    "bool": (bool,),
    "str": (str,),
    "none": (type(None),),
}
_NON_FINITE_NAMES = ("nan", "inf", "-inf")


@dataclass(frozen=True, kw_only=True, slots=True)
class LeafRecord:
    """The manifest's record of one saved leaf."""

    path: str
    """Path of the leaf in the state tree, and its name in the shard."""
    kind: LeafKind
    sha256: str
    """Hash of its bytes in row-major order; for a scalar, see `scalar_hash`."""
    dtype: str = ""
    """Dtype as torch or numpy writes it; empty for a scalar."""
    shape: tuple[int, ...] = ()
    shard: str = ""
    """Hash of the shard that holds the bytes; empty for a scalar."""
    value: Scalar = None
    """The value of a scalar."""

    def __str__(self) -> str:
        """Return text such as `tensor float32 [4, 3]`, or `int 12`."""
        return (
            f"{self.kind} {self.value!r}"
            if self.kind in SCALAR_KINDS
            else describe_leaf(self.kind, self.dtype, self.shape)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRecord:
    """The manifest's record of one file of leaves, `objects/<sha256>.safetensors`."""

    sha256: str
    """Hash of the whole file."""
    bytes: int
    """Size of the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The description of one checkpoint."""

    file: Path
    round: int
    """Number of rounds that the run had completed."""
    step: int
    """Number of completed steps of the next round; 0 for a checkpoint between rounds."""
    saved: str = ""
    """Time when it was written, in UTC (ISO 8601)."""
    facts: Mapping[str, JSON] = field(default_factory=dict)
    """Facts about the run, to be compared at a resume: configuration, data, versions, source code."""
    leaves: tuple[LeafRecord, ...] = ()
    shards: tuple[ShardRecord, ...] = ()
    damage: str = ""
    """Reason why the file cannot be used; empty if it can. A damaged manifest has no leaves and no shards."""
    unread: bool = False
    """Whether the file may be intact all the same: it could not be read this time, or has a later format. Such
    checkpoints are never removed."""

    @property
    def bytes(self) -> int:
        """Size of its shards together; other checkpoints may share some of them."""
        return sum(shard.bytes for shard in self.shards)


def describe_leaf(kind: str, dtype: str, shape: Sequence[int]) -> str:
    """Return text such as `tensor float32 [4, 3]`."""
    return f"{kind} {dtype} {list(shape)}"


def manifest_path(folder: Path, round_: int, step: int) -> Path:
    """Return the path of a manifest in `folder`, such as `000012.000000.json`: its round and its step."""
    return folder / f"{round_:06d}.{step:06d}.json"


def shard_path(folder: Path, sha256: str) -> Path:
    """Return the path of a shard in `folder`, by its hash."""
    return folder / "objects" / f"{sha256}.safetensors"


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as the bytes of its file.

    Raises:
        TypeError: a reader would refuse the manifest: its facts are not JSON or nested too deep, or it is too large.
    """
    content: dict[str, Any] = {
        "format": FORMAT,
        "round": manifest.round,
        "step": manifest.step,
        "saved": manifest.saved,
        "facts": to_plain_json(manifest.facts),
        "leaves": [_leaf_content(record) for record in manifest.leaves],
        "shards": [{"sha256": shard.sha256, "bytes": shard.bytes} for shard in manifest.shards],
    }
    try:
        # What a reader would refuse is refused while the run still lives.
        require_shallow(content)
    except ValueError as error:
        raise TypeError(f"facts of a checkpoint are nested too deep: {error}") from error
    encoded_text = _encode_with_hash(content)
    if len(encoded_text) > MAXIMUM_BYTES:
        raise TypeError(f"{len(manifest.leaves)} leaves are too many: a manifest has at most {MAXIMUM_BYTES} bytes")
    return encoded_text


def _leaf_content(record: LeafRecord) -> dict[str, Any]:
    """Return a leaf's record as JSON: a scalar with its value, another leaf with dtype, shape and shard."""
    content: dict[str, Any] = {"path": record.path, "kind": record.kind, "sha256": record.sha256}
    if record.kind in SCALAR_KINDS:
        return content | {"value": to_plain_json(record.value)}
    return content | {"dtype": record.dtype, "shape": list(record.shape), "shard": record.shard}


def _encode_with_hash(content: Mapping[str, Any]) -> bytes:
    """Return a manifest's content as the bytes of its file, with the hash of the content added."""
    # The file is indented for people; the hash is of the canonical form, without spaces.
    content_hash = hashlib.sha256(canonical_json(content)).hexdigest()
    return indent_json(dict(content) | {"sha256": content_hash}) + b"\n"


def canonical_json(content: object) -> bytes:
    """Return JSON with sorted keys and without spaces, so that equal contents give equal bytes."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def to_plain_json(value: object) -> Any:  # noqa: ANN401  (JSON as the json module takes it)
    """Return `value` in the types of standard JSON: tuples as lists, paths as text, NaN and infinities as their names.

    Raises:
        TypeError: `value` contains a type that JSON does not have.
    """
    if isinstance(value, float):  # `float`: the plain type, also of a subclass such as np.float64
        return float(value) if isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): to_plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_json(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"facts of a checkpoint cannot have a {type(value).__name__}: {value!r}")


def manifest_files(folder: Path) -> list[Path]:
    """Return the manifests in `folder`, oldest first."""
    return sorted((path for path in folder.glob("*.json") if is_manifest(path) and path.is_file()), key=_round_and_step)


def is_manifest(file: Path) -> bool:
    """Return whether a file has the name of a manifest, `ROUND.STEP.json`."""
    return _FILE_NAME.fullmatch(file.name) is not None


def _round_and_step(file: Path) -> tuple[int, int]:
    """Return round and step in the name of a manifest's file; (-1, -1) for any other name."""
    match = _FILE_NAME.fullmatch(file.name)
    return (int(match[1]), int(match[2])) if match else (-1, -1)


def scalar_hash(kind: str, value: Scalar) -> str:
    """Return the hash of a scalar's kind and value, as canonical JSON."""
    # With the kind, so that 1, 1.0 and true have different hashes.
    return hashlib.sha256(canonical_json([kind, to_plain_json(value)])).hexdigest()


def read_manifest(file: Path) -> Manifest:
    """Return the manifest in `file`; if it is damaged, its `damage` says why."""
    try:
        raw = read_whole(file, MAXIMUM_BYTES)
    except OSError as error:
        # The disk or the network may work again tomorrow, so the checkpoint must not be removed.
        return _damaged_manifest(file, f"the manifest cannot be read ({error.strerror or error})", is_unread=True)
    except ValueError as error:
        return _damaged_manifest(file, f"the manifest cannot be read ({error})")
    return parse_manifest(file, raw)


@lru_cache(maxsize=4)
def parse_manifest(file: Path, raw: bytes) -> Manifest:
    """Return the manifest with the content `raw` of its file, from the disk or from a store.

    If it is damaged, its `damage` says why; a manifest of a later format is also `unread`. The last four results are
    cached: each save reads the manifests before it again, and a check takes as long as writing one.
    """
    try:
        content = parse_json(raw)
    except ValueError as error:
        return _damaged_manifest(file, f"the manifest cannot be read ({error})")
    if not isinstance(content, dict):
        return _damaged_manifest(file, "the manifest is not a JSON object")
    # First of all checks: the file must equal the file that is written for its content, byte for byte.
    content_without_hash = {key: value for key, value in content.items() if key != "sha256"}
    if _encode_with_hash(content_without_hash) != raw:
        return _damaged_manifest(file, "the manifest's hash does not match its content")
    # After the hash, so that a flipped bit in `format` does not count as a later version.
    if (file_format := content.get("format")) != FORMAT and isinstance(file_format, int):
        problem = (
            f"expected format {FORMAT}, got format {file_format}, which a later version of Flatwater writes. Update "
            "Flatwater"
        )
        return _damaged_manifest(file, problem, is_unread=True)
    try:
        manifest = _parse_manifest(file, convert_to_type(content, ManifestContent))
    except ValueError as error:
        return _damaged_manifest(file, f"the manifest is not valid ({error})")
    contradiction = _find_contradiction(manifest)
    return _damaged_manifest(file, contradiction) if contradiction else manifest


def _damaged_manifest(file: Path, damage: str, *, is_unread: bool = False) -> Manifest:
    """Return an empty manifest with the given `damage`; its round and step are taken from the file's name."""
    round_, step = _round_and_step(file)
    return Manifest(file=file, round=round_, step=step, damage=damage, unread=is_unread)


def _parse_manifest(file: Path, content: ManifestContent) -> Manifest:
    """Return the manifest with this content; `_find_contradiction` is yet to check it."""
    return Manifest(
        file=file,
        round=content.round,
        step=content.step,
        saved=content.saved,
        facts=content.facts,
        leaves=tuple(_leaf_record(leaf) for leaf in content.leaves),
        shards=tuple(ShardRecord(sha256=shard.sha256, bytes=shard.bytes) for shard in content.shards),
    )


def _leaf_record(content: dict[str, Any]) -> LeafRecord:
    """Return the record of a leaf from its JSON.

    Raises:
        ValueError: the JSON has wrong keys or types for a leaf of its kind.
    """
    if content.get("kind") not in SCALAR_KINDS:
        shard_leaf = convert_to_type(content, ShardLeaf)
        return LeafRecord(
            path=shard_leaf.path,
            kind=shard_leaf.kind,
            sha256=shard_leaf.sha256,
            dtype=shard_leaf.dtype,
            shape=tuple(shard_leaf.shape),
            shard=shard_leaf.shard,
        )
    leaf = convert_to_type(content, InlineLeaf)
    # `type` and not `isinstance`, as True would pass for an int.
    if type(leaf.value) not in _VALUE_TYPES[leaf.kind]:
        raise ValueError(f"the value of the {leaf.kind} {leaf.path!r} is a {type(leaf.value).__name__}")
    if leaf.kind == "float" and isinstance(leaf.value, str) and leaf.value not in _NON_FINITE_NAMES:
        raise ValueError(f"the value of the float {leaf.path!r} is text")
    # `float` also reads the texts of NaN and infinities; a float is never None, which only the type checker doubts.
    value = float(leaf.value) if leaf.kind == "float" and leaf.value is not None else leaf.value
    return LeafRecord(path=leaf.path, kind=leaf.kind, sha256=leaf.sha256, value=value)


def _find_contradiction(manifest: Manifest) -> str:
    """Return a sentence about a contradiction within the manifest or with its file name; empty if there is none."""
    if (manifest.round, manifest.step) != _round_and_step(manifest.file):
        return f"the manifest is of round {manifest.round}, step {manifest.step}: the file was renamed"
    shard_hashes = {shard.sha256 for shard in manifest.shards}
    if len(shard_hashes) < len(manifest.shards):
        return "the manifest lists a shard twice"
    if len({record.path for record in manifest.leaves}) < len(manifest.leaves):
        return "the manifest lists a leaf twice"
    for record in manifest.leaves:
        if record.kind not in SCALAR_KINDS and record.shard not in shard_hashes:
            return f"the shard of the leaf {record.path!r} is not listed"
        if record.kind in SCALAR_KINDS and scalar_hash(record.kind, record.value) != record.sha256:
            return f"the hash of the {record.kind} {record.path!r} does not match its value"
    return ""


_ABSENT_VALUE = "absent"


def fact_differences(saved_facts: Mapping[str, JSON], current: Mapping[str, JSON]) -> list[str]:
    """Return one line for each fact that differs: `population.size: 16 in the checkpoint, 8 now`.

    Args:
        saved_facts: a manifest's `facts`.
        current: facts of the run that resumes. Nested mappings are compared name by name, lists as a whole.
    """
    saved_values = dict(_flatten_facts(to_plain_json(saved_facts), name=""))
    current_values = dict(_flatten_facts(to_plain_json(current), name=""))
    lines = []
    for name in dict.fromkeys([*saved_values, *current_values]):  # each name once, in order
        saved_value = saved_values.get(name, _ABSENT_VALUE)
        current_value = current_values.get(name, _ABSENT_VALUE)
        if saved_value != current_value:
            lines.append(f"{name}: {saved_value} in the checkpoint, {current_value} now")
    return lines


def _flatten_facts(value: JSON, name: str) -> Iterator[tuple[str, str]]:
    """Yield the dotted name and the JSON of every fact in `value`; 1.0 is written as 1, so that both are equal.

    Args:
        value: a fact, or a table of facts.
        name: dotted name of `value`; empty at the top.
    """
    # An empty table within the facts is a fact itself, `{}`.
    if isinstance(value, Mapping) and (value or not name):
        for key, item in value.items():
            yield from _flatten_facts(item, f"{name}.{key}" if name else key)
    else:
        normalized_value = int(value) if isinstance(value, float) and value.is_integer() else value
        yield name, json.dumps(normalized_value, ensure_ascii=False)
