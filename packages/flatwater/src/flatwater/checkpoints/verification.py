"""Verifies every byte of a checkpoint. Its result, a `VerifiedCheckpoint`, is the only type that can be restored.

Each shard is read once, for its hash and the hash of each of its leaves. Its header must name the leaves that the
manifest lists, with their dtypes and shapes, without gaps and to the last byte. The same check is used for shards on
the disk and for shards from a store. This module does not need torch.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from flatwater.checkpoints.manifest import LeafRecord, Manifest, ShardRecord, shard_path
from flatwater.checkpoints.schema import HeaderEntry
from flatwater.checkpoints.shards import DTYPES, LENGTH_BYTES, parse_header
from flatwater_watch.errors import CheckpointError
from flatwater_watch.files.directory import PIECE_BYTES, FilePiece, open_at_once
from flatwater_watch.files.json_values import MAXIMUM_BYTES

# Only this module gives it to a `VerifiedCheckpoint`, so that none can be made without the check.
_PROOF = object()


class DamagedError(CheckpointError):
    """A part of a checkpoint differs from what was written."""


class LeafSpan(NamedTuple):
    """Place of a leaf's bytes in the file of its shard."""

    begin: int
    bytes: int


FileMark = tuple[int, int, int, int, int]
"""Device, inode, size, and times in ns of the last write and of the last change, which every write moves."""


def file_mark(status: os.stat_result) -> FileMark:
    """Return the mark of a file, by which a later change of the file is noticed."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@dataclass(frozen=True, kw_only=True)
class VerifiedCheckpoint:
    """A checkpoint that was verified; only `verify_checkpoint` and `examine_checkpoint` make one.

    `restore_state_` reads the shards again without hashing them, and compares the marks of their files: it notices a
    file that was written since, but not a disk that has damaged bytes meanwhile.
    """

    manifest: Manifest
    folder: Path
    """The `checkpoints` folder that holds it."""
    spans: Mapping[str, LeafSpan]
    """Place of each leaf's bytes, by the leaf's path; scalars have none."""
    marks: Mapping[str, FileMark]
    """Mark of each shard's file when it was verified, by the shard's hash."""
    proof: object = field(repr=False, compare=False)
    """The private object that only this module has."""

    def __post_init__(self) -> None:
        if self.proof is not _PROOF:
            raise TypeError("only `verify_checkpoint` makes a VerifiedCheckpoint")


@dataclass(frozen=True, slots=True)
class ShardReading:
    """The places of a verified shard's leaves, and the mark of its file."""

    spans: Mapping[str, LeafSpan]
    mark: FileMark


ShardReader = Callable[[Path, ShardRecord, tuple[LeafRecord, ...]], ShardReading | str]
"""A function such as `read_shard`, which verifies a shard; a problem is returned as a sentence."""


def verify_checkpoint(folder: Path, manifest: Manifest) -> VerifiedCheckpoint:
    """Read and verify every shard of a checkpoint, 4 MiB at a time. Returns the verified checkpoint.

    Raises:
        DamagedError: the checkpoint is damaged; the message has a line for each problem.
    """
    outcome = examine_checkpoint(folder, manifest, read_shard)
    if isinstance(outcome, VerifiedCheckpoint):
        return outcome
    raise DamagedError("\n".join(outcome))


def examine_checkpoint(folder: Path, manifest: Manifest, read_one: ShardReader) -> VerifiedCheckpoint | list[str]:
    """Verify a checkpoint; `read_one` reads each shard. Returns the verified checkpoint, or a list of its problems."""
    # Cheap checks first: with a missing file, no gigabytes need to be read.
    if problems := find_quick_problems(folder, manifest):
        return problems
    spans: dict[str, LeafSpan] = {}
    marks: dict[str, FileMark] = {}
    for shard, leaves in leaves_by_shard(manifest).items():
        reading = read_one(shard_path(folder, shard.sha256), shard, leaves)
        if isinstance(reading, str):  # a problem
            problems.append(reading)
        else:
            spans |= reading.spans
            marks[shard.sha256] = reading.mark
    return problems or VerifiedCheckpoint(manifest=manifest, folder=folder, spans=spans, marks=marks, proof=_PROOF)


def leaves_by_shard(manifest: Manifest) -> dict[ShardRecord, tuple[LeafRecord, ...]]:
    """Return each shard of a manifest with the records of the leaves that it holds."""
    records: dict[str, list[LeafRecord]] = {shard.sha256: [] for shard in manifest.shards}
    for record in manifest.leaves:
        if record.shard:
            records[record.shard].append(record)
    return {shard: tuple(records[shard.sha256]) for shard in manifest.shards}


def find_quick_problems(folder: Path, manifest: Manifest) -> list[str]:
    """Return the problems of a checkpoint that show without reading its shards: a missing file or a wrong size."""
    if manifest.damage:
        return [manifest.damage]
    return [problem for shard in manifest.shards if (problem := _find_file_problem(folder, shard))]


def _find_file_problem(folder: Path, shard: ShardRecord) -> str:
    """Return a sentence if a shard's file is missing or has another size than its record; else empty."""
    path = shard_path(folder, shard.sha256)
    if not path.is_file():
        return f"{short_shard_name(shard)}: the file is missing"
    size = path.stat().st_size
    return "" if size == shard.bytes else f"{short_shard_name(shard)}: {size} bytes where {shard.bytes} were written"


def short_shard_name(shard: ShardRecord) -> str:
    """Return a shard's file name for messages, with the first 12 digits of its hash."""
    return f"objects/{shard.sha256[:12]}….safetensors"


def read_shard(path: Path, shard: ShardRecord, leaves: tuple[LeafRecord, ...]) -> ShardReading | str:
    """Read and verify the file of a shard with these leaves. Returns the reading, or a problem as a sentence."""
    check = ShardCheck(shard, leaves)
    buffer = memoryview(bytearray(PIECE_BYTES))  # one piece in RAM, whatever the file's size
    try:
        with open_at_once(path) as file:
            # The status of the open file, not of its name, which may lead to another file by now.
            earlier_status = os.fstat(file.fileno())
            if not S_ISREG(earlier_status.st_mode):
                return f"{short_shard_name(shard)}: not a regular file"
            while count := file.readinto(buffer):
                check.feed_bytes_(buffer[:count])
            spans = check.finish_check()
            # If the file was written meanwhile, a restore would read other bytes than those that were hashed.
            if file_mark(os.fstat(file.fileno())) != file_mark(earlier_status):
                return f"{short_shard_name(shard)}: the file changed during the check"
    except DamagedError as damage:
        return str(damage)
    except OSError as error:
        return f"{short_shard_name(shard)}: the file cannot be read ({error.strerror or error})"
    return ShardReading(spans, file_mark(earlier_status))


class ShardCheck:
    """Verifies a shard from its bytes in pieces: hashes the whole shard and each leaf as the pieces come in."""

    def __init__(self, shard: ShardRecord, leaves: Sequence[LeafRecord]) -> None:
        """Begin the check of a shard, which must hold these leaves."""
        self._shard, self._leaf_records = shard, {record.path: record for record in leaves}
        self._content_hash = hashlib.sha256()
        self._bytes_seen = 0
        # The header's length comes first, in 8 bytes; once it is known, `_header_end` becomes the end of the header.
        self._header, self._header_end = bytearray(), LENGTH_BYTES
        self._leaf_digests: list[tuple[str, LeafSpan, hashlib._Hash]] = []
        self._leaf_index, self._leaf_bytes_seen = 0, 0  # the leaf whose bytes come next, and its bytes so far
        self._problem = ""

    def feed_bytes_(self, piece: FilePiece) -> None:
        """Hash the next bytes of the shard, a piece of any size: for the file, and behind the header for each leaf.

        Raises:
            DamagedError: the shard has more bytes than its record says.
        """
        view = memoryview(piece)
        self._bytes_seen += len(view)
        # Refused at once, as an object at a store may go on forever.
        if self._bytes_seen > self._shard.bytes:
            raise DamagedError(
                f"{short_shard_name(self._shard)}: more bytes than the {self._shard.bytes} that were written"
            )
        self._content_hash.update(view)
        # At most two turns: the header's length, then the header.
        while view and not self._problem and len(self._header) < self._header_end:
            count = self._header_end - len(self._header)
            self._header += view[:count]
            view = view[count:]
            if len(self._header) == self._header_end:
                self._read_header_()
        # A turn for each leaf that has bytes in this piece; the leaves follow each other without gaps.
        while view and self._leaf_index < len(self._leaf_digests):
            _, span, digest = self._leaf_digests[self._leaf_index]
            leaf_piece = view[: span.bytes - self._leaf_bytes_seen]
            digest.update(leaf_piece)
            view = view[len(leaf_piece) :]
            self._leaf_bytes_seen += len(leaf_piece)
            if self._leaf_bytes_seen == span.bytes:  # the leaf is complete
                self._leaf_index += 1
                self._leaf_bytes_seen = 0

    def _read_header_(self) -> None:
        """Read the header's length, when its 8 bytes are there; at the second call, parse the complete header.

        A safetensors file begins with the length of its JSON header, in little-endian order. `_header_end` is the end
        of the length at first, and then that of the header, where the leaves begin.
        """
        name = short_shard_name(self._shard)
        if self._header_end == LENGTH_BYTES:
            length = int.from_bytes(self._header, "little")
            # The length comes from the file, and must not make this process allocate any amount of memory.
            if 0 < length <= min(MAXIMUM_BYTES, self._shard.bytes - LENGTH_BYTES):
                self._header_end += length
            else:
                self._problem = f"{name}: a header cannot have {length} bytes"
            return
        try:
            header = parse_header(bytes(self._header[LENGTH_BYTES:]))
            spans = _leaf_spans(header, self._leaf_records, self._header_end, self._shard.bytes)
        # Kept and not raised: `finish_check` reports a wrong hash of the whole file first, which says more.
        except ValueError as error:
            self._problem = f"{name}: the header is not valid ({error})"
        else:
            self._leaf_digests = [(path, span, hashlib.sha256()) for path, span in spans.items()]

    def finish_check(self) -> dict[str, LeafSpan]:
        """End the check, after the last piece. Returns the place of each leaf's bytes in the file, by path.

        Raises:
            DamagedError: the bytes differ from those that were written.
        """
        name = short_shard_name(self._shard)
        content_hash = self._content_hash.hexdigest()
        if self._bytes_seen != self._shard.bytes:
            raise DamagedError(f"{name}: {self._bytes_seen} bytes where {self._shard.bytes} were written")
        if content_hash != self._shard.sha256:
            raise DamagedError(f"{name}: the hash of its content is {content_hash[:12]}…")
        if self._problem or len(self._header) < self._header_end:
            raise DamagedError(self._problem or f"{name}: the file ends within its header")
        # The leaves' hashes too, as a forged manifest may name a good shard and wrong leaves.
        for path, _, digest in self._leaf_digests:
            if digest.hexdigest() != self._leaf_records[path].sha256:
                raise DamagedError(f"{name}: the hash of the leaf {path!r} is {digest.hexdigest()[:12]}…")
        return {path: span for path, span, _ in self._leaf_digests}


def _leaf_spans(
    header: Mapping[str, HeaderEntry], leaves: Mapping[str, LeafRecord], start: int, size: int
) -> dict[str, LeafSpan]:
    """Compare a shard's header with the manifest. Returns the place of each leaf's bytes, in the file's order.

    Args:
        header: entries by leaf, with offsets that count from `start`.
        leaves: records of the manifest, by path.
        start: offset in the file of the first leaf's first byte: 8 bytes and the header's length.
        size: bytes of the file.

    Raises:
        ValueError: the header and the manifest have other leaves, or leaves of other forms, or there are gaps.
    """
    if unmatched_names := header.keys() ^ leaves.keys():
        raise ValueError(f"{min(unmatched_names)!r} is in the header or in the manifest, not in both")
    spans, position = {}, start
    for path, entry in sorted(header.items(), key=lambda path_and_entry: path_and_entry[1].data_offsets):
        begin, end = entry.data_offsets
        # Leaves must follow each other without gap or overlap, as a save writes them.
        if start + begin != position or end < begin:
            raise ValueError(f"the bytes of {path!r} do not follow the leaf before")
        _require_fit(path, entry, leaves[path])
        spans[path] = LeafSpan(position, end - begin)
        position += end - begin
    if position != size:
        raise ValueError(f"the leaves end at byte {position}, the file at {size}")
    return spans


def _require_fit(path: str, entry: HeaderEntry, record: LeafRecord) -> None:
    """Refuse a leaf whose dtype, shape or size in the shard's header differ from the manifest's record.

    Raises:
        ValueError: dtype, shape or size differ.
    """
    begin, end = entry.data_offsets
    size = end - begin
    cells = prod(record.shape)
    shape = tuple(entry.shape)
    if dtype := DTYPES.get(record.dtype):
        fits = (entry.dtype, shape, size) == (dtype.name, record.shape, cells * dtype.itemsize)
    else:  # a dtype stored as bytes: `restore_state_` compares the size of a cell with the run's leaf
        fits = (entry.dtype, shape) == ("U8", (size,)) and (size % cells == 0 if cells else size == 0)
    if not fits:
        raise ValueError(f"{path!r} is {entry.dtype} {list(shape)} in {size} bytes, and {record} in the manifest")
