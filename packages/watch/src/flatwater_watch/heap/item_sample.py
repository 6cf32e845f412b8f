"""A sample of a big container's items, and the estimates that it gives for all items.

An item may have several parts, as an entry of a dict has a key and a value. A row is the number of an object in the
walk's list of objects; a part that the walk opens has one, and a number or a short text has none.
"""

from dataclasses import dataclass, field


@dataclass(eq=False, repr=False, slots=True)
class ItemSample:
    """The sampled items of a big container; an entry of a dict is one item, with its key and its value."""

    item_count: int
    """Number of all items."""
    item_bytes: list[float]
    """Bytes of each sampled item."""
    first_row: int
    """Row that the walk gives to the first part of an item with a row of its own."""
    items_by_row: list[int] = field(default_factory=list)
    """For `first_row` and each row after it, the number of the item to which the row belongs."""
    largest_part: float = 0.0
    """Bytes of the largest part that was added."""
    scale: float = 1.0
    """Factor from the bytes of the sample to those of all items."""

    def add(self, item: int, size: float) -> None:
        """Add the bytes of a part to the sampled item with a number, from 0."""
        self.item_bytes[item] += size
        self.largest_part = max(self.largest_part, size)

    def add_row(self, row: int, size: float) -> None:
        """Add the bytes of a part with a row of its own."""
        self.add(self.items_by_row[row - self.first_row], size)

    @property
    def sampled_count(self) -> int:
        """Number of sampled items."""
        return len(self.item_bytes)

    def estimate_total_(self) -> float:
        """Estimate the bytes of all items, when the sample is complete, and set `scale`."""
        sampled_bytes = sum(self.item_bytes)
        total = estimate_bytes(sampled_bytes, self.largest_part, self.sampled_count, self.item_count)
        self.scale = total / sampled_bytes if sampled_bytes else 1.0
        return total

    @property
    def usual_bytes(self) -> float:
        """Estimated bytes of all items, by those of the sample without the largest.

        The largest may be an exception, as a base that many views share counts with one of them.
        """
        return (sum(self.item_bytes) - self.largest_part) / max(1, self.sampled_count - 1) * self.item_count

    @property
    def variance(self) -> float:
        """Variance of the estimated bytes of all items, as another sample would give other bytes."""
        mean = sum(self.item_bytes) / self.sampled_count
        variance = sum((size - mean) ** 2 for size in self.item_bytes) / self.sampled_count
        # The variance of a sum that is estimated from a sample without replacement.
        unseen_share = 1 - self.sampled_count / self.item_count
        return variance * self.item_count**2 / self.sampled_count * unseen_share


def estimate_bytes(total: float, maximum: float, measured_count: int, item_count: int) -> float:
    """Estimate the bytes of all items of a container from those of some.

    Args:
        total: bytes of all measured items together.
        maximum: bytes of the largest of them.
        measured_count: number of measured items.
        item_count: number of all items.
    """
    if measured_count < 2:  # noqa: PLR2004  one item stands for itself
        return total
    other_mean = (total - maximum) / (measured_count - 1)
    if maximum <= other_mean:  # none stands out
        return total / measured_count * item_count
    # The largest item counts once: a base that many views share is counted with the first of them.
    return maximum + other_mean * (item_count - 1)
