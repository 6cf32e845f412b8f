"""What no variable of a module or of a frame holds: context variables, and finalizers with what they were given."""

import asyncio
import contextvars
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.children import open_object
from flatwater_watch.heap.roots import Roots, named_roots
from flatwater_watch.heap.walk import begin_walk, release_objects_


class Resource:
    pass


def roots() -> dict[str, Any]:
    return dict(named_roots(Roots()))


def test_the_value_of_a_context_variable_is_a_root() -> None:
    history: ContextVar[list[int]] = ContextVar("history")
    token = history.set([1, 2, 3])
    try:
        assert roots()["context variable history"] == [1, 2, 3]
    finally:
        history.reset(token)
    assert "context variable history" not in roots()


def test_the_values_of_a_waiting_task_are_roots() -> None:
    basket: ContextVar[list[int]] = ContextVar("basket")

    async def customer() -> None:
        basket.set([4, 5])
        await asyncio.sleep(60)

    async def shop() -> dict[str, Any]:
        task = asyncio.create_task(customer())
        await asyncio.sleep(0)
        found = roots()
        task.cancel()
        return found

    assert asyncio.run(shop())["context variable basket"] == [4, 5]


def test_a_context_variable_holds_its_values_in_the_contexts_of_all_tasks() -> None:
    """The values were reached by the task that happened to hold their context, and through the tables within that."""
    basket: ContextVar[list[int]] = ContextVar("basket")
    of_task, of_context = [4, 5], [6, 7, 8]
    identities = id(of_task), id(of_context)

    async def customer() -> None:
        basket.set(of_task)
        await asyncio.sleep(60)

    async def shop() -> dict[int, str]:
        nonlocal of_task, of_context
        task = asyncio.create_task(customer())
        await asyncio.sleep(0)
        kept = contextvars.copy_context()
        kept.run(basket.set, of_context)
        of_task = of_context = []
        census = take_census(Roots(named=(("task", task),)))
        task.cancel()
        return {id(container): path for path, container in census.containers.items()}

    paths = asyncio.run(shop())
    assert paths[identities[0]].endswith("basket.<value>")
    assert paths[identities[1]].endswith("kept[*]")


def test_no_context_is_kept_between_the_slices_of_a_census() -> None:
    """A task that ended while a census went on kept its values until the census ended."""

    class Basket:
        """What a task has in its context."""

    basket: ContextVar[Basket] = ContextVar("basket")

    async def customer() -> weakref.ref[Basket]:
        goods = Basket()
        basket.set(goods)
        await asyncio.sleep(0)
        return weakref.ref(goods)

    async def shop() -> tuple[bool, bool]:
        task = asyncio.create_task(customer())
        await asyncio.sleep(0)
        heap_walk = begin_walk(Roots(), sampled_items=24, maximum=100)
        heap_walk.groups.clear()
        values = [value for _, value in open_object(basket, heap_walk.walk).parts]
        was_found = any(type(value) is Basket for value in values)
        values.clear()
        release_objects_(heap_walk)
        reference = await task
        del task
        await asyncio.sleep(0)  # the loop refers to the task until then
        return was_found, reference() is None

    assert asyncio.run(shop()) == (True, True)


class Runner:
    """As trio's: slots alone."""

    __slots__ = ("tasks",)

    def __init__(self, tasks: set[Any]) -> None:
        self.tasks = tasks


class Task:
    __slots__ = ("_counter", "coro")

    def __init__(self, coro: Any, counter: int) -> None:
        self.coro, self._counter = coro, counter


class RunContext(threading.local):
    runner: Runner


def test_what_a_task_of_trio_works_on_is_a_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library need not be installed: one that keeps its tasks like trio stands in its place."""

    @types.coroutine
    def pause() -> Iterator[None]:
        yield

    async def send() -> None:
        waiting = [6, 7]
        await pause()
        waiting.clear()

    context, coroutine = RunContext(), send()
    coroutine.send(None)
    module = types.ModuleType("trio._core._run")
    vars(module)["GLOBAL_RUN_CONTEXT"] = context
    monkeypatch.setitem(sys.modules, "trio._core._run", module)
    name = f"{send.__qualname__.rpartition('.')[2]}() in {Path(__file__).name}: waiting"
    assert not [path for path in roots() if path.endswith(name)]  # no run is under way
    others = [send() for _ in range(8)]
    for other in others:
        other.send(None)
    context.runner = Runner({Task(each, number) for number, each in enumerate([coroutine, *others])})
    first = min(context.runner.tasks, key=lambda task: task._counter)
    first.coro.cr_frame.f_locals["waiting"].append(8)
    found = [value for path, value in named_roots(Roots()) if path.endswith(name)]
    assert found == [[6, 7, 8], *([[6, 7]] * 8)]  # in the order in which they began
    for each in (coroutine, *others):
        each.close()


class Greenlet:
    """As that of the library: its frame is kept by C code."""

    __slots__ = ("gr_frame",)


class Worker(Greenlet):
    """As gevent's: a class that extends the library's."""


def test_the_variables_of_a_waiting_greenlet_are_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library need not be installed: one that keeps a frame like it stands in its place."""

    def order() -> Iterator[None]:
        basket = [6, 7]
        yield
        basket.clear()

    waiting, worker = order(), Worker()
    next(waiting)
    worker.gr_frame = waiting.gi_frame  # type: ignore[attr-defined]
    name = f"{order.__qualname__.replace('<locals>.', '')}() in {Path(__file__).name}: basket"
    assert name not in roots()  # the library is not loaded
    module = types.ModuleType("greenlet._greenlet")
    vars(module)["greenlet"] = Greenlet
    monkeypatch.setitem(sys.modules, "greenlet._greenlet", module)
    assert roots()[name] == [6, 7]


def test_what_a_finalizer_was_given_is_reached() -> None:
    resource = Resource()
    given = [7, 8, 9]
    ends = weakref.finalize(resource, print, given)
    try:
        table = roots()["finalizers of weakref.finalize"]
        assert any(one.args[0] is given for one in table.values() if one.args)
    finally:
        ends.detach()
