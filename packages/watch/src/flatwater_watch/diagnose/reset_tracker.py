"""Containers that are emptied and refilled periodically: they keep their minimum, and are not reported as leaks.

An environment is reset while the list of the last episode is still full. Read there, each episode that is longer than
the last looks like a leak. So the lengths of containers are checked between two readings as well, when the
program is somewhere within an episode.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from flatwater_watch.diagnose.owners import ITEM_KINDS, Owner, resolve_way
from flatwater_watch.heap.children import open_object
from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.view import Walk
from flatwater_watch.thresholds import SHIPPED

OWNING = SHIPPED.owning


@dataclass(eq=False, repr=False)
class _TrackedContainer:
    """A container that was found to grow, and its lengths since."""

    hops: tuple[str, ...]
    kind: str
    greatest_length: int
    """The greatest length that was seen."""
    item_bytes: float
    resident_when_found: int
    """Resident bytes of the process when the container was found."""
    is_emptied: bool = False
    """Whether it was seen emptied, and not refilled since."""
    refilled: bool = False
    """Whether it was seen emptied, and refilled later."""
    checks_since_emptied: int = 0
    """Number of checks since it was seen emptied."""
    all_checks: int = 0
    """Number of checks since it was found."""


class ResetTracker:
    """Containers that were found to grow, with the lengths that were seen."""

    def __init__(self) -> None:
        self._containers: dict[str, _TrackedContainer] = {}

    def track_owners(self, owners: Iterable[Owner], resident: int) -> None:
        """Track owners from now on, as far as each is one container that grows by single items.

        Args:
            owners: containers that were found to grow.
            resident: resident bytes of the process.
        """
        for owner in owners:
            if owner.kind in ITEM_KINDS and "[*]" not in owner.hops and owner.holding.instances == 1:
                item_bytes = owner.holding.bytes / max(1, owner.length)
                level = self._containers.setdefault(
                    owner.path, _TrackedContainer(owner.hops, owner.kind, owner.length, item_bytes, resident)
                )
                level.greatest_length = max(level.greatest_length, owner.length)

    @property
    def periodically_emptied(self) -> set[str]:
        """Paths of containers that were emptied and filled again, the last time not long ago."""
        return {
            path
            for path, level in self._containers.items()
            if level.refilled and level.checks_since_emptied <= OWNING.maximum_checks_between_resets
        }

    def negligible_paths(self, resident: int) -> set[str]:
        """Paths of periodically emptied containers that were, when full, a small part of the growth since.

        Args:
            resident: resident bytes of the process now.
        """
        open_share = 1 - OWNING.explained_share
        emptied = {path: self._containers[path] for path in self.periodically_emptied}
        return {
            path
            for path, container in emptied.items()
            if container.greatest_length * container.item_bytes
            < open_share * (resident - container.resident_when_found)
        }

    @property
    def has_containers(self) -> bool:
        """Whether any container is tracked."""
        return bool(self._containers)

    @property
    def has_recent(self) -> bool:
        """Whether one of the tracked containers was found lately, so that its length must be checked often."""
        return any(level.all_checks < 2 * OWNING.maximum_checks_between_resets for level in self._containers.values())

    def check_lengths(self, roots: Roots) -> None:
        """Read the lengths of all tracked containers now, and record which were emptied or refilled."""
        for level in self._containers.values():
            level.all_checks += 1
            # By the way, not by a reference: the program may have put another container in its place.
            container = resolve_way(roots, level.hops)
            opened = None if container is None else open_object(container, Walk(1, lambda _: False, 1))
            if opened is None or opened.kind != level.kind:
                continue
            level.checks_since_emptied += 1
            if opened.length <= OWNING.emptied_share * level.greatest_length:
                level.is_emptied, level.checks_since_emptied = True, 0
            elif level.is_emptied:
                level.is_emptied, level.refilled = False, True
            level.greatest_length = max(level.greatest_length, opened.length)
