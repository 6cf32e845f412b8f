"""The ledger: after each round, resident = files + base + owned + slack + unaccounted.

`owned` is the sum of the state's leaves, `files` and `slack` are read from the system and the allocator, and `base` is
the memory of interpreter and libraries when the state was complete, less the pages that they have given back since.
`unaccounted` has no owner; in a run without a leak it stays constant.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from flatwater_watch.meters.allocator import AllocatorPages, allocator_pages
from flatwater_watch.meters.mappings import Footprint, footprint


@dataclass(frozen=True)
class Effort:
    """Time and memory of a phase of the round."""

    seconds: float
    cpu_seconds: float
    """CPU seconds of all threads of this process."""
    steps: int
    peak: int | None
    """Highest resident bytes during the phase, above those at its beginning; None if they are not measured."""

    def __add__(self, other: "Effort") -> "Effort":
        """Return the sum of two efforts; its peak is the higher peak."""
        peak = self.peak if other.peak is None else max(self.peak or 0, other.peak)
        return Effort(
            seconds=self.seconds + other.seconds,
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            steps=self.steps + other.steps,
            peak=peak,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the effort as in ledger.jsonl."""
        return asdict(self) | {"steps_per_second": self.steps / self.seconds if self.seconds else None}


@dataclass(frozen=True)
class Statement:
    """The resident memory at one moment, by owner, in bytes."""

    resident: int
    file_mapped: int
    """Libraries and mapped files: the system takes these pages back when it needs them."""
    owned: Mapping[str, int]
    """Bytes of RAM of each leaf of the state; its pages count once they are touched."""
    base: int
    """Interpreter and libraries, without their files."""
    heap: AllocatorPages | None
    """Totals of the C allocator."""

    @property
    def owned_bytes(self) -> int:
        """Bytes of the state that are in RAM."""
        return sum(self.owned.values())

    @property
    def slack(self) -> int:
        """Freed bytes that the allocator keeps, in pages that are partly in use."""
        return 0 if self.heap is None else self.heap.kept

    @property
    def unaccounted(self) -> int:
        """Bytes without an owner; negative where counted memory was given back to the system."""
        return self.resident - self.file_mapped - self.base - self.owned_bytes - self.slack

    @property
    def explained_share(self) -> float:
        """Share of the resident memory that has an owner."""
        # The absolute value, because owners may also be counted for more than is resident.
        return 1 - abs(self.unaccounted) / self.resident

    def to_json(self) -> dict[str, Any]:
        """Return the statement as in ledger.jsonl."""
        return {
            "resident": self.resident,
            "file_mapped": self.file_mapped,
            "owned": {path: size for path, size in self.owned.items() if size > SCALAR_BYTES},
            "owned_bytes": self.owned_bytes,
            "base": self.base,
            "slack": self.slack,
            "unaccounted": self.unaccounted,
            "allocator": None if self.heap is None else asdict(self.heap),
        }


SCALAR_BYTES = 8
"""Size of a leaf of one number: such leaves are in the sum, but not listed."""


def base_bytes(owned_bytes: Mapping[str, int]) -> int:
    """Return the resident bytes that are not files, state or the allocator's slack: interpreter and libraries."""
    # With a base of 0, these bytes are unaccounted.
    return take_statement(owned_bytes, base=0).unaccounted


def take_statement(owned_bytes: Mapping[str, int], *, base: int) -> Statement:
    """Return the statement of the present moment. Call `release_freed_memory` first: freed memory has no owner.

    Args:
        owned_bytes: bytes of RAM of each leaf of the state.
        base: result of `base_bytes` when the state was complete.
    """
    memory: Footprint = footprint()
    statement = Statement(
        resident=memory.resident,
        file_mapped=memory.file_mapped,
        owned=owned_bytes,
        base=base,
        heap=allocator_pages(),
    )
    # A negative remainder is pages of the base that were given back to the system since, so the base shrinks by it.
    return replace(statement, base=base + min(0, statement.unaccounted))
