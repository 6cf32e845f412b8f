"""What no variable of a module or of a frame holds: context variables, and finalizers with what they were given."""

import asyncio
import weakref
from contextvars import ContextVar
from typing import Any

from flatwater.memory.objects.roots import Roots, named_roots


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


def test_what_a_finalizer_was_given_is_reached() -> None:
    resource = Resource()
    given = [7, 8, 9]
    ends = weakref.finalize(resource, print, given)
    try:
        table = roots()["finalizers of weakref.finalize"]
        assert any(one.args[0] is given for one in table.values() if one.args)
    finally:
        ends.detach()
