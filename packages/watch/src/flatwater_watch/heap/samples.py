"""The sampled items of a big container, and the estimates for all its items that they give."""


class ItemSample:
    """The sampled items of a big container."""

    __slots__ = ("item_count", "largest_part", "sampled_bytes", "sampled_count", "scale", "squared_bytes")

    def __init__(self, sampled_count: int, item_count: int) -> None:
        """Make a sample without bytes.

        Args:
            sampled_count: number of sampled items.
            item_count: number of all items.
        """
        self.sampled_count, self.item_count = sampled_count, item_count
        """Numbers of items; an entry of a dict is one item, with its key and its value."""
        self.sampled_bytes = self.squared_bytes = self.largest_part = 0.0
        """Bytes of all sampled items, the sum of the squares of their parts, and the largest part that was added."""
        self.scale = 1.0
        """Factor from the bytes of the sample to those of all items."""

    def add(self, size: float) -> None:
        """Add the bytes of an item, or of a part of one."""
        self.sampled_bytes += size
        self.squared_bytes += size * size
        self.largest_part = max(self.largest_part, size)

    def estimate_total(self) -> float:
        """Estimate the bytes of all items, when the sample is complete, and set `scale`."""
        total = estimate_bytes(self.sampled_bytes, self.largest_part, self.sampled_count, self.item_count)
        self.scale = total / self.sampled_bytes if self.sampled_bytes else 1.0
        return total

    @property
    def usual_bytes(self) -> float:
        """Estimated bytes of all items if none is as large as the largest: a base that many views share is in one."""
        return (self.sampled_bytes - self.largest_part) / max(1, self.sampled_count - 1) * self.item_count

    @property
    def variance(self) -> float:
        """Variance of the estimated bytes of all items, as another sample would give other bytes."""
        variance = self.squared_bytes / self.sampled_count - (self.sampled_bytes / self.sampled_count) ** 2
        unseen_share = 1 - self.sampled_count / self.item_count
        return max(0.0, variance) * self.item_count**2 / self.sampled_count * unseen_share


def estimate_bytes(total: float, maximum: float, measured_count: int, item_count: int) -> float:
    """Estimate the bytes of all items from those of the measured items.

    Args:
        total: bytes of the measured items.
        maximum: bytes of the largest measured item.
        measured_count: number of measured items.
        item_count: number of all items.
    """
    if measured_count < 2:  # noqa: PLR2004  one item stands for itself
        return total
    other_mean = (total - maximum) / (measured_count - 1)
    if maximum <= other_mean:
        return total / measured_count * item_count
    # The largest item counts once: a base that many views share is counted with the first of them.
    return maximum + other_mean * (item_count - 1)
