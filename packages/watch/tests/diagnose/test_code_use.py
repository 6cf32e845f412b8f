"""Functions are read behind their decorators, and nothing that a program defines stops or hangs the reading."""

import weakref
from contextvars import ContextVar
from functools import wraps
from types import CodeType
from typing import Any

import pytest

from flatwater_watch.diagnose.code_use import plain_function, remembered_by_code, required_parameters
from flatwater_watch.diagnose.declared_bounds import lifetime_parameters


def keep(rows: Any, ttl: Any = None) -> tuple[Any, Any]:
    return rows, ttl  # a parameter after whose time something is dropped


@wraps(keep)
def once(*arguments: Any) -> None:
    keep(*arguments)


@wraps(once)
def twice(*arguments: Any) -> None:
    once(*arguments)


def _fail(*_arguments: Any) -> int:
    pytest.fail("code of the program was run")


LookedUp: Any = type("LookedUp", (type,), {"__hash__": _fail})
"""A metaclass of classes that code of the program hashes, when they are looked up."""


class Names(dict[str, Any]):
    """Attributes of a function, read by code of the program."""

    def __contains__(self, name: object) -> bool:
        pytest.fail("code of the program was run")


def test_a_function_is_found_behind_its_decorators() -> None:
    assert plain_function(twice) is keep
    assert plain_function(staticmethod(twice)) is keep
    assert plain_function(len) is None


def test_an_object_of_any_class_is_no_function() -> None:
    assert plain_function(LookedUp("Odd", (), {})()) is None


def test_attributes_of_a_function_are_read_without_code_of_the_program() -> None:
    def odd() -> None: ...

    odd.__dict__ = Names()
    assert plain_function(odd) is odd


def test_the_parameters_of_c_code_are_read_from_its_text() -> None:
    assert required_parameters(vars(ContextVar)["reset"], is_method=True) == "token"
    assert not required_parameters(vars(list)["clear"], is_method=True)
    assert not required_parameters(vars(list)["pop"], is_method=True), "with a default"
    assert required_parameters(setattr, is_method=False) == "...", "they are many"
    assert not required_parameters(3, is_method=True)


def test_a_function_that_is_behind_itself_ends_the_search() -> None:
    def first() -> None: ...

    def second() -> None: ...

    first.__dict__["__wrapped__"], second.__dict__["__wrapped__"] = second, first
    assert plain_function(first) is None


def test_more_defaults_than_parameters_are_read_as_far_as_there_are_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep, "__defaults__", (None, None, None))
    assert lifetime_parameters(keep) == ["ttl"]


def test_the_code_of_a_function_is_read_once_and_not_kept() -> None:
    """The methods of a library's class, each time that its table was compared, took ten times as long as the census."""
    read = list[str]()

    @remembered_by_code
    def name_of(code: CodeType) -> str:
        read.append(code.co_name)
        return code.co_name

    def first() -> None: ...

    space: dict[str, Any] = {}
    exec("def second(): pass", space)
    gone = weakref.ref(space["second"].__code__)
    assert [name_of(code) for code in (first.__code__, space["second"].__code__, first.__code__)] == [*read, "first"]
    assert read == ["first", "second"]
    space.clear()
    assert gone() is None
