"""The manifest of a checkpoint: one JSON file that names every leaf and every shard by its hash.

It is written after all shards, so a manifest that is there says that the checkpoint is complete. Its last entry is the
hash of the others in canonical form, and the file must be that canonical form byte for byte: a flipped bit anywhere
in it is found. A hash can be computed by whoever forges a file, so what it says is checked as well: by the schema, and
that its parts fit each other. Nothing in it is executable. This module does not need torch.
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
from flatwater_watch.files.content import MAXIMUM_BYTES, convert_to, indent_json, parse_json, require_shallow
from flatwater_watch.files.directory import read_whole

FORMAT = 1
"""The version of the manifest written here. A later one is not guessed at."""

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
"""Values of facts about a run: plain JSON."""

Scalar = int | float | bool | str | None
LeafKind = Literal["tensor", "array", "generator", "float", "int", "bool", "str", "none"]
SCALAR_KINDS = ("float", "int", "bool", "str", "none")
"""The kinds of leaves whose value stands in the manifest itself."""

# Six digits at least, as `manifest_path` pads; 18 at most, so that each fits 64 bits.
_FILE_NAME = re.compile(r"([0-9]{6,18})\.([0-9]{6,18})\.json")
_VALUE_TYPES: Mapping[str, tuple[type, ...]] = {
    "float": (float, str),  # a str is NaN or an infinity
    "int": (int,),
    "bool": (bool,),
    "str": (str,),
    "none": (type(None),),
}
_NON_FINITE_NAMES = ("nan", "inf", "-inf")


@dataclass(frozen=True, kw_only=True, slots=True)
class LeafRecord:
    """One saved leaf, as the manifest names it."""

    path: str
    """Path of the leaf in the state tree, and its name in the shard."""
    kind: LeafKind
    sha256: str
    """Hash of its bytes in row-major order; for a number, of its canonical JSON."""
    dtype: str = ""
    """Dtype as torch or numpy writes it; empty for a number."""
    shape: tuple[int, ...] = ()
    shard: str = ""
    """Hash that names the shard which holds the bytes; empty for a number."""
    value: Scalar = None
    """The number, flag or string itself."""

    def __str__(self) -> str:
        """Return text such as `tensor float32 [4, 3]`, or `int 12`."""
        return (
            f"{self.kind} {self.value!r}"
            if self.kind in SCALAR_KINDS
            else describe_leaf(self.kind, self.dtype, self.shape)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRecord:
    """One file of leaves: `objects/<sha256>.safetensors`."""

    sha256: str
    """Hash of the whole file."""
    bytes: int
    """The size of the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """One checkpoint, as its file describes it."""

    file: Path
    round: int
    """Rounds that the run had finished."""
    step: int
    """Steps of the round begun that it had finished; 0 between rounds."""
    saved: str = ""
    """Time when it was written, in UTC (ISO 8601)."""
    facts: Mapping[str, JSON] = field(default_factory=dict)
    """Facts that the run was made from: configuration, fingerprint of the data, versions, threads."""
    leaves: tuple[LeafRecord, ...] = ()
    shards: tuple[ShardRecord, ...] = ()
    damage: str = ""
    """Reason why the file cannot be used; empty if it can. A damaged manifest has no leaves and no shards."""
    unread: bool = False
    """Whether the file could not be judged: it was unreadable this time or has a later format. Such checkpoints are
    never removed."""

    @property
    def bytes(self) -> int:
        """The size of its shards, those it shares with other checkpoints included."""
        return sum(shard.bytes for shard in self.shards)


def describe_leaf(kind: str, dtype: str, shape: Sequence[int]) -> str:
    """Return text such as `tensor float32 [4, 3]`."""
    return f"{kind} {dtype} {list(shape)}"


def manifest_path(folder: Path, round_: int, step: int) -> Path:
    """Return the manifest's place in `folder`; names sort as the checkpoints follow each other."""
    return folder / f"{round_:06d}.{step:06d}.json"


def shard_path(folder: Path, sha256: str) -> Path:
    """Return the shard's place in `folder`."""
    return folder / "objects" / f"{sha256}.safetensors"


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as the bytes of its file.

    Raises:
        TypeError: the manifest could not be read again: its facts hold what JSON cannot say, or it is too large.
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
    encoded = _with_digest(content)
    if len(encoded) > MAXIMUM_BYTES:
        raise TypeError(f"{len(manifest.leaves)} leaves are too many: a manifest has at most {MAXIMUM_BYTES} bytes")
    return encoded


def _leaf_content(record: LeafRecord) -> dict[str, Any]:
    """Return a leaf's record as JSON: a scalar with its value, another with the shard that holds it."""
    content: dict[str, Any] = {"path": record.path, "kind": record.kind, "sha256": record.sha256}
    if record.kind in SCALAR_KINDS:
        return content | {"value": to_plain_json(record.value)}
    return content | {"dtype": record.dtype, "shape": list(record.shape), "shard": record.shard}


def _with_digest(content: Mapping[str, Any]) -> bytes:
    """Return a manifest's content as bytes, with the hash of its canonical form added."""
    # `indent` is for people; the hash is taken from the form without spaces, so it does not depend on it.
    hashed_content = dict(content) | {"sha256": hashlib.sha256(canonical_json(content)).hexdigest()}
    return indent_json(hashed_content) + b"\n"


def canonical_json(content: object) -> bytes:
    """Return JSON with sorted keys and without spaces: equal contents give equal bytes."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def to_plain_json(value: object) -> Any:  # noqa: ANN401  (JSON as the json module takes it)
    """Return `value` in the types of standard JSON: tuples as lists, paths as text, NaN and infinities as their names.

    Raises:
        TypeError: `value` holds something that JSON cannot say.
    """
    if isinstance(value, float):
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
    """Whether a file has the name of a manifest."""
    return _FILE_NAME.fullmatch(file.name) is not None


def _round_and_step(file: Path) -> tuple[int, int]:
    """Return round and step by a manifest's name; (-1, -1) for any other name."""
    match = _FILE_NAME.fullmatch(file.name)
    return (int(match[1]), int(match[2])) if match else (-1, -1)


def scalar_hash(kind: str, value: Scalar) -> str:
    """Return the hash of a number, flag or string: of its canonical JSON."""
    # With its kind: 1, 1.0 and true must not have one hash.
    return hashlib.sha256(canonical_json([kind, to_plain_json(value)])).hexdigest()


def read_manifest(file: Path) -> Manifest:
    """Return the manifest in `file`; `damage` of a damaged manifest says what is wrong."""
    try:
        raw = read_whole(file, MAXIMUM_BYTES)
    except OSError as error:
        # A disk or a network that fails now may not fail tomorrow.
        return _damaged_manifest(file, f"the manifest cannot be read ({error.strerror or error})", unread=True)
    except ValueError as error:
        return _damaged_manifest(file, f"the manifest cannot be read ({error})")
    return parse_manifest(file, raw)


@lru_cache(maxsize=4)
def parse_manifest(file: Path, raw: bytes) -> Manifest:
    """Return the manifest with the content `raw`, which may come from elsewhere than the disk.

    `damage` of a damaged manifest says what is wrong. A manifest of a later format is `unread`, and `damage` says so.
    The last four are kept: each save reads the checkpoints before it again, and checking one takes as long as
    writing one.
    """
    try:
        content = parse_json(raw)
    except ValueError as error:
        return _damaged_manifest(file, f"the manifest cannot be read ({error})")
    if not isinstance(content, dict):
        return _damaged_manifest(file, "the manifest is not a JSON object")
    # Before anything is believed: the file must be the canonical form of what it says, byte for byte.
    if _with_digest({key: value for key, value in content.items() if key != "sha256"}) != raw:
        return _damaged_manifest(file, "the manifest's hash does not match its content")
    # After the hash, so that a flipped bit in the number does not pass for a later version.
    if (file_format := content.get("format")) != FORMAT and isinstance(file_format, int):
        problem = (
            f"expected format {FORMAT}, got format {file_format}, which a later version of Flatwater writes. Update "
            "Flatwater"
        )
        return _damaged_manifest(file, problem, unread=True)
    try:
        manifest = _parse_manifest(file, convert_to(content, ManifestContent))
    except ValueError as error:
        return _damaged_manifest(file, f"the manifest is not valid ({error})")
    contradiction = _find_contradiction(manifest)
    return _damaged_manifest(file, contradiction) if contradiction else manifest


def _damaged_manifest(file: Path, how: str, *, unread: bool = False) -> Manifest:
    """Return a manifest without content that says how it is damaged; round and step are those of its name."""
    at_round, at_step = _round_and_step(file)
    return Manifest(file=file, round=at_round, step=at_step, damage=how, unread=unread)


def _parse_manifest(file: Path, content: ManifestContent) -> Manifest:
    """Return the manifest of a whole and typed content, not yet held against itself and its name."""
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
    """Return the record of a leaf, of a shard or with its value inline.

    Raises:
        ValueError: the content has other keys or types than such a leaf has.
    """
    if content.get("kind") not in SCALAR_KINDS:
        shard_leaf = convert_to(content, ShardLeaf)
        return LeafRecord(
            path=shard_leaf.path,
            kind=shard_leaf.kind,
            sha256=shard_leaf.sha256,
            dtype=shard_leaf.dtype,
            shape=tuple(shard_leaf.shape),
            shard=shard_leaf.shard,
        )
    leaf = convert_to(content, InlineLeaf)
    # `type` and not `isinstance`: True is an int, and would come back as a number.
    if type(leaf.value) not in _VALUE_TYPES[leaf.kind]:
        raise ValueError(f"the value of the {leaf.kind} {leaf.path!r} is a {type(leaf.value).__name__}")
    if leaf.kind == "float" and isinstance(leaf.value, str) and leaf.value not in _NON_FINITE_NAMES:
        raise ValueError(f"the value of the float {leaf.path!r} is text")
    value = float(leaf.value) if leaf.kind == "float" and leaf.value is not None else leaf.value
    return LeafRecord(path=leaf.path, kind=leaf.kind, sha256=leaf.sha256, value=value)


def _find_contradiction(manifest: Manifest) -> str:
    """Return a sentence that names a contradiction in the manifest, or of its name; empty if there is none."""
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


def fact_differences(saved: Mapping[str, JSON], current: Mapping[str, JSON]) -> list[str]:
    """Return one line for each fact that differs: `population.size: 16 in the checkpoint, 8 now`.

    Args:
        saved: a manifest's `facts`.
        current: facts of the run that wants to go on. Nested mappings are compared name by name, lists whole.
    """
    earlier = dict(_flatten_facts(to_plain_json(saved), ""))
    present = dict(_flatten_facts(to_plain_json(current), ""))
    names = [*earlier, *(name for name in present if name not in earlier)]
    return [
        f"{name}: {earlier.get(name, _ABSENT_VALUE)} in the checkpoint, {present.get(name, _ABSENT_VALUE)} now"
        for name in names
        if earlier.get(name, _ABSENT_VALUE) != present.get(name, _ABSENT_VALUE)
    ]


def _flatten_facts(value: JSON, name: str) -> Iterator[tuple[str, str]]:
    """Yield every fact below `value` by dotted name, as JSON: `1` differs from `true` and `"1"`, not from `1.0`."""
    if isinstance(value, Mapping) and (value or not name):
        for key, item in value.items():
            yield from _flatten_facts(item, f"{name}.{key}" if name else key)
    else:
        normalized = int(value) if isinstance(value, float) and value.is_integer() else value
        yield name, json.dumps(normalized, ensure_ascii=False)
