"""The objects of a line that runs while memory of C rises have methods that release it."""

import ctypes
import gc
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.diagnose.line_calls import find_line_advice

LIBRARY = """
class Producer:
    def produce(self, text): pass
    def poll(self, timeout=0): pass
    def close(self): pass

class Parser:
    def parse(self, text): pass
    def finish_example(self, example): pass

class Image:
    def read(self): pass
    def close(self): pass
"""
SCRIPT = """
for image in [library.Image()]:
    image.read()
    look()
"""


@pytest.fixture
def library() -> Iterator[ModuleType]:
    """A library whose classes are no code of the user's."""
    module = ModuleType("wirelib")
    sys.modules["wirelib"] = module
    exec(LIBRARY, vars(module))
    yield module
    del sys.modules["wirelib"]


def _calls_here(work: Callable[[Callable[[], Any]], object]) -> str:
    """The calls at the line of `work` that is marked, found while it runs."""
    lines, first = inspect.getsourcelines(work)
    line = first + next(number for number, text in enumerate(lines) if "# here" in text)
    found: list[str] = []
    code = work.__code__
    site = AllocationSite(code.co_filename, line, code.co_qualname.replace("<locals>.", ""), "native")
    work(lambda: found.append(find_line_advice(site)))
    return found[-1]


def test_what_goes_on_is_to_be_served_and_what_each_pass_makes_is_to_be_closed(library: ModuleType) -> None:
    def produce(look: Callable[[], Any]) -> None:
        producer = library.Producer()
        for _ in range(2):
            producer.produce("a")  # here
            look()

    def parse(look: Callable[[], Any]) -> None:
        parser = library.Parser()
        parser.parse("a")  # here
        look()

    def read(look: Callable[[], Any]) -> None:
        for _ in range(2):
            image = library.Image()
            image.read()  # here
            look()

    found = [_calls_here(work) for work in (produce, parse, read)]
    assert found == [
        "Call `producer.poll()` in each pass, if nothing does.",
        "Call `parser.finish_example(example)` in each pass, if nothing does.",
        "Call `image.close()` in each pass, if nothing does.",
    ]


def test_the_rule_for_an_object_of_the_line_is_told_unless_its_call_is_made() -> None:
    def allocate(look: Callable[[], Any]) -> None:
        libc = ctypes.CDLL(None)
        libc.abs(1)  # here
        look()

    def free(look: Callable[[], Any]) -> None:
        libc = ctypes.CDLL(None)
        libc.free(None)  # here
        look()

    told, not_told = _calls_here(allocate), _calls_here(free)
    assert told.startswith("Free what its functions return by the library's own call, such as `libc.free(pointer)`. ")
    assert not_told == ""


def test_a_function_that_has_returned_is_read_with_its_globals(load: Callable[[str], ModuleType]) -> None:
    program = load("""
        import ctypes

        libc = ctypes.CDLL(None)

        def decode(size):
            return libc.abs(size)
    """)
    code = program.decode.__code__
    told = find_line_advice(AllocationSite(code.co_filename, code.co_firstlineno + 1, "decode", "native"))
    assert told.startswith("Free what its functions return by the library's own call, such as `libc.free(pointer)`. ")


def test_what_the_line_makes_is_to_be_closed(library: ModuleType) -> None:
    def read(look: Callable[[], Any]) -> None:
        image = library.Image()  # here
        image.read()
        look()

    assert _calls_here(read) == "Call `image.close()` in each pass, if nothing does."


def test_variables_of_a_closure_and_several_of_a_loop_are_known(library: ModuleType) -> None:
    def read_numbered(look: Callable[[], Any]) -> None:
        for _, image in [(number, library.Image()) for number in range(2)]:
            image.read()  # here
            look()

    def produce_below(look: Callable[[], Any]) -> None:
        producer = library.Producer()

        def send() -> None:
            producer.produce("b")

        for _ in range(2):
            producer.produce("a")  # here
            send()
            look()

    found = [_calls_here(work) for work in (read_numbered, produce_below)]
    assert found == [
        "Call `image.close()` in each pass, if nothing does.",
        "Call `producer.poll()` in each pass, if nothing does.",
    ]


def test_a_script_without_functions_is_told_to_close_what_its_loop_makes(library: ModuleType) -> None:
    found: list[str] = []
    site = AllocationSite("train.py", 3, "<module>", "native")
    names = {"library": library, "look": lambda: found.append(find_line_advice(site))}
    exec(compile(SCRIPT, "train.py", "exec"), names)
    assert found == ["Call `image.close()` in each pass, if nothing does."]


def test_what_the_function_calls_itself_and_what_outlives_a_pass_is_not_named(library: ModuleType) -> None:
    def close(look: Callable[[], Any]) -> None:
        for _ in range(2):
            image = library.Image()
            image.read()  # here
            image.close()
            look()

    def keep(look: Callable[[], Any]) -> None:
        image = library.Image()
        for _ in range(2):
            image.read()  # here
            look()

    assert [_calls_here(work) for work in (close, keep)] == ["", ""]


def test_a_search_for_calls_keeps_no_variable_of_the_program_alive(library: ModuleType) -> None:
    def produce(look: Callable[[], Any]) -> None:
        producer = library.Producer()
        references.append(weakref.ref(producer))
        producer.produce("a")  # here
        look()

    references: list[weakref.ref[Any]] = []
    gc.disable()
    try:
        assert _calls_here(produce) == "Call `producer.poll()` in each pass, if nothing does."
        assert references[0]() is None
    finally:
        gc.enable()
