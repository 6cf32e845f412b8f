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
            advice="Take out what is done with, by `del`, `pop(...)` or `clear()`, or keep the newest alone: "
            "`collections.deque(maxlen=100)`.",
            is_grave=True,
        ),
        "filling": Verdict(
            headline="{owner} {is_} filling by {rate}",
            advice="Lower its capacity (`maxlen=`, `maxsize=`) if that does not fit, else leave it: it stops growing "
            "when it is full.",
            fails_build=False,
        ),
        "retention": Verdict(
            headline="The allocator keeps {rate} that the program has freed",
            advice="Allocate buffers once and write into them (`out=`), give varying temporaries one size, or call "
            "`ctypes.CDLL(None).malloc_trim(0)` after a round. Blocks were freed, and the allocator keeps them between "
            "others.",
        ),
        "backlog": Verdict(
            headline="{owner} {takes} in more than is taken out: {rate} stay",
            advice="Bound the queue, `maxsize=100`, so that the producer waits, or add consumers. The consumer takes "
            "fewer than are put.",
            is_grave=True,
        ),
        "cache": Verdict(
            headline="The cache {owner} grows by {rate}",
            advice="Bound the cache, `maxsize=100`, or key it by something small. A cache on a method keeps each "
            "object that called it.",
        ),
        "mapped": Verdict(
            headline="{grows} by {rate}, in pages of mapped files",
            advice="Count private bytes instead: these are pages of files, which the system takes back when it needs "
            "them.",
            fails_build=False,
        ),
        "native": Verdict(
            headline="{grows} by {rate}, and no Python object explains it",
            advice="Record it with `memray run --native`, which names the C function, and look at C extensions and "
            "buffers outside of Python. Nothing that your globals, local variables, tasks and threads reach explains "
            "it, and no container of a library.",
            is_grave=True,
        ),
        "slowdown": Verdict(
            headline="{what}",
            advice="Look in this phase for a list, a table or a history that each step walks whole: the work of a step "
            "grows.",
            is_grave=True,
            is_of_bytes=False,
        ),
    }
)
