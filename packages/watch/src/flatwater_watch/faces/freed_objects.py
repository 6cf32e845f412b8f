"""The function `expect_freed(obj)`: a test fails at its end if the object is still alive, and names its holders.

The pytest plugin imports this module in every test run, so it is small; the search for the holders is loaded when an
object is found alive.
"""

import gc
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from flatwater_watch.errors import ConfigError


@dataclass(frozen=True)
class ExpectedObject:
    """An object that must be gone when the test ends."""

    reference: weakref.ref[Any] = field(compare=False)
    class_words: str
    """Name of its class."""
    caller: str
    """File and line of the call, such as `test_cache.py:12`."""


_expectations: list[list[ExpectedObject]] = []
"""Expected objects of each running test, the innermost last, as a test may run pytest itself."""


def expect_freed(obj: object) -> None:
    """Have the running test fail at its end if the object is still alive, even after a garbage collection.

    Args:
        obj: any object that can be weakly referenced: an instance of a class, a function, array, tensor or set.

    Raises:
        ConfigError: no test is running under pytest with the plugin, or the object cannot be weakly referenced.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    kind = type(obj).__qualname__
    if not _expectations:
        raise ConfigError(
            f"expect_freed({kind}): no test is running. Call it in a test that pytest runs, with flatwater installed "
            "there, or load the plugin by `pytest -p flatwater_watch.faces.pytest_plugin`."
        )
    try:
        reference = weakref.ref(obj)
    except TypeError as fault:
        raise ConfigError(
            f"expect_freed: a {kind} cannot be watched, because Python has no weak references to it. "
            "Give the object that owns it, or an instance of a class that is kept inside of it."
        ) from fault
    frame = sys._getframe(1)  # noqa: SLF001  (the only way up the stack)
    caller = f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"
    running_test_expectations = _expectations[-1]
    running_test_expectations.append(ExpectedObject(reference, class_words=kind, caller=caller))


@contextmanager
def gather_expectations() -> Iterator[list[ExpectedObject]]:
    """Yield a list, to which `expect_freed` appends objects during the block."""
    expected: list[ExpectedObject] = []
    _expectations.append(expected)
    try:
        yield expected
    finally:
        _expectations.remove(expected)


def describe_survivors(expected: Sequence[ExpectedObject], extra_roots: Sequence[tuple[str, object]] = ()) -> list[str]:
    """Return a text for each object that is still alive, with its class and its holders.

    Args:
        expected: list of `gather_expectations`; its block must have ended, so that local variables are gone.
        extra_roots: objects with a name that may be holders and are not variables of the program: the fixtures of a
            test.
    """
    if any(expected_object.reference() is not None for expected_object in expected):
        gc.collect()
    texts = [_survivor_text(expected_object, extra_roots) for expected_object in expected]
    return [text for text in texts if text is not None]


def _survivor_text(expected: ExpectedObject, extra_roots: Sequence[tuple[str, object]]) -> str | None:
    """Return the failure text for an object that is still alive, with its holders; None if it was freed."""
    survivor = expected.reference()
    if survivor is None:
        return None
    from flatwater_watch.faces.holders import find_holder_chain  # noqa: PLC0415  (see the module's docstring)

    chain = find_holder_chain(survivor, extra_roots)
    lines = [
        f"{expected.class_words} is still alive after a garbage collection; {expected.caller} expects it to be freed."
    ]
    # The first line has the label; each reference is indented more than the one that holds it.
    for depth, text in enumerate(chain):
        label = "held by" if depth == 0 else ""
        lines.append(f"  {label:8}{'  ' * depth}{text}")
    lines.append("  do      Remove the last of these references that should not be there, or make it weak (weakref).")
    return "\n".join(lines)
