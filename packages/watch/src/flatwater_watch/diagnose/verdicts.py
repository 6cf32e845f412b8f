"""The verdicts on growth: how each is said, how it ends, and what is to be done."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

VerdictName = Literal["leak", "filling", "retention", "backlog", "cache", "mapped", "native", "slowdown"]


class Verdict(NamedTuple):
    """What a verdict means for a person, and for a build that asked for flat memory."""

    headline: str
    """Sentence with places for `owner`, `rate` and `what`, and for verbs that agree with the owner."""
    advice: str
    """What to change, where the container that grows says nothing better."""
    is_grave: bool = False
    """Whether it ends badly if nobody acts; the others are reported so that nobody takes them for a leak."""
    fails_build: bool = True
    """False for growth that ends by itself, or that the system takes back."""
    is_of_bytes: bool = True
    """False for time, which has no share of the growth."""


VERDICTS: Mapping[VerdictName, Verdict] = MappingProxyType(
    {
        "leak": Verdict(
            headline="{grows} by {rate}, and nothing ends it",
            advice="Drop what is not needed any more, or bound it: collections.deque(maxlen=...) keeps the newest.",
            is_grave=True,
        ),
        "filling": Verdict(
            headline="{owner} {is_} filling by {rate}",
            advice="Nothing is lost: it stops growing when it is full. Lower its capacity if that does not fit.",
            fails_build=False,
        ),
        "retention": Verdict(
            headline="The allocator keeps {rate} that the program has freed",
            advice="Blocks were freed, and the allocator keeps them between others: allocate buffers once and write "
            "into them, give varying temporaries one size, or call malloc_trim after a round.",
        ),
        "backlog": Verdict(
            headline="{owner} {takes} in more than is taken out: {rate} stay",
            advice="The consumer takes fewer than are put. Bound the queue (maxsize), so that the producer waits, or "
            "add consumers.",
            is_grave=True,
        ),
        "cache": Verdict(
            headline="The cache {owner} grows by {rate}",
            advice="Give it a maxsize, or key it by something small; a cache on a method keeps each object that called "
            "it.",
        ),
        "mapped": Verdict(
            headline="Pages of mapped files come in: {rate}",
            advice="Pages of files: the system takes them back when it needs them. Count private bytes instead.",
            fails_build=False,
        ),
        "native": Verdict(
            headline="Native memory grows by {rate}, and no object of the program explains it",
            advice="Nothing that your globals, local variables, tasks and threads reach explains it, and no container "
            "of a library: look at C extensions and buffers outside of Python. A recording with `memray run --native` "
            "names the C function.",
            is_grave=True,
        ),
        "slowdown": Verdict(
            headline="{what}",
            advice="The work of a step grows: look in this phase for a list, a table or a history that each step walks "
            "whole.",
            is_grave=True,
            is_of_bytes=False,
        ),
    }
)
