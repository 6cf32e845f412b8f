"""The pytest plugin: `@pytest.mark.flat(...)`, `@pytest.mark.flatwater(...)` and `expect_freed`.

Every test run of an environment in which flatwater is installed imports this module, so it imports nothing heavy;
measurement and search are loaded by the first test that asks for them.
"""

import inspect
import sys
import warnings
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

from flatwater_watch.errors import FlatwaterError
from flatwater_watch.faces import freed_objects

if TYPE_CHECKING:
    from collections.abc import Sequence

Check = Callable[[Callable[[], object], "Sequence[tuple[str, object]]"], str | None]
"""A function that runs the code and returns a text on its growth, None if that is allowed.

Its second argument are objects with names that may hold what grows: the fixtures of a test.
"""
FLAT, BUDGET = "flat", "flatwater"
"""Names of the two marks."""
MARK_HELP = (
    "flat(rounds=50, growth='1 MiB', warmup=None): run the test `rounds` times; it fails if the memory that it holds \
grows by more after the warm-up (rounds; None: a third of them).",
    "flatwater(max_growth='1 MiB'): the test fails if it leaves more in memory each time that it runs: once if it does \
not, three times if it does.",
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks."""
    for mark in MARK_HELP:
        config.addinivalue_line("markers", mark)


@pytest.fixture
def expect_freed() -> Callable[[object], None]:
    """Give the test a function for objects: the test fails at its end if one is still alive, and names its holders."""
    return freed_objects.expect_freed


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run the test, then check the objects of `expect_freed`; a marked test that cannot be repeated fails at once."""
    # `tryfirst` makes this the outermost wrapper. After `yield` the others, which may hold objects of the test, have
    # ended, and the test's local variables are gone.
    mark = _find_mark(item)
    if mark is not None and not _is_repeatable(item):
        pytest.fail(
            f"{mark.name}: {item.name} cannot be repeated. Mark a plain test function, not a TestCase's.", pytrace=False
        )
    with freed_objects.gather_expectations() as expected_objects:
        result = yield
    if expected_objects:
        from flatwater_watch.agent.guard import Guard  # noqa: PLC0415  (see the module's docstring)

        guard = Guard(lambda sentence: _warn_user(item, sentence))
        complaints = guard.run_or_default(
            list[str](), lambda: freed_objects.describe_survivors(expected_objects, _named_fixtures(item))
        )
        if complaints:
            pytest.fail("\n".join(complaints), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Put a function that repeats a marked test, as its mark says, in the place of the test's function for the call."""
    # `tryfirst`, before plugins that wrap the test's function themselves: they then wrap the function that repeats it.
    mark = _find_mark(pyfuncitem)
    if mark is None:
        return (yield)
    test_function = pyfuncitem.obj
    pyfuncitem.obj = _repeating_test(test_function, mark, pyfuncitem)
    try:
        return (yield)
    finally:
        pyfuncitem.obj = test_function


def _find_mark(item: pytest.Item) -> pytest.Mark | None:
    return item.get_closest_marker(FLAT) or item.get_closest_marker(BUDGET)


def _is_repeatable(item: pytest.Item) -> bool:
    """Return whether a test is a plain function or method; pytest runs the tests of a TestCase in another way."""
    if not isinstance(item, pytest.Function):
        return False
    unittest: Any = sys.modules.get("unittest")  # not imported: that would take longer than all other imports
    return item.cls is None or unittest is None or not issubclass(item.cls, unittest.TestCase)


def _repeating_test(test_function: Callable[..., Any], mark: pytest.Mark, item: pytest.Function) -> Callable[..., None]:
    """Make a function in place of the test's, which repeats the test as its mark asks, and fails if memory grows."""
    if inspect.iscoroutinefunction(test_function):
        pytest.fail(
            f"{mark.name}: {item.name} is asynchronous. Run the loop inside of a plain test function.", pytrace=False
        )

    def test(**arguments: Any) -> None:  # noqa: ANN401  (whatever its fixtures are)
        """Run the test as often as its mark says, with the arguments that pytest gives."""
        from flatwater_watch.agent.guard import Guard  # noqa: PLC0415  (see the module's docstring)

        has_run = False

        def run() -> None:
            nonlocal has_run
            has_run = True
            test_function(**arguments)

        find_growth = _make_check(mark, item.name)
        # The guard makes warnings of faults of the watch, and raises exceptions of the test itself (`program`) again.
        guard = Guard(lambda sentence: _warn_user(item, sentence), program=[run.__code__])
        message = guard.run_or_default(None, lambda: find_growth(run, _named_fixtures(item)))  # None: no growth
        if not has_run:  # the watch failed before the first run: the test must still run once
            run()
        if message is not None:
            pytest.fail(f"{item.name} {message}", pytrace=False)

    return test


def _warn_user(item: pytest.Item, sentence: str) -> None:
    """Add a sentence to pytest's summary of warnings."""
    # Not by `warnings.warn`: under `-W error` it would fail the user's test.
    file, line, _ = item.location
    warning = warnings.WarningMessage(
        pytest.PytestWarning(f"flatwater: {sentence}"), pytest.PytestWarning, file, line or 0
    )
    item.ihook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": warning, "when": "runtest", "nodeid": item.nodeid, "location": None}
    )


def _make_check(mark: pytest.Mark, name: str) -> Check:
    """Return the check of a mark, which runs the test repeatedly; a mark with wrong arguments fails the test."""
    from flatwater_watch.faces.flatness import check_max_growth, flat_plan, run_flatness_test, run_repeated_growth_test  # noqa: PLC0415  (as above)

    try:
        if mark.name == FLAT:
            plan = flat_plan(*mark.args, **mark.kwargs)
            return lambda run, extra_roots: run_flatness_test(run, plan, extra_roots)
        allowance = check_max_growth(*mark.args, **mark.kwargs)
        return lambda run, extra_roots: run_repeated_growth_test(run, allowance, extra_roots)
    except FlatwaterError as fault:
        problem = str(fault)
    except TypeError as fault:  # an argument that the mark does not have
        parameters = ", ".join(inspect.signature(flat_plan if mark.name == FLAT else check_max_growth).parameters)
        # Python's message, such as `flat_plan() got an unexpected keyword argument 'x'`, without the function's name.
        problem = f"{str(fault).partition('() ')[2]}. It takes {parameters}"
    pytest.fail(f"@pytest.mark.{mark.name} of {name}: {problem}", pytrace=False)


def _named_fixtures(item: pytest.Item) -> list[tuple[str, object]]:
    """Return a test's fixtures and its instance, each with a name, but no objects of pytest, which lead everywhere.

    The list is empty if the test is no function.
    """
    if not isinstance(item, pytest.Function):
        return []
    named_objects = [(f"fixture {name}", value) for name, value in item.funcargs.items()]
    if item.instance is not None:
        named_objects.append(("the test's self", item.instance))
    return [(name, value) for name, value in named_objects if not _is_of_pytest(value)]


def _is_of_pytest(value: object) -> bool:
    package = type(value).__module__.partition(".")[0]
    return package in {"_pytest", "pytest"}
