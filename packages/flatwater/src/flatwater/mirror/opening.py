"""Where a run is mirrored: opening its mirror before the first round, and closing it after the last."""

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
from flatwater_watch.files.content import MOST_BYTES, convert_to, parse_json
from flatwater_watch.files.directory import read_whole, write_object


class MirrorLike(Protocol):
    """What a run needs of its mirror, and what it gets where there is none."""

    def protected_manifests(self) -> frozenset[Path]:
        """Manifests of checkpoints that must not be removed now."""
        return frozenset()

    def offer(self, manifest: Path) -> None:
        """A checkpoint is on the disk."""

    def take_messages(self) -> list[str]:
        """What happened since the last call, in whole sentences."""
        return []

    def status_line(self) -> str:
        """How it stands, for the terminal; empty where there is no mirror."""
        return ""

    def metrics(self) -> dict[str, float]:
        """The same as numbers."""
        return {}

    def buffer_bytes(self) -> dict[str, int]:
        """Bytes that sending holds, by owner."""
        return {}

    def run_finished(self) -> None:
        """The run has finished: what is left may take its time."""


class NullMirror(MirrorLike):
    """A run without a mirror."""

    def offer(self, manifest: Path) -> None:
        """Stays where it is."""

    def run_finished(self) -> None:
        """There is nothing left."""


def mirror_place(url: str, folder: RunFolder) -> tuple[str, str]:
    """Where the run is mirrored below `url`, and its identity; both are kept in the run folder's mirror.json.

    The place stays what it was when the folder is renamed, and the identity when the run is mirrored elsewhere.
    """
    base = url.rstrip("/")
    known = read_place(folder)
    place = known.get("url", "")
    if place.rpartition("/")[0] != base:
        place = f"{base}/{folder.path.absolute().name}"
    identity = known.get("run") or secrets.token_hex(16)
    write_place(folder, place, identity)
    return place, identity


def read_place(folder: RunFolder) -> dict[str, str]:
    """What mirror.json says: `url` and `run`; empty where there is none.

    Raises:
        RunError: it is damaged.
    """
    try:
        return convert_to(parse_json(read_whole(folder.mirror, MOST_BYTES)), dict[str, str])
    except FileNotFoundError:
        return {}
    except ValueError as fault:
        raise RunError(
            f"{folder.with_current_name.mirror}: is damaged ({fault}). "
            "Delete it: the run then gets a new place below --mirror."
        ) from fault


def write_place(folder: RunFolder, url: str, identity: str) -> None:
    """Keep where the run is mirrored."""
    write_object(folder.mirror, json.dumps({"run": identity, "url": url}).encode() + b"\n")


def taken_names(url: str | None) -> frozenset[str]:
    """Names of the runs below a mirror's URL, so that a new one gets another; the first look at the store.

    None where it cannot be reached now: that is told when the mirror is opened.
    """
    if url is None:
        return frozenset()
    try:
        return frozenset(open_objects(url, QUICK).folders())
    except StoreError:
        return frozenset()


@contextmanager
def open_mirror(base: str | None, keep: CheckpointConfig, folder: RunFolder, voice: RunEvents) -> Iterator[MirrorLike]:
    """The run's mirror, claimed and locked where the store can be reached.

    Raises:
        RunError: another run lies at its place, or another process writes there.
    """
    if base is None:
        yield NullMirror()
        return
    url, identity = mirror_place(base, folder)
    objects = open_objects(url, QUICK)
    mirror = Mirror(lambda step, say: MirrorSender(objects, folder, identity, keep, step, say))
    try:
        mirror.sender.connect_()
    except StoreError as fault:
        mirror.state.record_failure_(str(fault), "The run starts all the same")
    mirror.start()
    _tell(mirror, voice)
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
            finish_mirror(mirror, folder, voice, hurried=not mirror.state.unhurried)


def finish_mirror(mirror: Mirror, folder: RunFolder, voice: RunEvents, *, hurried: bool) -> None:
    """Send what is left, as far as the store lets it be sent, and say what became of it."""
    url = mirror.sender.objects.url
    done = False
    with until_interrupted(), voice.console.status(f"sending the rest to {url} … (Ctrl-C leaves it for later)"):
        done = mirror.finish(deadline=GRACE_SECONDS if hurried else None)
    _tell(mirror, voice)
    if done:
        voice.show_line(f"mirror: everything is at {url}", style="")
    elif not mirror.state.lost:
        why = f" ({mirror.state.trouble})" if mirror.state.trouble else ""
        voice.show_line(
            f"{mirror.status_line()}{why}. Send the rest with: flatwater mirror {folder.with_current_name.path}"
        )


def _tell(mirror: Mirror, voice: RunEvents) -> None:
    for line in mirror.take_messages():
        voice.show_line(line)
