"""Files that the user names for output: checked before the work begins, written whole, and no other file is lost.

All options and functions that write to a path of the user's do it here. An output replaces only a file of its own kind,
such as a page. It never takes a name that Flatwater itself uses in the folder of a run, a study or a sweep, and follows
no link.

A result may have taken days. If its path can no longer be written when it is ready, it goes to the `.flatwater` folder
of the working folder, or to a new temporary folder, and the command says so.
"""

import errno
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.files.directory import TEMPORARY_SUFFIX, FilePiece, replace_whole
from flatwater_watch.files.regular_files import append_regular, describe_irregular, open_regular, read_regular
from flatwater_watch.sanitize import short_repr

KEPT_FOLDER = Path(".flatwater")
"""Folder for results whose own path cannot be written, below the working folder."""
HEAD_BYTES = 64 << 10
"""Number of first bytes of a file that show its kind."""


@dataclass(frozen=True)
class OutputKind:
    """A kind of output, which may replace files of the same kind only."""

    name: str
    """Name with its article, for messages: `an MP4 video`."""
    suffixes: tuple[str, ...]
    matches: Callable[[bytes], bool]
    """A test of whether a file is of this kind, by its first `HEAD_BYTES` bytes."""


def _starts_like(pattern: bytes) -> Callable[[bytes], bool]:
    """Return a test of whether the first bytes of a file match a pattern."""
    expression = re.compile(pattern, re.DOTALL | re.IGNORECASE)
    return lambda head: expression.match(head) is not None


PAGE_OUTPUT = OutputKind(
    "a page of Flatwater", (".html",), _starts_like(rb"\s*<!doctype html>.*\xc2\xb7 Flatwater</title>")
)
WATCH_RESULT = OutputKind("a result of a watch", (".json",), _starts_like(rb'\{\s*"program":.*"unit":'))
"""The result of a watch as JSON, which --json writes whole."""
WATCH_LOG = OutputKind("reports of a watch", (".log", ".txt"), _starts_like(rb"\d{4}-\d\d-\d\d \d\d:\d\d\n"))
"""Reports of --every, which --out appends; each begins with its date and time."""
POLICY_OUTPUTS = {
    ".pt2": OutputKind("an exported program", (".pt2",), _starts_like(rb"PK\x03\x04")),
    ".onnx": OutputKind("an ONNX program", (".onnx",), _starts_like(rb"\x08.*(?:pytorch|torch)")),
    ".safetensors": OutputKind(
        "an exported policy", (".safetensors",), _starts_like(rb'.{8}\{"__metadata__":\{"flatwater":')
    ),
}
"""Exported policies by suffix. They begin as a ZIP file; as protobuf, with the name of the library; and with the length
of a header in 8 bytes, and the header."""
VIDEO_OUTPUTS = {
    ".gif": OutputKind("a GIF", (".gif",), _starts_like(rb"GIF8")),
    ".mp4": OutputKind("an MP4 video", (".mp4",), _starts_like(rb".{4}ftyp")),
}
"""Videos by suffix."""


def table_kind(name: str, columns: Iterable[str]) -> OutputKind:
    """Return the kind of a CSV table with at least these columns."""
    required_columns = {*columns}

    def has_columns(head: bytes) -> bool:
        first_line, _, _ = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")  # without a UTF-8 BOM
        file_columns = {cell.strip().strip('"') for cell in first_line.decode(errors="replace").split(",")}
        return required_columns <= file_columns

    return OutputKind(name, (".csv",), has_columns)


_RUN_CONFIG = re.compile(rb"^trainer\s*=", re.MULTILINE)
"""A line in the `config.toml` of each run."""
_RUN_FILES = ("checkpoints", "metrics.jsonl", "run.log", "plan.json", ".lock")
"""Files and folders of which each run's folder has at least one."""
_OWN_FOLDERS = {"checkpoints", "tensorboard", "profile", "wandb", "logs"}
"""Folders in which Flatwater writes files of any name."""
_OWN_SUFFIXES = {"", ".toml", ".json", ".jsonl", ".parquet", ".npz", ".log", ".txt", ".db", ".png", ".gz"}
"""Suffixes of files that Flatwater writes."""
_OWN_PAGE = "report.html"
_MAXIMUM_DEPTH = 3
"""Maximum folders between a study and a file of a run."""


def flatwater_folder_kind(folder: Path) -> str:
    """Return the kind of a folder of Flatwater, "a run", "a sweep" or "a study"; empty for any other folder."""
    if (folder / "base.toml").is_file():  # the settings that all runs of a sweep or a study share
        for name, kind in (("space.toml", "a sweep"), ("study.toml", "a study")):
            if (folder / name).is_file():
                return kind
        return ""
    if not any((folder / name).exists() for name in _RUN_FILES):
        return ""
    with suppress(OSError):
        return "a run" if _RUN_CONFIG.search(read_regular(folder / "config.toml", follow_links=False)) else ""
    return ""


def reserved_name_reason(place: Path, run_default: Path | None = None) -> str:
    """Return the reason why the user may not write to a path, whose name Flatwater itself uses; empty if the user may.

    Args:
        place: path of the file, with its folder resolved.
        run_default: default path in a run's folder, such as its `report.html`, which is always allowed; None for none.
    """
    if run_default is not None and place == run_default.parent.resolve() / run_default.name:
        return ""
    for folder in [*place.parents][:_MAXIMUM_DEPTH]:  # the nearest first
        kind = flatwater_folder_kind(folder)
        if kind and _is_own_name(place.relative_to(folder).parts):
            return f"{folder} is the folder of {kind}, which has files of such names itself"
    return ""


def _is_own_name(path_names: tuple[str, ...]) -> bool:
    """Return whether Flatwater itself writes files of this name in the folder of a run, a sweep or a study.

    Args:
        path_names: names on the path from that folder to the file, such as `("checkpoints", "3.ckpt")`.
    """
    first_name, *further_names = path_names
    if further_names:
        return first_name in _OWN_FOLDERS
    return first_name.startswith(".") or first_name == _OWN_PAGE or Path(first_name).suffix in _OWN_SUFFIXES


def check_output(option: str, path: Path, kind: OutputKind, *, run_default: Path | None = None) -> None:
    """Check, before the work begins, that a file can be written and replaces no file of another kind.

    Args:
        option: option that names the file, for the error.
        path: path of the file.
        kind: kind of the output.
        run_default: default path in a run's folder, such as its `report.html`, which is always allowed; None for none.

    Raises:
        ConfigError: the name has another suffix; it is a link, a file of another kind, or a file that Flatwater itself
            writes; or the folder does not exist or cannot be written.
    """
    reason = _refusal(path, kind, run_default)
    if reason:
        raise ConfigError(f"{option} {path}: {reason}")


def _refusal(path: Path, kind: OutputKind, run_default: Path | None) -> str:
    """Return the reason why a file cannot be written; empty if it can."""
    return next(_find_objections(path, kind, run_default), "")


def _find_objections(path: Path, kind: OutputKind, run_default: Path | None) -> Iterator[str]:
    """Yield the reasons why a file cannot be written; each check holds only if the earlier ones have yielded none."""
    if path.suffix not in kind.suffixes or path.name == path.suffix:
        yield f"the name must end in {' or '.join(kind.suffixes)}. Name such a file."
    if not path.name.isprintable():
        yield f"no file can be written there: its name {short_repr(path.name)} has characters that none should have."
    try:
        target = path.parent.resolve() / path.name
        _check_name_length(target)
        mode = _file_mode(target)
        head = _read_head(target) if stat.S_ISREG(mode) else b""
    except (OSError, RuntimeError, ValueError) as fault:  # too long a name, links in a circle, a NUL character
        yield f"no file can be written there: {_error_reason(fault)}. Name another one."
        return
    if stat.S_ISLNK(mode):
        yield f"it is a link, to {target.readlink()}, and links are not followed. Name that file itself, or another."
    if special := describe_irregular(mode):
        yield f"no file can be written there: it is {special}. Name a file."
    if not target.parent.is_dir():
        yield f"no file can be written there: there is no folder {target.parent}. Name another."
    # A mode of 0 means that there is no file yet.
    if not os.access(target.parent, os.W_OK | os.X_OK) or (mode and not os.access(target, os.W_OK)):
        yield "no file can be written there: you may not. Name a file in a folder that you may write to."
    if own_file := reserved_name_reason(target, run_default):
        yield f"no file can be written there: {own_file}. Name a file elsewhere."
    if head and not kind.matches(head):
        yield f"the file that is there is not {kind.name}, and is not replaced. Name another one, or remove it."


def _check_name_length(place: Path) -> None:
    """Check that a file with this name can be written: `replace_whole` first writes to a file with a longer name.

    Raises:
        OSError: the name of the temporary file is too long.
    """
    random_part = "0" * 8  # as long as that of `replace_whole`, of 4 bytes in hexadecimal digits
    with suppress(FileNotFoundError):  # a name that is too long raises another OSError
        place.with_name(f".{place.name}.{random_part}{TEMPORARY_SUFFIX}").lstat()


def _file_mode(place: Path) -> int:
    """Return the mode of an existing file, as of `lstat`; 0 if there is none."""
    try:
        return place.lstat().st_mode
    except FileNotFoundError:
        return 0


def _read_head(place: Path) -> bytes:
    with open_regular(place, follow_links=False) as file:
        return file.read(HEAD_BYTES)


@dataclass(frozen=True)
class WrittenResult:
    """The path of a written result."""

    path: Path
    reason: str = ""
    """The reason why it is not the path that the user named; empty if it is."""

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})" if self.reason else str(self.path)


def replace_output(
    path: Path, content: FilePiece | Iterable[FilePiece], kind: OutputKind, *, run_default: Path | None = None
) -> None:
    """Write a result whole to the file that the user named, which is checked once more.

    Args:
        path: path of the file; a file of this kind is replaced.
        content: all bytes of the file, or pieces of them, which are written as they come.
        kind: kind of the output.
        run_default: default path in a run's folder, such as its `report.html`, which is always allowed; None for none.

    Raises:
        RunError: the file cannot be written, or a file of another kind is there by now.
    """
    try:
        # The folder is held open from the check to the write, as it may be replaced by a link meanwhile.
        with _open_folder(path.parent) as folder:
            if reason := _refusal(path, kind, run_default):
                raise RunError(f"{path} cannot be written: {reason}")
            replace_whole(folder / path.name, (content,) if isinstance(content, FilePiece) else content)
    except OSError as fault:
        raise RunError(f"{path} cannot be written: {_error_reason(fault)}") from fault


def write_output(path: Path, content: bytes, kind: OutputKind, *, run_default: Path | None = None) -> WrittenResult:
    """Write a result whole to the file that the user named, or else under its name to another folder.

    Args:
        path: path of the file.
        content: all bytes of the file.
        kind: kind of the output.
        run_default: default path in a run's folder, such as its `report.html`, which is always allowed; None for none.

    Returns:
        The path that was written, and the reason if it is not `path`.

    Raises:
        RunError: the other folders cannot be written either.
    """
    try:
        replace_output(path, content, kind, run_default=run_default)
    except RunError as fault:
        other_path = write_fallback(path.name, content)
        if other_path is None:
            raise RunError(f"{fault}. No other place takes it either.") from fault
        return WrittenResult(other_path, str(fault))
    return WrittenResult(path)


def write_fallback(name: str, content: bytes) -> Path | None:
    """Write a result to `.flatwater/`, or else to a new temporary folder; return its path, or None if both fail.

    No link is followed, as others may write to the folders above.
    """
    with suppress(OSError):  # the working folder may be read-only, or its disk full
        with suppress(FileExistsError):
            KEPT_FOLDER.mkdir()
        return _create_file(KEPT_FOLDER, name, content)
    with suppress(OSError):
        return _create_file(Path(tempfile.mkdtemp(prefix="flatwater-")), name, content)
    return None


def _create_file(folder: Path, name: str, content: bytes) -> Path:
    """Create a file in a folder that is not a link, under another name if the name is taken; return its path.

    Raises:
        FileExistsError: both names are taken.
    """
    with _open_folder(folder, os.O_NOFOLLOW) as held_path:
        for candidate in (name, f"{Path(name).stem}-{os.urandom(4).hex()}{Path(name).suffix}"):
            if not os.path.lexists(held_path / candidate):
                replace_whole(held_path / candidate, (content,))
                return folder / candidate
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)


@contextmanager
def _open_folder(folder: Path, flags: int = 0) -> Iterator[Path]:
    """Hold a folder open; yield a path that leads to it even if another folder or a link takes its name meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | flags)
    try:
        held_path = Path(f"/proc/self/fd/{descriptor}")
        yield held_path if held_path.exists() else folder  # /proc may be missing
    finally:
        os.close(descriptor)


def append_output(path: Path, text: str, kind: OutputKind) -> None:
    """Append text to the file that the user named.

    Raises:
        OSError: the file cannot be opened or written, or a file of another kind is there.
    """
    if reason := _refusal(path, kind, run_default=None):
        raise OSError(errno.EINVAL, reason, str(path))
    with append_regular(path) as file:
        file.write(text.encode(errors="replace"))


def _error_reason(fault: BaseException) -> str:
    """Return what the system says of an error, or the error's own text if the system says nothing."""
    return (fault.strerror if isinstance(fault, OSError) else None) or str(fault)
