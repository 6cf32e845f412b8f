"""What to do about a finding, in a sentence or two."""

from flatwater.memory.leaks.finding import Verdict

_BY_VERDICT: dict[Verdict, str] = {
    "leak": "Drop what is not needed any more, or bound it: collections.deque(maxlen=...) keeps the newest.",
    "filling": "Nothing is lost: it stops growing when it is full. Lower its capacity if that does not fit.",
    "retention": "Blocks were freed, and the allocator keeps them between others: allocate buffers once and write into "
    "them, give varying temporaries one size, or call malloc_trim after a round.",
    "backlog": "The consumer takes fewer than are put. Bound the queue (maxsize), so that the producer waits, or add "
    "consumers.",
    "cache": "Give it a maxsize, or key it by something small; a cache on a method keeps each object that called it.",
    "mapped": "Pages of files: the system takes them back when it needs them. Count private bytes instead.",
    "native": "No Python object explains it: look at C extensions, worker threads and buffers outside of Python. A "
    "recording with `memray run --native` names the C function.",
    "slowdown": "The work of a step grows: look in this phase for a list, a table or a history that each step walks "
    "whole.",
}

_BY_KIND = {
    "figures": "pyplot keeps each figure until it is closed: call plt.close(figure) when it is saved.",
    "hooks": "Register the hook once, or keep the handle that registering returns and call its remove().",
}

GRAPH = "Keep the number, not the tensor: loss.item(), or loss.detach() without its autograd graph."
BASE = "Keep a copy of the part: .clone() of a tensor or .copy() of an array lets go of the whole."

CYCLES = (
    "Leave the collector on, or call gc.collect() once in a while; better, break the cycle: hold the way back by a "
    "weakref."
)


def advice(verdict: Verdict, kind: str = "", *, graph: bool = False, base: bool = False) -> str:
    """What to do.

    Args:
        verdict: of the finding.
        kind: of the container that grows: `list`, `hooks`, ...
        graph: the content carries an autograd graph.
        base: the content are views that keep larger bases alive.
    """
    if graph:
        return GRAPH
    if base:
        return BASE
    return _BY_KIND.get(kind, _BY_VERDICT[verdict]) if verdict == "leak" else _BY_VERDICT[verdict]
