"""A panel as one file in safetensors layout: eight bytes of header length, a JSON header, then the raw arrays.

The values are mapped, never read into private memory, so any number of processes on a machine share one copy of them.
The file is written under another name and renamed, so a reader sees the whole old file or the whole new file.
"""

import hashlib
import itertools
import json
import os
import shlex
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from flatwater_trading.panel.file_kinds import file_kind, is_table_name
from flatwater_trading.panel.panel import FEATURES, Panel
from flatwater_watch.errors import DataError, RunError
from flatwater_watch.files.directory import remove_strays, replace_whole
from flatwater_watch.files.output import reserved_name_reason
from flatwater_watch.files.regular_files import describe_irregular, open_regular

_FORMAT = "flatwater-panel-1"
_MAXIMUM_HEADER_BYTES = 16 << 20  # a foreign file's first eight bytes may be any number
_ALIGNMENT = 64  # bytes of a cache line
_CHUNK_BYTES = 4 << 20
# Array -> the name of its type in the header, and NumPy's.
_DTYPES = {"values": ("F32", "<f4"), "dates": ("I64", "<i8"), "investable": ("I64", "<i8"), "valid": ("BOOL", "|b1")}
_OPTIONAL = {"raw_close": ("F32", "<f4")}
"""Arrays that only panels with traded and adjusted prices have."""
_ARRAY_KINDS = _DTYPES | _OPTIONAL


def save_panel(panel: Panel, path: Path) -> None:
    """Write the panel to `path`, in extra memory of a few megabytes; an existing file is replaced atomically.

    Raises:
        DataError: the file cannot be written (no folder, no permission, disk full); no part of it remains.
    """
    arrays = {"values": panel.values, "dates": panel.dates, "investable": panel.investable, "valid": panel.valid}
    if panel.raw_close is not None:
        arrays["raw_close"] = panel.raw_close
    header = _build_header(arrays, panel)
    try:
        file = path.resolve()
        with suppress(RunError):  # a stray of another user, for instance, only takes space on the disk
            # Temporary files of writers that were killed; a writer at work holds a lock on its file.
            remove_strays(file.parent, file_name=file.name)
        header_size = struct.pack("<Q", len(header))  # the file's first eight bytes
        replace_whole(file, itertools.chain((header_size + header,), _array_blocks(arrays)))
    except OSError as error:
        raise DataError(f"{path}: the panel cannot be written: {error.strerror}. Choose another place.") from error


def check_place(path: Path, *, source: Path | None = None, force: bool = False) -> None:
    """Check, before a panel is made, that it may replace the file at its place.

    Args:
        path: place where the panel will be stored.
        source: file that the panel is made from.
        force: whether a file that is not a panel may be replaced too.

    Raises:
        DataError: the place is the source itself, under any name; or its name is that of a table, perhaps a packed one;
            or it is not a regular file; or the file there is not a panel; or there is no folder to write in.
    """
    if is_table_name(path):  # a panel of this name would be read as prices, and refused
        kind = file_kind(path)
        name = path.name[: -len(kind)] + ".safetensors"
        raise DataError(f"{path}: expected a name for a panel, got one of a table, {kind}. Call it {name}.")
    try:
        file = path.resolve()
        status = file.stat() if file.exists() else None
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(f"{path}: no panel can be written there: {error}. Choose another place.") from error
    # Names of Flatwater's own files are refused.
    if not path.is_symlink() and (reserved_reason := reserved_name_reason(file)):
        raise DataError(f"{path}: the panel cannot be written: {reserved_reason}. Choose another place.")
    if status is not None:
        _check_replaceable(path, file, status, source=source, force=force)
    elif reason := _place_problem(file.parent):
        raise DataError(f"{path}: the panel cannot be written: {reason}")


def _place_problem(folder: Path) -> str:
    """Return why no file can be written in a folder, and what to do, in a sentence; empty if one can be."""
    if not folder.exists():
        return f"there is no folder {folder}. Make it first (mkdir -p {shlex.quote(str(folder))})."
    if not folder.is_dir():
        return f"{folder} is a file, not a folder. Choose another place."
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"you may not write in the folder {folder}. Choose another place."
    return ""


def _check_replaceable(path: Path, file: Path, status: os.stat_result, *, source: Path | None, force: bool) -> None:
    """Check that the existing file at a panel's place may be replaced, as `check_place` does.

    Args:
        path: place where the panel will be stored, as the user wrote it.
        file: the resolved place.
        status: status of the file that is there.
        source: file that the panel is made from.
        force: whether a file that is not a panel may be replaced too.

    Raises:
        DataError: the file is a link, not a regular file, the source itself, or not a panel.
    """
    if path.is_symlink():
        raise DataError(f"{path}: it is a link, to {path.readlink()}, and links are not followed. Name a new file.")
    if kind := describe_irregular(status.st_mode):
        raise DataError(f"{path}: the panel cannot be written: it is {kind}. Name a file that is new, or a panel.")
    if source is not None and source.exists() and source.samefile(file):
        raise DataError(f"{path}: this is the source of the prices, which would be gone. Choose another place.")
    if not force and status.st_size and not is_panel(file):
        raise DataError(
            f"{path}: the file that is there is not a panel, and is not replaced. Choose another place, or add --force."
        )


def is_panel(path: Path) -> bool:
    """Return whether a file begins like a stored panel; the arrays are not read."""
    try:
        with open_regular(path) as file:
            _read_header(path, file)
    except (DataError, OSError):
        return False
    return True


def read_fingerprint(path: Path) -> str:
    """Read the fingerprint in the header of a stored panel; the values are not read.

    Raises:
        DataError: the file is not a stored panel, or cannot be read.
    """
    try:
        with open_regular(path) as file:
            header, _ = _read_header(path, file)
        return str(header["__metadata__"].get("fingerprint"))
    except OSError as error:
        raise DataError(f"{path}: the panel cannot be read: {error.strerror}. Check the path.") from error


def open_panel(path: Path) -> Panel:
    """Open a stored panel: check every byte against the hash in its header, then map the values read-only.

    The check reads the file in small blocks, so the pages of `values` do not count as this process's own.

    Raises:
        DataError: the file is missing, unreadable, truncated, changed, or not a panel.
    """
    try:
        with open_regular(path) as file:
            header, start = _read_header(path, file)
            # Read in pieces instead of through a mapping, whose pages count as resident once they are read.
            digest = _hash_contents(header, iter(lambda: file.read(_CHUNK_BYTES), b""))
        if digest != header["__metadata__"]["sha256"]:
            raise DataError(f"{path}: the contents do not match their hash: cut off or damaged. Import it again.")
        return _map_panel(path, header, start)
    except OSError as error:
        raise DataError(f"{path}: the panel cannot be read: {error.strerror}. Check the path.") from error


def _array_blocks(arrays: dict[str, np.ndarray]) -> Iterator[bytes]:
    """Yield the bytes of the arrays, one after the other, in the file's types, in pieces of about `_CHUNK_BYTES`."""
    for name, array in arrays.items():
        _, dtype = _ARRAY_KINDS[name]
        rows = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
        for first in range(0, len(array), rows):
            yield np.ascontiguousarray(array[first : first + rows], dtype=dtype).tobytes()  # a copy of these rows alone


def _build_header(arrays: dict[str, np.ndarray], panel: Panel) -> bytes:
    """Return the file's JSON header, padded to a cache line: type, shape and offsets of each array, facts of the panel.

    Reads all arrays once, for the hash in the header.
    """
    metadata = {
        "format": _FORMAT,
        "instruments": json.dumps(panel.instruments),
        "features": json.dumps(panel.features),
        "fingerprint": panel.fingerprint,
    }
    if panel.origins:
        metadata["origins"] = json.dumps(dict(panel.origins))
    # `__metadata__` holds texts alone, as the safetensors format asks for.
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, array in arrays.items():
        kind, dtype = _ARRAY_KINDS[name]
        size = array.size * np.dtype(dtype).itemsize
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + size]}
        offset += size
    # Arrays are read here to be hashed, and again to be written, as the hash stands before them and no copy is kept.
    metadata["sha256"] = _hash_contents(header, _array_blocks(arrays))
    text = json.dumps(header).encode()
    # Padded with spaces, which the format allows, so that the arrays begin on a cache line: the eight bytes before the
    # JSON, with its length, count too.
    return text + b" " * (-(len(text) + 8) % _ALIGNMENT)


def _hash_contents(header: dict[str, Any], blocks: Iterator[bytes]) -> str:
    """Return the sha256 (hex) of the header, without its hash, and of the arrays after it."""
    metadata = {name: text for name, text in header["__metadata__"].items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(header | {"__metadata__": metadata}, sort_keys=True).encode())
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def _read_header(path: Path, file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Return the JSON header, not yet checked against its hash, and the offset at which the arrays begin.

    Raises:
        DataError: the file is not a stored panel.
    """
    not_a_panel = f"{path}: this is not a stored panel. Import it first: flatwater panel import SOURCE --out FILE."
    first_bytes = file.read(8)
    size = struct.unpack("<Q", first_bytes)[0] if len(first_bytes) == 8 else 0  # noqa: PLR2004  (bytes of "<Q")
    if not 0 < size <= _MAXIMUM_HEADER_BYTES:
        raise DataError(not_a_panel)
    try:
        header = json.loads(file.read(size))
    except (ValueError, RecursionError) as error:
        raise DataError(not_a_panel) from error
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or metadata.get("format") != _FORMAT or "sha256" not in metadata:
        raise DataError(not_a_panel)
    return header, 8 + size


def _map_panel(path: Path, header: dict[str, Any], start: int) -> Panel:
    """Map the arrays of a file whose hash has been checked; `start` is the offset at which they begin.

    Raises:
        DataError: the panel is of a version with other features.
    """
    metadata = header["__metadata__"]
    features = tuple(json.loads(metadata["features"]))
    # Checked after the hash, as a whole panel of another version must not be called damaged.
    if features[: len(FEATURES)] != FEATURES:
        raise DataError(f"{path}: expected a panel with the features {FEATURES}, got {features}. Import it again.")

    def map_array(name: str) -> np.ndarray:
        """Map an array of the file, read-only, by its entry in the header."""
        entry = header[name]
        offset = start + entry["data_offsets"][0]
        return np.memmap(path, dtype=_ARRAY_KINDS[name][1], mode="r", offset=offset, shape=tuple(entry["shape"]))

    # Small arrays are copied, so that no mapping stays open for them; all are read-only.
    dates = np.array(map_array("dates")).astype("datetime64[D]")
    investable = np.array(map_array("investable"))
    dates.setflags(write=False)
    investable.setflags(write=False)
    return Panel(
        values=map_array("values"),
        valid=map_array("valid"),
        dates=dates,
        instruments=tuple(json.loads(metadata["instruments"])),
        investable=investable,
        features=features,
        origins=json.loads(metadata.get("origins", "{}")),
        fingerprint=metadata["fingerprint"],
        raw_close=map_array("raw_close") if "raw_close" in header else None,
    )
