"""Where a round's numbers go: a file, TensorBoard, a terminal. One call a round, so a sink may be slow but not leak."""

from collections.abc import Iterable
from typing import Protocol

from flatwater.metrics.record import Metrics


class Sink(Protocol):
    """Takes the numbers of one round after the other."""

    def write(self, round: int, metrics: Metrics) -> None:
        """Keep the numbers of this round. When it returns, a kill no longer loses them (where the sink stores)."""

    def close(self) -> None:
        """Give back files and threads. Nothing is written afterwards."""


def write_all(sinks: Iterable[Sink], round: int, metrics: Metrics) -> None:
    """The round's numbers to every sink, in order."""
    for sink in sinks:
        sink.write(round, metrics)
