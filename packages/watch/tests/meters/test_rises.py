"""Which line runs while resident memory rises: of what C code allocates and keeps, not of what it gives back."""

import ctypes
import inspect
import math
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from flatwater_watch.meters import rises as module
from flatwater_watch.meters.rises import LinePlace, RiseRecorder

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
SIZE = 3 << 20
SECONDS = 600.0
"""As many as any machine needs: the allocator is asked at each line, however slow it is."""


@pytest.fixture(autouse=True)
def _mapped() -> Iterator[None]:
    """Blocks lie in no hole of the heap: its pages may be given back since tests before, and would count twice.

    Holes are filled until the allocator maps a block, which a bit of its size says. A run that a test before has made
    in this process has forbidden the allocator to map any.
    """
    libc.mallopt(-4, 1 << 16)  # M_MMAP_MAX, its default
    libc.mallopt(-3, SIZE)  # M_MMAP_THRESHOLD, which rises with what is freed until it is set
    filling = [libc.malloc(SIZE)]
    while not ctypes.c_size_t.from_address(filling[-1] - 8).value & 2:
        filling.append(libc.malloc(SIZE))
    yield
    for block in filling:
        libc.free(block)
    libc.mallopt(-3, 32 << 20)  # how far it may rise by itself


def keep(size: int) -> int:
    block: int = libc.malloc(size)  # rises here
    ctypes.memset(block, 1, size)
    return block


def fill(address: int, size: int) -> None:
    ctypes.memset(address, 1, size)


def borrow(size: int) -> None:
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    libc.free(block)


def record_rises(work: Callable[[], Any], end: tuple[str, int] | None = None) -> RiseRecorder:
    rises = RiseRecorder(lambda file: file == __file__, maximum_seconds=SECONDS, maximum_query_seconds=math.inf)
    assert rises.begin(end)
    try:
        work()
    finally:
        rises.end()
    return rises


def test_the_line_of_what_is_kept_is_told_and_not_that_of_what_is_given_back() -> None:
    kept: list[int] = []

    def work() -> None:
        for _ in range(5):
            borrow(2 * SIZE)
            kept.append(keep(SIZE))
            borrow(3 * SIZE)

    place = record_rises(work).main_line(minimum_share=0.5, minimum_rises=3)
    for block in kept:
        libc.free(block)
    source, first = inspect.getsourcelines(keep)
    line = first + next(n for n, text in enumerate(source) if "rises here" in text)
    assert place == (__file__, line, "keep")


def test_what_goes_after_a_copy_was_made_of_it_does_not_hide_the_copy() -> None:
    kept: list[int] = []

    def work() -> None:
        for _ in range(5):
            message = [keep_message() for _ in range(2)]
            kept.append(keep(SIZE))
            free_all(message)

    place = record_rises(work).main_line(minimum_share=0.5, minimum_rises=3)
    for block in kept:
        libc.free(block)
    assert place is not None
    assert place[2] == "keep"


def test_what_goes_with_others_a_round_later_does_not_hide_what_stays() -> None:
    """An image keeps its file, and its cache is freed when the next image has taken its place, with an array."""
    kept: list[int] = []

    def work() -> None:
        caches: list[int] = []
        for number in range(6):
            array = libc.malloc(SIZE)
            kept.append(keep(SIZE + 40_960 * (3 + number)))
            free_all([array, *caches])
            caches = [libc.malloc(SIZE + 4096 * (number + 2))]
        free_all(caches)

    place = record_rises(work).main_line(minimum_share=0.5, minimum_rises=3)
    for block in kept:
        libc.free(block)
    assert place is not None
    assert place[2] == "keep"


def test_of_two_lines_that_leak_as_much_the_first_is_told() -> None:
    kept: list[int] = []

    def work() -> None:
        for _ in range(5):
            kept.append(libc.malloc(SIZE))
            kept.append(libc.malloc(SIZE + 4096))

    place = record_rises(work).main_line(minimum_share=0.3, minimum_rises=3)
    for block in kept:
        libc.free(block)
    _, first = inspect.getsourcelines(test_of_two_lines_that_leak_as_much_the_first_is_told)
    assert place is not None
    assert place[1] == first + 5


def keep_message() -> int:
    block: int = libc.malloc(SIZE + (1 << 16))
    ctypes.memset(block, 1, SIZE + (1 << 16))
    return block


def free_all(blocks: list[int]) -> None:
    any(map(libc.free, blocks))


def before(kept: list[int]) -> object:
    column = keep(SIZE)
    kept.append(column)
    return object()  # the end of before


def after(kept: list[int]) -> object:
    handle = object()  # the end of after
    kept.append(keep(SIZE))
    return handle


def within(kept: list[int]) -> object:
    handle = [sum(0 for _ in kept), keep(SIZE)]  # the end of within
    kept.append(handle[1])
    return handle


@pytest.mark.parametrize(("function", "early"), [(before, True), (after, False), (within, True)])
def test_what_comes_after_the_line_that_is_asked_for_is_not_told(function: Callable[..., Any], *, early: bool) -> None:
    kept: list[int] = []
    source, first = inspect.getsourcelines(function)
    end = first + next(n for n, text in enumerate(source) if "the end of" in text)
    place = record_rises(lambda: [function(kept) for _ in range(5)], (__file__, end)).main_line(
        minimum_share=0.5, minimum_rises=3
    )
    elsewhere = record_rises(lambda: [kept.append(keep(SIZE)) for _ in range(5)], (__file__, end)).main_line(
        minimum_share=0.5, minimum_rises=3
    )
    for block in kept:
        libc.free(block)
    assert (place is not None and place[2] == "keep") == early
    assert elsewhere is None, "what another function makes is not of this one"


def test_what_a_library_gains_belongs_to_the_line_that_calls_it() -> None:
    kept: list[Any] = []
    library: dict[str, Any] = {"keep": keep, "kept": kept, "SIZE": SIZE}
    source = "def load():\n    block = keep(SIZE)\n    kept.append(block)\n"
    exec(compile(source, "/usr/lib/somelib.py", "exec"), library)

    def work() -> None:
        for _ in range(5):
            library["load"]()

    rises = RiseRecorder(
        lambda file: file == "/usr/lib/somelib.py", maximum_seconds=SECONDS, maximum_query_seconds=math.inf
    )  # it plays the user, and this file the library
    assert rises.begin()
    try:
        work()
    finally:
        rises.end()
    for block in kept:
        libc.free(block)
    assert rises.main_line(minimum_share=0.5, minimum_rises=3) == ("/usr/lib/somelib.py", 2, "load")


def test_one_rise_names_no_line() -> None:
    kept: list[int] = []
    place = record_rises(lambda: kept.append(keep(SIZE))).main_line(minimum_share=0.5, minimum_rises=3)
    libc.free(kept[0])
    assert place is None


def test_a_debugger_of_the_program_is_left_alone() -> None:
    def own(_frame: FrameType, _event: str, _given: object) -> None:
        pass

    rises = RiseRecorder(lambda _: True, maximum_seconds=SECONDS, maximum_query_seconds=math.inf)
    before = sys.gettrace()
    sys.settrace(own)
    try:
        assert not rises.begin()
        assert not rises.running
        rises.end()
        assert sys.gettrace() is own
    finally:
        sys.settrace(before)


def test_one_that_the_program_sets_meanwhile_stays() -> None:
    def own(_frame: FrameType, _event: str, _given: object) -> None:
        pass

    rises = RiseRecorder(lambda _: True, maximum_seconds=SECONDS, maximum_query_seconds=math.inf)
    assert rises.begin()
    sys.settrace(own)
    try:
        rises.end()
        assert sys.gettrace() is own
    finally:
        sys.settrace(None)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="frames keep no dict of variables there")
def test_variables_are_held_no_longer_than_the_program_holds_them() -> None:
    class Large:
        gone = False

        def __del__(self) -> None:
            Large.gone = True

    def work() -> bool:
        one = Large()
        two = one
        del one, two
        return Large.gone

    rises = RiseRecorder(lambda file: file == __file__, maximum_seconds=SECONDS, maximum_query_seconds=math.inf)
    assert rises.begin()
    try:
        assert work()
    finally:
        rises.end()


def test_a_table_that_is_made_large_at_once_rises_where_it_is_filled() -> None:
    def work() -> None:
        for row in range(5):
            fill(table + row * SIZE, SIZE)

    table = libc.malloc(32 * SIZE)
    place = record_rises(work).main_line(minimum_share=0.5, minimum_rises=3)
    libc.free(table)
    assert place is not None
    assert place[2] == "fill"


def test_the_frame_of_a_line_that_rises_is_passed_on_also_when_it_runs_another_function() -> None:
    noted: list[tuple[str, int, bool]] = []
    kept: list[int] = []

    def note(frame: FrameType, line: LinePlace, calls: int) -> None:
        noted.append((frame.f_code.co_name, calls, frame.f_code.co_qualname == line[2]))

    def work() -> None:
        for _ in range(2):
            block = libc.malloc(SIZE) + call_back()
            kept.append(block)

    def call_back() -> int:
        return 0

    rises = RiseRecorder(lambda file: file == __file__, note, maximum_seconds=SECONDS, maximum_query_seconds=math.inf)
    assert rises.begin()
    work()
    rises.end()
    for block in kept:
        libc.free(block)
    assert noted.count(("work", 1, True)) >= 2
    assert all(is_of_line for _, _, is_of_line in noted)


def keep_when_asked(asked: threading.Event, done: threading.Event, kept: list[int]) -> None:
    while asked.wait(60) and len(kept) < 5:
        asked.clear()
        kept.append(keep(SIZE))
        done.set()


def test_the_line_of_another_thread_is_told_and_the_line_that_waits_for_it_is_known_to_wait() -> None:
    asked, done, kept = threading.Event(), threading.Event(), list[int]()
    thread = threading.Thread(target=keep_when_asked, args=(asked, done, kept), daemon=True)
    thread.start()

    def await_block() -> None:
        done.clear()
        assert asked.set() is None and done.wait(60)  # noqa: PT018  (one line, at which all comes)

    def record(rounds: int, *, in_other_threads: bool) -> LinePlace | None:
        assert rises.begin(in_other_threads=in_other_threads)
        assert not in_other_threads or sys.gettrace() is None
        for _ in range(rounds):
            await_block()
        rises.end()
        return rises.main_line(minimum_share=0.5, minimum_rises=1)

    rises = RiseRecorder(lambda file: file == __file__, maximum_seconds=SECONDS, maximum_query_seconds=math.inf)
    waiting = record(2, in_other_threads=False)
    assert waiting is not None
    assert waiting[2].endswith("await_block")
    assert rises.waits(waiting)
    working = record(2, in_other_threads=True)
    await_block()
    asked.set()
    thread.join(60)
    for block in kept:
        libc.free(block)
    assert working is not None
    assert working[2] == "keep"
    line = inspect.getsourcelines(keep)[1] + 2
    assert not record_rises(lambda: libc.free(keep(SIZE))).waits((__file__, line, "keep")), "it works itself"


def test_threads_are_left_alone_where_one_has_a_tracer_of_calls_alone() -> None:
    """Its frames show nothing of it, and it would be replaced."""
    traces, asked, seen = threading.Event(), threading.Event(), list[object]()

    def tracer(*_: object) -> None:
        return None

    def trace() -> None:
        sys.settrace(tracer)
        traces.set()
        asked.wait(60)
        seen.append(sys.gettrace())

    rises = RiseRecorder(lambda file: file == __file__, maximum_seconds=SECONDS, maximum_query_seconds=math.inf)
    thread = threading.Thread(target=trace)
    thread.start()
    assert traces.wait(60)
    begun = rises.begin(in_other_threads=True)
    asked.set()
    thread.join(60)
    assert (begun, seen) == (False, [tracer])
    for _ in range(2):  # the second time too, though a thread that slept meanwhile still has the recorder
        assert rises.begin(in_other_threads=True)
        rises.end()


def test_what_the_watch_gains_itself_is_left_out() -> None:
    rises = RiseRecorder(lambda file: file == __file__, maximum_seconds=SECONDS, maximum_query_seconds=math.inf)
    kept: list[int] = []
    assert rises.begin()
    try:
        kept += [(libc.malloc(SIZE), rises.skip_current_gain())[0] for _ in range(5)]
    finally:
        rises.end()
    for block in kept:
        libc.free(block)
    place = rises.main_line(minimum_share=0.5, minimum_rises=3)
    assert place is None or place[2] != "test_what_the_watch_gains_itself_is_left_out"


def test_an_answer_that_is_not_asked_for_costs_no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a heap whose answers take long the pages alone are read at each line, and half a second is enough for many."""
    monkeypatch.setattr(module, "last_seconds", lambda: 0.01)
    rises = RiseRecorder(lambda file: file == __file__, maximum_seconds=0.5, maximum_query_seconds=5e-4)
    assert rises.begin()
    rises.end()
    assert rises._maximum_events > 10 * (0.5 / 0.01)
