"""A finding: one cause of growth with its owner, its line, the time when memory ends, and advice.

The same object is in findings.jsonl, in the output of `flatwater watch --json` and, in words, on the console.
"""

import hashlib
import re
import textwrap
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import PurePath
from typing import Any, Literal, get_args

from flatwater_watch.thresholds import SHIPPED
from flatwater_watch.units import clock_words, format_bytes, short_bytes, two_digits

OWNING = SHIPPED.owning

Verdict = Literal["leak", "filling", "retention", "backlog", "cache", "mapped", "native", "slowdown"]

WIDTH = 99
"""Maximum columns of a line of `tell`."""
BRIEF = 88
"""Maximum columns of `briefly`."""
LABEL = 10
"""Columns of the label at the beginning of a line of `tell`."""

_SEVERAL = re.compile(
    r"mapped files|worker processes|finalizers of weakref\.finalize|\w+'s (?:[a-z][a-z -]*s|children)"
)
"""Owners in the plural. A path of a variable never matches: it has no blank, or a colon before its name."""


NUMBERS = ("bytes_per_step", "share", "count")
MAYBE = ("plateau_bytes", "plateau_step", "limit_bytes", "limit_step", "limit_time")
TEXTS = ("owner", "what", "advice", "unit")
"""Fields of a finding by the type that they must have."""


@dataclass(frozen=True)
class AllocationSite:
    """The line of the user's program that made most of the objects that grew."""

    file: str
    line: int
    function: str
    """Qualified name without `<locals>`; `<module>` at the top level of a file."""
    operation: str
    """Name of the operation: `aten::mm` for tensors, `numpy` for arrays, `python` for other objects."""

    def __str__(self) -> str:
        where = "" if self.function == "<module>" else f" in {self.function}"
        return f"{PurePath(self.file).name}:{self.line}{where} ({self.operation})"


@dataclass(frozen=True)
class Finding:
    """One cause of growth. Bytes are per `unit`; steps are counted in `unit`."""

    verdict: Verdict
    owner: str
    """Path of the container that grows (`train.HISTORY`), of a leaf of the state, or the kind of memory."""
    holders: tuple[str, ...]
    """The chain that keeps it alive, root first; empty if no Python object explains the growth."""
    made_at: AllocationSite | None
    bytes_per_step: float
    interval: tuple[float, float]
    """Bounds of `bytes_per_step`, at 95 % confidence."""
    share: float
    """Share of the growth of the whole process that this finding explains, 0 to 1."""
    count: int
    """Number of objects of the main content."""
    what: str
    """The main content: `120 × float32[64, 504]`."""
    plateau_bytes: int | None
    """Resident bytes of the owner at which a filling ends."""
    plateau_step: int | None
    """The step at which a filling ends."""
    limit_bytes: int | None
    """Resident bytes at which the process must stop."""
    limit_step: int | None
    """The step at which the process reaches its limit; None if the plateau comes first or nothing grows."""
    advice: str
    unit: str = "round"
    redundancy: str | None = None
    """A sentence if the contents store the same data twice."""
    outside: bool = False
    """Whether the bytes lie outside of Python, behind the owner's items, so that no census weighs them."""
    limit_time: float | None = None
    """Time of `limit_step` in seconds since 1970, at the pace of the steps so far; None if it is not known."""
    parts: tuple[str, ...] = ()
    """Owners of the findings that were merged into this one, most bytes first; `owner` holds them all."""

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits, the same when the program is run again, or edited elsewhere.

        They are a hash of verdict, owner, file and function, without indexes, lines and sizes.
        """
        site = "" if self.made_at is None else f"{PurePath(self.made_at.file).name}:{self.made_at.function}"
        return hashlib.sha256(f"{self.verdict}\n{self.owner}\n{site}".encode()).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """Plain lists, numbers and strings under the names of the fields."""
        lists = {"holders": list(self.holders), "interval": list(self.interval), "parts": list(self.parts)}
        return asdict(self) | lists | {"fingerprint": self.fingerprint}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> "Finding":
        """The finding that `to_json` wrote, checked, as a person may have edited it.

        Raises:
            KeyError: a key is missing.
            TypeError: a value is of another type, or there is a key too many.
            ValueError: a number is not finite, or a word is unknown.
            OverflowError: a number is too large.
        """
        site_fields = found["made_at"]
        low, high = found["interval"]
        found = {
            name: value for name, value in found.items() if name != "fingerprint"
        }  # computed from the other fields
        # Earlier versions wrote no parts.
        typed_values = {
            "holders": tuple(found["holders"]),
            "interval": (low, high),
            "parts": tuple(found.get("parts", ())),
        }
        finding = cls(
            **found | typed_values | {"made_at": None if site_fields is None else AllocationSite(**site_fields)}
        )
        _check(finding)
        return finding

    def tell(self) -> list[str]:
        """A few lines for a person, none over 99 columns."""
        lines = _wrap_text(f"{self.verdict}: ", f"{self._sentence()}.", "  ")
        for label, text in self._details():
            lines += _wrap_text(f"  {label}".ljust(LABEL), text, " " * LABEL)
        return lines

    def briefly(self) -> str:
        """The owner, the line and the advice, in one line of at most 88 columns."""
        where = "" if self.made_at is None else f", {PurePath(self.made_at.file).name}:{self.made_at.line}"
        verb = f" {self.verb('grows', 'grow')}"
        grows = f"{_end_of(self.owner, BRIEF // 2 - len(verb))}{verb}"
        slower = textwrap.shorten(self.what, BRIEF // 2, placeholder="…")
        opening = f"{slower if self.verdict == 'slowdown' else grows}{where}"
        instruction = "look at C extensions and buffers outside of Python" if self.verdict == "native" else self.advice
        instruction = _instruction(f"{instruction[:1].lower()}{instruction[1:]}", BRIEF - len(opening) - len(": "))
        return textwrap.shorten(f"{opening}: {instruction}", BRIEF, placeholder=" …")

    def _sentence(self) -> str:
        """The owner with its rate and share of the growth, without a full stop; the content alone for a slowdown."""
        if self.verdict == "slowdown":
            return self.what
        rate = f"{format_bytes(self.bytes_per_step)} {self._each}, {self.share:.0%} of the growth"
        return f"{self.grows} by {rate}"

    @property
    def grows(self) -> str:
        """Subject and verb: `train.HISTORY grows`, `atexit's callbacks grow`."""
        return f"{self.owner} {self.verb('grows', 'grow')}"

    def verb(self, one: str, several: str) -> str:
        """The verb form for the owner: `several` if the owner is a plural, such as `atexit's callbacks`."""
        return several if _SEVERAL.fullmatch(self.owner) else one

    @property
    def _each(self) -> str:
        """The unit with its article: `a round`, `an episode`."""
        return f"{'an' if self.unit[0] in 'aeiou' else 'a'} {self.unit}"

    def _details(self) -> list[tuple[str, str]]:
        """Labels of at most seven letters with their texts, in the order of `tell`; unknown ones are left out."""
        details = []
        if self.holders:
            details.append(("held by", " → ".join(self.holders)))
        if self.made_at is not None:
            details.append(("made at", str(self.made_at)))
        if self.verdict != "slowdown":
            low, high = (short_bytes(bound) for bound in self.interval)
            details.append(("what", f"{self.what}; between {low} and {high} {self._each}"))
            details.append(("until", self.until()))
        if self.redundancy is not None:
            details.append(("note", self.redundancy))
        details.append(("do", self.advice))
        return details

    def until(self) -> str:
        """The end of the growth, or of the memory; empty if it is not known."""
        if self.verdict == "slowdown":
            return ""
        if self.verdict == "mapped":
            return "the system needs the memory for something else: then it takes these pages back"
        clauses = []
        if self.plateau_bytes is not None:
            when = "" if self.plateau_step is None else f" at {self.unit} {two_digits(self.plateau_step)}"
            clauses.append(f"full with {format_bytes(self.plateau_bytes)}{when}")
        if self.limit_bytes is None:
            clauses.append("no limit is known")
        else:
            clauses.append(f"the limit of {format_bytes(self.limit_bytes)} is {self._limit_phrase()}")
        return "; ".join(reversed(clauses) if self.dies_first else clauses)

    def _limit_phrase(self) -> str:
        """The end of a sentence on the limit: not reached, or reached at a step and, if it is known, at a time."""
        if self.limit_step is None:
            return "not reached"
        if not self.has_date:
            return f"reached if it goes on; when, cannot be told from rates so far apart as these {self.unit}s have"
        when = f"{self.unit} {two_digits(self.limit_step)}"
        return (
            f"reached {clock_words(self.limit_time)}, at {when}"
            if self.limit_time is not None
            else f"reached at {when}"
        )

    @property
    def has_date(self) -> bool:
        """Whether the process reaches its limit at a time that is known: the bounds of the rate are near enough."""
        low, high = self.interval
        return self.limit_step is not None and low > 0 and high <= OWNING.dated * low

    @property
    def dies_first(self) -> bool:
        """Whether the process reaches its limit before the owner is full."""
        if self.limit_step is None or self.plateau_bytes is None:
            return False
        return self.plateau_step is None or self.limit_step < self.plateau_step


def _end_of(owner: str, most: int) -> str:
    """A path in at most `most` letters: without the function before a variable, then without its first hops."""
    if len(owner) <= most:
        return owner
    name = owner.rpartition(": ")[2]
    if len(name) <= most:
        return name
    tail = name[1 - most :]
    hop_match = re.search(r"[.\[](?=[\w\['])", tail)
    return f"…{tail if hop_match is None else tail[hop_match.start() + (hop_match[0] == '.') :]}"


_END = re.compile(r"\.(?= )|(?=[;:] )|(?=, (?:or|and|but|so|such) )")
"""Ends of sentences, with their full stop, and of clauses; other commas stand within a list."""
_ASKS = frozenset({
    "add", "allocate", "begin", "bound", "break", "call", "cancel", "change", "close", "commit", "compile", "configure",
    "convert", "count", "drop", "end", "fetch", "generate", "give", "hold", "keep", "leave", "let", "look",
    "lower", "make", "mark", "open", "put", "raise", "register", "remove", "set", "store", "take", "use",
    "write",
})  # fmt: skip
"""First words of instructions; the other sentences of an advice, facts about a library, begin with other words."""


def _instruction(advice: str, width: int) -> str:
    """The part of an advice that fits into a width: all of it, or whole clauses from the first instruction on.

    If no whole clause fits, the text is too long, and the caller cuts it.
    """
    if len(advice) <= width:
        return advice
    starts = (match.end() for match in re.finditer(r"^|\. ", advice))
    start = next((offset for offset in starts if _asks(advice[offset:].partition(". ")[0])), 0)
    text = f"{advice[start : start + 1].lower()}{advice[start + 1 :]}"
    if len(text) <= width:
        return text
    parts = [text[: end.end()] for end in _END.finditer(text) if end.end() <= width]
    return next((part for part in reversed(parts) if _is_whole(part) and _asks(part)), text)


def _is_whole(part: str) -> bool:
    """Whether no backtick and no bracket is open at the end of a part."""
    return part.count("`") % 2 == 0 and part.count("(") == part.count(")")


def _asks(part: str) -> bool:
    """Whether a sentence, or a clause of it, is an instruction."""
    return any(begun.partition(" ")[0].lower() in _ASKS for begun in re.split(r"[.;:] ", part))


def _wrap_text(first: str, text: str, indent: str) -> list[str]:
    """Lines of at most `WIDTH` columns: the first begins with `first`, the others with `indent`."""
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)


def _check(found: Finding) -> None:
    """Check a finding that was read from a file, by the types of its fields; raise TypeError or ValueError."""
    values = vars(found)
    if found.verdict not in get_args(Verdict):
        raise ValueError(f"verdict = {found.verdict!r}: must be one of {', '.join(get_args(Verdict))}")
    site_texts = () if found.made_at is None else (found.made_at.file, found.made_at.function, found.made_at.operation)
    for text in (*(values[name] for name in TEXTS), *found.holders, *found.parts, *site_texts, found.redundancy or ""):
        if not isinstance(text, str):
            raise TypeError(f"{text!r}: must be a text")
    if not found.unit:
        raise ValueError("unit: must not be empty")
    if not isinstance(found.outside, bool):
        raise TypeError(f"{found.outside!r}: outside must be true or false")
    optional_numbers = (values[name] for name in MAYBE if values[name] is not None)
    for number in (*(values[name] for name in NUMBERS), *found.interval, *optional_numbers):
        if isinstance(number, bool) or not isinstance(number, int | float):  # a bool is an int to Python
            raise TypeError(f"{number!r}: must be a number")
        if not isfinite(number):
            raise ValueError(f"{number!r}: must be finite")
