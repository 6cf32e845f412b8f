"""The objects of a line that runs while memory of C rises have methods that release it."""

import ctypes
import gc
import inspect
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from flatwater_watch.diagnose.evidence import LineUse
from flatwater_watch.diagnose.line_calls import LineObjects

LIBRARY = """
class Producer:
    def produce(self, text): pass
    def poll(self, timeout=0): pass
    def close(self): pass

class Parser:
    def parse(self, text): pass
    def finish_example(self, example): pass

class Index:
    __delattr__ = object.__delattr__  # as many a class of C has
    def __init__(self, pointer): self._pointer = pointer
    def insert(self, number): pass
    def delete(self, number): pass
    def close(self): pass

class Image:
    def read(self): pass
    def close(self): pass
"""
SCRIPT = """
for image in [library.Image(), library.Image()]:
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


def _use_here(work: Callable[[Callable[[], Any]], object]) -> LineUse:
    """What is known of the objects of the line of `work` that is marked, where memory rises before each `look()`."""
    lines, first = inspect.getsourcelines(work)
    line = first + next(number for number, text in enumerate(lines) if "# here" in text)
    place = (work.__code__.co_filename, line, work.__code__.co_qualname)
    objects, found = LineObjects(), list[LineUse]()

    def look() -> None:
        objects.note_objects_(sys._getframe(1), place, 1)
        found.append(objects.describe_use(place))

    work(look)
    return found[-1]


def _calls_here(work: Callable[[Callable[[], Any]], object]) -> str:
    return _use_here(work).advice


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
    objects, place = LineObjects(), ("train.py", 3, "<module>")
    names = {"library": library, "look": lambda: objects.note_objects_(sys._getframe(1), place, 1)}
    exec(compile(SCRIPT, "train.py", "exec"), names)
    assert objects.describe_use(place).advice == "Call `image.close()` in each pass, if nothing does."


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


class Shop:
    def __init__(self, index: Any) -> None:
        self.index = index


ADDRESS = 0x7F00_0000_1000


def test_one_object_of_c_that_stays_is_the_owner_with_its_calls_that_let_go(library: ModuleType) -> None:
    def add(look: Callable[[], Any]) -> None:
        shop = Shop(library.Index(ADDRESS))
        for number in range(2):
            shop.index.insert(number)  # here
            look()

    use = _use_here(add)
    assert use.owner.endswith("add() in test_line_calls.py: shop.index")
    assert use.class_name == "Index"
    assert use.advice.startswith("Call `shop.index.delete(number)` for each that is done with. wirelib keeps it")


def test_one_that_the_line_gives_is_the_owner_if_it_calls_none_that_stays(library: ModuleType) -> None:
    def score(look: Callable[[], Any]) -> None:
        packer = zlib.compressobj()
        for _ in range(2):
            parser = library.Parser()
            parser.parse(packer)  # here
            look()

    assert _use_here(score).owner.endswith("score() in test_line_calls.py: packer")


def test_no_owner_is_sure_of_two_or_of_one_seen_once_or_where_the_line_makes_another(library: ModuleType) -> None:
    def merge(look: Callable[[], Any]) -> None:
        first, second = library.Index(ADDRESS), library.Index(ADDRESS + 8)
        for _ in range(2):
            first.insert(second.delete(1))  # here
            look()

    def once(look: Callable[[], Any]) -> None:
        index = library.Index(ADDRESS)
        index.insert(1)  # here
        look()

    def copy(look: Callable[[], Any]) -> None:
        packer = zlib.compressobj()
        for _ in range(2):
            other = packer.copy()  # here
            look()
        del other

    def anew(look: Callable[[], Any]) -> None:
        for _ in range(2):
            index = library.Index(ADDRESS)
            index.insert(1)  # here
            look()

    assert [_use_here(work).owner for work in (merge, once, copy, anew)] == [""] * 4
