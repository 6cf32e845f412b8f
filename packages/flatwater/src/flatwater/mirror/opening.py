"""A run's place at a URL: opening its mirror before the first round, and closing it after the last."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from flatwater.checkpoints.config import CheckpointConfig
from flatwater.mirror.sender import MirrorSender
from flatwater.mirror.uploader import GRACE_SECONDS, Mirror
from flatwater.rundir.events import RunEvents
from flatwater.rundir.layout import RunFolder
from flatwater.storage.faults import StoreError
from flatwater.storage.objects import QUICK, open_objects
from flatwater_watch.errors import RunError, until_interrupted
from flatwater_watch.files.content import MAXIMUM_BYTES, convert_to, parse_json
from flatwater_watch.files.directory import read_whole, write_object


class MirrorLike(Protocol):
    """Methods that a run calls on its mirror; without one they do nothing."""

    def protected_manifests(self) -> frozenset[Path]:
        """Manifests of checkpoints that must not be removed now."""
        return frozenset()

    def offer(self, manifest: Path) -> None:
        """Take a checkpoint that is on the disk, to be sent."""

    def take_messages(self) -> list[str]:
        """Return sentences about the events since the last call."""
        return []

    def status_line(self) -> str:
        """Return the mirror's status as a line for the terminal; empty if there is no mirror."""
        return ""

    def metrics(self) -> dict[str, float]:
        """Return the mirror's status as numbers by metric."""
        return {}

    def buffer_bytes(self) -> dict[str, int]:
        """Return the bytes that sending holds, by owner."""
        return {}

    def run_finished(self) -> None:
        """Say that the run has finished: the rest may take its time."""


class NullMirror(MirrorLike):
    """A run without a mirror."""

    def offer(self, manifest: Path) -> None:
        """Leave the checkpoint where it is."""

    def run_finished(self) -> None:
        """Do nothing: nothing is left to send."""


def mirror_place(url: str, folder: RunFolder) -> tuple[str, str]:
    """Return where the run is mirrored below `url`, and its identity; both are kept in the run folder's mirror.json.

    The place stays what it was when the folder is renamed, and the identity when the run is mirrored elsewhere.
    """
    base = url.rstrip("/")
    saved_place = read_place(folder)
    run_url = saved_place.get("url", "")
    if run_url.rpartition("/")[0] != base:
        run_url = f"{base}/{folder.path.absolute().name}"
    identity = saved_place.get("run") or secrets.token_hex(16)
    # Before anything is sent there: a run that is killed now comes back to the same place.
    write_place(folder, run_url, identity)
    return run_url, identity


def read_place(folder: RunFolder) -> dict[str, str]:
    """Return `url` and `run` of mirror.json; empty if there is none.

    Raises:
        RunError: mirror.json is damaged.
    """
    try:
        return convert_to(parse_json(read_whole(folder.mirror, MAXIMUM_BYTES)), dict[str, str])
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RunError(
            f"{folder.with_current_name.mirror}: is damaged ({error}). "
            "Delete it: the run then gets a new place below --mirror."
        ) from error


def write_place(folder: RunFolder, url: str, identity: str) -> None:
    """Write down where the run is mirrored."""
    write_object(folder.mirror, json.dumps({"run": identity, "url": url}).encode() + b"\n")


def taken_names(url: str | None) -> frozenset[str]:
    """Return names of runs below a mirror's URL, so that a new run gets another; the first request to the store.

    Empty if the store cannot be reached now: that is told when the mirror is opened.
    """
    if url is None:
        return frozenset()
    try:  # few tries: the user waits for the first line
        return frozenset(open_objects(url, QUICK).folders())
    except StoreError:
        return frozenset()


@contextmanager
def open_mirror(base: str | None, keep: CheckpointConfig, folder: RunFolder, events: RunEvents) -> Iterator[MirrorLike]:
    """Yield the run's mirror, claimed and locked where the store can be reached.

    At the end the rest is sent, unless the run was interrupted (KeyboardInterrupt).

    Args:
        base: URL below which runs are mirrored; None yields a mirror that does nothing.
        keep: which checkpoints stay at the store.
        folder: the run.
        events: told where the mirror is, and what could not be sent.

    Raises:
        RunError: another run lies at its place, or another process writes there.
    """
    if base is None:
        yield NullMirror()
        return
    url, identity = mirror_place(base, folder)
    # Few tries for each request: the mirror's own queue tries again, with longer pauses.
    objects = open_objects(url, QUICK)
    mirror = Mirror(lambda step, say: MirrorSender(objects, folder, identity, keep, step, say))
    # In the caller's thread, once: a place that another run holds must end this run before its first round.
    try:
        mirror.sender.connect_()
    except StoreError as error:
        mirror.state.record_failure_(str(error), "The run starts without it")
    mirror.start()  # from here on only the mirror's thread asks the store
    _show_messages(mirror, events)
    interrupted = False
    try:
        yield mirror
    except KeyboardInterrupt:  # nobody wants to wait
        interrupted = True
        raise
    finally:
        if interrupted:
            mirror.finish(deadline=0)
        else:
            finish_mirror(mirror, folder, events, hurried=not mirror.state.unhurried)


def finish_mirror(mirror: Mirror, folder: RunFolder, events: RunEvents, *, hurried: bool) -> None:
    """Send the rest, as far as the store takes it, and say whether everything is there.

    Args:
        mirror: the mirror, whose thread is ended.
        folder: the run, which the hint to send the rest names.
        events: shows progress, and whether everything is there.
        hurried: wait GRACE_SECONDS at most; otherwise as long as bytes move.
    """
    url = mirror.sender.objects.url
    all_sent = False
    with until_interrupted(), events.console.status(f"sending the rest to {url} … (Ctrl-C leaves it for later)"):
        all_sent = mirror.finish(deadline=GRACE_SECONDS if hurried else None)
    _show_messages(mirror, events)
    if all_sent:
        events.show_line(f"mirror: everything is at {url}", style="")
    elif not mirror.state.lost:
        reason = f" ({mirror.state.trouble})" if mirror.state.trouble else ""
        events.show_line(
            f"{mirror.status_line()}{reason}. Send the rest with: flatwater mirror {folder.with_current_name.path}"
        )


def _show_messages(mirror: Mirror, events: RunEvents) -> None:
    """Show the mirror's messages since the last call."""
    for line in mirror.take_messages():
        events.show_line(line)
