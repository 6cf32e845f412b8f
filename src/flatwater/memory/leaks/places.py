"""The paths that a walk finds, and the samples from which big containers are estimated."""

from typing import Any

DEEP = 12
"""Hops from the root after which paths get no longer: a chain of cells, not a place with a name."""


class Record:
    """A path, with what was found on it."""

    __slots__ = ("bytes", "capacity", "chain", "children", "depth", "first", "key", "kind", "length", "parent", "path",
                 "step", "weight")  # fmt: skip

    def __init__(self, path: str, parent: "Record | None", key: tuple[str, int], depth: int) -> None:
        self.path, self.parent, self.key, self.depth = path, parent, key, depth
        self.first: Any = None
        self.kind = ""
        self.capacity: int | None = None
        self.step = 0
        """At which the first container was opened."""
        self.length = 0.0
        self.weight = 0.0
        """Containers here, each counted for the unseen ones that it stands for."""
        self.bytes = 0.0
        self.chain = 0.0
        """Objects of a linked structure that lie below the first of it."""
        self.children: dict[tuple[str, int], Record] = {}


class Sample:
    """The items of a big container that were looked at."""

    __slots__ = ("factor", "most", "of", "sum", "taken")

    def __init__(self, taken: int, of: int) -> None:
        self.taken, self.of = taken, of
        """Items; an entry of a dict is one, with its key and its value."""
        self.sum = self.most = 0.0
        self.factor = 1.0
        """What they are multiplied by to stand for all."""

    def add(self, size: float) -> None:
        """Count an item, or a part of one."""
        self.sum += size
        self.most = max(self.most, size)

    def whole(self) -> float:
        """Bytes of all items, to be asked once all that were looked at are in."""
        whole = estimate(self.sum, self.most, self.taken, self.of)
        self.factor = whole / self.sum if self.sum else 1.0
        return whole


def estimate(total: float, most: float, taken: int, count: int) -> float:
    """Bytes of `count` items of which `taken` were measured.

    An object that is larger than the other items are counts once: the first of many views is the one that the base they
    share is counted with.
    """
    if taken < 2:  # noqa: PLR2004  one item stands for itself
        return total
    others = (total - most) / (taken - 1)
    return total / taken * count if most <= others else most + others * (count - 1)


def new_record(name: str, kind: type, parent: Record) -> Record:
    """The record of a child: its own, or one of those above, as `head.next.next` is on the path `head.next`."""
    key = (name, id(kind))
    found: Record | None = parent
    while found is not None:
        alike = found.key == key and not name.startswith("[") if parent.depth < DEEP else found.key[1] == id(kind)
        if alike:
            break
        found = found.parent
    if found is None:
        found = parent if parent.depth >= DEEP else Record(parent.path + name, parent, key, parent.depth + 1)
    parent.children[key] = found
    return found
