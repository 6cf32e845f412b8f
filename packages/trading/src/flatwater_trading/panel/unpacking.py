"""Text files as plain UTF-8: gzip is unpacked, and UTF-16 rewritten, into a temporary file that is removed afterwards.

It is written to the temporary folder, because memory has to hold the table itself. A few kilobytes can unpack to
terabytes, so the size is limited while unpacking.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from flatwater_watch.errors import DataError
from flatwater_watch.files.regular_files import open_regular

MAXIMUM_BYTES = 4 << 30
"""Most bytes of an unpacked file: prices of 10,000 instruments on 10,000 days."""
MAXIMUM_GROWTH, FREE_BYTES = 200, 64 << 20
"""Largest factor by which a file may grow when unpacked, beyond the first 64 MiB: numbers reach a factor of 3 to 20,
repeated numbers 100, and a file that was made to fill a disk 1,000."""
_CHUNK_BYTES = 1 << 20  # memory that unpacking takes, whatever the file
_GZIP_MAGIC = b"\x1f\x8b"  # by content: a file named .csv may be packed too
_REFUSED_MAGICS = {
    b"PK\x03\x04": "a zip archive or a workbook: unpack it, or give it the suffix of its kind (.xlsx)",
    b"PAR1": "Parquet: name it .parquet",
    b"\x28\xb5\x2f\xfd": "packed by zstd: unpack it first (zstd -d)",
    b"BZh": "packed by bzip2: unpack it first (bunzip2)",
    b"\xfd7zXZ": "packed by xz: unpack it first (unxz)",
    b"\xd0\xcf\x11\xe0": "a workbook of an old version of Excel: name it .xls",
}
"""First bytes of other kinds of files -> the kind, and the remedy."""
# UTF-32 before UTF-16: its little-endian mark starts with that of UTF-16.
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"))
_ENCODINGS = (*_BYTE_ORDER_MARKS, (codecs.BOM_UTF16_BE, "utf-16"))


@contextmanager
def plain_text(source: Path) -> Iterator[Path]:
    """Yield the path of a file with the same text in UTF-8; the source itself if it is plain UTF-8.

    Raises:
        DataError: the file is not text, or is damaged, or unpacks to more than a table of prices.
        OSError: the file cannot be read.
    """
    with ExitStack() as open_files:
        text_file = source
        if _first_bytes(text_file) == _GZIP_MAGIC:
            unpacked_file = open_files.enter_context(NamedTemporaryFile(prefix="flatwater-", suffix=".csv"))
            _unpack_gzip_(source, unpacked_file)
            text_file = Path(unpacked_file.name)
        if encoding := _find_encoding(source, text_file):
            text = open_files.enter_context(NamedTemporaryFile(prefix="flatwater-", suffix=".csv"))
            _rewrite_as_utf8_(source, text_file, encoding, text)
            text_file = Path(text.name)
        yield text_file


def _first_bytes(place: Path) -> bytes:
    with open_regular(place) as file:
        return file.read(2)


def _unpack_gzip_(source: Path, target: IO[bytes]) -> None:
    """Unpack a gzip file into `target`, in pieces of `_CHUNK_BYTES` bytes, and flush it.

    Raises:
        DataError: the file is damaged, or larger than a table of prices can be.
        OSError: the file cannot be read, or `target` cannot be written.
    """
    size = source.stat().st_size
    # A small file may grow by more than the usual factor.
    maximum = min(MAXIMUM_BYTES, FREE_BYTES + MAXIMUM_GROWTH * size)
    written_bytes = 0
    try:
        with open_regular(source) as packed_file, gzip.GzipFile(fileobj=packed_file) as file:
            while chunk := file.read(_CHUNK_BYTES):
                written_bytes += len(chunk)
                # Counted while unpacking, as the size in gzip's trailer can be wrong.
                if written_bytes > maximum:
                    raise DataError(
                        f"{source}: {size:,} bytes unpack to more than {maximum:,}, too much for prices. If it "
                        "has prices, unpack it first (gunzip) and give the .csv file."
                    )
                target.write(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{source}: the file cannot be unpacked: {error}. It is cut off or damaged.") from error
    target.flush()


def _find_encoding(source: Path, place: Path) -> str:
    """Return the encoding that the first bytes show; empty for UTF-8 and for a file without a mark.

    Raises:
        DataError: the first bytes are those of a file that is not text.
    """
    with open_regular(place) as file:
        head = file.read(8)  # enough for every mark
    for mark, kind in _REFUSED_MAGICS.items():
        if head.startswith(mark):
            raise DataError(f"{source}: expected text, got {kind}.")
    for mark, encoding in _ENCODINGS:
        if head.startswith(mark):
            return encoding
    if len(head) < 4:  # noqa: PLR2004  (two letters of UTF-16)
        return ""
    # UTF-16 without a mark: of the two bytes of a Latin letter one is 0, the second (little-endian) or the first.
    first_bytes, second_bytes = head[0:4:2], head[1:4:2]
    if second_bytes == b"\0\0" and head[0] != 0:
        return "utf-16-le"
    return "utf-16-be" if first_bytes == b"\0\0" and head[1] != 0 else ""


def _rewrite_as_utf8_(source: Path, place: Path, encoding: str, target: IO[bytes]) -> None:
    """Rewrite text of another encoding to UTF-8 in `target`, and flush it.

    Args:
        source: the user's file, for messages.
        place: file that is read: `source`, or the unpacked file.
        encoding: encoding of the file that is read.
        target: file that is written.

    Raises:
        DataError: the text is not in this encoding.
    """
    with open_regular(place) as file:
        # Decoded incrementally, as a chunk may end within a character.
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            while chunk := file.read(_CHUNK_BYTES):
                target.write(decoder.decode(chunk).encode())
            target.write(decoder.decode(b"", final=True).encode())
        except UnicodeError as error:
            raise DataError(f"{source}: this is not text in {encoding.upper()}: {error}. Save it as UTF-8.") from error
    # The caller opens the file by its name, so the buffer must be on disk.
    target.flush()
