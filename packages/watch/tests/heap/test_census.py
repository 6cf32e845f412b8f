"""What a census counts, what it leaves alone, and what it leaves behind."""

import gc
import signal
import sqlite3
import subprocess
import sys
import threading
import weakref
import zlib
from collections.abc import Callable
from itertools import count
from math import ceil
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater_watch.heap import census, walk
from flatwater_watch.heap.census import (
    FEWER_SAMPLED_ITEMS,
    SAMPLED_ITEMS,
    Census,
    CensusInProgress,
    begin_census,
    continue_census_,
    restore_collector,
    take_census,
)
from flatwater_watch.heap.children import open_object
from flatwater_watch.heap.instances import attribute_reader
from flatwater_watch.heap.item_sample import estimate_bytes
from flatwater_watch.heap.raw import made_in_c
from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.view import Walk
from flatwater_watch.heap.walk import begin_walk

ROOTS = Roots()
Load = Callable[[str], ModuleType]


def test_what_two_places_hold_is_counted_once(load: Load) -> None:
    """Aliases, views, a tensor and the array on its memory: one storage."""
    load("""
        import numpy as np
        import torch
        array = np.zeros(100_000)
        again, view, table = array, array[10:], {"same": array}
        tensor = torch.from_numpy(array)
    """)
    holdings = take_census(ROOTS).holdings
    assert sum(h.bytes for h in holdings.values() if h.parent is None and h.path.startswith("train.")) == pytest.approx(
        800_000, rel=0.01
    )


def test_the_shallowest_holder_owns(load: Load) -> None:
    """Even where a deeper one comes first."""
    load("""
        deep = {"a": {"b": {"c": (data := bytearray(50_000))}}}
        shallow = data
        del data
    """)
    holdings = take_census(ROOTS).holdings
    assert holdings["train.shallow"].bytes > 50_000 > holdings["train.deep"].bytes


def test_parameters_are_the_model_s_even_where_a_graph_is_nearer(load: Load) -> None:
    load("""
        import torch
        class Trainer:
            def __init__(self):
                self.parts = {"nets": {"policy": torch.nn.Linear(300, 300)}}
        trainer = Trainer()
        loss = trainer.parts["nets"]["policy"](torch.ones(1, 300, requires_grad=True)).sum()
    """)
    holdings = take_census(ROOTS).holdings
    assert holdings["train.loss"].bytes < 10_000
    assert holdings["train.trainer.parts['nets']['policy'].weight"].bytes == pytest.approx(300 * 300 * 4, rel=0.01)


@given(
    sizes=st.lists(st.integers(900, 1100), min_size=25, max_size=2000),
    shared=st.integers(0, 10**9),
)
def test_the_estimate_counts_a_shared_base_once(sizes: list[int], shared: int) -> None:
    """Items that differ by a tenth are estimated to a tenth, whatever the first one has besides."""
    step = -(-len(sizes) // SAMPLED_ITEMS)
    drawn = [sizes[i] + (shared if i == 0 else 0) for i in range(0, len(sizes), step)]
    whole = estimate_bytes(sum(drawn), max(drawn), len(drawn), len(sizes))
    items = 1000 * len(sizes)
    assert abs(whole - shared - items) <= 0.1 * items + 200


@pytest.mark.parametrize("count", [3, 24, 25, 1000])
@pytest.mark.parametrize("kind", ["list", "tuple", "set", "dict", "deque", "frozenset"])
def test_containers_are_sized_to_a_tenth(load: Load, kind: str, count: int) -> None:
    made = f"{kind}((i, bytes([i % 256]) * (900 + i % 200)) for i in range(1000, {1000 + count}))"
    program = load(f"""
        from collections import deque
        held = {made}
    """)
    pairs = program.held.items() if kind == "dict" else program.held
    shells = 0 if kind == "dict" else sum(sys.getsizeof(pair) for pair in pairs)
    true = sys.getsizeof(program.held) + shells + sum(28 + sys.getsizeof(data) for _, data in pairs)
    holding = take_census(ROOTS).holdings["train.held"]
    assert holding.length == count
    assert holding.bytes == pytest.approx(true, rel=0.1)


def test_nothing_lives_longer_for_having_been_counted(load: Load) -> None:
    """Not after `forget`, and not in the snapshot that a running frame keeps of its locals."""
    program = load("""
        class Thing:
            pass
        HELD = [Thing()]
        def play(look):
            things = [Thing() for _ in range(3)]
            look(things)
            things.clear()
            del things
            return look(None)
    """)
    watched: list[weakref.ref[object]] = [weakref.ref(program.HELD[0])]
    censuses = []

    def look(things: list[object] | None) -> int:
        watched.extend(weakref.ref(thing) for thing in things or [])
        del things
        censuses.append(take_census(ROOTS).without_objects())
        return sum(ref() is not None for ref in watched[1:])

    gc.disable()  # what only a cycle keeps would be found out
    try:
        assert program.play(look) == 0
        program.HELD.clear()
        assert watched[0]() is None
    finally:
        gc.enable()
    assert len(watched) == 4
    assert "play() in train.py: things" in censuses[0].holdings


def test_a_census_that_has_not_forgotten_keeps_what_it_counted(load: Load) -> None:
    program = load("HELD = [[1.5]]")
    census = take_census(ROOTS)
    assert census.containers["train.HELD[*]"] is program.HELD[0]
    assert census.without_objects().containers == {}
    assert census.without_objects().holdings == census.holdings


def test_no_code_of_the_program_runs(load: Load) -> None:
    """Properties, lookups, sizes, lengths, iteration, equality: each would tell on itself."""
    program = load("""
        calls = []
        def tell(name):
            def method(*_, **__):
                calls.append(name)
                raise AssertionError(name)
            return method
        class Meta(type):
            __getattribute__ = tell("meta")
        class Shy:
            def __init__(self):
                object.__setattr__(self, "held", bytearray(10_000))
            value = property(tell("property"))
            for name in ("getattribute", "getattr", "sizeof", "len", "iter", "eq", "hash", "repr", "bool"):
                locals()[f"__{name}__"] = tell(name)
        class ShyList(list):
            __len__, __iter__, __getitem__, __sizeof__ = map(tell, ("len", "iter", "item", "sizeof"))
        class ShyDict(dict):
            keys, values, items, __iter__, __len__ = map(tell, ("keys", "values", "items", "iter", "len"))
        class Odd(metaclass=Meta):
            pass
        shy, names, table = Shy(), ShyList([bytearray(5000)]), ShyDict(a=bytearray(5000))
    """)
    holdings = take_census(ROOTS).holdings
    assert program.calls == []
    assert holdings["train.shy.held"].bytes > 10_000
    assert holdings["train.names"].bytes > 5000
    assert holdings["train.table['a']"].bytes > 5000


def test_modules_that_import_on_first_use_stay_asleep(load: Load) -> None:
    program = load("touched = []")

    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> object:
            program.touched.append(name)
            return super().__getattribute__(name)

    sys.modules["train_lazily"] = Lazy("train_lazily")
    try:
        take_census(ROOTS)
        seen = list(program.touched)
    finally:
        del sys.modules["train_lazily"]
    assert seen == []


def test_a_walk_that_is_too_long_says_so(load: Load) -> None:
    load("""
        def grow(depth):
            return {name: grow(depth - 1) for name in "abcdefghijklmnopqrst"} if depth else [0.5]
        tree = grow(3)
    """)
    whole = take_census(ROOTS)
    short = take_census(ROOTS, maximum=500)
    assert not whole.truncated
    assert whole.visited > 8000
    assert short.truncated
    assert short.visited <= 500


def test_a_long_walk_begins_again_with_fewer_items(load: Load) -> None:
    """A hundred figures of 8000 objects each: twenty-four would be 200,000, six are not."""
    load("""
        def grow(depth):
            return {name: grow(depth - 1) for name in "abcdefghijklmnopqrst"} if depth else [0.5]
        figures = [grow(3) for _ in range(100)]
    """)
    census = take_census(ROOTS)
    assert not census.truncated
    assert 40_000 < census.visited < 80_000
    table = sys.getsizeof(dict.fromkeys("abcdefghijklmnopqrst"))
    whole = 100 * (8000 * sys.getsizeof([0.5]) + 421 * table)
    assert census.holdings["train.figures"].bytes == pytest.approx(whole, rel=0.1)


def test_chains_and_cycles_end(load: Load) -> None:
    load("""
        class Node:
            def __init__(self, before):
                self.before, self.after = before, None
                if before: before.after = self
        first = node = Node(None)
        for _ in range(5000):
            node = Node(node)
        del node
        cells = None
        for _ in range(5000):
            cells = (0.5, cells)
    """)
    census = take_census(ROOTS)
    mine = [path for path in census.holdings if path.startswith(("train.first", "train.cells"))]
    assert len(mine) < 40
    assert max(map(len, mine)) < 200
    assert census.holdings["train.first.after"].length == 5000
    cell = sys.getsizeof((1, 2)) + 15 & -16  # as the allocator rounds it
    assert census.holdings["train.cells"].bytes == pytest.approx(5000 * cell, rel=0.05)


def test_frames_of_other_threads_and_what_threads_were_given(load: Load) -> None:
    program = load("""
        import threading
        begun, end = threading.Event(), threading.Event()
        def work(given):
            waiting = [bytearray(20_000)]
            begun.set()
            end.wait()
    """)
    threading.Thread(target=program.work, args=(bytearray(30_000),), daemon=True).start()
    program.begun.wait()
    holdings = take_census(ROOTS).holdings
    program.end.set()
    assert holdings["work() in train.py: waiting"].bytes > 20_000
    assert holdings["work() in train.py: given"].bytes > 30_000


HOLDS = {
    "train.WEAK": """
        import weakref
        class Client: ...
        CLIENTS = [Client() for _ in range(10)]
        WEAK = weakref.WeakKeyDictionary({client: bytes(10_000) for client in CLIENTS})
    """,
    "train.CALLED": """
        import weakref
        class Client: ...
        CLIENTS = [Client() for _ in range(10)]
        def forget(text):
            return lambda reference: len(text)
        CALLED = [weakref.ref(client, forget(bytes(10_000))) for client in CLIENTS]
    """,
    "train.held.<locals of make>.held": """
        def make():
            held = bytearray(10**5)
            yield
        held = make()
        next(held)""",
    "train.held.slot": """
        class Box:
            __slots__ = ("slot",)
        held = Box()
        held.slot = bytearray(10**5)""",
    "train.held.<argument of print>": "import functools\nheld = functools.partial(print, bytearray(10**5))",
    "train.held.<self of act>.data": """
        class Box:
            def act(self): ...
        box = Box()
        box.data = bytearray(10**5)
        held = box.act
        del box""",
    "train.held.<attribute of held>.memo": "def held(): ...\nheld.memo = bytearray(10**5)",
    "train.held.<default of held>": "def held(a=bytearray(10**5)): ...",
    "train.held[*].<traceback>.<locals of fail>.big": """
        def fail():
            big = bytearray(10**5)
            raise ValueError
        held = []
        try:
            fail()
        except ValueError as error:
            held.append(error)""",
    "train.held.<self of append>": "held = [bytearray(10**5)].append",
    "train.held.<self of __getitem__>": "held = {1: bytearray(10**5)}.__getitem__",
    "train.held.<self of __len__>": "held = [bytearray(10**5)].__len__",
    "train.held.<locals of read>.<tuple_iterator>": """
        def read():
            for each in [bytearray(10**5)]:
                del each
                yield
        held = read()
        next(held)""",
    "train.kept.<traceback>.<locals of fail>.big": """
        import sys
        def fail():
            big = bytearray(10**5)
            raise ValueError
        def tried():
            try:
                fail()
            except ValueError:
                return sys.exc_info()[2].tb_next
        kept = tried()""",
    "train.held.grad": "import torch\nheld = torch.ones(25000, requires_grad=True)\nheld.sum().backward()",
    "train.storage": "import torch\nstorage = torch.zeros(25000).untyped_storage()",
    "train.sparse": "import torch\nsparse = torch.ones(50, 100).to_sparse()",
    "train.objects[*]": "import numpy as np\nobjects = np.array([bytearray(10**5), None], object)",
    "train.table": "import polars\ntable = polars.DataFrame({'a': [0.5] * 12500})",
    "train.numbers": "import array\nnumbers = array.array('d', [0.5] * 12500)",
    "train.file": "import io\nfile = io.BytesIO(bytes(10**5))",
    "train.Held.shared": "class Held:\n    shared = bytearray(10**5)",
}


@pytest.mark.parametrize("path", HOLDS)
def test_each_way_of_holding(load: Load, path: str) -> None:
    """A hundred thousand bytes, wherever they hide."""
    load(HOLDS[path])
    assert take_census(ROOTS).holdings[path].bytes == pytest.approx(100_000, rel=0.05)


def test_code_that_is_kept_without_a_function_counts(load: Load) -> None:
    program = load("""
        SOURCE = "def act(x):\\n    def inner(y):\\n        return [x, y]\\n    return inner\\n"
        compiled = [compile(SOURCE * 20, "<made>", "exec") for _ in range(50)]
    """)
    least = sum(code.__sizeof__() for code in program.compiled)
    assert take_census(ROOTS).holdings["train.compiled"].bytes > 3 * least


def test_an_array_of_objects_is_a_container_while_it_fills(load: Load) -> None:
    program = load("""
        import numpy as np
        slots = np.empty((100, 10), dtype=object)
        full = np.array([[n] for n in range(10)] + [None, 7], dtype=object)
    """)
    for filled in (0, 1, 7, 64, 999, 1000):
        program.slots.reshape(-1)[:filled] = [[n] for n in range(filled)]
        holding = take_census(ROOTS).holdings["train.slots"]
        room = None if filled in {0, 1000} else 1000
        assert (holding.length, holding.capacity) == (filled or 1000, room)
    assert take_census(ROOTS).holdings["train.full"].length == 12


def test_the_dict_inside_a_container_is_no_item_of_it(load: Load) -> None:
    """Even where a walk must open what is on the way to a table: a value of the table is no dict with `pop`."""
    program = load("""
        import weakref
        class Zone: ...
        class Prepared:
            def __init__(self, zone):
                self.context, self.is_ready = zone, True
        ZONES = weakref.WeakKeyDictionary()
        for zone in [Zone() for _ in range(100)]:
            ZONES[zone] = Prepared(zone)
    """)
    required = frozenset({id(program.ZONES), id(program.ZONES.data)})
    holdings = take_census(ROOTS._replace(must_open_ids=required)).holdings
    assert (holdings["train.ZONES"].kind, holdings["train.ZONES"].length) == ("dict", 100)
    assert (holdings["train.ZONES[*]"].kind, holdings["train.ZONES[*]"].length) == ("object", 2)


def test_weak_references_count_by_themselves(load: Load) -> None:
    """A million of them take 100 MB; what they refer to is held by others."""
    program = load("""
        import weakref
        class Client: ...
        CLIENTS = [Client() for _ in range(1000)]
        BY_NUMBER = weakref.WeakValueDictionary(enumerate(CLIENTS))
        ALL = weakref.WeakSet(CLIENTS)
        for client in CLIENTS:
            client.page = bytes(10_000)
    """)
    holdings = take_census(ROOTS).holdings
    by_number, references = program.BY_NUMBER.data, program.ALL.data
    each = sys.getsizeof(by_number[7]) + sys.getsizeof(1000)
    assert holdings["train.BY_NUMBER"].bytes == pytest.approx(sys.getsizeof(by_number) + 1000 * each, rel=0.25)
    each = sys.getsizeof(next(iter(references)))
    assert holdings["train.ALL"].bytes == pytest.approx(sys.getsizeof(references) + 1000 * each, rel=0.25)
    assert holdings["train.BY_NUMBER"].length == holdings["train.ALL"].length == 1000


@pytest.mark.parametrize(
    "source",
    [
        "import weakref\nclass A: ...\ndef f(): ...\nheld = weakref.WeakValueDictionary()",
        "import torch\nheld = torch.zeros(10**6, device='meta')",
        "import json as held",
        "from json import JSONDecoder as held",
    ],
)
def test_what_takes_no_memory_of_the_program(load: Load, source: str) -> None:
    load(source)
    holding = take_census(ROOTS).holdings.get("train.held")
    assert holding is None or holding.bytes < 2000


def test_saved_tensors_are_not_unpacked(load: Load) -> None:
    """Reading `_saved_*` would run the hooks, as a checkpointed forward; and raise after an edit in place."""
    program = load("""
        import torch
        unpacked = []
        def unpack(packed):
            unpacked.append(packed)
            return packed[0]
        x = torch.ones(1000, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (t, bytearray(50_000)), unpack):
            packed = (x * 2).tanh()
        y = x * 1.5
        edited = y.tanh()
        with torch.no_grad():
            edited.add_(1)
    """)
    holdings = take_census(ROOTS).holdings
    assert program.unpacked == []
    assert holdings["train.packed"].bytes > 50_000
    assert "train.edited.<graph>" in holdings


def test_no_collection_runs_while_it_counts(load: Load) -> None:
    """It would free what is to be counted, and take longer than the census. A low threshold makes it run soon."""
    load("tree = [[[i] for i in range(20)] for _ in range(20)]")
    begun = []

    def note(phase: str, _info: dict[str, int]) -> None:
        begun.extend([phase] if phase == "start" else [])

    threshold = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(20)
    try:
        take_census(ROOTS)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(note)
    assert len(begun) <= 3


TREE = """
    def grow(depth):
        return {name: grow(depth - 1) for name in "abcdefghij"} if depth else [0.5]
    tree = grow(3)
"""


def in_slices(counting: CensusInProgress) -> tuple[Census, int]:
    """A census of slices that take no time: each opens a few objects, or adds a few up."""
    for slices in range(1, 10_000):
        census = continue_census_(counting, 0.0)
        if census is not None:
            return census, slices
    raise AssertionError("it never ends")


def test_in_slices_it_counts_what_it_counts_at_once(load: Load) -> None:
    load(TREE)
    whole = take_census(ROOTS)
    census, slices = in_slices(begin_census(ROOTS))
    assert slices > 30
    mine = {path: held for path, held in whole.holdings.items() if path.startswith("train.")}
    assert mine
    assert {path: census.holdings[path] for path in mine} == mine


def test_a_slice_is_as_long_on_a_busy_machine(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has CPU seconds: while others run, the clock goes on, and a census in slices would never end."""
    load(TREE)
    for module in (census, walk):
        clock = count(0.0, 100.0)
        monkeypatch.setattr(module, "monotonic", lambda clock=clock: next(clock), raising=False)
    whole = continue_census_(begin_census(ROOTS), 50.0)
    assert whole is not None
    assert whole.seconds == 100.0, "for which the program stood still"


def test_between_slices_no_array_is_kept_and_no_list_for_long(load: Load) -> None:
    program = load(
        TREE
        + """
    import numpy as np
    import torch
    class Thing:
        pass
    later = {"a": {"b": {"c": [Thing(), np.zeros(10), torch.zeros(10), torch.ones(3, requires_grad=True).exp()]}}}
    """
    )
    watched = [weakref.ref(held) for held in program.later["a"]["b"]["c"]]
    counting = begin_census(ROOTS)
    for _ in range(3):
        assert continue_census_(counting, 0.0) is None
    program.later.clear()
    assert continue_census_(counting, 0.0) is None
    assert continue_census_(counting, 0.0) is None
    assert [ref() for ref in watched] == [None] * 4
    census, _ = in_slices(counting)
    assert "train.tree['a']" in census.holdings


def test_a_census_survives_what_the_program_does_between_its_slices(load: Load) -> None:
    program = load(TREE)
    counting = begin_census(ROOTS)
    for turn in range(10):
        continue_census_(counting, 0.0)
        program.tree[f"new{turn}"] = [turn]
        program.tree.pop("abcdefghij"[turn])
    census, _ = in_slices(counting)
    assert census.holdings["train.tree"].length == 10
    assert all(path in census.containers for path in census.holdings)
    assert gc.isenabled()


def test_an_entry_of_a_big_dict_is_sized_with_its_key(load: Load) -> None:
    """Large values under small keys: keys do not stand for values."""
    program = load("""
        held = {i: bytes(30_000) + bytes([i]) for i in range(200)}
    """)
    true = sys.getsizeof(program.held) + sum(32 + sys.getsizeof(data) for data in program.held.values())
    counting = begin_census(ROOTS)
    counting.heap_walk.walk.sampled_items = FEWER_SAMPLED_ITEMS
    census = None
    while census is None:
        census = continue_census_(counting, 1.0)
    assert census.holdings["train.held"].bytes == pytest.approx(true, rel=0.01)


def test_a_census_in_slices_tells_the_step_at_which_each_container_was_opened(load: Load) -> None:
    load("""
        early = [float(i) for i in range(10)]
        late = {"deep": [[float(i)] for i in range(20)]}
    """)
    counting, step, census = begin_census(ROOTS), 0, None
    while census is None:
        step += 1
        census = continue_census_(counting, 0.0, step)
    steps = [holding.step for path, holding in census.holdings.items() if path.startswith("train.")]
    assert steps == sorted(steps)
    assert 1 <= steps[0] < steps[-1] <= step


class Plain:
    """Holds what no name of its class leads to, once it is told so."""

    tag = None

    def __init__(self) -> None:
        self.rows = [bytearray(10)]
        self.none = None
        self.again = self.rows

    @property
    def counted(self) -> int:
        raise AssertionError("no property runs")

    def told(self) -> tuple[int, None]:
        return self.counted, self.tag


def made_a_dict(obj: object) -> bool:
    return any(type(held) is dict for held in gc.get_referents(obj))


def test_attributes_are_read_without_making_the_dict_of_an_instance() -> None:
    """It would take memory, and slow the program down from then on (`bench_watch.py --parts steps`)."""
    plain = Plain()
    read = attribute_reader(Plain)(plain)
    assert read == [(".rows", plain.rows), (".none", None), (".again", plain.rows)]
    assert not made_a_dict(plain)


def test_attributes_of_other_names_are_read_from_the_dict() -> None:
    plain = Plain()
    setattr(plain, "dyn" + "amic", (1, 2))
    assert dict(attribute_reader(Plain)(plain))[".dynamic"] == (1, 2)


def test_a_suspended_coroutine_has_a_size_of_its_own() -> None:
    """Python 3.11 leaves the number from which `__sizeof__` is computed unset in some coroutines."""

    async def wait() -> None:
        await other()

    async def other() -> None:
        return None

    for _ in range(50):
        waiting = wait()
        assert 0 < open_object(waiting, Walk(24, lambda _: False, 100)).size < 10_000
        waiting.close()


class Bare:
    pass


class Slotted:
    __slots__ = ("__weakref__", "one", "two")


class Extended(Bare, dict[str, int]):
    """Made by a class statement, however much C code its bases have."""


@pytest.mark.parametrize("kind", [Bare, Slotted, Extended, type("Made", (), {}), type("Table", (list,), {})])
def test_a_class_statement_is_no_c_code(kind: type) -> None:
    assert not made_in_c(kind)


@pytest.mark.parametrize("kind", [type(zlib.compressobj()), sqlite3.Connection, np.ndarray, type(iter([]))])
def test_heap_types_of_c_code_are_c_code(kind: type) -> None:
    """As Cython makes them today: pandas' blocks were passed over, and its frames were taken for native memory."""
    assert made_in_c(kind)


def test_a_class_made_at_run_time_counts_with_what_its_library_wrote_into_it(load: Load) -> None:
    load("""
        class Written:
            pass
        Written.__schema__ = {"fields": [bytes(50_000)]}
        models = [type("Model", (), {"__schema__": {"fields": [bytes(50_000)]}, "__doc__": "x" * 50_000})]
    """)
    holdings = take_census(ROOTS).holdings
    assert 50_000 < holdings["train.models"].bytes < 60_000
    assert holdings["train.Written"].bytes < 50_000, "the attributes that the program names are what it holds"


def test_what_a_signal_handler_raises_while_an_object_is_read_is_the_program_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise TimeoutError

    def opener(_obj: object, _walk: Walk) -> object:
        signal.raise_signal(signal.SIGALRM)
        raise LookupError

    walk = Walk(1, lambda _: False, 1)
    monkeypatch.setitem(walk.openers, id(bytearray), opener)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(TimeoutError):
            open_object(bytearray(1), walk)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        open_object(bytearray(1), walk)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert walk.unread_by_class == {"bytearray (LookupError)": 1}


def test_a_function_has_the_bytes_of_its_cells_and_of_what_it_is_annotated_with(load: Load) -> None:
    """Cells that two functions share count once, and so does their code."""
    train = load("""
        def both(name):
            def read():
                return name

            def write(value: int):
                return name, value

            return read, write

        FIRST = [both(299)]
        FEW = [both(300)]
        MORE = [both(n) for n in range(400, 411)]
    """)
    held = take_census(Roots()).holdings
    read, write = train.MORE[0]
    cells = (read.__closure__, read.__closure__[0])
    objects = [(train.MORE[0],), (400,), (read, *cells), (write, write.__closure__, ("value", int))]
    more = held["train.MORE[*]"].bytes - held["train.FEW[*]"].bytes
    assert more == 10 * sum(16 * ceil(sum(map(sys.getsizeof, parts)) / 16) for parts in objects)


def test_a_census_that_is_left_in_the_middle_leaves_the_collector_as_it_was(load: Load) -> None:
    """As in a fork that the program makes in one thread while it is taken in another."""
    load("class Kept: ...\nKEPT = [Kept() for _ in range(30)]")
    counting, told = begin_census(Roots()), list[tuple[bool, bool]]()

    def pause_collector(_kind: type) -> bool:
        if not told:
            before = gc.isenabled()
            restore_collector()
            told.append((before, gc.isenabled()))
        return False

    counting.heap_walk.walk.is_user_class = pause_collector
    assert continue_census_(counting, 60) is not None
    assert told == [(False, True)]
    assert gc.isenabled()


def test_the_clock_is_asked_once_for_many_links_of_a_chain(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chain only one object waits at a time: a clock for each cost as much as opening it."""
    load("""
        chain = []
        for _ in range(3200):
            chain = [chain]
    """)
    asked, clock = count(), walk.thread_seconds
    monkeypatch.setattr(walk, "thread_seconds", lambda: clock() + 0 * next(asked))
    holdings = take_census(ROOTS)
    assert holdings.visited > 3200
    assert next(asked) <= 2 * holdings.visited / walk.OBJECTS_BETWEEN_CLOCKS


def test_a_chain_is_counted_to_its_last_link_in_slices(load: Load) -> None:
    """A slice without time opens a few objects: all slices together give what one census gives."""
    load("""
        chain = []
        for _ in range(400):
            chain = [chain]
    """)
    whole, counting, slices = take_census(ROOTS).holdings["train.chain"], begin_census(ROOTS), 0
    while (counted := continue_census_(counting, 0.0)) is None:
        slices += 1
    assert counted.holdings["train.chain"]._replace(step=0) == whole
    assert slices > 400 / walk.OBJECTS_BETWEEN_CLOCKS


def test_a_key_and_its_value_are_one_item_of_a_sample(load: Load) -> None:
    """Keys are alike and values are not: two parts of unlike size would say nothing of how items differ."""
    load("""
        import random
        draw = random.Random(3)
        LISTED = [bytes(max(10, int(draw.gauss(1000, 300)))) for _ in range(5000)]
        NAMED = {f"number {n}": bytes(max(10, int(draw.gauss(1000, 300)))) for n in range(5000)}
    """)
    listed, named = (take_census(ROOTS).holdings[f"train.{name}"].bytes_error for name in ("LISTED", "NAMED"))
    assert named == pytest.approx(listed, rel=0.5)
    assert listed == pytest.approx(300 * 5000 / SAMPLED_ITEMS**0.5, rel=0.5)


def test_a_child_process_weighs_on_the_object_that_holds_it() -> None:
    """One object alone has its bytes, so that the holder of many children is an owner."""
    code = "import time; kept = bytearray(8 << 20); print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-SEc", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        walk = begin_walk(Roots(), sampled_items=24, maximum=100).walk
        assert 8 << 20 < open_object(child, walk).size < 32 << 20
        assert open_object(child, walk).size < 1 << 20, "it counts once"
        child.kill()
    walk = begin_walk(Roots(), sampled_items=24, maximum=100).walk
    assert open_object(child, walk).size < 1 << 20, "it has ended"
