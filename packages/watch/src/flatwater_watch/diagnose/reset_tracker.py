"""The check for containers that are emptied and refilled periodically, which are not reported as leaks.

An environment is reset at a boundary, when the list of the last episode is still full. Readings at boundaries alone
would take each episode that is longer than the last for a leak. So the lengths of containers are checked between two
readings as well, somewhere within an episode.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from flatwater_watch.diagnose.hops import ITEM, resolve_hops
from flatwater_watch.diagnose.item_growth import ITEM_KINDS
from flatwater_watch.diagnose.owners import Owner
from flatwater_watch.heap.children import open_object
from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.view import Walk
from flatwater_watch.thresholds import OWNING


@dataclass(eq=False, repr=False)
class _TrackedContainer:
    """A container that was found to grow, and the results of the checks of its length since."""

    hops: tuple[str, ...]
    """Root and hops, as in `Owner.hops`."""
    kind: str
    greatest_length: int
    item_bytes: float
    """Mean bytes of one item when the container was found."""
    resident_when_found: int
    """Resident bytes of the process when the container was found."""
    is_emptied: bool = False
    """Whether it was seen emptied, and not refilled since."""
    was_refilled: bool = False
    """Whether it was seen emptied, and refilled later."""
    checks_since_emptied: int = 0
    """Number of checks since it was seen emptied."""
    all_checks: int = 0
    """Number of checks since it was found."""


class ResetTracker:
    """The containers that were found to grow, with the lengths that were seen since."""

    def __init__(self) -> None:
        self._containers: dict[str, _TrackedContainer] = {}

    def track_owners(self, owners: Iterable[Owner], resident: int) -> None:
        """Track the containers that a comparison found to grow.

        Left out are paths with several containers, and containers that do not grow by single items.

        Args:
            owners: containers that grew.
            resident: resident bytes of the process now.
        """
        for owner in owners:
            if owner.holding.kind in ITEM_KINDS and ITEM not in owner.hops and owner.holding.instances == 1:
                item_bytes = owner.holding.bytes / max(1, owner.holding.length)
                new_container = _TrackedContainer(
                    hops=owner.hops,
                    kind=owner.holding.kind,
                    greatest_length=owner.holding.length,
                    item_bytes=item_bytes,
                    resident_when_found=resident,
                )
                # A container that is tracked already keeps the results of its checks.
                container = self._containers.setdefault(owner.path, new_container)
                container.greatest_length = max(container.greatest_length, owner.holding.length)

    @property
    def periodically_emptied_paths(self) -> set[str]:
        """Paths of containers that were emptied and refilled, and were seen emptied not long ago."""
        return {
            path
            for path, container in self._containers.items()
            if container.was_refilled and container.checks_since_emptied <= OWNING.maximum_checks_between_resets
        }

    def negligible_paths(self, resident: int) -> set[str]:
        """Return the paths of periodically emptied containers that explain next to nothing of the growth.

        Their bytes, when full, are a small part of what the process has gained since they were found.

        Args:
            resident: resident bytes of the process now.
        """
        small_share = 1 - OWNING.explained_share
        paths = set[str]()
        for path in self.periodically_emptied_paths:
            container = self._containers[path]
            full_bytes = container.greatest_length * container.item_bytes
            if full_bytes < small_share * (resident - container.resident_when_found):
                paths.add(path)
        return paths

    @property
    def has_containers(self) -> bool:
        """Whether any container is tracked."""
        return bool(self._containers)

    @property
    def has_recent_container(self) -> bool:
        """Whether a tracked container has had few checks so far, so that lengths must be checked often."""
        # Enough checks cover the longest time between two resets twice.
        few_checks = 2 * OWNING.maximum_checks_between_resets
        return any(container.all_checks < few_checks for container in self._containers.values())

    def check_lengths(self, roots: Roots) -> None:
        """Read the lengths of all tracked containers now, and record which of them are emptied or refilled."""
        for container in self._containers.values():
            container.all_checks += 1
            # Found by its path each time, as the program may have put another container in its place.
            obj = resolve_hops(roots, container.hops)
            walk = Walk(sampled_items=1, is_user_class=lambda _: False, maximum_objects=1)  # only the length is wanted
            opened_object = None if obj is None else open_object(obj, walk)
            if opened_object is None or opened_object.kind != container.kind:
                continue
            container.checks_since_emptied += 1
            if opened_object.length <= OWNING.emptied_share * container.greatest_length:
                container.is_emptied = True
                container.checks_since_emptied = 0
            elif container.is_emptied:  # at an earlier check, and refilled since
                container.is_emptied = False
                container.was_refilled = True
            container.greatest_length = max(container.greatest_length, opened_object.length)
