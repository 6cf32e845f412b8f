"""An event, as a line of text and as plain values, and the interface of its listeners."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from flatwater_watch.files.json_values import plain_json_value

EventKind = Literal["start", "round", "alarm", "finding", "saved", "signal", "budget", "note", "end", "failure"]


@dataclass(frozen=True)
class Event:
    """An event of a run or a watch."""

    kind: EventKind
    line: str
    """Text for people."""
    values: dict[str, Any]
    """Plain values for programs, from which JSON is made."""
    time: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def stamp(self) -> str:
        """Time of the event to the second: `2026-11-24T01:22:35Z`."""
        return f"{self.time:%Y-%m-%dT%H:%M:%SZ}"

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain values for `--json` and for commands; numbers that are not finite are None."""
        record = plain_json_value({"time": self.stamp, "event": self.kind, "line": self.line} | self.values)
        assert isinstance(record, dict)  # noqa: S101  (a mapping stays one)
        return record


class Listener(Protocol):
    """A receiver of events."""

    def on_event(self, event: Event) -> None:
        """Take an event, without raising, and without keeping the run waiting."""

    def close(self) -> None:
        """Release what the listener holds, as the run has ended, in any way."""
