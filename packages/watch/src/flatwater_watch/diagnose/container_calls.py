"""Calls and statements that take items out of a container of the user's, as its author types them."""

from typing import Any, NamedTuple

from flatwater_watch.diagnose.code_names import CodeName
from flatwater_watch.heap.arrays import data_address
from flatwater_watch.heap.functions import cache_name
from flatwater_watch.heap.raw import class_dict, class_name, full_name, mro

KEPT_ITEMS = 100
"""Number of newest items that a statement keeps, as an example."""


class _Operation(NamedTuple):
    """The operation that takes items out of a container of one kind."""

    call: str
    advice: str
    """Advice with a place for `call`, for `each` item that holds such a container, and for the `name`."""


_OPERATIONS = {
    "list": _Operation("del {name}[:-{kept}]", "Keep the newest items alone: `{call}` after the line that adds{each}."),
    "tuple": _Operation("{name} = {name}[-{kept}:]", "Keep the newest items alone: `{call}`{each}."),
    "dict": _Operation(
        "{name}.pop(key)",
        "Remove each entry when it is done with, `{call}`, or the oldest when there are too many, "
        "`{name}.pop(next(iter({name})))`{each}.",
    ),
    "set": _Operation(
        "{name}.discard(entry)",
        "Remove each entry when it is done with: `{call}`{each}. Instances of a class can be held weakly: "
        "`weakref.WeakSet()`.",
    ),
    "deque": _Operation(
        "{name} = collections.deque(maxlen={kept})", "Give it a bound where it is made: `{call}`{each}."
    ),
    "text": _Operation(
        "{name} = {name}[:0]",
        "Write it out in portions, and begin anew after each: `{call}`{each}. It is added to again and again.",
    ),
    "array": _Operation(
        "{name} = {name}[-{kept}:].{copy}()",
        "Keep the newest rows alone: `{call}`{each}. It is replaced by a larger one again and again.",
    ),
    "object": _Operation(
        "del {name}.attribute",
        "Delete each attribute when it is done with: `{call}`{each}. Its attributes hold more and more.",
    ),
}
"""By kind of the container."""
_QUEUES = {
    "_queue.SimpleQueue": "queue.Queue",
    "queue.SimpleQueue": "queue.Queue",
    "asyncio.queues.Queue": "asyncio.Queue",
}
"""Name of the class with a bound that is made in place of a class, where it is not its own."""


def removing_call(kind: str, container: Any, name: CodeName) -> str:
    """Return code that takes items out of a container: `train.SEEN.discard(entry)`; empty if none is known.

    Args:
        kind: kind of the container, such as "list" or "array".
        container: the container.
        name: its name in the program's code.
    """
    if not name.text or kind not in _OPERATIONS:
        return ""
    copy = "clone" if full_name(type(container))[0].partition(".")[0] == "torch" else "copy"
    return _OPERATIONS[kind].call.format(name=name.text, kept=KEPT_ITEMS, copy=copy)


def leak_advice(kind: str, container: Any, name: CodeName) -> str | None:
    """Return the advice for a user's container that leaks, with the code of `removing_call`; None if none is known."""
    call = removing_call(kind, container, name)
    return _OPERATIONS[kind].advice.format(call=call, name=name.text, each=name.each_words) if call else None


def resource_advice(resource: str, item: Any, kind: str, container: Any, name: CodeName) -> str:
    """Return the advice for a container whose items each keep something open in the system.

    Args:
        resource: what each item keeps open: "child process", "mapped file" or "thread".
        item: item of the container, or an array on a mapped file.
        kind: kind of the container, as in `Holding.kind`.
        container: the container.
        name: its name in the program's code.
    """
    removal = removing_call(kind, container, name)
    if data_address(item):  # an array or a tensor on a mapped file, which no call closes
        copy = "clone" if full_name(type(item))[0].partition(".")[0] == "torch" else "copy"
        rest = f", or remove each that is done with, `{removal}`{name.each_words}" if removal else ""
        return f"Keep a copy, `part.{copy}()`, if it need not stay mapped{rest}. Each keeps its whole file mapped."
    instruction = f"Call {_ending_calls(type(item))} for each that is done with"
    then = f", then `{removal}`" if removal else ""
    return f"{instruction}{then}{name.each_words}. Each keeps its {resource} until then."


def _ending_calls(kind: type) -> str:
    """Return the calls of a class that end what its objects keep open: "`Popen.terminate()` and `Popen.wait()`".

    One call ends it, and one waits for its end, if the class has them; "what closes it" if it has neither.
    """
    methods = {method for owner in mro(kind) for method in class_dict(owner)}
    ending = next((name for name in _ENDING if name in methods), "")
    waiting = next((name for name in _WAITING if name in methods), "")
    calls = [f"`{class_name(kind)}.{method}()`" for method in (ending, waiting) if method]
    return " and ".join(calls) or "what closes it"


_ENDING = ("shutdown", "stop", "quit", "cancel", "terminate", "close", "kill")
_WAITING = ("join", "wait")
"""Names of the methods that end what an object keeps open, the surest first, and that wait for its end."""


def queue_advice(container: Any) -> str:
    """Return the advice for a queue that takes in more than is taken out."""
    module, name = full_name(type(container))
    path = f"{module}.{name}"
    # The class to make, which takes a bound; empty for a class whose constructor is not known.
    bounded_class = _QUEUES.get(path, path if module == "queue" else "")
    bound = f"maxsize={KEPT_ITEMS}"
    code = f"{bounded_class}({bound})" if bounded_class else bound
    return (
        f"Bound the queue where it is made, `{code}`, "
        "so that the producer waits, or add consumers. The consumer takes fewer than are put."
    )


def cache_advice(container: Any, name: CodeName) -> str:
    """Return the advice for a cache of a function's results that grows."""
    return (
        f"Bound the cache, `@functools.lru_cache(maxsize={KEPT_ITEMS})`, key it by something small, or call "
        f"`{name.text or cache_name(container)}.cache_clear()`. A cache on a method keeps each object that called it."
    )


def item_advice(name: CodeName) -> str:
    """Return the advice for an attribute that each item of a container keeps from its first use on."""
    call = f"`{name.text} = None`{name.each_words}" if name.text else "set it to `None`"
    return f"Drop it when the item is done with: {call}. Each item keeps one from its first use on."
