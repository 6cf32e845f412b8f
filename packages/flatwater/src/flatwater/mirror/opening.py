"""Opens the mirror of a run at a URL before the first round, and closes it after the last."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from flatwater.checkpoints.config import CheckpointConfig
from flatwater.mirror.sender import MirrorSender
from flatwater.mirror.uploader import GRACE_SECONDS, Mirror, NoMirror
from flatwater.rundir.events import RunEvents
from flatwater.rundir.layout import RunFolder
from flatwater.storage.faults import StoreError
from flatwater.storage.objects import QUICK_RETRIES, open_objects
from flatwater_watch.errors import RunError, until_interrupted
from flatwater_watch.files.directory import read_whole, write_object
from flatwater_watch.files.json_values import MAXIMUM_BYTES, convert_to_type, parse_json


def save_mirror_url(url: str, folder: RunFolder) -> tuple[str, str]:
    """Write the URL of the run's mirror below `url`, and the run's identity, to mirror.json; return both.

    The URL stays the same when the folder is renamed, and the identity when the run is mirrored elsewhere.
    """
    base = url.rstrip("/")
    saved_fields = read_mirror_file(folder)
    run_url = saved_fields.get("url", "")
    # No URL is saved yet, or the saved one is not directly below this base.
    if run_url.rpartition("/")[0] != base:
        run_url = f"{base}/{folder.path.absolute().name}"
    identity = saved_fields.get("run") or secrets.token_hex(16)
    # Written before anything is sent: a run that is killed from here on comes back to the same URL.
    write_mirror_file(folder, run_url, identity)
    return run_url, identity


def read_mirror_file(folder: RunFolder) -> dict[str, str]:
    """Return `url`, of the mirror, and `run`, the run's identity, from mirror.json; empty if there is no such file.

    Raises:
        RunError: mirror.json is damaged.
    """
    try:
        return convert_to_type(parse_json(read_whole(folder.mirror, MAXIMUM_BYTES)), dict[str, str])
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RunError(
            f"{folder.with_current_name.mirror}: is damaged ({error}). "
            "Delete it: the run then gets a new place below --mirror."
        ) from error


def write_mirror_file(folder: RunFolder, url: str, identity: str) -> None:
    """Write the URL of the run's mirror, and the run's identity, to mirror.json."""
    write_object(folder.mirror, json.dumps({"run": identity, "url": url}).encode() + b"\n")


def list_mirrored_names(url: str | None) -> frozenset[str]:
    """Return the names of the runs below a mirror's URL, which a new run must not have.

    It is empty if the store cannot be reached now: `open_mirror` reports that later.
    """
    if url is None:
        return frozenset()
    try:  # few retries, as the user waits for the first line
        return frozenset(open_objects(url, QUICK_RETRIES).folders())
    except StoreError:
        return frozenset()


@contextmanager
def open_mirror(
    base: str | None, keep: CheckpointConfig, folder: RunFolder, events: RunEvents
) -> Iterator[Mirror | NoMirror]:
    """Yield the run's mirror, after its URL was claimed and locked, if the store can be reached.

    On leaving, all that was not sent is sent, unless a KeyboardInterrupt ended the run.

    Args:
        base: URL below which runs are mirrored; None yields a mirror that does nothing.
        keep: which checkpoints stay at the store.
        folder: the run.
        events: gets lines about the mirror and what could not be sent.

    Raises:
        RunError: another run lies at its URL, or another process writes there.
    """
    if base is None:
        yield NoMirror()
        return
    url, identity = save_mirror_url(base, folder)
    # Few retries of each request: the mirror's own queue tries again, after longer pauses.
    objects = open_objects(url, QUICK_RETRIES)
    mirror = Mirror(
        lambda on_bytes_sent, say: MirrorSender(
            objects, folder, identity=identity, keep=keep, on_bytes_sent=on_bytes_sent, say=say
        )
    )
    # Connected in the run's thread: if another run has the URL, this run must end before its first round.
    try:
        mirror.sender.connect_()
    except StoreError as error:
        mirror.state.record_failure_(str(error), "The run starts without it")
    mirror.start()  # from here on only the mirror's thread asks the store
    _show_messages(mirror, events)
    interrupted = False
    try:
        yield mirror
    except KeyboardInterrupt:  # the user does not want to wait
        interrupted = True
        raise
    finally:
        if interrupted:
            mirror.finish(timeout=0)
        else:
            finish_mirror(mirror, folder, events, may_take_long=mirror.state.rounds_finished)


def finish_mirror(mirror: Mirror, folder: RunFolder, events: RunEvents, *, may_take_long: bool) -> None:
    """Wait while the mirror sends what was not sent yet, and show whether everything is at the store.

    Args:
        mirror: the mirror; its thread ends.
        folder: folder of the run, for the command that sends the rest later.
        events: shows progress, and whether everything is there.
        may_take_long: whether to wait as long as bytes move, as after all rounds of a run; else GRACE_SECONDS at most.
    """
    url = mirror.sender.objects.url
    all_sent = False  # if Ctrl-C ends the wait
    with until_interrupted(), events.console.status(f"sending the rest to {url} … (Ctrl-C leaves it for later)"):
        all_sent = mirror.finish(timeout=None if may_take_long else GRACE_SECONDS)
    _show_messages(mirror, events)
    if all_sent:
        events.show_line(f"mirror: everything is at {url}", style="")
    elif not mirror.state.lost_reason:
        reason = f" ({mirror.state.trouble})" if mirror.state.trouble else ""
        events.show_line(
            f"{mirror.status_line()}{reason}. Send the rest with: flatwater mirror {folder.with_current_name.path}"
        )


def _show_messages(mirror: Mirror, events: RunEvents) -> None:
    """Show the mirror's messages since the last call."""
    for line in mirror.take_messages():
        events.show_line(line)
