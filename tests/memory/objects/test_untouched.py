"""A census calls nothing of the program: all special methods of all kinds of objects are replaced, and none runs."""

import array
import collections
import queue
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from flatwater.memory.diagnose.lines import Tracer
from flatwater.memory.diagnose.owners import added_since, find_owners, held_now
from flatwater.memory.objects.census import Census, take_census
from flatwater.memory.objects.children import look
from flatwater.memory.objects.roots import Roots
from flatwater.memory.objects.view import Walk
from flatwater.memory.watch.holders import holders

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
    """What was called, while it listens."""

    def __init__(self) -> None:
        self.seen: collections.Counter[str] = collections.Counter()
        self.listens = False

    def override(self, bases: tuple[type, ...], name: str) -> Callable[..., Any]:
        """The method of the bases, counted."""
        inherited = next((vars(owner)[name] for base in bases for owner in base.__mro__ if name in vars(owner)), None)

        def called(*given: Any, **named: Any) -> Any:
            if self.listens:
                self.seen[f"{bases[0].__name__}.{name}"] += 1
            if name == "__del__":
                return None
            if inherited is None:
                raise AttributeError(name)
            return inherited.__get__(given[0], type(given[0]))(*given[1:], **named)

        return called


def liar(calls: Calls, *bases: type, without: tuple[str, ...] = ()) -> type:
    """A class that counts the calls of all its special methods, and whose metaclass counts those of its own."""
    names = [name for name in SPECIAL if name not in without]
    of_type = [name for name in SPECIAL if name not in {"__call__", "__del__", "__set_name__", "__prepare__"}]
    meta = type("Meta", (type(bases[0]),), {name: calls.override((type(bases[0]),), name) for name in of_type})
    space: dict[str, Any] = {name: calls.override(bases, name) for name in names}

    def lie(_: object) -> type:
        if calls.listens:
            calls.seen[f"{bases[0].__name__}.__class__"] += 1
        return dict

    space["__class__"] = property(lie)
    return meta(f"Liar{bases[0].__name__.title()}", bases, space)


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
    array.array: ("d", [1.5] * 2000),
    queue.Queue: (7,),
    queue.SimpleQueue: (),
    partial: (print, 1, {}),
    types.SimpleNamespace: (),
    types.ModuleType: ("lazy",),
    BaseException: ("x",),
    np.ndarray: ((40, 50),),
}


@pytest.mark.parametrize("base", FILLED, ids=lambda base: base.__name__)
def test_no_special_method_is_called(load: Load, base: type) -> None:
    calls = Calls()
    program = load("HELD = []\nNAMES = {}")
    kind = liar(calls, base)

    def fill() -> None:
        for n in range(40):
            made = kind(*FILLED[base])
            program.HELD.extend((made, bytearray(5000)))
            program.NAMES[f"{n}"] = made

    assert_untouched(calls, fill, [program.HELD, program.NAMES])


def test_no_tensor_class_is_asked(load: Load) -> None:
    calls = Calls()
    program = load("HELD = []")
    kept = ("__del__", "__deepcopy__", "__setstate__", "__getattr__", "__set__")
    kind = liar(calls, torch.Tensor, without=kept)

    def fill() -> None:
        for _ in range(40):
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
        tracer.where(owner.newest)
        held_now(after, owner.path)
        added_since(owner.container, before.holdings[owner.path])
    for path, container in after.live.items():
        if path.startswith("train."):
            tracer.where([container])
            look(container, Walk(24, lambda _: False, 100))
    for target in targets:
        assert holders(target)
    return after


AWKWARD = {
    "sqlite": "import sqlite3\nHELD = [sqlite3.connect(':memory:')]",
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


@pytest.mark.parametrize("source", AWKWARD.values(), ids=AWKWARD)
def test_an_awkward_object_is_read_like_any_other(load: Load, source: str) -> None:
    load(source)
    load("KEPT = []", "other")
    census = take_census(Roots())
    assert census.unread == {}
    assert "other.KEPT" in census.holdings


def test_an_object_that_fails_is_counted_and_the_walk_goes_on(load: Load) -> None:
    """An exception whose class lies about its arguments stands for any that nobody has thought of."""
    load("HELD = [1.5]\nKEPT = [[2.5]]")

    walk = Walk(24, lambda _: False, 100)
    walk.looks[id(list)] = failing
    assert look([1.5], walk).kind == "opaque"
    assert look([2.5], walk).kind == "opaque"
    assert look({"a": 1}, walk).kind == "dict"
    assert walk.unread == {"list (KeyError)": 2}


def failing(_obj: object, _walk: Walk) -> Any:
    raise KeyError("queue")
