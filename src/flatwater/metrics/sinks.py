"""Where a round's numbers go: a file, TensorBoard, a terminal. One call a round, so a sink may be slow but not leak."""

from collections.abc import Iterable, Mapping
from typing import Protocol

Metrics = Mapping[str, float]
"""A round's numbers by name, such as `{"fitness/mean": 3.2, "time/learn": 11.4, "memory/resident": 412_000_256}`.

`fitness/*` and `validation/*` are in points of reward, `train/*` are losses and gradient norms, `time/*` seconds by
phase, `buffer/fill` and `trades/win_rate` shares of 1, `memory/*` bytes, and `system/*` what other tools show under
these names. A number that a round does not have is left out; NaN means that arithmetic went wrong, and raises an alarm.
"""


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
