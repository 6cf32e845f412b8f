"""A store in memory whose answers go wrong as a script says, behind the interface of `StoredObjects`.

What it was asked for and what it was told to change is recorded. Its lists and answers pass through the bounds of
`StoredObjects`, which are under test.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import torch

from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.writer import save_checkpoint
from flatwater.storage.faults import StoreError
from flatwater.storage.objects import FilePiece, ObjectEntry, StoredObjects
from flatwater.storage.url_lock import is_lock

PIECE = 256
"""Bytes of one piece of an answer."""
ANSWERS = ("", "flip", "short", "cut", "long", "endless", "busy", "gone", "other")
LISTS = ("", "hidden", "sizes", "names", "busy", "empty")
ODD_NAMES = (
    "../escaped",
    "checkpoints/../../escaped",
    "a\x1b[2J",
    "a//b",
    "/etc/passwd",
    "n" * 2000,
    "\udcff",
    "notes",
)


@dataclass
class Hostile:
    """The content, the script and the record."""

    contents: dict[str, bytes]
    script: Iterator[str] = field(default_factory=lambda: iter(()))
    """What happens to each request in turn; nothing after its end."""
    always: dict[str, str] = field(default_factory=dict)
    """What happens to every reading of an object."""
    changed: list[str] = field(default_factory=list)
    """Names that were put or removed."""
    beyond: int = 0
    """The most bytes that were taken of one answer after those that it was asked for."""


@dataclass(frozen=True)
class HostileObjects(StoredObjects):
    """Only what reaches a store is replaced."""

    hostile: Hostile = field(default_factory=lambda: Hostile({}))

    def reconnect(self) -> "HostileObjects":
        return self

    def _put(self, name: str, content: FilePiece, mode: str) -> str:
        from obstore.exceptions import AlreadyExistsError

        if mode == "create" and name in self.hostile.contents:
            raise AlreadyExistsError
        self.hostile.contents[name] = bytes(content)
        self.hostile.changed.append(name)
        return ""

    def remove(self, names: list[str]) -> None:
        for name in names:
            self.hostile.contents.pop(name, None)
            self.hostile.changed.append(name)

    def _read_ranges(self, name: str, most: int) -> Iterator[bytes]:
        fault = self.hostile.always.get(name) or next(self.hostile.script, "")
        if fault == "busy":
            raise StoreError(f"{self.url}: reading fails (503)")
        if fault == "gone" or name not in self.hostile.contents:
            raise FileNotFoundError(name)
        taken = 0
        for piece in spoil(self.hostile.contents[name], fault):
            taken += len(piece)
            self.hostile.beyond = max(self.hostile.beyond, taken - most)
            yield piece

    async def _list_folder(self, folder: str) -> list[ObjectEntry]:
        fault = next(self.hostile.script, "")
        if fault == "busy":
            raise StoreError(f"{self.url}: listing fails (503)")
        now = datetime.now(UTC)
        found = [
            ObjectEntry(name, len(content), now)
            for name, content in self.hostile.contents.items()
            if name.startswith(folder)
        ]
        if fault == "hidden":
            return found[1::2]
        if fault == "sizes":
            return [ObjectEntry(entry.name, entry.bytes * 3 + 1, now) for entry in found]
        if fault == "names":
            return [*found, *(ObjectEntry(name, 10**12, now) for name in ODD_NAMES)]
        return [] if fault == "empty" else found

    def _find_entry(self, name: str) -> ObjectEntry | None:
        content = self.hostile.contents.get(name)
        return None if content is None else ObjectEntry(name, len(content), datetime.now(UTC))


def spoil(content: bytes, fault: str) -> Iterator[bytes]:
    """The content as it comes, in pieces."""
    if fault == "flip" and content:
        middle = len(content) // 2
        content = content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
    if fault in {"short", "cut"}:
        content = content[: len(content) // 2]
    if fault == "long":
        content += b"more"
    if fault == "other":
        content = bytes(len(content))
    for at in range(0, len(content), PIECE):
        yield content[at : at + PIECE]
    if fault == "cut":
        raise StoreError("memory: reading fails (the connection was cut)")
    if fault == "endless":
        for _ in count():
            yield bytes(PIECE)


def tree(number: int) -> dict[str, Any]:
    """The state after so many rounds."""
    return {"shared": torch.zeros(300), "own": torch.full((200,), float(number)), "round": number}


def saved_run(folder: Path, rounds: Sequence[int] = (0, 1, 2)) -> dict[str, bytes]:
    """A run's files as objects."""
    config = CheckpointConfig(keep=len(rounds), shard_bytes=1024)
    for number in rounds:
        save_checkpoint(folder / "checkpoints", tree(number), round=number, step=0, facts={}, config=config)
    (folder / "config.toml").write_text("rounds = 9\n")
    (folder / "metrics.jsonl").write_text('{"round": 2}\n' * 40)
    (folder / "mirror.json").write_text('{"run": "one"}\n')
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def changed_names(hostile: Hostile) -> list[str]:
    """What was changed at the store, but for locks."""
    return [name for name in hostile.changed if not is_lock(name)]
