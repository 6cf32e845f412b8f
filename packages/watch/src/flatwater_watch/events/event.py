"""One thing that happened, as a line of text and as plain values, and who is told of it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from flatwater_watch.files.content import plain_json_value

Kind = Literal["start", "round", "alarm", "finding", "saved", "signal", "budget", "note", "end", "failure"]


@dataclass(frozen=True)
class Event:
    """One thing that happened."""

    kind: Kind
    line: str
    """What a person reads."""
    values: dict[str, Any]
    """What a program reads: plain values, of which JSON is made."""
    time: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def stamp(self) -> str:
        """When, to the second: `2026-11-24T01:22:35Z`."""
        return f"{self.time:%Y-%m-%dT%H:%M:%SZ}"

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it, and as a command gets it; numbers that are not finite are null."""
        found = plain_json_value({"time": self.stamp, "event": self.kind, "line": self.line} | self.values)
        assert isinstance(found, dict)  # noqa: S101  (a mapping stays one)
        return found


class Listener(Protocol):
    """Is told of each event."""

    def on_event(self, event: Event) -> None:
        """Take it in; never raises, and never keeps the run waiting."""

    def close(self) -> None:
        """The run is over, however it ended."""
