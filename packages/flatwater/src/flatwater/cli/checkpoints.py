"""The checkpoints of a run, here and at a URL: `flatwater checkpoints`, `flatwater prune` and `flatwater mirror`."""

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from flatwater_watch.options.bounds import Number
from flatwater_watch.options.declare import WordOption

if TYPE_CHECKING:
    from rich.table import Table

    from flatwater.checkpoints.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """List the checkpoints of a run, oldest first, and verify every byte of each."""

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or the URL at which it is mirrored."""
    json: bool = False
    """Print JSON instead of a table: {"checkpoints": [{"round", "step", "saved", "file", "intact", "problems", "bytes",
    "leaves": {path: sha256}}]}, oldest first. Two runs in the same state have the same hash at every leaf."""

    def __call__(self) -> int:
        """Print the checkpoints and their problems. Returns exit code 0, also if a checkpoint is damaged."""
        from flatwater.storage.objects import is_url
        from flatwater_watch.terminal import terminal

        with terminal(to_stderr=True).status(f"reading the checkpoints of {self.run} …"):
            checkpoints = (
                _list_url_checkpoints(self.run) if is_url(self.run) else _list_folder_checkpoints(Path(self.run))
            )
        if self.json:
            entries = [_json_entry(manifest, problems) for manifest, problems in checkpoints]
            print(json_format.dumps({"checkpoints": entries}, indent=1))
        else:
            _print_checkpoints(self.run, checkpoints)
        return 0


def _list_folder_checkpoints(run: Path) -> "list[tuple[Manifest, list[str]]]":
    """Return the checkpoints of a run folder, each with its problems; reads every shard.

    Raises:
        RunError: the folder of the run has no checkpoints.
    """
    from flatwater.checkpoints.catalogue import list_verified_checkpoints
    from flatwater_watch.errors import RunError

    folder = run / "checkpoints"
    if not folder.is_dir():
        raise RunError(f"{run}: there are no checkpoints here. Give the folder of a run, such as runs/NAME.")
    return list_verified_checkpoints(folder)


def _list_url_checkpoints(url: str) -> "list[tuple[Manifest, list[str]]]":
    """Return the checkpoints of a run at a URL, each with its problems; reads every shard.

    Raises:
        RunError: there is no run with checkpoints at the URL.
    """
    from flatwater.checkpoints.remote import list_remote
    from flatwater.mirror.download import no_run_error
    from flatwater.storage.objects import open_objects

    objects = open_objects(url)
    if not (checkpoints := list_remote(objects)):
        raise no_run_error(objects)
    return checkpoints


def _json_entry(manifest: "Manifest", problems: list[str]) -> dict[str, Any]:
    """Return a checkpoint as an object of `--json`; sizes are in bytes, hashes by the path of the leaf."""
    return {
        "round": manifest.round,
        "step": manifest.step,
        "saved": manifest.saved,
        "file": str(manifest.file),
        "intact": not problems,
        "problems": problems,
        "bytes": manifest.bytes,
        "leaves": {record.path: record.sha256 for record in manifest.leaves},
    }


def _print_checkpoints(run: str, checkpoints: "list[tuple[Manifest, list[str]]]") -> None:
    """Print the checkpoints as a table, their size in all, and a line for each problem; or that there is none."""
    from rich.text import Text

    from flatwater_watch.terminal import terminal
    from flatwater_watch.units import format_bytes

    console = terminal()
    if not checkpoints:
        console.print(f"{run}: no checkpoint yet. One is written after each round.", soft_wrap=True)
        return
    console.print(_checkpoint_table(checkpoints))
    # By its hash, so that a shard that several checkpoints share counts once.
    shards = {shard.sha256: shard.bytes for manifest, _ in checkpoints for shard in manifest.shards}
    console.print(f"{format_bytes(sum(shards.values()))} in all: checkpoints share files with equal content.")
    for manifest, problems in checkpoints:
        for problem in problems:
            console.print(Text.assemble((manifest.file.name, "red"), ": ", problem), soft_wrap=True)


def _checkpoint_table(checkpoints: "list[tuple[Manifest, list[str]]]") -> "Table":
    """Return a table with a row for each checkpoint."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from flatwater_watch.units import format_bytes

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("round", "step", "saved (UTC)", "size", "shards"):
        table.add_column(name, justify="left" if name == "saved (UTC)" else "right")
    table.add_column("intact")
    table.add_column("file", overflow="fold")
    for manifest, problems in checkpoints:
        table.add_row(
            str(manifest.round),
            str(manifest.step),
            manifest.saved[5:16].replace("T", " "),  # to the minute, as in `runs`: the table has 80 columns
            format_bytes(manifest.bytes),
            str(len(manifest.shards)),
            Text("no", "red") if problems else "yes",
            manifest.file.name,
        )
    return table


@dataclass(frozen=True, kw_only=True)
class Prune:
    """Remove checkpoints of a run but the newest, and the files that only they need.

    The newest checkpoint that is kept is read through first: a damaged checkpoint does not count, so the last good one
    always stays. Records and results are not touched.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, or the URL at which it is mirrored."""
    keep: Number
    """Checkpoints that stay, counted from the newest; 1 or more."""

    def __call__(self) -> int:
        """Remove checkpoints, and print how many were kept and removed, and the bytes that were freed."""
        from flatwater.mirror.pruning import prune_run
        from flatwater_watch.terminal import say
        from flatwater_watch.units import format_bytes

        outcome = prune_run(self.run, self.keep)
        say(f"{self.run}  {outcome.kept} kept, {outcome.removed} removed, {format_bytes(outcome.bytes)} freed")
        if outcome.unread:
            say(
                f"{outcome.unread} more could not be read and were kept with all their files. See: "
                f"flatwater checkpoints {self.run}"
            )
        return 0


@dataclass(frozen=True, kw_only=True)
class MirrorCommand:
    """Send the checkpoints, records and result that the mirror of a run does not have yet.

    A run with --mirror does so by itself while it trains. This sends the rest where the store could not be reached, and
    makes a mirror of a run that has none.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The run's folder."""
    to: Annotated[str | None, WordOption()] = None
    """s3://bucket/path, gs://bucket/path, az://container/path or file:///path; the run gets a folder of its name there.
    Left out: where the run is mirrored already."""

    def __call__(self) -> int:
        """Send the missing files, and print their number and size."""
        from flatwater.runs.catch_up import catch_up
        from flatwater_watch.phrases import count_phrase
        from flatwater_watch.terminal import say, terminal
        from flatwater_watch.units import format_bytes

        errors = terminal(to_stderr=True)
        sent_bytes = 0

        def on_bytes_sent(count: int) -> None:
            """Show the bytes that were sent so far."""
            nonlocal sent_bytes
            sent_bytes += count
            # `status` is the display that is opened below.
            status.update(f"sending … {format_bytes(sent_bytes)}")

        def note(line: str) -> None:
            errors.print(line, highlight=False, markup=False, soft_wrap=True)

        # On stderr, so that stdout has the result alone.
        with errors.status("listing the objects in the store …") as status:
            result = catch_up(self.run, self.to, say=note, on_bytes_sent=on_bytes_sent)
        checkpoints = count_phrase(result.checkpoints, "checkpoint")
        say(f"{result.url}  {checkpoints} and the changed files, {format_bytes(result.bytes)}")
        return 0
