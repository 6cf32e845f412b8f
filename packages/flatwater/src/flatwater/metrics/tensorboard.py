"""The tracker of TensorBoard: writes the numbers of each round as scalars, under the same names as in `metrics.jsonl`.

Event files are written here and not by `SummaryWriter`, whose thread prints a traceback when the disk is full, and the
run would notice it rounds later.
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
"""Polynomial of CRC-32C (Castagnoli), with reversed bits."""
CRC_MASK_DELTA = 0xA282EAD8
"""Constant of TensorFlow's masked CRC: a rotated CRC and this number."""
CRC_BLOCK_BYTES = 64
"""Number of bytes whose checksum is computed at once."""
MAXIMUM_FLOAT32 = float(np.finfo(np.float32).max)
"""Largest magnitude of a scalar, as TensorBoard stores 32 bits."""
_pack_float = struct.Struct("<f").pack
Array = np.ndarray[Any, np.dtype[np.uint32]]
_EVENT_FILE_NAME = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class TensorBoardSink:
    """Writes event files into a folder. TensorBoard shows numbers that are not finite as gaps, so they are left out."""

    def __init__(self, folder: Path, *, resume_at: int = 0) -> None:
        """Open a new event file in the folder.

        Args:
            folder: made if it does not exist.
            resume_at: last complete round of the run; TensorBoard hides later rounds of older files.
        """
        self.path = folder
        with explain_os_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            # TensorBoard reads the files of a folder in the order of their names, so this file's number must be the
            # largest, even if the clock was set back.
            matches = (_EVENT_FILE_NAME.match(path.name) for path in folder.iterdir())
            numbers = [int(match[1]) for match in matches if match]
            file_number = max(time.time_ns(), max(numbers, default=0) + 1)
            self.path = folder / f"events.out.tfevents.{file_number:019d}.{socket.gethostname()}.{os.getpid()}"
            self._file = self.path.open("xb", buffering=0)
        try:
            self._append_event_(Event(file_version="brain.Event:2"))
            # This event makes TensorBoard hide later steps of older files.
            self._append_event_(Event(step=resume_at + 1, session_log=SessionLog(status=SessionLog.START)))
        except RunError:
            self._file.close()
            raise

    def write(self, round: int, metrics: Metrics) -> None:
        """Write the round's finite numbers.

        Raises:
            RunError: the disk is full or the file can no longer be written.
        """
        # The summary is built from bytes, as an object for each number would take four times as long. Infinities and
        # NaN are not `<=` any number.
        values = [
            _encode_tag(name) + _pack_float(value) for name, value in metrics.items() if abs(value) <= MAXIMUM_FLOAT32
        ]
        self._append_event_(Event(step=round, summary=Summary.FromString(b"".join(values))))

    def close(self) -> None:
        """Close the event file."""
        self._file.close()

    def _append_event_(self, event: Event) -> None:
        """Append one event, with the time of now, to the event file.

        Raises:
            RunError: the disk is full, or the file cannot be written.
        """
        event.wall_time = time.time()
        record = encode_record(event.SerializeToString())
        # One write, so that a reader never sees a part of the record, unless the disk is full.
        with explain_os_errors(self.path):
            if self._file.write(record) < len(record):  # the disk took only a part
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@lru_cache(maxsize=1024)
def _encode_tag(name: str) -> bytes:
    """Return the bytes of a summary of one scalar, without the last four, which are the number as float32."""
    return bytes(Summary(value=[Summary.Value(tag=name, simple_value=0)]).SerializeToString()[:-4])


def encode_record(content: bytes) -> bytes:
    """Return a record of an event file: the length, its checksum, the content, its checksum.

    It replaces tensorboard's `RecordWriter`, whose module also imports clients of clouds, in a quarter of a second.
    """
    length = struct.pack("<Q", len(content))  # 8 bytes, little-endian
    length_checksum = struct.pack("<I", _masked_checksum(length))  # 4 bytes
    return length + length_checksum + content + struct.pack("<I", _masked_checksum(content))


def _make_crc_tables() -> Array:
    """Return the table [CRC_BLOCK_BYTES, 256] of CRCs: entry [n, b] is the CRC of byte b and n zero bytes."""
    # Row 0, of each byte alone, bit by bit; then a row for each further zero byte behind it.
    first_row: Array = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        # Shifted by one bit; the polynomial is XORed where the bit shifted out is 1.
        first_row = first_row >> np.uint32(1) ^ first_row % np.uint32(2) * np.uint32(CRC_POLYNOMIAL)
    rows = [first_row]
    while len(rows) < CRC_BLOCK_BYTES:
        rows.append(first_row[rows[-1] & np.uint32(0xFF)] ^ rows[-1] >> np.uint32(8))
    return np.stack(rows)


_CRC_TABLES = _make_crc_tables()
# Rows as lists, which a loop reads faster: for a byte with no other behind it, and for the first four bytes of a block.
_TABLE_0, *_, _TABLE_LAST_4, _TABLE_LAST_3, _TABLE_LAST_2, _TABLE_LAST = _CRC_TABLES.tolist()
_FOLLOWING_ZEROS = np.arange(CRC_BLOCK_BYTES)[::-1]
"""For each byte of a block, the number of bytes behind it."""


def _masked_checksum(content: bytes) -> int:
    """Return the CRC-32C of the content, masked as in TensorFlow's files."""
    crc = 0xFFFFFFFF  # CRC-32C begins with all bits set, and ends with all bits inverted
    # The first bytes one by one, so that whole blocks are left.
    leading_bytes = len(content) % CRC_BLOCK_BYTES
    for byte in content[:leading_bytes]:
        crc = _TABLE_0[(crc ^ byte) & 0xFF] ^ crc >> 8
    # The CRC of a block is the XOR of the table's entries for its bytes; the CRC before the block enters through its
    # first four bytes. Byte by byte, a round of fifty numbers would take 2 ms.
    blocks = np.frombuffer(content, np.uint8, offset=leading_bytes).reshape(-1, CRC_BLOCK_BYTES)
    for block in np.bitwise_xor.reduce(_CRC_TABLES[_FOLLOWING_ZEROS, blocks], axis=1).tolist():
        first, second, third, fourth = crc.to_bytes(4, "little")
        crc = block ^ _TABLE_LAST[first] ^ _TABLE_LAST_2[second] ^ _TABLE_LAST_3[third] ^ _TABLE_LAST_4[fourth]
    crc ^= 0xFFFFFFFF
    rotated_crc = crc >> 15 | crc << 17  # to the right by 15 of 32 bits
    return (rotated_crc + CRC_MASK_DELTA) & 0xFFFFFFFF  # 32 bits
