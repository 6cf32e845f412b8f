"""A census calls nothing of the program: all special methods of all kinds of objects are replaced, and none runs."""

import array
import collections
import gc
import io
import json
import queue
import random
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import partial
from mmap import mmap
from typing import Any

import numpy as np
import pytest
import torch

from flatwater_watch.diagnose.garbage import GarbageSearch
from flatwater_watch.diagnose.item_growth import added_leaves, container_lengths
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.diagnose.owners import current_contents, find_owners
from flatwater_watch.faces.holders import find_holder_chain
from flatwater_watch.heap.census import Census, take_census
from flatwater_watch.heap.children import open_object
from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.view import Walk

Load = Callable[..., types.ModuleType]

_BUILTIN = (object, type, int, float, str, bytes, list, dict, set, memoryview, property, BaseException)
_LIBRARY = (np.ndarray, collections.deque, collections.OrderedDict, types.FunctionType, types.GeneratorType)
_OTHERS = """getattr getattribute setattr delattr get set delete del bool len length_hint iter next reversed
contains missing call enter exit aenter aexit await aiter anext index int float complex round trunc
floor ceil hash eq ne lt le gt
ge repr str bytes format sizeof dir reduce reduce_ex getstate setstate copy deepcopy instancecheck subclasscheck
mro_entries class_getitem buffer release_buffer fspath array array_finalize array_function array_ufunc array_wrap
torch_function getitem setitem delitem abs neg pos invert and rand or ror add radd iadd sub rsub mul rmul matmul"""
_NEEDED = {
    "__new__",
    "__subclasses__",
    "__init__",
    "__class__",
    "__init_subclass__",
    "__subclasshook__",
    "__doc__",
    "__prepare__",
}
"""Without which no object can be made; `__class__` is replaced by a property."""
_INHERITED = {name for kind in _BUILTIN + _LIBRARY for name in dir(kind) if callable(getattr(kind, name, None))}
SPECIAL = sorted(
    ({name for name in _INHERITED if name.startswith("__")} | {f"__{name}__" for name in _OTHERS.split()}) - _NEEDED
)
"""Methods of the data model."""


class Calls:
    """What was called while it listens, in this process or in a fork of it."""

    def __init__(self) -> None:
        self.listens = False
        self._names: list[str] = []
        self._counted = mmap(-1, 1 << 17)

    @property
    def seen(self) -> dict[str, int]:
        """How often, by class and method."""
        return {name: count for name, count in zip(self._names, self._counted[:], strict=False) if count}

    def counter(self, name: str) -> Callable[[], None]:
        """Counts a call of that name."""
        at = len(self._names)
        self._names.append(name)
        assert at < len(self._counted)

        def count() -> None:
            if self.listens:
                self._counted[at] = min(self._counted[at] + 1, 255)

        return count

    def override(self, bases: tuple[type, ...], name: str) -> Callable[..., Any]:
        """The method of the bases, counted."""
        inherited = next((vars(owner)[name] for base in bases for owner in base.__mro__ if name in vars(owner)), None)
        count = self.counter(f"{bases[0].__name__}.{name}")

        def count_call(*given: Any, **named: Any) -> Any:
            count()
            if name == "__del__":
                return None
            if inherited is None:
                raise AttributeError(name)
            return inherited.__get__(given[0], type(given[0]))(*given[1:], **named)

        return count_call


def liar(calls: Calls, *bases: type, without: tuple[str, ...] = ()) -> type:
    """A class that counts the calls of all its special methods, and whose metaclass counts those of its own."""
    names = [name for name in SPECIAL if name not in without]
    of_type = [name for name in SPECIAL if name not in {"__call__", "__del__", "__set_name__", "__prepare__"}]
    meta = type("Meta", (type(bases[0]),), {name: calls.override((type(bases[0]),), name) for name in of_type})
    space: dict[str, Any] = {name: calls.override(bases, name) for name in names}

    count = calls.counter(f"{bases[0].__name__}.__class__")

    def lie(_: object) -> type:
        count()
        return dict

    space["__class__"] = property(lie)
    if "__slots__" in vars(bases[0]):
        space["__slots__"] = ()
    return meta(f"Liar{bases[0].__name__.title()}", bases, space)


class Target:
    """Something to refer to weakly."""


TARGET = Target()


@dataclass
class Record:
    """A dataclass."""

    held: list[bytes] = field(default_factory=lambda: [b"x" * 9000])


@dataclass(frozen=True, slots=True)
class Frozen:
    """Another one, without a dict."""

    held: tuple[bytes, ...] = (b"x" * 9000,)


class Slots:
    """Slots, one of which is never set."""

    __slots__ = ("first", "second")

    def __init__(self) -> None:
        self.first = [b"x" * 9000]


class Proxy:
    """Stands before another object, and hands on what is asked of it."""

    __slots__ = ("before",)

    def __init__(self, before: object) -> None:
        object.__setattr__(self, "before", before)

    def __getattr__(self, name: str) -> object:
        return getattr(object.__getattribute__(self, "before"), name)


FILLED: dict[type, tuple[Any, ...]] = {
    list: ([b"x" * 9000],),
    tuple: ([b"x" * 9000],),
    dict: ({"a": b"x" * 9000},),
    set: ([1.5],),
    frozenset: ([1.5],),
    str: ("x" * 9000,),
    bytes: (b"x" * 9000,),
    bytearray: (b"x" * 9000,),
    int: (12345,),
    float: (1.5,),
    complex: (1j,),
    object: (),
    collections.deque: ([1.5], 9),
    collections.OrderedDict: ({"a": 1.5},),
    collections.defaultdict: (list, {"a": 1.5}),
    collections.Counter: (),
    collections.ChainMap: ({"a": 1.5},),
    collections.UserList: ([1.5],),
    collections.UserDict: ({"a": 1.5},),
    collections.UserString: ("x" * 9000,),
    array.array: ("d", [1.5] * 2000),
    queue.Queue: (7,),
    queue.SimpleQueue: (),
    partial: (print, 1, {}),
    types.SimpleNamespace: (),
    types.ModuleType: ("lazy",),
    BaseException: ("x",),
    np.ndarray: ((40, 50),),
    weakref.WeakValueDictionary: ({1: TARGET},),
    weakref.WeakKeyDictionary: ({TARGET: 1},),
    weakref.WeakSet: ([TARGET],),
    weakref.ref: (TARGET,),
    Record: (),
    Frozen: (),
    Slots: (),
    Proxy: ([b"x" * 9000],),
    threading.local: (),
    threading.Thread: (),
    property: (print,),
    staticmethod: (print,),
    classmethod: (print,),
    enumerate: ([b"x" * 9000],),
    zip: ([b"x" * 9000],),
    map: (print, [b"x" * 9000]),
    filter: (print, [b"x" * 9000]),
    reversed: ([b"x" * 9000],),
    io.StringIO: ("x" * 9000,),
    io.BytesIO: (b"x" * 9000,),
    random.Random: (7,),
    datetime: (2026, 11, 23),
    Decimal: ("1.5",),
}
"""A class, and what an instance is made with."""


def test_no_special_method_of_any_kind_of_object_is_called(load: Load) -> None:
    calls = Calls()
    program = load("HELD = []\nNAMES = {}")
    kinds = {base: liar(calls, base) for base in FILLED}

    def fill() -> None:
        for n in range(10):
            for base, kind in kinds.items():
                made = kind(*FILLED[base])
                program.HELD.extend((made, bytearray(5000)))
                program.NAMES[f"{base.__name__} {n}"] = made

    assert_untouched(calls, fill, [program.HELD, program.NAMES])


SEARCHED = """
import json, runpy, sys
print(json.dumps(runpy.run_path(sys.argv[1])["searched_garbage"]()))
"""


@pytest.mark.long
def test_no_special_method_of_garbage_is_called() -> None:
    # In a process of its own: threads of other tests, and what their libraries do where a process forks, ask abstract
    # classes for their subclasses, and so the classes of this test.
    ended = subprocess.run([sys.executable, "-c", SEARCHED, __file__], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    seen, found, kinds = json.loads(ended.stdout)
    assert seen == {}
    assert found >= kinds


def searched_garbage() -> tuple[dict[str, int], int, int]:
    """What a search called, the objects that it found, and the kinds of them."""
    calls = Calls()
    # Where a process forks, Python itself asks every thread object for its hash, in the child.
    kinds = {base: liar(calls, base) for base in FILLED if base is not threading.Thread}
    tracer = Tracer()
    tracer.start()
    gc.collect()
    gc.disable()
    for base, kind in kinds.items():
        cell: list[Any] = [kind(*FILLED[base])]
        cell.append(cell)
    del cell
    calls.listens = True
    search = GarbageSearch(Roots(), tracer)
    assert search.is_done(60)
    found = search.garbage()
    calls.listens = False
    assert found is not None
    return calls.seen, found.objects, len(kinds)


@pytest.mark.long
def test_no_tensor_class_is_asked(load: Load) -> None:
    calls = Calls()
    program = load("HELD = []")
    kept = ("__del__", "__deepcopy__", "__setstate__", "__getattr__", "__set__")
    kind = liar(calls, torch.Tensor, without=kept)

    def fill() -> None:
        for _ in range(10):
            made = torch.Tensor._make_subclass(kind, torch.ones(3000), True)  # noqa: FBT003  (torch's own way)
            program.HELD.append(made)
            program.HELD.append((torch.ones(3, requires_grad=True) * 2).as_subclass(kind))

    assert_untouched(calls, fill, [program.HELD])


def assert_untouched(calls: Calls, fill: Callable[[], None], targets: list[Any]) -> None:
    """Dig for what a program has filled in, whole, and demand that nothing was called and all could be read."""
    fill()
    before, tracer = take_census(Roots()), Tracer()
    tracer.start()
    fill()
    calls.listens = True
    try:
        after = dig(before, tracer, targets)
    finally:
        calls.listens = False
        tracer.stop()
    assert calls.seen == {}
    assert after.unread == {}


def dig(before: Census, tracer: Tracer, targets: list[Any]) -> Census:
    """Everything that the monitor asks of a heap."""
    after = take_census(Roots())
    owners = find_owners(before, after)
    assert any(owner.path.startswith("train.") for owner in owners)
    for owner in owners:
        tracer.find_line(owner.contents.leaves)
        current_contents(after, owner.path)
        added_leaves(owner.container, *container_lengths([owner.container]), before.holdings[owner.path])
    for path, container in after.containers.items():
        if path.startswith("train."):
            tracer.find_line([container])
            open_object(container, Walk(24, lambda _: False, 100))
    for target in targets:
        assert find_holder_chain(target)
    return after


AWKWARD = {
    "sqlite": "import sqlite3\nHELD = [sqlite3.connect(':memory:')]\nHELD[0].close()",
    "cache of a partial": "from functools import lru_cache, partial\nHELD = lru_cache(partial(int))\nHELD('11')",
    "cache of an object": """
        from functools import lru_cache
        class Called:
            def __call__(self, x): return x
        HELD = lru_cache(Called())
        HELD(3)
    """,
    "queue without its deque": """
        import queue
        class Q(queue.Queue):
            def _init(self, size): self.other = []
            def _qsize(self): return 0
        HELD = [Q()]
    """,
    "module is queue": "class Queue: pass\nQueue.__module__ = 'queue'\nHELD = [Queue()]",
    "module is a number": "class Thing:\n    __module__ = 5\nHELD = [Thing()]",
    "module is a property": "class Thing:\n    __module__ = property(lambda self: 1 / 0)\nHELD = [Thing()]",
    "file is a number": "__file__ = 7\nHELD = [1.5]",
    "hidden dict": "class Thing:\n    __dict__ = property(lambda self: 1 / 0)\nHELD = [Thing()]",
    "hidden slot": "class Thing:\n    __slots__ = ('x',)\nThing.x = property(lambda self: 1 / 0)\nHELD = [Thing()]",
    "keys that are no names": "class Thing: pass\nHELD = Thing()\nvars(HELD)[3] = [1.5]",
    "dict of another class": "class D(dict): pass\nclass Thing: pass\nHELD = Thing()\nHELD.__dict__ = D(a=[1.5])",
    "mock": "from unittest import mock\nHELD = [mock.MagicMock(), mock.sentinel.x]",
    "raising iteration": "class S(set):\n    def __iter__(self): raise OSError('no')\nHELD = [S([1.5])]",
}


def test_awkward_objects_are_read_like_any_other(load: Load) -> None:
    for number, source in enumerate(AWKWARD.values()):
        load(source, f"awkward{number}")
    load("KEPT = []", "other")
    census = take_census(Roots())
    assert census.unread == {}
    assert "other.KEPT" in census.holdings
    assert sum(path.startswith("awkward") and path.endswith(".HELD") for path in census.holdings) > 10


class Globals(dict[str, Any]):
    """Globals of code that runs by `exec`, read by code of the program."""

    def get(self, *_arguments: Any) -> Any:
        pytest.fail("code of the program was run")


def test_no_method_of_globals_is_called() -> None:
    def look() -> None:
        before = take_census(Roots())
        space["rows"].extend(bytes(5000) for _ in range(300))
        owners.extend(owner.holders[0] for owner in find_owners(before, take_census(Roots())))

    owners: list[str] = []
    space = Globals(__name__="script", rows=[], look=look)
    exec(compile("look()", "/home/me/script.py", "exec"), space)
    assert "the main program, global rows" in owners


def test_an_object_that_fails_is_counted_and_the_walk_goes_on(load: Load) -> None:
    """An exception whose class lies about its arguments stands for any that nobody has thought of."""
    load("HELD = [1.5]\nKEPT = [[2.5]]")

    walk = Walk(24, lambda _: False, 100)
    walk.openers[id(list)] = failing
    assert open_object([1.5], walk).kind == "opaque"
    assert open_object([2.5], walk).kind == "opaque"
    assert open_object({"a": 1}, walk).kind == "dict"
    assert walk.unread_by_class == {"list (KeyError)": 2}


def failing(_obj: object, _walk: Walk) -> Any:
    raise KeyError("queue")
