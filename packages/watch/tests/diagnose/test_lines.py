"""The line that made an object: of the user's program, whatever library the memory comes from."""

import ctypes
import sys
import sysconfig
import threading
import tracemalloc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from watched import FLAT

from flatwater_watch.diagnose import lines
from flatwater_watch.diagnose.evidence import Evidence
from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.diagnose.lines import FRAMES, NativeLineSearch, Tracer
from flatwater_watch.meters.allocator import main_heap
from flatwater_watch.series.slope import Slope, thin_evenly
from flatwater_watch.thresholds import MIB

SOURCE = """
from dataclasses import dataclass, field, make_dataclass

import numpy as np
import torch


class Agent:
    def learn(self, n):
        return [torch.zeros(n) + 1 for _ in range(2)][-1]


def loss(w, x):
    hidden = (x @ w).exp()  # the graph saves 100 times more than the loss holds
    return (hidden * 2).sum()


def window(n):
    return np.ones((n, n))


def view(n):
    return window(n)[:1]


def text(n):
    return "x" * n


class Title(str):
    pass


def label(n):
    return f"label {n}"


def title(n):
    text = Title(f"{n:1000}")
    text.page = [n]
    return text


def listener(n):
    rows = [n] * 1000
    return lambda event: rows[event]


def record(n):
    return {"step": n, "reward": float(n)}


def model(name):
    return make_dataclass(name, ["x", "y"])


@dataclass
class Row:
    values: list[int] = field(default_factory=lambda: [1] * 1000)


def rows():
    return [Row() for _ in range(200)]


class Env:
    def __init__(self, n):
        self.table = {"prices": np.ones((n, n))}


def call(function, *arguments):
    return function(*arguments)


TOP = np.ones(5000)
"""


DEEP = """
import numpy as np

def make(calls):
    return make(calls - 1) if calls else np.ones(5000)

def put(made, calls):
    made.append(make(calls))
"""


LOOP = """
def serve(on_request, look, requests):
    kept = []
    for number in range(requests):
        look(kept)
        body = b"%d" % number * 100_000
        kept.append((body, on_request(number)))
"""


def deep_library(source: str = DEEP) -> ModuleType:
    """One that says of its code that it lies beside the standard library's."""
    module = ModuleType("deep")
    exec(compile(source, str(Path(sysconfig.get_path("stdlib")) / "deep.py"), "exec"), vars(module))
    return module


def load(path: Path, source: str, name: str) -> ModuleType:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    module = ModuleType(name)
    module.__file__ = str(path)
    exec(compile(source, str(path), "exec"), vars(module))
    return module


@pytest.fixture
def user(tmp_path: Path) -> Any:
    return load(tmp_path / "train.py", SOURCE, "train")


def line_of(text: str, source: str = SOURCE) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


def site_of(tmp_path: Path, text: str, function: str, operation: str) -> AllocationSite:
    return AllocationSite(str(tmp_path / "train.py"), line_of(text), function, operation)


def test_a_tensor(tracer: Tracer, user: Any, tmp_path: Path) -> None:
    tensors = [user.Agent().learn(100), user.Agent().learn(100)[3:]]
    wanted = site_of(tmp_path, "torch.zeros(n) + 1", "Agent.learn", "aten::add")
    assert tracer.find_line(tensors) == tracer.find_line(tensors[1:]) == wanted


def test_a_graph_counts_with_what_it_saves(tracer: Tracer, user: Any, tmp_path: Path) -> None:
    w = torch.ones(100, 100, requires_grad=True)
    loss = user.loss(w, torch.ones(100, 100))
    found = tracer.find_line([loss])
    assert found == site_of(tmp_path, "x @ w", "loss", "aten::exp")


def test_an_array_a_view_of_it_and_a_dict(tracer: Tracer, user: Any, tmp_path: Path) -> None:
    ones = site_of(tmp_path, "np.ones((n, n))", "window", "numpy")
    assert tracer.find_line([user.window(50)]) == ones
    assert tracer.find_line([user.view(50)]) == ones, "the base is what takes the memory"
    # Python keeps 80 freed dicts at hand, which are older than the tracer.
    records = [user.record(n) for n in range(200)]
    assert tracer.find_line(records) == site_of(tmp_path, '"step"', "record", "python")


def test_a_long_text_has_the_line_that_made_it(tracer: Tracer, user: Any, tmp_path: Path) -> None:
    found = tracer.find_line([user.text(100_000)])
    assert found == site_of(tmp_path, '"x" * n', "text", "python")


def test_a_short_text_that_is_an_item_has_its_line(tracer: Tracer, user: Any, tmp_path: Path) -> None:
    """Of addresses that were visited, the text is all there is. A constant was there before."""
    assert tracer.find_line([user.label(n) for n in range(40)]) == site_of(tmp_path, 'f"label', "label", "python")
    assert tracer.find_line(["a constant", 7, None, True]) is None


def test_short_texts_that_an_item_refers_to_count_if_they_are_new(tracer: Tracer, user: Any, tmp_path: Path) -> None:
    texts = [user.label(n) for n in range(100)]
    assert tracer.find_line([user.call(list, texts)]) == site_of(tmp_path, 'f"label', "label", "python")
    constants = [*dir(user.np)]
    assert tracer.find_line([user.call(list, constants)]) == site_of(tmp_path, "return function(", "call", "python")


def wrap_listener(listener: Any) -> Any:
    return lambda event: listener(event.number)


def test_a_function_counts_with_what_it_closes_over(tracer: Tracer, user: Any, tmp_path: Path) -> None:
    """Of a listener that a library wraps in one of its own, neither function is what is large."""
    wrapped = user.call(wrap_listener, user.listener(7))
    assert tracer.find_line([wrapped]) == site_of(tmp_path, "rows = [n]", "listener", "python")


def test_a_text_with_attributes_counts_with_them(tracer: Tracer, user: Any, tmp_path: Path) -> None:
    """A string of a parsed page has the page for its parent."""
    assert tracer.find_line([user.title(n) for n in range(100)]) == site_of(
        tmp_path, "text = Title(", "title", "python"
    )


def test_an_object_counts_with_what_it_holds(tracer: Tracer, user: Any, tmp_path: Path) -> None:
    found = tracer.find_line([user.Env(60)])
    assert found == site_of(tmp_path, "self.table", "Env.__init__", "numpy")


def test_a_class_that_is_kept_has_the_line_that_made_it(tracer: Tracer, user: Any, tmp_path: Path) -> None:
    kept = [user.model(f"Model{n}") for n in range(3)]
    assert tracer.find_line(kept) == site_of(tmp_path, "make_dataclass(name", "model", "python")
    assert tracer.find_line([Path, line_of]) is None, "older than the tracer"


@pytest.mark.slow
def test_the_methods_that_a_dataclass_writes_are_not_where(tracer: Tracer, user: Any, tmp_path: Path) -> None:
    found = tracer.find_line(user.rows())
    assert found is not None
    assert found.file == str(tmp_path / "train.py")


def test_what_the_tools_make_is_not_blamed_on_who_called_them(tracer: Tracer) -> None:
    assert tracer.find_line([thin_evenly(range(1000), 100)]) is None


def test_the_top_of_a_file(tracer: Tracer, tmp_path: Path) -> None:
    user = load(tmp_path / "train.py", SOURCE, "train")
    assert tracer.find_line([user.TOP]) == site_of(tmp_path, "TOP =", "<module>", "numpy")


def test_the_line_with_most_bytes_is_told(tracer: Tracer, user: Any) -> None:
    found = tracer.find_line([user.record(1), user.record(2), user.window(100)])
    assert found is not None
    assert found.function == "window"


def test_what_is_older_has_no_line(user: Any) -> None:
    tensor, array = user.Agent().learn(100), user.window(3)
    tracer = Tracer()
    tracer.start()
    assert tracer.find_line([tensor, array]) is None
    tracer.stop()


def test_where_libraries_call_each_other_deeply_a_later_one_has_its_line(tracer: Tracer, user: Any) -> None:
    """All frames kept of the first were a library's: with more of them the next shows who called it."""
    library = deep_library()
    first = user.call(library.make, 2 * FRAMES)
    assert tracer.find_line([first]) is None
    second = user.call(library.make, 2 * FRAMES)
    found = tracer.find_line([second])
    assert found is not None
    assert found.function == "call"
    assert tracer.find_line([user.call(library.make, 1)]) is not None


def test_a_stack_of_libraries_alone_is_not_traced_deeper(tracer: Tracer) -> None:
    """It has no line of the user's, however much is kept of it."""
    library = deep_library()
    made: list[Any] = []
    thread = threading.Thread(target=library.put, args=(made, 2))
    thread.start()
    thread.join()
    assert tracer.find_line(made) is None
    assert tracemalloc.get_traceback_limit() == FRAMES


@pytest.mark.parametrize("starts_within", [True, False])
def test_a_callback_is_where_and_not_the_call_that_goes_on_all_the_time(
    user: Any, tmp_path: Path, *, starts_within: bool
) -> None:
    """A call that began after the trace may be one of many at that line: its own bytes count."""
    tracer, found = Tracer(), list[tuple[AllocationSite | None, bool]]()

    def look(kept: list[Any]) -> None:
        if starts_within and not kept:
            tracer.start()
        if len(kept) == 3:
            site = tracer.find_line(kept[1:])
            call = AllocationSite(str(tmp_path / "train.py"), line_of("return function("), "call", "python")
            found.append((site, tracer.is_waiting_line(call)))

    if not starts_within:
        tracer.start()
    user.call(deep_library(LOOP).serve, user.listener, look, 4)
    tracer.stop()
    text, function = ("rows = [n]", "listener") if starts_within else ("return function(", "call")
    assert found == [(site_of(tmp_path, text, function, "python"), starts_within)]


def test_the_line_that_adds_is_found_where_code_of_c_makes_what_it_gives_to_a_callback() -> None:
    search, rows = NativeLineSearch(), list[str]()
    cause = Evidence(verdict="leak", owner="train.ROWS", drift=Slope(9.0, 8.0, 10.0), holders=("train.ROWS",))

    def on_row(row: str) -> str:
        rows.append(row)  # added here
        return row

    search.growing = "train.ROWS", [rows]
    assert search.prepare_try([cause])
    assert search.begin(FLAT, Slope(9.0, 8.0, 10.0))
    sorted("cbda", key=on_row)
    assert search.count_reading_(FLAT)
    search.end()
    line = on_row.__code__.co_firstlineno + 1
    name = "test_the_line_that_adds_is_found_where_code_of_c_makes_what_it_gives_to_a_callback.on_row"
    assert search.add_line(cause).made_at == AllocationSite(__file__, line, name, "python")
    assert not search.prepare_try([cause]), "once is enough"


def test_after_a_stop_all_is_as_before(user: Any) -> None:
    tracer = Tracer()
    tracer.start()
    tracer.stop()
    assert not tracemalloc.is_tracing()
    assert torch.utils._python_dispatch._get_current_dispatch_mode_stack() == []
    assert tracer.find_line([user.Agent().learn(10)]) is None


def test_tracemalloc_of_the_program_stays_on() -> None:
    tracemalloc.start(3)
    try:
        tracer = Tracer()
        tracer.start()
        tracer.stop()
        assert tracemalloc.is_tracing()
        assert tracemalloc.get_traceback_limit() == 3
    finally:
        tracemalloc.stop()


def test_a_mode_of_the_program_leaves_arrays_traced(user: Any) -> None:
    with torch.utils._python_dispatch.TorchDispatchMode():
        tracer = Tracer()
        tracer.start()
    assert tracer.find_line([user.window(9)]) is not None
    tracer.stop()


PACKAGE = """
import numpy as np

def build(n):
    return np.ones((n, n))

def loop(hook):
    return hook()
"""


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Any]:
    """A library that counts as the user's program, as flatwater does in its own runs."""
    folder = tmp_path / "site-packages" / "trainer"
    module = load(folder / "__init__.py", PACKAGE, "trainer")
    module.__path__ = [str(folder)]
    sys.modules["trainer"] = module
    yield module
    del sys.modules["trainer"]


def traced_line(packages: tuple[str, ...], make: Any) -> str | None:
    tracer = Tracer(packages)
    tracer.start()
    made = tracer.find_line([make()])
    tracer.stop()
    return None if made is None else f"{Path(made.file).parent.name}/{Path(made.file).name} {made.function}"


def test_a_library_is_not_where(package: Any, user: Any) -> None:
    found = traced_line((), lambda: user.call(package.build, 5))
    assert found is not None
    assert found.endswith("train.py call")


def test_in_a_run_of_our_own_the_hook_answers_if_there_is_one_and_we_do_if_not(package: Any, user: Any) -> None:
    hook = traced_line(("trainer",), lambda: package.loop(lambda: user.call(package.build, 5)))
    own = traced_line(("trainer",), lambda: user.call(package.build, 5))
    assert hook is not None
    assert hook.endswith("train.py call"), "the program called it, and it called the program"
    assert own == "trainer/__init__.py build", "whoever started the program is not where"


def test_nothing_is_kept_alive(tracer: Tracer, user: Any) -> None:
    class Watched(np.ndarray):
        """Weakly referable, as arrays are not."""

    kept = user.window(5).view(Watched)
    seen = weakref.ref(kept)
    tracer.find_line([kept])
    del kept
    assert seen() is None


NATIVE = """
import ctypes
malloc = ctypes.CDLL(None).malloc
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

def keep(kept):
    kept.append(ctypes.memset(malloc(33 << 20), 1, 33 << 20))
    table = [kept[-1]]
    return table

def fill(kept):
    table = [None]
    kept.append(ctypes.memset(malloc(33 << 20), 1, 33 << 20))
    return table
"""


@pytest.fixture
def _no_hole() -> Iterator[None]:
    """What holes of this process's heap had room for a block of 33 MiB are taken: the next one is new memory."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.mallopt(-4, 1 << 16)  # M_MMAP_MAX: where no hole has room, it is mapped
    first, end = main_heap() or (0, 0)
    taken = [libc.malloc(33 << 20)]
    while first <= taken[-1] < end:
        taken.append(libc.malloc(33 << 20))
    yield
    for block in taken:
        libc.free(ctypes.c_void_p(block))


@pytest.fixture
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings may take long: other tests leave holes in this process's heap, and each query passes them all."""
    unhurried = lines.RISING._replace(maximum_cpu_seconds=60.0, maximum_query_seconds=1.0)
    monkeypatch.setattr(lines, "RISING", unhurried)


SERVICE = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

def answer(kept):
    words = []
    for _ in range(30):
        words.append(libc.malloc(8000))
        words.append(libc.malloc(9000))
    yield
    kept.append(libc.malloc(33 << 20))
    for word in words:
        libc.free(word)
"""


@pytest.mark.usefixtures("_no_hole", "_unhurried")
def test_a_recording_goes_on_until_enough_rises_of_the_size_of_the_growth_have_come(
    tmp_path: Path,
) -> None:
    """A service that rests most of the time is read within a request, when only what it frees again has come."""
    program = load(tmp_path / "service.py", SERVICE, "service")
    rate = Slope(33.0 * MIB, 33.0 * MIB, 33.0 * MIB)
    cause = Evidence(verdict="native", owner="memory outside of Python", drift=rate)
    search, kept, finished = NativeLineSearch(), list[int](), list[bool]()
    assert search.prepare_try([cause])
    assert search.begin(FLAT, rate)
    try:
        for number in range(1, 16):
            for _ in program.answer(kept):
                finished.append(search.count_reading_(FLAT._replace(step=FLAT.step + number)))
    finally:
        search.end()
    for block in kept:
        ctypes.CDLL(None).free(ctypes.c_void_p(block))
    assert not any(finished[:8])
    assert finished[-1]
    assert search.line is not None
    assert (search.line.line, search.line.function) == (line_of("kept.append", SERVICE), "answer")


THREADS = """
import ctypes
malloc = ctypes.CDLL(None).malloc
malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

def serve(asked, done, kept):
    while asked.acquire(timeout=60) and len(kept) < 40:
        kept.append(ctypes.memset(malloc(33 << 20), 1, 33 << 20))
        done.release()

def ask(asked, done):
    return asked.release() or done.acquire(timeout=60)
"""


@pytest.mark.usefixtures("_no_hole", "_unhurried")
def test_other_threads_are_recorded_where_the_line_only_waits_for_them(
    tmp_path: Path,
) -> None:
    program = load(tmp_path / "threads.py", THREADS, "threads")
    asked, done, kept = threading.Semaphore(0), threading.Semaphore(0), list[int]()
    thread = threading.Thread(target=program.serve, args=(asked, done, kept), daemon=True)
    thread.start()
    rate = Slope(33.0 * MIB, 33.0 * MIB, 33.0 * MIB)
    cause = Evidence(verdict="native", owner="memory outside of Python", drift=rate)
    search, found = NativeLineSearch(), list[tuple[str, bool]]()
    for _ in range(2):
        assert search.prepare_try([cause])
        assert search.begin(FLAT, rate)
        for _ in range(5):
            assert program.ask(asked, done)
        search.end()
        assert search.line is not None
        found.append((search.line.function, search.waits))
    assert not search.prepare_try([cause])
    kept += [0] * 40
    asked.release()
    thread.join(60)
    for block in kept:
        ctypes.CDLL(None).free(ctypes.c_void_p(block))
    assert found == [("ask", True), ("serve", False)]


def test_other_threads_are_left_alone_while_a_debugger_follows_one() -> None:
    def trace_all(*_event: object) -> Any:
        return trace_all

    def debug() -> None:
        sys.settrace(trace_all)
        follow()
        sys.settrace(None)

    def follow() -> None:
        begun.set()
        ended.wait(60)

    begun, ended, rate = threading.Event(), threading.Event(), Slope(3.0 * MIB, 3.0 * MIB, 3.0 * MIB)
    thread = threading.Thread(target=debug, daemon=True)
    thread.start()
    search = NativeLineSearch()
    assert begun.wait(60)
    cause = Evidence(verdict="native", owner="memory outside of Python", drift=rate)
    assert search.prepare_try([cause], in_other_threads=True)
    assert not search.begin(FLAT, rate)
    ended.set()
    thread.join(60)
    assert search.begin(FLAT, rate)
    search.end()


def test_a_try_waits_for_what_it_costs() -> None:
    rate = Slope(3.0 * MIB, 3.0 * MIB, 3.0 * MIB)
    cause = Evidence(verdict="native", owner="memory outside of Python", drift=rate)
    search = NativeLineSearch()
    assert not search.prepare_try([cause], must_wait=True)
    assert search.waits
    assert search.prepare_try([cause])
    assert not search.waits


@pytest.mark.usefixtures("_no_hole")
@pytest.mark.parametrize(("function", "better"), [("keep", True), ("fill", False)])
def test_bytes_that_come_before_their_object_have_a_line_of_their_own(
    function: str, tmp_path: Path, *, better: bool
) -> None:
    """What is put into an object that is there already has the object's line."""
    program = load(tmp_path / "native.py", NATIVE, "native")
    item = AllocationSite(
        str(tmp_path / "native.py"), line_of("table = [", NATIVE) if better else 12, function, "python"
    )
    whole = Slope(3.0 * MIB, 3.0 * MIB, 3.0 * MIB)
    found = Evidence(verdict="leak", owner="tables", drift=whole, made_at=item, outside=True)
    following, kept = NativeLineSearch(), list[int]()
    assert not following.prepare_try([replace(found, outside=False)]), "its objects are the growth"
    assert following.prepare_try([found])
    assert following.begin(FLAT, whole)
    try:
        for _ in range(5):
            getattr(program, function)(kept)
    finally:
        following.end()
    free = ctypes.CDLL(None).free
    for block in kept:
        free(ctypes.c_void_p(block))
    assert following.add_line(found).native_line == (
        AllocationSite(item.file, item.line - 1, function, "native") if better else None
    )
    assert following.add_line(replace(found, made_at=replace(item, line=1))).native_line is None, (
        "nobody has asked for it"
    )
    assert following.prepare_try([found]) != better
