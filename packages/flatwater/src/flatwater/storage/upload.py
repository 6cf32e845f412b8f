"""Upload of a file to a store through one buffer, and verification of the stored content.

At S3 and most stores of its kind, the ETag of an object is the MD5 of its content, or of the MD5s of its parts. An ETag
that is equal to the MD5 of the sent bytes proves that the content is right. Where the ETag is something else (file
systems, Azure, buckets with encryption keys), the object is read back and hashed: twice the traffic, same certainty.
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
from flatwater_watch.files.regular_files import open_unbuffered_file

PART_BYTES = 8 << 20
"""Bytes of a part of a file that does not fit the buffer. 10,000 parts, the most at S3, make 80 GB."""
BUFFER_BYTES = PART_BYTES + (1 << 20)
"""Bytes of the buffer: it holds a shard of `checkpoints.shard_bytes` with its header."""
QUEUE_BYTES = BUFFER_BYTES + 2 * PART_BYTES
"""Most bytes in memory while a file is sent: the buffer, and two parts of a large file in the client."""


class OtherContentError(RunError):
    """A file does not have the expected content."""


@dataclass(frozen=True)
class SentFile:
    """Size and hash of a file that was sent, and is at the store."""

    bytes: int
    sha256: str


@dataclass
class SendBuffer:
    """Buffer in RAM through which files are sent to a store, resident from the start."""

    # Not zeros: pages of zeros would become resident only when a file is sent.
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
    """Upload a file as an object, and verify its content at the store.

    Args:
        objects: store that gets the object.
        name: name of the object.
        path: the file; bytes that are appended to it meanwhile are not sent.
        buffer: buffer that the file is read into, piece by piece.
        on_bytes_sent: called after each piece with its bytes; an exception that it raises ends the sending.
        sha256: expected hash of the content; empty if the content is not checked.

    Raises:
        FileNotFoundError: the file is gone.
        OtherContentError: the file has other content than `sha256`; the store was not changed.
        StoreError: the store cannot be reached, fails, or has other content than was sent.
    """
    with _open_source(path) as file:
        size = os.fstat(file.fileno()).st_size  # a record that grows while it is sent is sent up to here
        source = _SendSource(file, size, memoryview(buffer.buffer), on_bytes_sent, sha256)
        if size <= BUFFER_BYTES:
            expected_tag, store_tag = _put_whole(objects, name, source)
        else:
            buffer.part_bytes = 2 * PART_BYTES  # one part that is sent, and one that waits
            try:
                expected_tag, store_tag = _put_parts(objects, name, source)
            finally:
                buffer.part_bytes = 0
    sent_file = SentFile(size, source.hasher.hexdigest())
    # Unequal tags may mean that the store's tag is no MD5, so the object itself is compared.
    if expected_tag != store_tag:
        _read_back(objects, name, sent_file)
    return sent_file


def _open_source(path: Path) -> FileIO:
    """Open the file without a buffer; a link, which may lead out of the run's folder, counts as missing.

    Raises:
        FileNotFoundError: the file is missing, a link, or not a regular file.
    """
    try:
        return open_unbuffered_file(path, follow_links=False)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EINVAL):  # a link, or not a regular file
            raise FileNotFoundError(errno.ENOENT, error.strerror, str(path)) from error
        raise


@dataclass
class _SendSource:
    """A file that is read piece by piece into a buffer, with the hash of the bytes read so far."""

    file: FileIO
    bytes_left: int
    buffer: memoryview
    on_bytes_sent: Callable[[int], None]
    expected_sha256: str
    """Hash of the whole file; empty if it is not known."""
    hasher: "hashlib._Hash" = field(default_factory=hashlib.sha256)

    def read_next_(self, maximum: int) -> memoryview:
        """Read the next `maximum` bytes, or the rest of the file, into the buffer, which the next call overwrites.

        Raises:
            FileNotFoundError: the file became shorter.
            OtherContentError: the file ends here, and its hash is not the expected hash.
        """
        count = min(maximum, self.bytes_left)
        filled_bytes = 0
        while filled_bytes < count:
            count_read = self.file.readinto(self.buffer[filled_bytes:count])
            if not count_read:
                raise FileNotFoundError(f"{self.file.name} became shorter during the upload")
            filled_bytes += count_read
        self.bytes_left -= count
        self.hasher.update(self.buffer[:count])
        # Checked before the last bytes are sent, so that a damaged file never becomes a whole object.
        if not self.bytes_left and self.expected_sha256 and self.hasher.hexdigest() != self.expected_sha256:
            raise OtherContentError(f"{self.file.name}: the content differs from the saved file")
        return self.buffer[:count]


def _put_whole(objects: StoredObjects, name: str, source: _SendSource) -> tuple[str, str]:
    """Send the file by one request. Returns its MD5, which is the ETag at most stores, and the store's ETag."""
    piece = source.read_next_(source.bytes_left)
    tag = objects.put(name, piece)
    source.on_bytes_sent(len(piece))
    return _hash_piece(piece).hexdigest(), tag


def _put_parts(objects: StoredObjects, name: str, source: _SendSource) -> tuple[str, str]:
    """Send the file in several parts. Returns the ETag that S3 makes from their MD5s, and the store's ETag."""
    digests: list[bytes] = []

    def parts() -> Iterator[bytes]:
        """Yield the file in parts of `PART_BYTES` bytes, and note the MD5 of each."""
        while source.bytes_left:
            piece = source.read_next_(PART_BYTES)
            digests.append(_hash_piece(piece).digest())
            yield bytes(piece)  # a copy: the client sends it while the next part is read into the buffer
            source.on_bytes_sent(len(piece))  # reached when the client takes the next part

    store_tag = objects.put_parts(name, parts())
    # The ETag of S3 for parts: the MD5 of the MD5s, and their number.
    digest = hashlib.md5(b"".join(digests), usedforsecurity=False)
    return f"{digest.hexdigest()}-{len(digests)}", store_tag


def _hash_piece(piece: memoryview) -> "hashlib._Hash":
    return hashlib.md5(piece, usedforsecurity=False)


def _read_back(objects: StoredObjects, name: str, sent_file: SentFile) -> None:
    """Read the object back, and compare its size and hash with those of the sent file.

    Raises:
        StoreError: the object differs in size or hash.
    """
    digest = hashlib.sha256()
    size = 0
    try:
        for piece in objects.pieces(name, sent_file.bytes):
            digest.update(piece)
            size += len(piece)
    except (FileNotFoundError, OversizeError):
        size = -1  # unequal to any size: the object is missing, or longer
    if (size, digest.hexdigest()) != (sent_file.bytes, sent_file.sha256):
        raise StoreError(
            f"{objects.url}/{name}: the stored object differs from the sent file ({size} of {sent_file.bytes} bytes)"
        )
