"""The numbers of each round as TensorBoard scalars, under the names that they have everywhere else.

Event files are written here and not by `SummaryWriter`: its thread prints a traceback when the disk is full, and the
run would learn of it rounds later. So are the messages in them: most bytes of a round's are those of the round before,
and tensorboard's own classes take ten times as long.
"""

import errno
import os
import re
import socket
import struct
import time
from array import array
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from flatwater.metrics.sinks import Metrics
from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import explain_os_errors

CRC_POLYNOMIAL = 0x82F63B78
"""That of CRC-32C (Castagnoli), its lowest power first."""
CRC_BLOCK_BYTES = 64
"""Bytes whose checksum is taken at once."""
Array = np.ndarray[Any, np.dtype[np.uint32]]
WALL_TIME, STEP, FILE_VERSION, SUMMARY, SESSION_LOG = b"\x09", b"\x10", b"\x1a", b"\x2a", b"\x3a"
"""Keys of the fields of an event: number and kind in one byte, as protocol buffers have it."""
VALUE, TAG, SIMPLE_VALUE = b"\x0a", b"\x0a", b"\x15"
"""Keys of a value in a summary, and of the tag and the number in such a value."""
STARTED = b"\x08\x01"
"""A session's log with the status "start"."""
FLOAT_BYTES = 4
LOWEST_BITS = 0x7F
MOST_HEADERS = 10_000
"""Names whose bytes are kept: a run has some hundreds, and a function of the user's may log under ever new names."""
_EVENT_FILE_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class TensorBoardSink:
    """Writes event files into a folder. TensorBoard shows numbers that are not finite as gaps, so they are left out."""

    def __init__(self, folder: Path, *, resume_at: int = 0) -> None:
        """Open a new event file in the folder.

        Args:
            folder: made if it does not exist.
            resume_at: last round that the run remembers; older files' later rounds are hidden.
        """
        self.path = folder
        with explain_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            # TensorBoard reads the files of a folder in the order of their names: the newest must be the last file,
            # also where the clock was set back since the others were written.
            numbers = (int(match[1]) for path in folder.iterdir() if (match := _EVENT_FILE_NAME.match(path.name)))
            file_number = max(time.time_ns(), max(numbers, default=0) + 1)
            self.path = folder / f"events.out.tfevents.{file_number:019d}.{socket.gethostname()}.{os.getpid()}"
            self._file = self.path.open("xb", buffering=0)
        self._headers: dict[str, bytes] = {}  # all bytes of a name's value but the number
        try:
            self._append_(_encode_field(FILE_VERSION, b"brain.Event:2"))
            # Tells TensorBoard to hide what older files have from this step on.
            self._append_(STEP + _encode_integer(resume_at + 1) + _encode_field(SESSION_LOG, STARTED))
        except RunError:
            self._file.close()
            raise

    def write(self, round: int, metrics: Metrics) -> None:
        """Write the round's finite numbers.

        Raises:
            RunError: the disk is full or the file can no longer be written.
        """
        finite = {name: value for name, value in metrics.items() if isfinite(value)}
        numbers, parts = array("f", finite.values()).tobytes(), list[bytes]()
        for at, name in enumerate(finite):
            parts += [self._header(name), numbers[FLOAT_BYTES * at : FLOAT_BYTES * (at + 1)]]
        self._append_(STEP + _encode_integer(round) + _encode_field(SUMMARY, b"".join(parts)))

    def _header(self, name: str) -> bytes:
        """Return the bytes of a value before its number; those of as many names as a round has are kept."""
        if name not in self._headers:
            tag = _encode_field(TAG, name.encode(errors="replace")) + SIMPLE_VALUE
            if len(self._headers) >= MOST_HEADERS:
                self._headers.clear()
            self._headers[name] = VALUE + _encode_integer(len(tag) + FLOAT_BYTES) + tag
        return self._headers[name]

    def close(self) -> None:
        """Close the event file."""
        self._file.close()

    def _append_(self, fields: bytes) -> None:
        """Append an event of these fields and the time of now, as a whole record of TensorBoard's event file.

        Raises:
            RunError: the disk is full, or the file cannot be written.
        """
        record = encode_record(WALL_TIME + struct.pack("<d", time.time()) + fields)
        # One write for a whole record: a reader never sees half of one, unless the disk is full.
        with explain_os_errors(self.path):
            if self._file.write(record) < len(record):  # the disk took only a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _encode_integer(value: int) -> bytes:
    """Return an integer from 0 on as protocol buffers have it: seven bits in each byte, the lowest first."""
    content = bytearray()
    while value > LOWEST_BITS:
        content.append(value & LOWEST_BITS | LOWEST_BITS + 1)
        value >>= 7
    content.append(value)
    return bytes(content)


def _encode_field(key: bytes, content: bytes) -> bytes:
    """Return a field of text or of a message: its key, its length, its content."""
    return key + _encode_integer(len(content)) + content


def encode_record(content: bytes) -> bytes:
    """Return a record of an event file: the length, its checksum, the content, its checksum.

    Not by tensorboard's `RecordWriter`, whose import takes a quarter of a second, for clients of clouds.
    """
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", _checksum(length)) + content + struct.pack("<I", _checksum(content))


def _make_remainders() -> Array:
    """Return the remainders, [BLOCK, 256], of each byte that so many zeros follow."""
    row: Array = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = row >> np.uint32(1) ^ row % np.uint32(2) * np.uint32(CRC_POLYNOMIAL)
    rows = [row]
    while len(rows) < CRC_BLOCK_BYTES:
        rows.append(row[rows[-1] & np.uint32(0xFF)] ^ rows[-1] >> np.uint32(8))
    return np.stack(rows)


_REMAINDERS = _make_remainders()
_FIRST, *_, _FOURTH_LAST, _THIRD_LAST, _SECOND_LAST, _LAST = _REMAINDERS.tolist()
_ZEROS = np.arange(CRC_BLOCK_BYTES)[::-1]


def _checksum(content: bytes) -> int:
    """Return the CRC-32C of the content, masked as in TensorFlow's files."""
    crc, odd = 0xFFFFFFFF, len(content) % CRC_BLOCK_BYTES
    for byte in content[:odd]:
        crc = _FIRST[(crc ^ byte) & 0xFF] ^ crc >> 8
    # A remainder is a sum of those of the bytes: that of a block is taken at once, and what came before enters its
    # first four bytes. Byte by byte, a round of fifty numbers would take two milliseconds.
    blocks = np.frombuffer(content, np.uint8, offset=odd).reshape(-1, CRC_BLOCK_BYTES)
    for block in np.bitwise_xor.reduce(_REMAINDERS[_ZEROS, blocks], axis=1).tolist():
        first, second, third, fourth = crc.to_bytes(4, "little")
        crc = block ^ _LAST[first] ^ _SECOND_LAST[second] ^ _THIRD_LAST[third] ^ _FOURTH_LAST[fourth]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
