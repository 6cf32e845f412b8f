"""The outcome of a watch: nothing grew, memory grows for a known reason, or it grew and the cause was not found.

It is one value, which is made from the readings once. Terminal, page, JSON and exit status read it and decide nothing.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.errors import ConfigError
from flatwater_watch.thresholds import ENDING, OWNING
from flatwater_watch.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from flatwater_watch.diagnose.finding import Finding


State = Literal["unread", "flat", "settled", "grows", "unexplained"]
STATE_PHRASES: dict[State, str] = {
    "unread": "nothing was read",
    "flat": "nothing grows",
    "settled": "nothing grows any more",
    "unexplained": "memory grew, and the cause was not found",
}
"""First words of a report by state; in the state `grows` they are the number of findings."""
RATE_UNITS = ("step", "second", "hour")
"""Units by which a growth can be allowed, as in `1MiB/step`."""
WORKERS_OWNER = "worker processes"
"""The owner of growth in the processes that a program has started."""


@dataclass(frozen=True)
class Outcome:
    """The state of a watched program, in words that need no further decision."""

    state: State
    bytes: int = 0
    """Growth without a cause: since warm-up, or since the first reading in the state `settled`."""
    known: tuple[str, ...] = ()
    """Sentences on the kinds of memory that the growth is and is not, and on the places that were searched."""
    next: tuple[str, ...] = ()
    """Advice on the next steps, most promising first."""
    holders: str = ""
    """Containers that hold most of the growth in the state `settled`; empty if no census saw them."""

    def first_words(self, findings: int) -> str:
        """Return the first words of a report with a number of findings."""
        if self.state == "grows":
            return f"{findings} finding{'' if findings == 1 else 's'}"
        return STATE_PHRASES[self.state]

    def unexplained_growth_sentence(self) -> str:
        """Return a sentence on growth that no finding explains; empty if there is none.

        In the state `settled` the sentence is on growth at the beginning.
        """
        if self.state == "settled":
            holders = f": most of it is in {self.holders}" if self.holders else ""
            return f"Memory grew by {format_bytes(self.bytes)} at the beginning, and by next to nothing since{holders}."
        if self.bytes == 0:
            return ""
        addition = "" if self.state == "unexplained" else " more than the findings explain"
        return f"Memory grew by {format_bytes(self.bytes)}{addition}, and no cause was found."

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name, as lists, numbers and strings."""
        return asdict(self) | {"known": list(self.known), "next": list(self.next)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Outcome":
        """Check a record that `to_json` wrote, and return its outcome.

        Raises:
            KeyError: a key is missing.
            TypeError: a value is of another kind.
            ValueError: a word is unknown.
        """
        state, size, holders = record["state"], record["bytes"], record.get("holders", "")
        if state not in get_args(State):
            raise ValueError(f"outcome = {state!r}: expected one of {', '.join(get_args(State))}")
        sentences = (*record["known"], *record["next"], holders)
        # A bool is an int to Python, and must not pass for a number of bytes.
        if isinstance(size, bool) or not isinstance(size, int) or not all(isinstance(text, str) for text in sentences):
            raise TypeError(
                f"{record!r}: expected a whole number of bytes, known and next as lists of texts, and holders as a text"
            )
        return cls(state, size, tuple(record["known"]), tuple(record["next"]), holders)


def split_by_share(findings: "Sequence[Finding]") -> "tuple[list[Finding], list[Finding]]":
    """Split findings into large findings, which get a row each in a report, and small findings, which share a row.

    A small finding has less than `OWNING.minimum_reported_share` of the growth. Findings are split only if one of the
    large ones is a leak of bytes that fails a build; else all count as large. Small findings are common: a compiler
    fills registries of its own, each with 1 % of the growth.
    """
    small_findings = [
        finding
        for finding in findings
        if VERDICTS[finding.verdict].is_of_bytes and finding.share < OWNING.minimum_reported_share
    ]
    large_findings = [finding for finding in findings if finding not in small_findings]
    large_verdicts = [VERDICTS[finding.verdict] for finding in large_findings]
    has_large_leak = any(verdict.is_of_bytes and verdict.fails_build for verdict in large_verdicts)
    # Else a small leak keeps its row, as the large findings are only buffers that are being filled, and the like.
    return (large_findings, small_findings) if has_large_leak else (list(findings), [])


def explained_shares(explained_share: float, findings: "Sequence[Finding]") -> tuple[float, float]:
    """Split the explained share of the process's growth: that of findings, and that of freed memory and files alone."""
    # Worker processes are left out, as their memory is no part of the process's growth.
    sum_of_shares = sum(
        finding.share
        for finding in findings
        if VERDICTS[finding.verdict].is_of_bytes and finding.owner != WORKERS_OWNER
    )
    finding_share = min(explained_share, sum_of_shares)
    return finding_share, explained_share - finding_share


def fails_build(outcome: Outcome, findings: "Sequence[Finding]") -> bool:
    """Return whether a build that asked for flat memory fails: memory grows without end, or grew without a cause.

    A buffer that is being filled fails it if the process would meet its memory limit first (`dies_first`).
    """
    return outcome.state == "unexplained" or any(
        VERDICTS[finding.verdict].fails_build or finding.dies_first for finding in findings
    )


class GrowthAllowance(NamedTuple):
    """Growth that a build lets pass: in total since warm-up, or per second, hour or step."""

    bytes: float
    """Bytes in total, or per unit of `per`."""
    per: str
    """Unit of the rate: `step`, `second`, `hour`, or empty for the total."""

    @classmethod
    def parse(cls, text: str) -> "GrowthAllowance":
        """Return an allowance from a text such as `1MiB/step`, `10MiB/hour` or `64MiB`.

        Raises:
            ConfigError: the text is not an amount of memory, or its time unit is unknown.
        """
        amount, _, unit = text.partition("/")
        if unit not in {"", *RATE_UNITS}:
            raise ConfigError(f"--fail-if-grows {text}: expected a rate by {', '.join(RATE_UNITS)}, such as 1MiB/step")
        return cls(parse_bytes(amount), unit)

    def describe_excess(self, summary: dict[str, Any]) -> str:
        """Return a sentence on a program that grew by more than this allowance; empty if it did not.

        `summary` is the JSON of `flatwater watch`.
        """
        units_passed = self._count_units(summary)
        # No time, or no step, has passed: no rate is known, and none is too high.
        bytes_per_unit = summary["resident_growth_bytes"] / units_passed if units_passed > 0 else 0.0
        if bytes_per_unit <= self.bytes:
            return ""
        unit = summary["unit"] if self.per == "step" else self.per
        # "an hour": of the units only this one begins with an h.
        rate_words = f" {'an' if unit[0] in 'aeiouh' else 'a'} {unit}" if unit else ""
        growth = f"{format_bytes(bytes_per_unit)}{rate_words}"
        return f"more than allowed: it grew by {growth}, and {format_bytes(self.bytes)} may be"

    def _count_units(self, summary: dict[str, Any]) -> float:
        """Return the steps, seconds or hours in which the program grew; 1 for an allowance in total."""
        # Growth, steps and seconds are counted after warm-up, which is the first part of the readings.
        series = summary["series"]
        steps = series["steps"][len(series["steps"]) // ENDING.warm_up_divisor :]
        seconds = series["seconds"][len(series["seconds"]) // ENDING.warm_up_divisor :]
        if summary.get("workers"):  # the growth is that of the workers too, and their readings are not in the series
            steps, seconds = [0, summary["steps"]], [0, summary["seconds"]]
        if not self.per or not steps:  # without a reading the allowance is for the growth in total as well
            return 1.0
        seconds_passed: float = seconds[-1] - seconds[0]
        counts: dict[str, float] = {
            "step": steps[-1] - steps[0],
            "second": seconds_passed,
            "hour": seconds_passed / 3600,
        }
        return counts[self.per]
