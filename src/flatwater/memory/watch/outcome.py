"""What a watch says in its first line: nothing grew, it grows for a reason, or it grew and the cause was not found.

One value, made from the readings once. Terminal, page, JSON and exit status read it and decide nothing themselves.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from flatwater.errors import ConfigError
from flatwater.memory.diagnose.finding import Finding
from flatwater.memory.diagnose.garbage import Garbage
from flatwater.memory.diagnose.judge import UNEXPLAINED
from flatwater.memory.probes.fork import not_to_fork_beside
from flatwater.memory.thresholds import SHIPPED
from flatwater.memory.watch.books import Row, growth, rises, settled
from flatwater.memory.watch.workers import OWNER
from flatwater.units import format_bytes, parse_bytes

ENDING, OWNING = SHIPPED.ending, SHIPPED.owning


State = Literal["unread", "flat", "settled", "grows", "unexplained"]
HARMLESS = frozenset({"filling", "mapped"})
"""Verdicts on growth that ends, or that the system takes back: they fail no build."""
SAID: dict[State, str] = {
    "unread": "nothing was read",
    "flat": "nothing grows",
    "settled": "nothing grows any more",
    "unexplained": "memory grew, and the cause was not found",
}
"""The first words; findings are counted."""
LIBRARY = (
    "give what a library works with a name of your own (`model = Model(...)`, then `model.learn()`): a census begins "
    "at globals, local variables and threads of your program"
)
NATIVE = "`memray run --native` names the C function that allocates, if it is native code"


@dataclass(frozen=True)
class Outcome:
    """The state of a watched program, in words that need no further decision."""

    state: State
    bytes: int = 0
    """Grown since warm-up, or since the first reading where it is settled, without a cause."""
    known: tuple[str, ...] = ()
    """Sentences on which kinds of memory it is and is not, and where it was looked for."""
    next: tuple[str, ...] = ()
    """What to try, most promising first."""

    def head(self, findings: int) -> str:
        """The first words of the first line."""
        if self.state == "grows":
            return f"{findings} finding{'' if findings == 1 else 's'}"
        return SAID[self.state]

    def sentence(self) -> str:
        """What has no cause; empty where all has."""
        if self.state == "settled":
            return f"{format_bytes(self.bytes)} came at the beginning, and next to nothing since."
        if self.bytes == 0:
            return ""
        rest = "" if self.state == "unexplained" else " beside what is found"
        return f"{format_bytes(self.bytes)} came{rest}, and no cause was found."

    def to_json(self) -> dict[str, Any]:
        """Plain lists, numbers and strings under the names of the fields."""
        return asdict(self) | {"known": list(self.known), "next": list(self.next)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Outcome":
        """The outcome that `to_json` wrote, checked.

        Raises:
            KeyError: a key is missing.
            TypeError: a value is of another kind.
            ValueError: a word is none of those that are known.
        """
        state, size = record["state"], record["bytes"]
        if state not in get_args(State):
            raise ValueError(f"outcome = {state!r}: must be one of {', '.join(get_args(State))}")
        sentences = (*record["known"], *record["next"])
        if isinstance(size, bool) or not isinstance(size, int) or not all(isinstance(text, str) for text in sentences):
            raise TypeError(f"{record!r}: bytes must be a whole number, known and next lists of texts")
        return cls(state, size, tuple(record["known"]), tuple(record["next"]))


def by_size(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings that stand for themselves, and those so small beside them that one row tells all.

    A compiler that runs fills registries of its own, each with 1 % of the growth. A finding may be that small although
    its owner was found as a larger one: all censuses together give it a smaller rate than the first did.
    """
    small = [found for found in findings if found.verdict != "slowdown" and found.share < OWNING.told_share]
    large = [found for found in findings if found not in small]
    beside = any(found.verdict not in {"slowdown", *HARMLESS} for found in large)  # a leak beside a buffer stands alone
    return (large, small) if beside else (list(findings), [])


def shares_of(explained: float, findings: Sequence[Finding]) -> tuple[float, float]:
    """The part of the growth that the findings have, and the part that is freed memory and files that none of them has.

    Args:
        explained: part of it that has a cause.
        findings: with their parts of the same growth.
    """
    found = min(explained, sum(each.share for each in findings if each.verdict != "slowdown" and each.owner != OWNER))
    return found, explained - found


def fails(outcome: Outcome, findings: Sequence[Finding]) -> bool:
    """Whether a build that asked for flat memory fails: something grows and does not end, or grew without a cause."""
    return outcome.state == "unexplained" or any(
        found.verdict not in HARMLESS or found.dies_first for found in findings
    )


@dataclass(frozen=True)
class Allowed:
    """Growth that a build lets pass: in all since warm-up, or by the second, the hour or the step."""

    bytes: float
    per: str
    """`step`, `second`, `hour`, or empty for all of it."""

    @classmethod
    def read(cls, text: str) -> "Allowed":
        """`1MiB/step`, `10MiB/hour` or `64MiB`.

        Raises:
            ConfigError: it is no amount of memory, or of another time.
        """
        amount, _, per = text.partition("/")
        if per not in {"", *_PER}:
            raise ConfigError(f"--fail-if-grows {text}: must be by one of {', '.join(_PER)}, such as 1MiB/step")
        return cls(parse_bytes(amount), per)

    def exceeded(self, summary: dict[str, Any]) -> str:
        """A sentence where a program grew by more; else nothing.

        Args:
            summary: the JSON of `flatwater watch`.
        """
        # Growth is that since warm-up, a fifth of the readings; steps and seconds are those of the same stretch.
        columns = summary["series"]
        steps, seconds = (columns[name][len(columns[name]) // ENDING.warm_up :] for name in ("steps", "seconds"))
        if summary.get("workers"):  # the columns are of the program's own process
            steps, seconds = [0, summary["steps"]], [0, summary["seconds"]]
        stretch = _PER[self.per](steps, seconds) if self.per and steps else 1.0
        grown = summary["resident_growth_bytes"] / stretch if stretch > 0 else 0.0
        unit = summary["unit"] if self.per == "step" else self.per
        by = f" {'an' if unit[0] in 'aeiouh' else 'a'} {unit}" if unit else ""
        told = f"more than allowed: it grew by {format_bytes(grown)}{by}, and {format_bytes(self.bytes)} may be"
        return told if grown > self.bytes else ""


_PER: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "step": lambda steps, _: steps[-1] - steps[0],
    "second": lambda _, seconds: seconds[-1] - seconds[0],
    "hour": lambda _, seconds: (seconds[-1] - seconds[0]) / 3600,
}
"""How many passed since warm-up."""


def outcome_of(
    rows: Sequence[Row],
    told: Sequence[Finding],
    explained: float,
    *,
    censuses: int = 0,
    leads: Sequence[tuple[str, int]] = (),
    waiting: Garbage | None = None,
    refilled: Iterable[str] = (),
) -> Outcome:
    """The outcome of a watched program.

    Args:
        rows: all readings.
        told: findings.
        explained: part of the growth that has a cause.
        censuses: taken so far.
        leads: roots that hold more than at the beginning, and by how many bytes: no proof that they go on.
        waiting: cyclic garbage that is freed soon.
        refilled: paths of containers that are emptied again and again.
    """
    if not rows:
        return Outcome("unread")
    # What freed memory or files explain is no finding yet: without one, all of it is an open question.
    rest = round((1 - explained) * growth(rows)) if told or waiting else growth(rows)
    soon = () if waiting is None else (_soon(waiting),)
    rest -= 0 if waiting is None else min(rest, waiting.bytes)
    if rest >= ENDING.open_bytes and rises(rows):
        others = [lead for lead in leads if not any(_lies_in(each, lead[0]) for each in told)]
        large = [(path, size) for path, size in others if size >= OWNING.told_share * rest][: OWNING.told]
        named = [f"look at {path}: it holds {format_bytes(size)} more than at the beginning" for path, size in large]
        longer = f"run it longer: {len(rows)} readings in {rows[-1].seconds:.0f} s were taken"
        state: State = "grows" if told else "unexplained"
        return Outcome(
            state,
            rest,
            (*soon, *map(_again, refilled), *_known_of(rows, censuses, named=bool(named), told=bool(told))),
            (*named, longer, LIBRARY, NATIVE),
        )
    if told:
        return Outcome("grows")
    gained = rows[-1].resident - rows[0].resident - (0 if waiting is None else waiting.bytes)
    return Outcome("settled", gained, soon) if gained >= ENDING.open_bytes else Outcome("flat", 0, soon)


def _soon(waiting: Garbage) -> str:
    """A sentence on garbage that is how Python works."""
    which = "collection of young objects" if 2 * waiting.young > waiting.bytes else "full collection"
    waits = f"{format_bytes(waiting.bytes)} in cycles wait for the collector ({waiting.what})"
    return f"{waits}: its next {which} frees them"


def _again(path: str) -> str:
    """A sentence on a container that did not leak, and may hold more and more at a time."""
    return f"{path} is emptied and filled again, which is no leak: it may hold more each time"


def without_reached(known: Sequence[Finding], gained: Iterable[tuple[str, int]], grown: int) -> list[Finding]:
    """The findings, without native growth where roots of the program hold what has come.

    A table that comes between two censuses makes the record sure of native growth before a census has seen it.

    Args:
        known: findings.
        gained: roots, and the bytes that each holds more than at the beginning.
        grown: resident bytes.
    """
    if sum(size for _, size in gained) < OWNING.explained * grown:
        return [*known]
    return [found for found in known if found.owner != UNEXPLAINED["native"][0]]


def with_roots(known: Sequence[Finding], gained: Iterable[tuple[str, int]], rows: Sequence[Row]) -> list[Finding]:
    """The findings, with the part of what came that the roots which they lie in hold now, where their rates say less.

    A rate is of the stretch between two censuses: steps that bring more each time leave it behind.

    Args:
        known: findings.
        gained: roots, and the bytes that each holds more than at the beginning.
        rows: all readings.
    """
    came, found = (rows[-1].resident - rows[0].resident if rows else 0), [*known]
    for root, size in gained:
        theirs = sum(each.share for each in found if _lies_in(each, root))
        free = 1 - sum(each.share for each in found) + theirs
        held = min(size / came, free) if came > 0 else 0.0
        if 0 < theirs < held:
            more = held / theirs
            found = [replace(each, share=more * each.share) if _lies_in(each, root) else each for each in found]
    return found


def _lies_in(found: Finding, root: str) -> bool:
    """Whether the owner of a finding is a root, or a part of it."""
    return found.owner == root or found.owner.startswith((f"{root}.", f"{root}["))


def _known_of(rows: Sequence[Row], censuses: int, *, named: bool, told: bool) -> tuple[str, ...]:
    """Each kind of memory with what it gained, and where no object was found."""
    first, last = settled(rows)[0].reading, rows[-1].reading
    files = f"{format_bytes(max(0, last.file_mapped - first.file_mapped))} of it are pages of mapped files"
    if last.free is None or first.free is None:
        freed = "freed memory that the allocator keeps is not ruled out: this C library does not tell"
    else:
        freed = f"{format_bytes(max(0, last.free - first.free))} of it were freed, and the allocator keeps them"
    times, other = f"{censuses} census{'' if censuses == 1 else 'es'}", "other " if told else ""
    seen = f"what your globals, local variables and threads reach: {times} found no {other}container that explains it"
    if named:
        nothing = "nothing else" if told else "nothing"
        seen = f"{times} saw {nothing} grow from one to the next; what has come since the beginning is named below"
    elif censuses <= 1:
        seen = f"objects of your program are not ruled out: {times} came to an end, and two are compared"
    library = not_to_fork_beside()
    cycles = "" if library is None else f"cyclic garbage is not ruled out: no fork is made beside {library}"
    return tuple(text for text in (files, freed, seen, cycles) if text)
