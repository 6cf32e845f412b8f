"""`flatwater mirror RUN`: sends the files that a run's mirror does not have yet, while nothing trains the run."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.manifest import Manifest
from flatwater.checkpoints.verification import find_quick_problems
from flatwater.config.mappings import from_mapping
from flatwater.mirror.opening import read_mirror_file, save_mirror_url
from flatwater.mirror.sender import MirrorSender
from flatwater.mirror.uploader import FIRST_PAUSE
from flatwater.rundir.description import read_settings
from flatwater.rundir.layout import RunFolder, hold_lock, open_folder
from flatwater.storage.faults import StoreError
from flatwater.storage.objects import check_url, open_objects
from flatwater_watch.errors import ConfigError
from flatwater_watch.events.background import ShowLine
from flatwater_watch.sanitize import short_repr

MAXIMUM_TRIES = 6
"""Attempts before a store counts as gone; the pauses between them add up to 16 s."""


@dataclass(frozen=True)
class CatchUpResult:
    """URL of the mirror, and the number of checkpoints and bytes that were sent."""

    url: str
    checkpoints: int
    bytes: int
    """Bytes of shards and files that were sent."""


def catch_up(run: Path, to: str | None, *, say: ShowLine, on_bytes_sent: Callable[[int], None]) -> CatchUpResult:
    """Send every checkpoint of a run folder that its mirror does not have, oldest first, and the run's files.

    Args:
        run: the run folder.
        to: URL under which the mirror lies; None takes it from the run's settings, or from its `mirror.json`.
        say: shows lines about errors of the store.
        on_bytes_sent: called with the number of bytes of each piece that was sent.

    Raises:
        RunError: a process trains the run now, or another run lies at its place.
        ConfigError: the run has no mirror, or the store refuses.
    """
    folder = open_folder(run)
    # Locked, as a process that trains the run would send the same files.
    with hold_lock(folder):
        settings = read_settings(folder)
        config_file = str(folder.config)
        checkpoint_config = from_mapping(
            CheckpointConfig, _settings_table(settings, "checkpoints", config_file), f"{config_file}: checkpoints"
        )
        # The argument, else the setting, else the URL in `mirror.json` without its last part, which is the run's name.
        parent_url = (
            to or _mirror_url(settings, config_file) or read_mirror_file(folder).get("url", "").rpartition("/")[0]
        )
        if not parent_url:
            raise ConfigError(f"{run}: this run has no mirror. Give one: --to s3://bucket/path")
        check_url(parent_url)  # before the run's name is added, with which `file://` would be a place on the disk
        url, identity = save_mirror_url(parent_url, folder)
        sent_bytes = 0

        def count_sent_(size: int) -> None:
            """Add bytes that were sent to the sum, and report them."""
            nonlocal sent_bytes
            sent_bytes += size
            on_bytes_sent(size)

        sender = MirrorSender(open_objects(url), folder, identity, checkpoint_config, count_sent_, say)
        _retry_store(sender.connect_, say)
        # After `connect_`, which lists the manifests and shards at the store.
        mirrored_names = {manifest.file.name for manifest in sender.manifests.values()}
        missing = [manifest for manifest in _intact_checkpoints(folder) if manifest.file.name not in mirrored_names]
        for manifest in missing:
            _retry_store(partial(sender.send_, manifest), say)
        # Files after the checkpoints, so that records at the store have no round that cannot be resumed there.
        _retry_store(sender.send_files_, say)
        _retry_store(sender.release_, say)
    return CatchUpResult(url, checkpoints=len(missing), bytes=sent_bytes)


def _intact_checkpoints(folder: RunFolder) -> list[Manifest]:
    """Return the checkpoints of a run, oldest first, in which a quick look finds no problem."""
    manifests = list_checkpoints(folder.checkpoints)
    return [manifest for manifest in manifests if not find_quick_problems(folder.checkpoints, manifest)]


def _settings_table(settings: Mapping[str, Any], name: str, file: str) -> Mapping[str, Any]:
    """Return one table of a run's unchecked settings; empty if it is missing.

    Raises:
        ConfigError: the setting is not a table.
    """
    table = settings.get(name, {})
    if not isinstance(table, Mapping):
        raise ConfigError(f"{file}: {name} = {short_repr(table)}: expected a table")
    return table


def _mirror_url(settings: Mapping[str, Any], file: str) -> str:
    """Return the URL of the mirror in a run's settings; empty if it has none.

    Raises:
        ConfigError: the mirror is not text.
    """
    url = settings.get("mirror", "")
    if not isinstance(url, str):
        raise ConfigError(f"{file}: mirror = {short_repr(url)}: expected a URL as text")
    return url


def _retry_store(work: Callable[[], object], say: ShowLine) -> None:
    """Call `work`, at most `MAXIMUM_TRIES` times, with a longer pause after each StoreError; the last one is raised."""
    for pause in (FIRST_PAUSE * 2**n for n in range(MAXIMUM_TRIES - 1)):
        try:
            work()
        except StoreError as error:
            say(f"{error}. Tried again in {pause:g} s")
            time.sleep(pause)
        else:
            return
    work()  # the last try, whose error is the caller's
