"""A library that keeps what it is given, behind each kind of holder that Python has.

`add(kind, item)` adds to a container that is a global; or to rows that `install` has put behind a holder of another
kind, which this module knows weakly alone.
"""

import asyncio
import atexit
import collections
import contextlib
import contextvars
import copyreg
import ctypes
import dataclasses
import enum
import functools
import gc
import itertools
import logging
import mmap
import queue
import signal
import sys
import threading
import types
import weakref
from array import array
from collections.abc import Callable, Generator
from typing import Any, ClassVar


class Table(dict[int, Any]):
    """A dict with a class of its own."""


class Rows(list[Any]):
    """A list with a class of its own, which can be held weakly."""

    __hash__ = object.__hash__


class Node:
    def __init__(self, rows: Any = None) -> None:
        self.kept = rows
        self.texts: dict[str, str] = {}


numbers = itertools.count()

# --- containers of each kind, which are globals ---
ROWS: list[Any] = []
TEXTS: dict[str, str] = {}
ORDERED: collections.OrderedDict[int, Any] = collections.OrderedDict()
COUNTED: collections.Counter[str] = collections.Counter()
RECENT: collections.deque[Any] = collections.deque()
CHAINED: collections.ChainMap[int, Any] = collections.ChainMap({}, {})
EVERY: set[Any] = set()
NESTED: dict[int, dict[int, Any]] = {n: {} for n in range(3)}
NUMBERS, WRITTEN = array("d"), bytearray()
VIEWS: list[memoryview] = []
BUFFERS: list[Any] = []
MAPPINGS: list[mmap.mmap] = []
WAITING: queue.SimpleQueue[Any] = queue.SimpleQueue()
WEAK: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
TABLE, NODE = Table(), Node()
TREE = types.SimpleNamespace(root=types.SimpleNamespace(node=Node([])))
GIVEN: list[Any] = []


@functools.cache
def make_cached(_number: int) -> Any:
    return GIVEN.pop()


@functools.lru_cache(maxsize=100_000)
def cached_some(_number: int) -> Any:
    return GIVEN.pop()


@functools.singledispatch
def dispatch_by_type(item: Any) -> Any:
    return item


def add_list(item: Any) -> None:
    ROWS.append(item)


def add_dict_of_texts(item: Any) -> None:
    TEXTS[str(len(TEXTS))] = item


def add_texts_of_instance(item: Any) -> None:
    NODE.texts[str(len(NODE.texts))] = item


def add_ordered_dict(item: Any) -> None:
    ORDERED[len(ORDERED)] = item


def add_counter(item: Any) -> None:
    COUNTED[item] += 1


def add_deque(item: Any) -> None:
    RECENT.append(item)


def add_chain_map(item: Any) -> None:
    CHAINED[len(CHAINED)] = item


def add_set(item: Any) -> None:
    EVERY.add(item)


def add_nested_dict(item: Any) -> None:
    NESTED[1][len(NESTED[1])] = item


def add_dict_subclass(item: Any) -> None:
    TABLE[len(TABLE)] = item


def add_array(item: Any) -> None:
    NUMBERS.extend(range(len(item) // 8))


def add_bytearray(item: Any) -> None:
    WRITTEN.extend(item.encode())


def add_memoryview(item: Any) -> None:
    VIEWS.append(memoryview(item.encode()))


def add_ctypes_array(item: Any) -> None:
    BUFFERS.append((ctypes.c_char * len(item))())


def add_mmap(item: Any) -> None:
    MAPPINGS.append(mmap.mmap(-1, len(item)))
    MAPPINGS[-1].write(item.encode())


def add_simple_queue(item: Any) -> None:
    WAITING.put(item)


def add_weak_keys(item: Any) -> None:
    WEAK.setdefault(Node, []).append(item)


def add_tree_of_instances(item: Any) -> None:
    TREE.root.node.kept.append(item)


def add_cache(item: Any) -> None:
    GIVEN.append(item)
    make_cached(make_cached.cache_info().currsize)


def add_bounded_cache(item: Any) -> None:
    GIVEN.append(item)
    cached_some(cached_some.cache_info().currsize)


def add_dispatch(item: Any) -> None:
    dispatch_by_type.register(type(f"Made{len(dispatch_by_type.registry)}", (), {"kept": item}), len)


# --- holders of other kinds: of classes, of functions, of the interpreter, and what waits ---
class Slotted:
    __slots__ = ("kept",)

    def __init__(self, rows: Rows) -> None:
        self.kept = rows


class Local(threading.local):
    """Attributes of each thread."""


class Base:
    registry: ClassVar[Any]


class Derived(Base):
    """A class whose base keeps."""


class Described:
    field: ClassVar[Any]


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Settings:
    history: ClassVar[Any]


class Meta(type):
    members: ClassVar[Any]


class Made(metaclass=Meta):
    """A class whose metaclass keeps."""


def keep_by_default(_kept: Any = None) -> None:
    """Has a default."""


def keyword_defaulted(*, _kept: Any = None) -> None:
    """Has a default by its name."""


def keep_by_attribute() -> None:
    """Has an attribute."""


class Finalized:
    """An object that a finalizer waits for."""


LOCAL, ALIVE, LOOP = Local(), Finalized(), asyncio.new_event_loop()
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("held_rows")
STOP = threading.Event()
BEHIND: weakref.WeakValueDictionary[str, Rows] = weakref.WeakValueDictionary()
STACK = contextlib.ExitStack()


def _closing(rows: Rows, name: str = "close") -> Callable[..., None]:
    """A function that closes over rows, under a name of its own."""

    def close(*_: Any) -> None:
        rows.sort()

    close.__name__ = close.__qualname__ = name
    close.__code__ = close.__code__.replace(co_qualname=name)
    return close


def generate(kept: Rows) -> Generator[None]:
    while True:
        yield
        kept.sort()


def wait_in_thread(kept: Rows) -> None:
    STOP.wait()
    kept.clear()


async def wait_in_task(kept: Rows) -> None:
    await asyncio.Event().wait()
    kept.clear()


def _begin(coroutine: Any) -> None:
    LOOP.call_soon(LOOP.stop)
    WAITING_TASKS.append(LOOP.create_task(coroutine))
    LOOP.run_forever()


def _next_of(generator: Generator[None]) -> Generator[None]:
    next(generator)
    return generator


class Handler(logging.Handler):
    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self.records = rows


WAITING_TASKS: list[Any] = []
GENERATORS: list[Any] = []
HOLDERS: dict[str, Callable[[Rows], object]] = {
    "slot": lambda rows: setattr(sys.modules[__name__], "SLOTTED", Slotted(rows)),
    "thread_local": lambda rows: setattr(LOCAL, "kept", rows),
    "base_class": lambda rows: setattr(Base, "registry", rows),
    "descriptor": lambda rows: setattr(Described, "field", Node(rows)),
    "property": lambda rows: setattr(Described, "seen", property(_closing(rows, "read"))),
    "enum": lambda rows: setattr(Colour, "kept", rows),
    "dataclass": lambda rows: setattr(Settings, "history", rows),
    "metaclass": lambda rows: setattr(Meta, "members", rows),
    "class_at_run_time": lambda rows: setattr(sys.modules[__name__], "MADE", type("Later", (), {"kept": rows})),
    "default": lambda rows: setattr(keep_by_default, "__defaults__", (rows,)),
    "keyword_default": lambda rows: setattr(keyword_defaulted, "__kwdefaults__", {"_kept": rows}),
    "attribute": lambda rows: setattr(keep_by_attribute, "kept", rows),
    "closure": lambda rows: setattr(sys.modules[__name__], "CLOSING", _closing(rows)),
    "bound_method_of_c": lambda rows: setattr(sys.modules[__name__], "BOUND", rows.append),
    "partial": lambda rows: setattr(sys.modules[__name__], "PARTIAL", functools.partial(len, rows)),
    "exit_stack": lambda rows: STACK.callback(len, rows),
    "generator": lambda rows: GENERATORS.append(_next_of(generate(rows))),
    "atexit": lambda rows: atexit.register(_closing(rows, "at_exit")),
    "finalizer": lambda rows: weakref.finalize(ALIVE, len, rows),
    "logging": lambda rows: logging.getLogger("holdinglib").addHandler(Handler(rows)),
    "weak_callback": lambda rows: setattr(
        sys.modules[__name__], "REFERENCE", weakref.ref(ALIVE, _closing(rows, "gone"))
    ),
    "copyreg": lambda rows: copyreg.dispatch_table.__setitem__(Finalized, _closing(rows, "reduce")),
    "hook_of_sys": lambda rows: setattr(sys, "unraisablehook", _closing(rows, "hook")),
    "path_hook": lambda rows: sys.path_hooks.append(_closing(rows, "find")),
    "signal": lambda rows: signal.signal(signal.SIGUSR2, _closing(rows, "handle")),
    "collector": lambda rows: gc.callbacks.append(_closing(rows)),
    "context_variable": VARIABLE.set,
    "thread": lambda rows: threading.Thread(target=wait_in_thread, args=(rows,), daemon=True).start(),
    "task": lambda rows: _begin(wait_in_task(rows)),
    "pending_callback": lambda rows: LOOP.call_later(3600, _closing(rows, "call_later")),
    "callback_of_future": lambda rows: WAITING_TASKS[0].add_done_callback(_closing(rows, "on_done")),
}
"""Kind -> what puts rows behind a holder of it."""


def install() -> None:
    """Put rows behind all holders; the interpreter's registries are as they were after `remove`."""
    BEFORE["hook"] = sys.unraisablehook
    for kind, put in HOLDERS.items():
        rows = Rows()
        BEHIND[kind] = rows
        put(rows)


BEFORE: dict[str, Any] = {}


def kinds() -> list[str]:
    """All kinds of holders."""
    return [*(name.removeprefix("add_") for name in globals() if name.startswith("add_")), *HOLDERS]


def add(kind: str, item: Any) -> None:
    """Add an item to what a holder of this kind keeps."""
    if kind in HOLDERS:
        BEHIND[kind].append(item)
    else:
        globals()[f"add_{kind}"](item)


def remove() -> None:
    """Take what `install` has registered out of the interpreter, and end what waits."""
    STOP.set()
    sys.unraisablehook = BEFORE["hook"]
    sys.path_hooks.pop()
    gc.callbacks.pop()
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    logging.getLogger("holdinglib").handlers.clear()
    del copyreg.dispatch_table[Finalized]
    WAITING_TASKS[0].cancel()
    for rows in BEHIND.values():
        rows.clear()
    LOOP.call_soon(LOOP.stop)
    LOOP.run_forever()
    LOOP.close()
