"""Sending a file to a store through one buffer, and verifying that the store has its content.

The ETag of an object is the MD5 of its content at S3 and most stores of its kind, or of the MD5s of its parts if there
were several; then the ETag alone proves that size and content are right. Where it is something else (file systems,
Azure, buckets with keys of their own) the object is read back and hashed: twice the traffic, same certainty.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from flatwater.storage.faults import OversizeError, StoreError
from flatwater.storage.objects import StoredObjects
from flatwater_watch.errors import RunError
from flatwater_watch.files.safe_read import open_unbuffered

PART_BYTES = 8 << 20
"""Bytes of a part, where a file does not fit the buffer: 10,000 parts make 80 GB, the largest leaf that can be sent."""
BUFFER_BYTES = PART_BYTES + (1 << 20)
"""Bytes of the buffer: a shard of `checkpoints.shard_bytes` fits, with its header on top."""
QUEUE_BYTES = BUFFER_BYTES + 2 * PART_BYTES
"""The most that sending holds at any time: the buffer, and two parts of a larger file in the client's hands."""


class OtherContentError(RunError):
    """A file does not have the content that it is sent for."""


@dataclass(frozen=True)
class SentFile:
    """Size and hash of a file that was sent, and is at the store."""

    bytes: int
    sha256: str


@dataclass
class SendBuffer:
    """Buffer in RAM that files go through on their way to a store, all of it there from the start."""

    # Not zeros, whose pages would come into RAM only when a file is sent.
    buffer: bytearray = field(default_factory=lambda: bytearray(b"\xff") * BUFFER_BYTES)
    part_bytes: int = 0
    """Bytes that the client may hold in addition, while a file that does not fit the buffer is sent in parts."""

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffer and of the client's parts: at most `QUEUE_BYTES`."""
        return len(self.buffer) + self.part_bytes


def send_file(
    objects: StoredObjects,
    name: str,
    path: Path,
    buffer: SendBuffer,
    on_bytes_sent: Callable[[int], None],
    *,
    sha256: str = "",
) -> SentFile:
    """Make an object of a file, and verify its size and hash at the store.

    Args:
        objects: store that gets the object.
        name: name of the object.
        path: the file. What is appended to it meanwhile is left out.
        buffer: the file goes through it piece by piece.
        on_bytes_sent: called after each piece with its bytes; an exception that it raises ends the sending.
        sha256: hash of the content that it must have; empty if any will do.

    Raises:
        FileNotFoundError: the file is gone.
        OtherContentError: the file has other content than `sha256`; at the store everything is as it was.
        StoreError: the store cannot be reached, fails, or has something else than what was sent.
    """
    with _open_source(path) as file:
        size = os.fstat(file.fileno()).st_size  # once: a record that grows while it is sent is sent up to here
        source = _SendSource(file, size, memoryview(buffer.buffer), on_bytes_sent, sha256)
        if size <= BUFFER_BYTES:
            expected_tag, store_tag = _put_whole(objects, name, source)
        else:
            buffer.part_bytes = 2 * PART_BYTES
            try:
                expected_tag, store_tag = _put_parts(objects, name, source)
            finally:
                buffer.part_bytes = 0
    sent_file = SentFile(size, source.hasher.hexdigest())
    # Unequal tags do not mean a fault: not every store's tag is an MD5. Then the object itself is asked.
    if expected_tag != store_tag:
        _read_back(objects, name, sent_file)
    return sent_file


def _open_source(path: Path) -> FileIO:
    """Open the file without a buffer; a link counts as missing, as it may lead out of the run's folder.

    Raises:
        FileNotFoundError: the file is missing, or a link.
    """
    try:
        return open_unbuffered(path, follow=False)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EINVAL):
            raise FileNotFoundError(errno.ENOENT, error.strerror, str(path)) from error
        raise


@dataclass
class _SendSource:
    """File, buffer and hash of the bytes that have been read."""

    file: FileIO
    left: int
    buffer: memoryview
    on_bytes_sent: Callable[[int], None]
    expected_sha256: str
    """Hash of the whole file; empty if it is not known."""
    hasher: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def read_next_(self, maximum: int) -> memoryview:
        """Return the next `maximum` bytes, or the rest of the file; they stand until the next call.

        Raises:
            FileNotFoundError: the file became shorter.
            OtherContentError: the file ends here, and its hash is not the expected hash.
        """
        count = min(maximum, self.left)
        filled = 0
        while filled < count:
            count_read = self.file.readinto(self.buffer[filled:count])
            if not count_read:
                raise FileNotFoundError(f"{self.file.name} became shorter during the upload")
            filled += count_read
        self.left -= count
        self.hasher.update(self.buffer[:count])
        # Before the last bytes are handed on: a damaged file never becomes a whole object at the store.
        if not self.left and self.expected_sha256 and self.hasher.hexdigest() != self.expected_sha256:
            raise OtherContentError(f"{self.file.name}: the content differs from the saved file")
        return self.buffer[:count]


def _put_whole(objects: StoredObjects, name: str, source: _SendSource) -> tuple[str, str]:
    """Send the file in one put. Returns the ETag by MD5, and the ETag that the store gave."""
    piece = source.read_next_(source.left)
    tag = objects.put(name, piece)
    source.on_bytes_sent(len(piece))
    return _hash_piece(piece).hexdigest(), tag


def _put_parts(objects: StoredObjects, name: str, source: _SendSource) -> tuple[str, str]:
    """Send the file in several parts. Returns the ETag by MD5, and the ETag that the store gave."""
    digests: list[bytes] = []

    def parts() -> Iterator[bytes]:
        """Yield the file in parts of `PART_BYTES` bytes, and note the MD5 of each."""
        while source.left:
            piece = source.read_next_(PART_BYTES)
            digests.append(_hash_piece(piece).digest())
            yield bytes(piece)  # the client sends it from where it is, while the buffer takes the next
            source.on_bytes_sent(len(piece))

    store_tag = objects.put_parts(name, parts())
    # How S3 names it: MD5 of MD5s, and their number.
    return f"{hashlib.md5(b''.join(digests), usedforsecurity=False).hexdigest()}-{len(digests)}", store_tag


def _hash_piece(piece: memoryview) -> "hashlib._Hash":
    return hashlib.md5(piece, usedforsecurity=False)


def _read_back(objects: StoredObjects, name: str, sent: SentFile) -> None:
    """Read the object once, and compare it with the sent file.

    Raises:
        StoreError: the object differs in size or hash.
    """
    # By the pieces' own limit: a store that sends more than was sent is found out as well.
    digest = hashlib.sha256()
    size = 0
    try:
        for piece in objects.pieces(name, sent.bytes):
            digest.update(piece)
            size += len(piece)
    except (FileNotFoundError, OversizeError):
        size = -1
    if (size, digest.hexdigest()) != (sent.bytes, sent.sha256):
        raise StoreError(
            f"{objects.url}/{name}: the stored object differs from the sent file ({size} of {sent.bytes} bytes)"
        )
