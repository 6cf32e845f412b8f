"""Options of commands that train: what of the run is shown, and to whom."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ShownRun:
    """A command that trains."""

    quiet: bool = False
    """Print nothing but errors; what the run says stands in its run.log."""
    json: bool = False
    """Print each event as a JSON object on a line of its own instead of the table: start, round with all its numbers,
    alarm, finding, saved, signal, budget, note, end, failure."""
    profile: str | None = None
    """Record these rounds with torch's profiler: rounds=3 or rounds=3-5. A trace of each is written to profile/ in the
    run's folder, for Perfetto and Chrome; the numbers of the run stay the same."""
