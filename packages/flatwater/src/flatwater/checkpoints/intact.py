"""A checkpoint whose every byte was verified, as a type: nothing else can be restored.

A shard is read once. While its pieces go by, its own hash and that of each leaf are taken together; its header must
name the leaves that the manifest has in it, with their dtypes and shapes, end to end and to the last byte. The same
check goes over a shard on the disk and over a shard from a store. This module does not need torch.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from flatwater.checkpoints.manifest import LeafRecord, Manifest, ShardRecord, shard_path
from flatwater.checkpoints.schema import HeaderEntry
from flatwater.checkpoints.shards import DTYPES, LENGTH_BYTES, parse_header
from flatwater_watch.errors import CheckpointError
from flatwater_watch.files.content import MAXIMUM_BYTES
from flatwater_watch.files.directory import PIECE_BYTES, FilePiece, open_at_once

# Handed to instances made here alone, so that the type stands for a check that was made.
_PROOF = object()


class DamagedError(CheckpointError):
    """A part of a checkpoint is not as it was written."""


class LeafSpan(NamedTuple):
    """Place of a leaf's bytes in the file of its shard."""

    begin: int
    bytes: int


FileMark = tuple[int, int, int, int, int]
"""Identity of a file and of its last change: the kernel changes the last number with each write."""


def file_mark(status: os.stat_result) -> FileMark:
    """The mark of a file as it is now: device, inode, size, times of the last write and of the last change."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@dataclass(frozen=True, kw_only=True)
class VerifiedCheckpoint:
    """A checkpoint that was verified; only `verify_checkpoint` and `examine_checkpoint` make one.

    It tells what was so when the shards were read. `restore_state_` reads them again without hashing them, and relies
    on their marks: a file that was replaced or written to since is noticed, a disk that spoils bytes without a write
    is not.
    """

    manifest: Manifest
    folder: Path
    """The `checkpoints` folder that holds it."""
    spans: Mapping[str, LeafSpan]
    """Bytes of each leaf by its path, for leaves that have any place in a shard."""
    marks: Mapping[str, FileMark]
    """File that was read for each shard, by the shard's hash."""
    proof: object = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.proof is not _PROOF:
            raise TypeError("only `verify_checkpoint` makes a VerifiedCheckpoint")


@dataclass(frozen=True, slots=True)
class ShardReading:
    """Result of reading one shard."""

    spans: Mapping[str, LeafSpan]
    mark: FileMark


Reading = Callable[[Path, ShardRecord, tuple[LeafRecord, ...]], ShardReading | str]


def verify_checkpoint(folder: Path, manifest: Manifest) -> VerifiedCheckpoint:
    """Return the verified checkpoint, once every shard was read and found right. Reads 4 MiB at a time.

    Raises:
        DamagedError: the checkpoint is damaged; one line for each problem.
    """
    outcome = examine_checkpoint(folder, manifest, read_shard)
    if isinstance(outcome, VerifiedCheckpoint):
        return outcome
    raise DamagedError("\n".join(outcome))


def examine_checkpoint(folder: Path, manifest: Manifest, read: Reading) -> VerifiedCheckpoint | list[str]:
    """Return the verified checkpoint where it is intact, else its problems."""
    # Cheap questions first: a missing file needs no gigabytes to be read.
    if problems := find_quick_problems(folder, manifest):
        return problems
    spans: dict[str, LeafSpan] = {}
    marks: dict[str, FileMark] = {}
    for shard, leaves in leaves_by_shard(manifest).items():
        reading = read(shard_path(folder, shard.sha256), shard, leaves)
        if isinstance(reading, str):
            problems.append(reading)
        else:
            spans |= reading.spans
            marks[shard.sha256] = reading.mark
    return problems or VerifiedCheckpoint(manifest=manifest, folder=folder, spans=spans, marks=marks, proof=_PROOF)


def make_caching_reader() -> Reading:
    """Return `read_shard` with a memory, for a shard that several checkpoints share."""
    return cache(read_shard)


def leaves_by_shard(manifest: Manifest) -> dict[ShardRecord, tuple[LeafRecord, ...]]:
    """Return the leaves that each shard must hold."""
    records: dict[str, list[LeafRecord]] = {shard.sha256: [] for shard in manifest.shards}
    for record in manifest.leaves:
        if record.shard:
            records[record.shard].append(record)
    return {shard: tuple(records[shard.sha256]) for shard in manifest.shards}


def find_quick_problems(folder: Path, manifest: Manifest) -> list[str]:
    """Return the problems of a checkpoint that can be told without reading its shards."""
    if manifest.damage:
        return [manifest.damage]
    return [problem for shard in manifest.shards if (problem := _find_file_problem(folder, shard))]


def _find_file_problem(folder: Path, shard: ShardRecord) -> str:
    """Return a sentence on a shard's file that is missing or of another size than its record says; else empty."""
    path = shard_path(folder, shard.sha256)
    if not path.is_file():
        return f"{short_shard_name(shard)}: the file is missing"
    size = path.stat().st_size
    return "" if size == shard.bytes else f"{short_shard_name(shard)}: {size} bytes where {shard.bytes} were written"


def short_shard_name(shard: ShardRecord) -> str:
    """Return the shard's name for people."""
    return f"objects/{shard.sha256[:12]}….safetensors"


def read_shard(path: Path, shard: ShardRecord, leaves: tuple[LeafRecord, ...]) -> ShardReading | str:
    """Read a shard's file through. A problem with it comes back as a sentence."""
    check = ShardCheck(shard, leaves)
    buffer = memoryview(bytearray(PIECE_BYTES))  # one piece in RAM, whatever the file's size
    try:
        with open_at_once(path) as file:
            # Asked of the open file, not of its name: the name may lead to another file by now.
            status_before = os.fstat(file.fileno())
            if not S_ISREG(status_before.st_mode):
                return f"{short_shard_name(shard)}: not a regular file"
            while count := file.readinto(buffer):
                check.feed_bytes_(buffer[:count])
            spans = check.finish_check()
            # Written to in the meantime: the bytes that were hashed are not those that a restore would read.
            if file_mark(os.fstat(file.fileno())) != file_mark(status_before):
                return f"{short_shard_name(shard)}: the file changed during the check"
    except DamagedError as damage:
        return str(damage)
    except OSError as error:
        return f"{short_shard_name(shard)}: the file cannot be read ({error.strerror or error})"
    return ShardReading(spans, file_mark(status_before))


class ShardCheck:
    """Verifies a shard's bytes as they go by: the whole hash and every leaf's in one reading."""

    def __init__(self, shard: ShardRecord, leaves: Sequence[LeafRecord]) -> None:
        """Expect the bytes of a shard that holds these leaves."""
        self._shard, self._leaves = shard, {record.path: record for record in leaves}
        self._content_hash, self._bytes_seen = hashlib.sha256(), 0
        self._header, self._start = bytearray(), LENGTH_BYTES
        self._leaf_parts: list[tuple[str, LeafSpan, hashlib._Hash]] = []
        self._position, self._leaves_done = 0, 0
        self._problem = ""

    def feed_bytes_(self, piece: FilePiece) -> None:
        """Take the next bytes of the shard, in pieces of any size, the header included.

        Raises:
            DamagedError: the bytes so far are more than the shard may have.
        """
        view = memoryview(piece)
        self._bytes_seen += len(view)
        # Refused as soon as they are too many: an object at a store may go on forever.
        if self._bytes_seen > self._shard.bytes:
            raise DamagedError(
                f"{short_shard_name(self._shard)}: more bytes than the {self._shard.bytes} that were written"
            )
        self._content_hash.update(view)
        while view and not self._problem and len(self._header) < self._start:
            count = self._start - len(self._header)
            self._header += view[:count]
            view = view[count:]
            if len(self._header) == self._start:
                self._read_header_()
        while view and self._position < len(self._leaf_parts):
            _, span, digest = self._leaf_parts[self._position]
            leaf_piece = view[: span.bytes - self._leaves_done]
            digest.update(leaf_piece)
            view, self._leaves_done = view[len(leaf_piece) :], self._leaves_done + len(leaf_piece)
            if self._leaves_done == span.bytes:
                self._position, self._leaves_done = self._position + 1, 0

    def _read_header_(self) -> None:
        """Read the header's length once its 8 bytes are there; called again when the header is complete, parse it.

        A safetensors file begins with the length of its JSON header, in little-endian order. `_start` is the end of
        what is expected so far: of the length, then of the header, where the leaves begin.
        """
        name = short_shard_name(self._shard)
        if self._start == LENGTH_BYTES:
            length = int.from_bytes(self._header, "little")
            # The length comes from the file: 8 bytes of anything must not become that much memory.
            if 0 < length <= min(MAXIMUM_BYTES, self._shard.bytes - LENGTH_BYTES):
                self._start += length
            else:
                self._problem = f"{name}: a header cannot have {length} bytes"
            return
        try:
            header = parse_header(bytes(self._header[LENGTH_BYTES:]))
            spans = _leaf_spans(header, self._leaves, self._start, self._shard.bytes)
        # Kept rather than raised: a wrong hash of the whole file says more, and is told first.
        except ValueError as error:
            self._problem = f"{name}: the header is not valid ({error})"
        else:
            self._leaf_parts = [(path, span, hashlib.sha256()) for path, span in spans.items()]

    def finish_check(self) -> dict[str, LeafSpan]:
        """Return where each leaf lies, after all bytes went by.

        Raises:
            DamagedError: the bytes are not those of the shard.
        """
        name = short_shard_name(self._shard)
        content_hash = self._content_hash.hexdigest()
        if self._bytes_seen != self._shard.bytes:
            raise DamagedError(f"{name}: {self._bytes_seen} bytes where {self._shard.bytes} were written")
        if content_hash != self._shard.sha256:
            raise DamagedError(f"{name}: the hash of its content is {content_hash[:12]}…")
        if self._problem or len(self._header) < self._start:
            raise DamagedError(self._problem or f"{name}: the file ends within its header")
        # Each leaf's own hash as well: a manifest may name a good shard and wrong leaves.
        for path, _, digest in self._leaf_parts:
            if digest.hexdigest() != self._leaves[path].sha256:
                raise DamagedError(f"{name}: the hash of the leaf {path!r} is {digest.hexdigest()[:12]}…")
        return {path: span for path, span, _ in self._leaf_parts}


def _leaf_spans(
    header: Mapping[str, HeaderEntry], leaves: Mapping[str, LeafRecord], start: int, size: int
) -> dict[str, LeafSpan]:
    """Return where each leaf lies in a file, in the file's order, once the header fits the manifest.

    Args:
        header: entries by leaf, with offsets that count from `start`.
        leaves: records of the manifest, by path.
        start: offset in the file of the first leaf's first byte: 8 bytes and the header's length.
        size: bytes of the file.

    Raises:
        ValueError: a leaf is in one of both alone, or of another form, or the leaves do not follow each other to the
            end.
    """
    if unmatched := header.keys() ^ leaves.keys():
        raise ValueError(f"{min(unmatched)!r} is in the header or in the manifest, not in both")
    spans, position = {}, start
    for path, entry in sorted(header.items(), key=lambda named: named[1].data_offsets):
        begin, end = entry.data_offsets
        # End to end: bytes between two leaves, or under two of them, were written by nobody here.
        if start + begin != position or end < begin:
            raise ValueError(f"the bytes of {path!r} do not follow the leaf before")
        _require_fit(path, entry, leaves[path])
        spans[path] = LeafSpan(position, end - begin)
        position += end - begin
    if position != size:
        raise ValueError(f"the leaves end at byte {position}, the file at {size}")
    return spans


def _require_fit(path: str, place: HeaderEntry, record: LeafRecord) -> None:
    """Refuse a leaf whose dtype, shape or size differ between header and manifest.

    Raises:
        ValueError: dtype, shape or size differ.
    """
    size = place.data_offsets[1] - place.data_offsets[0]
    cells = prod(record.shape)
    shape = tuple(place.shape)
    if dtype := DTYPES.get(record.dtype):
        fits = (place.dtype, shape, size) == (dtype.name, record.shape, cells * dtype.itemsize)
    else:  # as bytes; what one cell takes, `restore_state_` asks the leaf of the run
        fits = (place.dtype, shape) == ("U8", (size,)) and (size % cells == 0 if cells else size == 0)
    if not fits:
        raise ValueError(f"{path!r} is {place.dtype} {list(shape)} in {size} bytes, and {record} in the manifest")
