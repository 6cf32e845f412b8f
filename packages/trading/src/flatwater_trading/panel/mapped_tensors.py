"""Tensors computed from a panel, in a file that all processes of a machine map: their pages are in RAM once.

The file is named by everything that its contents depend on, written under another name and renamed, and checked against
its hash by each process that opens it. A damaged file is made again. The mapping is read-only.
"""

import hashlib
import json
import mmap
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import remove_strays, replace_whole
from flatwater_watch.files.regular_files import open_regular

MAXIMUM_FILES = 16
"""Files kept in the folder: beyond it the oldest is removed. A process that maps a removed file keeps its pages."""
_ALIGNMENT = 64  # bytes of a cache line
_HASH_BYTES = hashlib.sha256().digest_size
_HEAD_STRUCT = struct.Struct(f"<8s{_HASH_BYTES}sQ")
"""Head of a file: the format, the hash of all bytes after the head, and the length of the JSON about the tensors."""
_FORMAT = b"flatmap1"
_DTYPES = {"float32": torch.float32, "int64": torch.int64}


def map_tensors(file: Path, make: Callable[[], Mapping[str, Tensor]]) -> tuple[Mapping[str, Tensor], str]:
    """Map the tensors of a file; make and store them if it is missing or damaged.

    Args:
        file: path of the file, in a folder without other files.
        make: function that gives the tensors, contiguous, in main memory.

    Returns:
        The tensors, and the reason why they are in this process's own memory: empty if they are mapped.
    """
    with suppress(OSError, ValueError):  # not there, or damaged
        return open_mapped_file(file), ""
    tensors = make()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(RunError):  # a stray of another user, for instance, only takes space on the disk
            remove_strays(file.parent)
        # Renamed when it is complete: two processes that make it at once leave a whole file, whichever is last.
        replace_whole(file, _file_pieces(tensors))
        _remove_old_files(file.parent)
        return open_mapped_file(file), ""
    except OSError as error:
        return tensors, f"{file.parent}: {error.strerror}"
    except ValueError as error:
        return tensors, f"{file}: {error}"


def open_mapped_file(path: Path) -> dict[str, Tensor]:
    """Map the tensors of a file after a check of its hash, which reads every page: resident memory does not grow later.

    Raises:
        OSError: the file is not there, or cannot be read.
        ValueError: the file is damaged, or of another kind.
    """
    with open_regular(path) as file:
        # The mapping outlives the file object: the buffers of the tensors refer to it.
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if len(mapping) < _HEAD_STRUCT.size:
        raise ValueError("it is cut off")
    format_mark, digest, length = _HEAD_STRUCT.unpack_from(mapping)  # `length` is that of the JSON
    # Views are released at once, as after an error the mapping can only be closed without views.
    with memoryview(mapping) as view, view[_HEAD_STRUCT.size :] as body:
        if format_mark != _FORMAT or hashlib.sha256(body).digest() != digest:
            raise ValueError("its contents do not match their hash")
    layout = json.loads(mapping[_HEAD_STRUCT.size : _HEAD_STRUCT.size + length])
    return {name: _tensor_view(mapping, dtype, shape, offset) for name, (dtype, shape, offset) in layout.items()}


def _tensor_view(file_map: mmap.mmap, dtype: str, shape: list[int], offset: int) -> Tensor:
    """Return the tensor at byte `offset` of the mapping; it shares the pages, which must not be written to.

    Args:
        file_map: mapped file.
        dtype: name in `_DTYPES`.
        shape: shape of the tensor.
        offset: offset of the tensor's first number, in bytes from the start of the file.
    """
    count = torch.Size(shape).numel()
    with warnings.catch_warnings():
        # Nothing writes to the mapping; the system would end a process that wrote to it.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(file_map, dtype=_DTYPES[dtype], count=count, offset=offset).view(shape)


def _file_pieces(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file: head with hash, JSON with each tensor's offset, then the tensors on cache lines.

    The JSON is padded to a fixed size, so that offsets are known before it is written. The tensors are not copied.
    """
    names = {dtype: name for name, dtype in _DTYPES.items()}
    body_start = _HEAD_STRUCT.size + 1024 * _ALIGNMENT  # 64 KiB, more than any head and JSON
    layout, offset = {}, body_start
    for name, tensor in tensors.items():
        layout[name] = (names[tensor.dtype], list(tensor.shape), offset)
        offset += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT  # rounded up to a cache line
    text = json.dumps(layout).encode()
    # The padded JSON, then views of the tensors: a market of gigabytes is hashed and written without a copy.
    body: list[bytes | memoryview] = [text.ljust(body_start - _HEAD_STRUCT.size)]
    for tensor in tensors.values():
        # The second piece are zeros up to the next cache line.
        body += [memoryview(tensor.numpy().data).cast("B"), bytes(-tensor.nbytes % _ALIGNMENT)]
    digest = hashlib.sha256()
    for piece in body:
        digest.update(piece)
    yield _HEAD_STRUCT.pack(_FORMAT, digest.digest(), len(text))
    yield from body


def _remove_old_files(folder: Path) -> None:
    """Remove all but the `MAXIMUM_FILES` newest files; a process that maps a removed file keeps its pages."""
    # By the time of writing, as many systems do not record access times.
    newest = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in newest[MAXIMUM_FILES:]:
        path.unlink(missing_ok=True)
