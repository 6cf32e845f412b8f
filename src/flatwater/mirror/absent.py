"""What a run needs of its mirror, and a run that has none."""

from pathlib import Path
from typing import Protocol


class MirrorLike(Protocol):
    """What a run needs of its mirror."""

    def spared(self) -> frozenset[Path]:
        """Manifests of checkpoints that must not be removed now."""
        ...

    def offer(self, manifest: Path) -> None:
        """A checkpoint is on the disk."""
        ...

    def news(self) -> list[str]:
        """What happened since the last call, in whole sentences."""
        ...

    def line(self) -> str:
        """How it stands, for the terminal; empty where there is no mirror."""
        ...

    def metrics(self) -> dict[str, float]:
        """The same as numbers."""
        ...

    def held(self) -> dict[str, int]:
        """Bytes that sending holds, by owner."""
        ...

    def unhurried(self) -> None:
        """The run has finished: what is left may take its time."""


class Unmirrored:
    """A run without a mirror."""

    def spared(self) -> frozenset[Path]:
        """None."""
        return frozenset()

    def offer(self, manifest: Path) -> None:
        """Stays where it is."""

    def news(self) -> list[str]:
        """None."""
        return []

    def line(self) -> str:
        """Nothing to tell."""
        return ""

    def metrics(self) -> dict[str, float]:
        """None."""
        return {}

    def held(self) -> dict[str, int]:
        """Nothing."""
        return {}

    def unhurried(self) -> None:
        """There is nothing left."""
