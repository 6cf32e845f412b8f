"""The checkpoints in a folder, and which of them are intact. This module does not need torch."""

from collections.abc import Callable
from pathlib import Path

from flatwater.checkpoints.intact import Intact, examine, read_shard, remembering
from flatwater.checkpoints.manifest import Manifest, manifest_files, read_manifest
from flatwater.storage.directory import strays


def list_checkpoints(folder: Path) -> list[Manifest]:
    """Every checkpoint in `folder`, newest last. Shards are not read; a damaged manifest says so in `damage`.

    Args:
        folder: the `checkpoints` folder of a run. One that does not exist holds none.
    """
    return [read_manifest(file) for file in manifest_files(folder)]


def list_verified(folder: Path) -> list[tuple[Manifest, list[str]]]:
    """Every checkpoint with what is wrong with it, as `verify` says. Shards that several share are read once."""
    read = remembering()
    found = [(manifest, examine(folder, manifest, read)) for manifest in list_checkpoints(folder)]
    return [(manifest, [] if isinstance(each, Intact) else each) for manifest, each in found]


def verify(folder: Path, manifest: Manifest) -> list[str]:
    """What is wrong with a checkpoint; empty where its manifest and every byte of its shards are as they were written.

    Reads every shard once, 4 MiB at a time.
    """
    found = examine(folder, manifest, read_shard)
    return [] if isinstance(found, Intact) else found


def newest_intact(folder: Path, *, say: Callable[[str], None]) -> Intact | None:
    """The newest checkpoint whose manifest and shards are as they were written; None if there is none.

    Args:
        folder: the `checkpoints` folder of a run.
        say: told, in whole sentences, of a save that was cut off, of each checkpoint that is skipped and why, and of
            the one that is used instead.
    """
    cut_off = len(strays(folder)) + len(strays(folder / "objects"))
    if cut_off:
        say(f"A save was cut off and left {cut_off} unfinished file(s) in {folder}. They are ignored.")
    for skipped, manifest in enumerate(reversed(list_checkpoints(folder))):
        found = examine(folder, manifest, read_shard)
        if isinstance(found, Intact):
            if skipped:
                say(f"Checkpoint {manifest.file.name} (round {manifest.round}) is intact and is used instead.")
            return found
        more = f" and {len(found) - 1} more problem(s)" if len(found) > 1 else ""
        how = "cannot be used" if manifest.unread else "is damaged"
        say(f"Checkpoint {manifest.file.name} {how} and is skipped: {found[0]}{more}.")
    return None
