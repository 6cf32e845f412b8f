"""The numbers of each round as TensorBoard scalars, under the names that they have everywhere else.

Event files are written here and not by `SummaryWriter`: its thread prints a traceback when the disk is full, and the
run would learn of it rounds later.
"""

import errno
import os
import re
import socket
import struct
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

from flatwater.metrics.sinks import Metrics
from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import explain_os_errors

CRC_POLYNOMIAL = 0x82F63B78
"""That of CRC-32C (Castagnoli), its lowest power first."""
CRC_BLOCK_BYTES = 64
"""Bytes whose checksum is taken at once."""
MAXIMUM_FLOAT32 = float(np.finfo(np.float32).max)
"""Largest magnitude of a scalar: TensorBoard has 32 bits for it."""
_FLOAT = struct.Struct("<f").pack
Array = np.ndarray[Any, np.dtype[np.uint32]]
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
        try:
            self._append_(Event(file_version="brain.Event:2"))
            # Tells TensorBoard to hide what older files have from this step on.
            self._append_(Event(step=resume_at + 1, session_log=SessionLog(status=SessionLog.START)))
        except RunError:
            self._file.close()
            raise

    def write(self, round: int, metrics: Metrics) -> None:
        """Write the round's finite numbers.

        Raises:
            RunError: the disk is full or the file can no longer be written.
        """
        # The summary as bytes: an object for each number takes four times as long, in each round.
        values = [_encode_tag(name) + _FLOAT(value) for name, value in metrics.items() if abs(value) <= MAXIMUM_FLOAT32]
        self._append_(Event(step=round, summary=Summary.FromString(b"".join(values))))

    def close(self) -> None:
        """Close the event file."""
        self._file.close()

    def _append_(self, event: Event) -> None:
        """Append one event, with the time of now, as a whole record of TensorBoard's event file.

        Raises:
            RunError: the disk is full, or the file cannot be written.
        """
        event.wall_time = time.time()
        record = encode_record(event.SerializeToString())
        # One write for a whole record: a reader never sees half of one, unless the disk is full.
        with explain_os_errors(self.path):
            if self._file.write(record) < len(record):  # the disk took only a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@lru_cache(maxsize=1024)
def _encode_tag(name: str) -> bytes:
    """Return a summary of one scalar without its last four bytes, which are the number."""
    return bytes(Summary(value=[Summary.Value(tag=name, simple_value=0)]).SerializeToString()[:-4])


def encode_record(content: bytes) -> bytes:
    """Return a record of an event file: the length, its checksum, the content, its checksum.

    Not by tensorboard's `RecordWriter`, whose import takes a quarter of a second, for clients of clouds.
    """
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", _checksum(length)) + content + struct.pack("<I", _checksum(content))


def _make_remainders() -> Array:
    """Return the remainders, [BLOCK, 256], of each byte that 0 to BLOCK - 1 zeros follow."""
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
