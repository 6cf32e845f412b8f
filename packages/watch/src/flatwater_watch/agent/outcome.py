"""The outcome of a watch, its first line: nothing grew, it grows for a reason, or it grew and the cause was not found.

It is one value, made from the readings once. Terminal, page, JSON and exit status read it and decide nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from flatwater_watch.diagnose.verdicts import VERDICTS
from flatwater_watch.errors import ConfigError
from flatwater_watch.thresholds import SHIPPED
from flatwater_watch.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from flatwater_watch.diagnose.finding import Finding

ENDING, OWNING = SHIPPED.ending, SHIPPED.owning

State = Literal["unread", "flat", "settled", "grows", "unexplained"]
STATE_PHRASES: dict[State, str] = {
    "unread": "nothing was read",
    "flat": "nothing grows",
    "settled": "nothing grows any more",
    "unexplained": "memory grew, and the cause was not found",
}
"""First words of a report by state; in the state `grows` they are the number of findings."""
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

    def first_words(self, findings: int) -> str:
        """The first words of the first line of a report."""
        if self.state == "grows":
            return f"{findings} finding{'' if findings == 1 else 's'}"
        return STATE_PHRASES[self.state]

    def open_growth_sentence(self) -> str:
        """The sentence on growth without a cause; empty if all growth has one."""
        if self.state == "settled":
            return f"Memory grew by {format_bytes(self.bytes)} at the beginning, and by next to nothing since."
        if self.bytes == 0:
            return ""
        addition = "" if self.state == "unexplained" else " more than the findings explain"
        return f"Memory grew by {format_bytes(self.bytes)}{addition}, and no cause was found."

    def to_json(self) -> dict[str, Any]:
        """Plain lists, numbers and strings under the names of the fields."""
        return asdict(self) | {"known": list(self.known), "next": list(self.next)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Outcome":
        """The outcome that `to_json` wrote, checked.

        Raises:
            KeyError: a key is missing.
            TypeError: a value is of another kind.
            ValueError: a word is unknown.
        """
        state, size = record["state"], record["bytes"]
        if state not in get_args(State):
            raise ValueError(f"outcome = {state!r}: expected one of {', '.join(get_args(State))}")
        sentences = (*record["known"], *record["next"])
        # A bool is an int to Python, and must not pass for a number of bytes.
        if isinstance(size, bool) or not isinstance(size, int) or not all(isinstance(text, str) for text in sentences):
            raise TypeError(f"{record!r}: expected a whole number of bytes, and known and next as lists of texts")
        return cls(state, size, tuple(record["known"]), tuple(record["next"]))


def split_by_size(findings: "Sequence[Finding]") -> "tuple[list[Finding], list[Finding]]":
    """Split findings into large findings, which get a row each, and small findings, which share a row.

    A compiler that runs fills registries of its own, each with 1 % of the growth. A finding may also become small
    later: its rate over all censuses may be smaller than its rate over the first two.
    """
    small = [
        finding
        for finding in findings
        if VERDICTS[finding.verdict].is_of_bytes and finding.share < OWNING.minimum_reported_share
    ]
    large = [finding for finding in findings if finding not in small]
    # A leak stands alone even if a buffer has most of the growth.
    verdicts = (VERDICTS[finding.verdict] for finding in large)
    stands_alone = any(verdict.is_of_bytes and verdict.fails_build for verdict in verdicts)
    return (large, small) if stands_alone else (list(findings), [])


def explained_shares(explained: float, findings: "Sequence[Finding]") -> tuple[float, float]:
    """The share of the growth that findings explain, and the share that only freed memory and files explain.

    Args:
        explained: share of the growth that has a cause.
        findings: findings, with their shares of the same growth.
    """
    owned_share = min(
        explained,
        sum(
            finding.share
            for finding in findings
            if VERDICTS[finding.verdict].is_of_bytes and finding.owner != WORKERS_OWNER
        ),
    )
    return owned_share, explained - owned_share


def fails_build(outcome: Outcome, findings: "Sequence[Finding]") -> bool:
    """Whether a build that asked for flat memory fails: memory grows without end, or grew without a cause."""
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
        """Read an allowance such as `1MiB/step`, `10MiB/hour` or `64MiB`.

        Raises:
            ConfigError: the text is not an amount of memory, or its time unit is unknown.
        """
        amount, _, per = text.partition("/")
        if per not in {"", *_PER}:
            raise ConfigError(f"--fail-if-grows {text}: expected a rate by {', '.join(_PER)}, such as 1MiB/step")
        return cls(parse_bytes(amount), per)

    def describe_excess(self, summary: dict[str, Any]) -> str:
        """A sentence on a program that grew by more than this allowance; empty if it grew by no more.

        Args:
            summary: the JSON of `flatwater watch`.
        """
        # Growth, steps and seconds are counted from warm-up on, which is the first fifth of the readings.
        columns = summary["series"]
        steps, seconds = (
            columns[name][len(columns[name]) // ENDING.warm_up_divisor :] for name in ("steps", "seconds")
        )
        if summary.get("workers"):  # the columns do not have the workers
            steps, seconds = [0, summary["steps"]], [0, summary["seconds"]]
        stretch = _PER[self.per](steps, seconds) if self.per and steps else 1.0
        grown = summary["resident_growth_bytes"] / stretch if stretch > 0 else 0.0
        unit = summary["unit"] if self.per == "step" else self.per
        by = f" {'an' if unit[0] in 'aeiouh' else 'a'} {unit}" if unit else ""
        sentence = f"more than allowed: it grew by {format_bytes(grown)}{by}, and {format_bytes(self.bytes)} may be"
        return sentence if grown > self.bytes else ""


_PER: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "step": lambda steps, _: steps[-1] - steps[0],
    "second": lambda _, seconds: seconds[-1] - seconds[0],
    "hour": lambda _, seconds: (seconds[-1] - seconds[0]) / 3600,
}
"""Number of steps, seconds or hours since warm-up, from the columns of steps and seconds."""
