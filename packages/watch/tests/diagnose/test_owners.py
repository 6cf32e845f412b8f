"""Each way in which programs grow (docs: what grows in training programs), in a small program that does just that."""

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from math import inf
from types import ModuleType
from typing import Any

import pytest

from flatwater_watch.diagnose.code_use import UserCode
from flatwater_watch.diagnose.evidence import owner_evidence
from flatwater_watch.diagnose.hops import resolve_all_ways, resolve_hops
from flatwater_watch.diagnose.investigation import find_grown_owners, merge_holders_of_same_items
from flatwater_watch.diagnose.owners import Owner, describe_owner, find_owners
from flatwater_watch.diagnose.releasing_calls import LibraryTable
from flatwater_watch.heap.arrays import NODE_BYTES, SAVED_BYTES, STORAGE_BYTES
from flatwater_watch.heap.census import Census, begin_census, continue_census_, take_census
from flatwater_watch.heap.raw import is_class
from flatwater_watch.heap.roots import Roots, user_modules
from flatwater_watch.series.readings import Growth
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import OWNING

ROOTS = Roots()
Load = Callable[[str], ModuleType]


def owners(program: ModuleType, rounds: int = 10, warm: int = 5) -> list[Owner]:
    """What `rounds` turns of the program's loop added, after a few that came before the first census."""
    for _ in range(warm):
        program.turn()
    before = take_census(ROOTS).without_objects()
    for _ in range(rounds):
        program.turn()
    return find_owners(before, take_census(ROOTS))


def the_owner(program: ModuleType, rounds: int = 10, warm: int = 5) -> Owner:
    found = owners(program, rounds, warm)
    assert [owner.path for owner in found] == [found[0].path]
    return found[0]


def test_losses_kept_with_their_graph(load: Load) -> None:
    """A loss is four bytes, but its graph keeps the activations: here input and hidden layer, 64 × 500 floats each."""
    owner = the_owner(
        load("""
            import torch
            net = torch.nn.Sequential(torch.nn.Linear(500, 500), torch.nn.Tanh(), torch.nn.Linear(500, 1))
            LOSSES = []
            def turn():
                LOSSES.append(net(torch.ones(64, 500)).mean())
        """)
    )
    assert (owner.path, owner.holding.kind, owner.length_before, owner.holding.length) == (
        "train.LOSSES",
        "list",
        5,
        15,
    )
    assert owner.holders == ("train.py, global LOSSES", "list of 15", "Tensor with its autograd graph")
    each = 2 * 64 * 500 * 4 + 6 * NODE_BYTES + 4 * SAVED_BYTES
    assert owner.bytes_grown == pytest.approx(10 * each, rel=0.01)
    assert (owner.contents.has_graph, owner.contents.has_base, owner.contents.count, owner.contents.what) == (
        True,
        False,
        15,
        "15 × float32[]",
    )
    assert {type(leaf).__name__ for leaf in owner.contents.leaves} == {"Tensor"}


ORDERS = """
    import asyncio
    import colorsys as HIDDEN  # a census enters no imported module

    HIDDEN.loop, HIDDEN.tasks = asyncio.new_event_loop(), []

    async def order(number):
        basket = [f"order {number} article {i}" for i in range(400)]
        await asyncio.sleep(3600)
        basket.clear()

    def run_once():
        HIDDEN.loop.call_soon(HIDDEN.loop.stop)
        HIDDEN.loop.run_forever()

    def turn():
        HIDDEN.tasks.append(HIDDEN.loop.create_task(order(len(HIDDEN.tasks))))
        run_once()

    def end():
        for task in HIDDEN.tasks:
            task.cancel()
        run_once()
        HIDDEN.loop.close()
        del HIDDEN.loop, HIDDEN.tasks
"""


def test_calls_that_wait_own_what_their_variables_hold(load: Load) -> None:
    """Each has as much as the others: memory grows as there are more of them, and nothing of the user's holds them."""
    program = load(ORDERS)
    try:
        owner = the_owner(program)
        assert (owner.path, owner.calls) == ("order() in train.py: basket", 15)
        assert owner.holders[0] == "train.py, local basket of 15 calls of order()"
        assert [len(basket) for basket in resolve_all_ways(ROOTS, owner.hops, 64)] == [400] * 15
    finally:
        program.end()


BOUNDED = """
    ROW = "x" * 3000
    _MAXCACHE, MAX_WORDS = 500, 900
    _cache, rows = {}, []

    class Store:
        max_batches = 800

        def __init__(self):
            self.capacity, self.max_retries = 700, 600
            self.kept, self.batches = [], []

    STORE = Store()

    def turn():
        rows.append(ROW + str(len(rows)))
        _cache[len(_cache)] = ROW + str(len(rows))
        STORE.kept.append(ROW + str(len(rows)))
        STORE.batches.append(ROW + str(len(rows)))
"""


def test_a_bound_that_is_declared_beside_a_container_is_its_capacity(load: Load) -> None:
    """By its name, or as the bound of the object; a number of another name says nothing of the container."""
    capacities = {owner.path: owner.holding.capacity for owner in owners(load(BOUNDED))}
    assert capacities == {
        "train._cache": 500, "train.rows": None, "train.STORE.kept": 700, "train.STORE.batches": 700
    }  # fmt: skip


def test_a_container_that_is_longer_than_the_bound_beside_it_has_none(load: Load) -> None:
    program = load(BOUNDED)
    vars(program)["_MAXCACHE"] = 9
    assert {owner.holding.capacity for owner in owners(program) if owner.path == "train._cache"} == {None}


RECENT = """
    from collections import OrderedDict

    class Recent(OrderedDict):
        def __init__(self, max_size):
            super().__init__()
            self.max_size, self.links, self.limit_of_tries = max_size, {}, 40

    KEPT = Recent(600)

    def turn():
        KEPT[len(KEPT)] = "x" * 3000 + str(len(KEPT))
        KEPT.links[len(KEPT)] = "y" * 3000 + str(len(KEPT))
"""


def test_a_container_with_attributes_of_its_own_has_its_bound_among_them(load: Load) -> None:
    capacities = {owner.path: owner.holding.capacity for owner in owners(load(RECENT))}
    assert capacities == {"train.KEPT": 600, "train.KEPT.links": 600}


CLASSES = """
    import dataclasses

    ROWS = []

    def row_class():
        return dataclasses.make_dataclass("Row", [(f"column{n}", str, "x" * 900 + str(n)) for n in range(9)])

    def turn():
        ROWS.append(row_class())
"""


def test_classes_are_the_items_and_not_what_lies_within_them(load: Load) -> None:
    owner = the_owner(load(CLASSES))
    assert all(map(is_class, owner.contents.leaves))
    slope = Slope(1.0, 1.0, 1.0)
    growth = Growth(step=10, resident=1, limit=None, whole=slope, unit="round")
    assert owner_evidence(owner, steps=2, growth=growth, drift=slope).holds_classes
    ruled = replace(owner, rule_advice="Clear it.")
    assert not owner_evidence(ruled, steps=2, growth=growth, drift=slope).holds_classes


TREES = """
    class Node:
        pass

    TITLES = []

    def turn():
        nodes = [Node() for _ in range(500)]
        for node, after in zip(nodes, nodes[1:]):
            node.after, after.before, node.page = after, node, nodes
        TITLES.append(nodes[250])
"""


@pytest.mark.parametrize(("warm", "rounds"), [(20, 5), (60, 20)])
def test_trees_of_unlike_size_are_owned_by_the_table_that_holds_them(load: Load, warm: int, rounds: int) -> None:
    """Of most tables a sample is measured, and two samples of it differ by more than what came between them."""
    program = load("""
        import random
        TREES, draw = {}, random.Random(0)
        class Node:
            def __init__(self, parent):
                self.parent, self.body, self.fields = parent, [], {}
        def turn():
            nodes = [Node(None)]
            for number in range(min(2000, int(8 * draw.paretovariate(0.9)))):
                holder = draw.choice(nodes[-40:])
                nodes.append(Node(holder))
                holder.body.append(nodes[-1])
                holder.fields[str(number % 7)] = number * 1.5
            TREES[len(TREES)] = nodes[0]
    """)
    firsts = []
    for _ in range(10):
        program.TREES.clear()
        firsts.append(owners(program, rounds, warm)[:1])
    assert [owner.path for found in firsts for owner in found] == 10 * ["train.TREES"]


def test_nodes_that_reach_each_other_count_with_what_came(load: Load) -> None:
    """Items that are drawn from a tree hold those that are not; what they stand for is more than all there is."""
    program = load(TREES)
    before = census_at(0)
    for _ in range(30):
        program.turn()
    now, rate = census_at(30), 500 * 100.0
    (found,) = find_owners(before, now)
    assert found.bytes_grown > 4 * 30 * rate, "else nothing is wrong with the sizes"
    (owner,) = find_grown_owners(before, now, rate, 30, seeks_handles=False)
    assert (owner.path, owner.bytes_grown) == ("train.TITLES", 30 * rate)
    much = found.bytes_grown / 60
    assert find_grown_owners(before, now, much, 30, seeks_handles=False)[0].bytes_grown == found.bytes_grown
    # The census began ten steps after the other one, and came to the container at the thirtieth.
    assert find_grown_owners(before, now, much, 10, seeks_handles=False)[0].bytes_grown == found.bytes_grown


SHARED_ITEMS = {
    "a cache with links": """
        class Recent(dict):
            def __init__(self):
                self.links = {}
                self.anchor = []
                self.anchor[:] = [self.anchor, self.anchor, None, None]
            def __setitem__(self, key, value):
                last = self.anchor[0]
                link = [last, self.anchor, key, value]
                last[1] = self.anchor[0] = link
                self.links[key] = link
                super().__setitem__(key, value)
        KEPT = Recent()
        def turn():
            for _ in range(10):
                KEPT[len(KEPT)] = bytearray(20_000)
    """,
    "a tree beside the set of its items": """
        class Node:
            __slots__ = ("center", "items", "left")
            def __init__(self):
                self.center, self.items, self.left = 5, set(), None
        class Booking:
            def __init__(self):
                self.text = bytearray(20_000)
        class Tree:
            def __init__(self):
                self.all, self.top = set(), Node()
                self.top.left = Node()
        TREE = Tree()
        def turn():
            for number in range(10):
                booking = Booking()
                TREE.all.add(booking)
                (TREE.top if number % 2 else TREE.top.left).items.add(booking)
    """,
    "a list and an index by key": """
        class Shop:
            def __init__(self):
                self.index = {}
        ORDERS, SHOP = [], Shop()
        def turn():
            for _ in range(10):
                order = bytearray(20_000)
                ORDERS.append(order)
                SHOP.index[len(SHOP.index)] = (order, len(ORDERS))
    """,
}


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("a cache with links", "train.KEPT"),
        ("a tree beside the set of its items", "train.TREE.all"),
        ("a list and an index by key", "train.ORDERS"),
    ],
)
def test_containers_that_hold_the_same_items_are_one_owner(name: str, owner: str, load: Load) -> None:
    """The one that the user's name reaches in the fewest hops; it gets the bytes of all, as each has a part of them."""
    program, rate = load(SHARED_ITEMS[name]), 10 * 20_000.0
    for _ in range(20):
        program.turn()
    before = census_at(0)
    for _ in range(30):
        program.turn()
    now = census_at(30)
    # As a census counts each item once, or more often where items are drawn, each of them is an owner here.
    found = [
        replace(found, bytes_grown=round(10 * rate))
        for path in now.holdings
        if path in before.holdings and path.startswith(("train.KEPT", "train.TREE", "train.ORDERS", "train.SHOP"))
        for found in [describe_owner(before.holdings[path], now, path, 1.0, UserCode())]
        if found.holding.kind not in {"array", "bytes", "text"} and found.holding.length > 2 * found.length_before
    ]
    assert len(found) >= 2
    (kept,) = merge_holders_of_same_items(found, rate)
    assert (kept.path, kept.bytes_grown) == (owner, min(10 * len(found), 30) * rate)


def test_containers_whose_items_share_what_they_refer_to_are_owners_each(load: Load) -> None:
    """All jobs refer to one data set, and all sessions to the server that has a log: they are no parts of these."""
    program = load("""
        DATA, JOBS, SESSIONS = [bytearray(20_000)], [], []
        class Server:
            def __init__(self):
                self.log = []
        class Session:
            def __init__(self, server):
                self.server, self.text = server, bytearray(20_000)
        SERVER = Server()
        def turn():
            for number in range(10):
                DATA.append(bytearray(20_000))
                JOBS.append({"data": DATA[0], "text": bytearray(20_000)})
                SESSIONS.append(Session(SERVER))
                SERVER.log.append({"line": bytearray(20_000)})
    """)
    for _ in range(5):
        program.turn()
    before = census_at(0)
    for _ in range(10):
        program.turn()
    found = find_grown_owners(before, census_at(10), 40 * 20_000.0, 10, seeks_handles=False)
    assert {owner.path for owner in found} == {"train.DATA", "train.JOBS", "train.SESSIONS", "train.SERVER.log"}


@pytest.mark.parametrize(
    ("path", "least"),
    [
        ("parse() in json: self", OWNING.minimum_library_call_share),
        ("parse() in train.py: self", OWNING.minimum_reported_share),
    ],
)
def test_what_a_call_of_a_library_reaches_must_have_more_of_the_growth(path: str, least: float) -> None:
    """It is filled and dropped with each call, and two censuses may see two calls."""
    roots = Roots(named=((path, [bytes(1000)]),))  # no name of the test's own reaches the list
    before = census_at(0, roots)
    roots.named[0][1].extend(bytes(1000) for _ in range(20))
    now = census_at(1, roots)
    grown = find_owners(before, now)[0].bytes_grown
    assert [owner.path for owner in find_grown_owners(before, now, grown / (1.01 * least), 1, seeks_handles=False)] == [
        path
    ]
    assert find_grown_owners(before, now, grown / (0.99 * least), 1, seeks_handles=False) == []


def census_at(step: int, roots: Roots = ROOTS) -> Census:
    """A census that comes to each container at the step."""
    census = continue_census_(begin_census(roots), inf, step)
    assert census is not None
    return census


def test_a_registry_of_environments(load: Load) -> None:
    owner = the_owner(
        load("""
            import numpy as np
            class Env:
                registry = {}
                def __init__(self):
                    self.screen = np.zeros((100, 100, 3), np.uint8)
                    Env.registry[id(self)] = self
            def turn():
                Env()
        """)
    )
    assert (owner.path, owner.holding.kind, owner.holding.length) == ("train.Env.registry", "dict", 15)
    assert owner.holders == ("train.py, class Env", "attribute registry of Env", "dict of 15", "Env")
    assert owner.bytes_grown == pytest.approx(10 * 30_000, rel=0.05)
    assert owner.contents.what == "15 × uint8[100, 100, 3]"


def test_an_unbounded_history_of_dicts(load: Load) -> None:
    program = load("""
        HISTORY = []
        def turn():
            for i in range(50):
                HISTORY.append({"reward": i * 0.1, "length": 1000 + len(HISTORY), "return": i * 0.7})
    """)
    owner = the_owner(program)
    added = sum(sys.getsizeof(d) + 3 * 32 for d in program.HISTORY[250:])  # 24 and 28 bytes take 32
    assert (owner.path, owner.length_before, owner.holding.length) == ("train.HISTORY", 250, 750)
    assert owner.bytes_grown == pytest.approx(added, rel=0.1)
    assert owner.contents.what == "750 × dict of 3 keys"


def test_clones_in_a_hall_of_fame_with_their_moments(load: Load) -> None:
    program = load("""
        import copy, torch
        class Trainer:
            def __init__(self):
                self.net = torch.nn.Linear(200, 200)
                self.optimizer = torch.optim.Adam(self.net.parameters())
                self.hall = []
            def step(self):
                self.net(torch.ones(1, 200)).sum().backward()
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                self.hall.append(copy.deepcopy((self.net, self.optimizer)))
        trainer = Trainer()
        turn = trainer.step
    """)
    owner = the_owner(program)
    assert owner.path == "train.trainer.hall"
    assert owner.holders[:3] == ("train.py, global trainer", "attribute hall of Trainer", "list of 15")
    assert owner.bytes_grown == pytest.approx(10 * 3 * (200 * 200 + 200) * 4, rel=0.1)
    assert owner.contents.count == 15 * 3
    assert owner.contents.what == "45 × float32[200, 200]"


def test_figures_that_are_never_closed(load: Load) -> None:
    program = load("""
        import matplotlib
        matplotlib.use("agg")
        from matplotlib import pyplot
        def turn():
            pyplot.figure().add_subplot().plot(range(10))
    """)
    try:
        owner = the_owner(program, rounds=4, warm=2)
    finally:
        program.pyplot.close("all")
    assert (owner.path, owner.holding.kind, owner.length_before, owner.holding.length) == (
        "pyplot's figures",
        "figures",
        2,
        6,
    )
    assert owner.holders == ("pyplot's figures", "6 open figures", "Figure")
    assert owner.contents.what == "6 × Figure"
    assert 100_000 * 4 < owner.bytes_grown < 2_000_000 * 4


@pytest.mark.parametrize(
    ("key", "value", "item"),
    [
        ("(f'{n:0600d}', n)", "True", "tuple of 2 items"),
        ("f'{n:0200d}'", "n", "str"),
        ("n", "f'{n:0200d}'", "str"),
        ("n", "None", "int"),
        ("f'{n:0200d}'", "[n]", "list of 1 items"),
    ],
)
def test_entries_of_a_dict_are_told_by_what_is_large_in_them(load: Load, key: str, value: str, item: str) -> None:
    owner = the_owner(
        load(f"""
            SEEN = {{}}
            def turn():
                for n in range(len(SEEN), len(SEEN) + 2000):
                    SEEN[{key}] = {value}
        """)
    )
    assert owner.path == "train.SEEN"
    assert owner.contents.what == f"30000 × {item}"


def test_a_replay_that_is_still_filling(load: Load) -> None:
    """Bounded: it ends at its capacity, and consecutive windows share all rows but one."""
    owner = the_owner(
        load("""
            import collections, numpy as np
            PRICES = np.random.default_rng(0).normal(size=(2000, 64)).astype(np.float32)
            class Agent:
                def __init__(self):
                    self.memory = collections.deque(maxlen=1000)
            agent = Agent()
            def turn():
                for _ in range(10):
                    at = len(agent.memory)
                    agent.memory.append((PRICES[at : at + 20].copy(), 0.5, at))
        """)
    )
    assert (owner.path, owner.holding.kind) == ("train.agent.memory", "deque")
    assert (owner.length_before, owner.holding.length, owner.holding.capacity) == (50, 150, 1000)
    assert owner.bytes_grown == pytest.approx(100 * 20 * 64 * 4, rel=0.1)
    assert owner.item_bytes * 1000 == pytest.approx(1000 * 20 * 64 * 4, rel=0.1)
    assert " rows but one: " in (owner.redundancy or "")
    assert owner.contents.what == "150 × float32[20, 64]"


def test_states_kept_by_closures_in_a_callback_list(load: Load) -> None:
    owner = the_owner(
        load("""
            import torch
            CALLBACKS = []
            def turn():
                model = torch.nn.Linear(300, 300)
                optimizer = torch.optim.SGD(model.parameters())
                def on_step():
                    return optimizer
                CALLBACKS.append(on_step)
        """)
    )
    assert (owner.path, owner.holding.length) == ("train.CALLBACKS", 15)
    assert owner.holders == ("train.py, global CALLBACKS", "list of 15", "closure of on_step (optimizer)")
    assert owner.bytes_grown == pytest.approx(10 * (300 * 300 + 300) * 4, rel=0.1)


def test_a_list_that_only_a_closure_holds(load: Load) -> None:
    owner = the_owner(
        load("""
            def recorder():
                seen = []
                def turn():
                    seen.append(bytes(10_000))
                return turn
            turn = recorder()
        """)
    )
    assert owner.path == "train.turn.<closure of turn>.seen"
    assert owner.holders == ("train.py, global turn", "seen, in the closure of turn", "list of 15", "bytes")
    assert owner.bytes_grown == pytest.approx(10 * 10_033, rel=0.02)


@pytest.mark.parametrize(
    ("made", "put", "capacity"),
    [
        ("queue.Queue()", "put", None),
        ("queue.Queue(maxsize=100)", "put", 100),
        ("queue.SimpleQueue()", "put", None),
        ("asyncio.Queue()", "put_nowait", None),
    ],
)
def test_a_queue_whose_consumer_is_slow_is_a_backlog(load: Load, made: str, put: str, capacity: int | None) -> None:
    """Its length is what was put and not taken."""
    owner = the_owner(
        load(f"""
            import asyncio, queue
            import numpy as np
            TASKS = {made}
            def turn():
                TASKS.{put}(np.zeros(500))
                TASKS.{put}(np.zeros(500))
                TASKS.get{"" if put == "put" else "_nowait"}()
        """)
    )
    assert (owner.path, owner.holding.kind, owner.holding.capacity) == ("train.TASKS", "queue", capacity)
    assert (owner.length_before, owner.holding.length) == (5, 15)
    assert owner.bytes_grown == pytest.approx(10 * 4000, rel=0.1)
    assert len(owner.contents.leaves) == 10


@pytest.mark.parametrize(("decorator", "capacity"), [("cache", None), ("lru_cache(maxsize=200)", 200)])
def test_a_cache_on_a_method(load: Load, decorator: str, capacity: int | None) -> None:
    owner = the_owner(
        load(f"""
            import functools, itertools
            import numpy as np
            numbers = itertools.count(1000)
            class Env:
                @functools.{decorator}
                def observe(self, step):
                    return np.full(5000, step, np.float32)
            env = Env()
            def turn():
                for _ in range(10):
                    env.observe(next(numbers))
        """)
    )
    assert (owner.path, owner.holding.kind, owner.holding.capacity) == ("train.Env.observe", "cache", capacity)
    assert (owner.length_before, owner.holding.length) == (50, 150)
    assert owner.bytes_grown == pytest.approx(100 * 20_000, rel=0.1)
    bound = ", unbounded" if capacity is None else ", at most 200"
    assert owner.holders[-2:] == (f"cache of observe() with 150 results{bound}", "ndarray")
    assert [leaf[0] for leaf in owner.contents.leaves] == list(range(1126, 1150))


def test_hooks_that_are_registered_and_never_removed(load: Load) -> None:
    owner = the_owner(
        load("""
            import torch
            net = torch.nn.Sequential(torch.nn.Linear(4, 4))
            def turn():
                seen = torch.ones(1000)
                net[0].register_forward_hook(lambda module, given, out: seen.sum() and None)
        """)
    )
    assert (owner.path, owner.holding.kind, owner.holding.length) == ("train.net[*]._forward_hooks", "hooks", 15)
    assert owner.holders[-2:] == ("table of 15 hooks", "closure of <lambda> (seen)")
    assert owner.bytes_grown == pytest.approx(10 * 4000, rel=0.2)


@pytest.mark.parametrize("made", ["torch.zeros(50_000)", "np.zeros(50_000, np.float32)"])
def test_views_that_keep_a_large_base(load: Load, made: str) -> None:
    owner = the_owner(
        load(f"""
            import torch
            import numpy as np
            ROWS = []
            def turn():
                ROWS.append({made}[:5])
        """)
    )
    assert (owner.path, owner.contents.has_base, owner.contents.has_graph) == ("train.ROWS", True, False)
    assert owner.holders[-1].endswith("a view of a larger base")
    assert owner.bytes_grown == pytest.approx(10 * 200_000, rel=0.01)
    assert (owner.contents.count, owner.contents.what) == (15, "15 × float32[5]")


def test_of_several_containers_on_one_path_the_longest_is_described(load: Load) -> None:
    """As of a signal, which has a list of what is connected and an empty one."""
    owner = the_owner(
        load("""
            import numpy as np
            class Node:
                def __init__(self):
                    self.listeners = []
            NODES = (Node(), Node(), Node())
            def turn():
                NODES[1].listeners.append(np.zeros(50_000, np.float32))
        """)
    )
    assert owner.path == "train.NODES[*].listeners"
    assert (owner.holders[-1], owner.contents.what) == ("ndarray", "15 × float32[50000]")
    assert owner.contents.leaves


def test_a_small_view_beside_a_large_array_is_not_told(load: Load) -> None:
    owner = the_owner(
        load("""
            import numpy as np
            ROWS = []
            def turn():
                ROWS.append((np.zeros(50_000, np.float32), np.zeros(1)[:0]))
        """)
    )
    assert (owner.path, owner.contents.has_base, owner.contents.what) == ("train.ROWS", False, "15 × float32[50000]")


@pytest.mark.parametrize(
    ("join", "new"), [("np.concatenate", "np.ones((100, 8))"), ("torch.cat", "torch.ones(100, 8)")]
)
def test_an_array_that_is_added_to(load: Load, join: str, new: str) -> None:
    program = load(f"""
        import torch
        import numpy as np
        buffer = {new}
        def turn():
            global buffer
            buffer = {join}([buffer, {new}])
    """)
    owner = the_owner(program)
    assert (owner.path, owner.holding.kind) == ("train.buffer", "array")
    assert owner.bytes_grown == pytest.approx(10 * 100 * 8 * program.buffer.itemsize, rel=0.01)


def test_a_tensor_whose_graph_goes_back_to_the_first_round(load: Load) -> None:
    """Nothing is appended to anything: the running sum itself drags the history along."""
    program = load("""
        import torch
        weight = torch.ones(1000, requires_grad=True)
        state = torch.ones(1000)
        def turn():
            global state
            state = torch.tanh(state * weight)
    """)
    owner = the_owner(program)
    assert (owner.path, owner.holding.kind) == ("train.state", "graph")
    assert (owner.length_before, owner.holding.length) == (2 * 5 + 1, 2 * 15 + 1)
    assert owner.holders == ("train.py, global state", "autograd graph of 31 nodes", "Tensor with its autograd graph")
    each = 4000 + STORAGE_BYTES + 2 * NODE_BYTES + 3 * SAVED_BYTES
    assert owner.bytes_grown == pytest.approx(10 * each, rel=0.01)
    assert owner.contents.leaves == (program.state,)
    assert owner.contents.has_graph


def test_each_agent_s_history_is_one_owner(load: Load) -> None:
    """Forty lists grow for one reason."""
    owner = the_owner(
        load("""
            class Agent:
                def __init__(self):
                    self.history = []
            AGENTS = [Agent() for _ in range(40)]
            def turn():
                for agent in AGENTS:
                    agent.history.append(bytes(1000))
        """)
    )
    assert (owner.path, owner.length_before, owner.holding.length) == ("train.AGENTS[*].history", 5, 15)
    assert owner.bytes_grown == pytest.approx(40 * 10 * 1033, rel=0.05)
    assert (owner.contents.count, owner.contents.what) == (600, "600 × bytes")


def test_longer_items_do_not_take_the_blame_from_the_list_they_are_in(load: Load) -> None:
    """Episodes become longer as the agent survives; what leaks is the list of episodes."""
    owner = the_owner(
        load("""
            EPISODES = []
            def turn():
                EPISODES.append([bytes(1000) for _ in range(100 + len(EPISODES))])
        """)
    )
    assert (owner.path, owner.holding.length) == ("train.EPISODES", 15)


def test_two_leaks_are_two_owners_and_their_holder_is_none(load: Load) -> None:
    found = owners(
        load("""
            class Trainer:
                def __init__(self):
                    self.small, self.large, self.fixed = [], [], [0] * 1000
            trainer = Trainer()
            def turn():
                trainer.small.append(bytes(10_000))
                trainer.large.append(bytes(30_000))
        """)
    )
    assert [(owner.path, owner.holding.length) for owner in found] == [
        ("train.trainer.large", 15),
        ("train.trainer.small", 15),
    ]


def test_more_blocks_of_one_length_are_the_growth_of_what_holds_them(load: Load) -> None:
    """Even where a sample gives as many of them as before, as 46 of 48 and of 49."""
    owner = the_owner(
        load("""
            class Dashboard:
                def __init__(self):
                    self.canvas = bytearray(300_000)
            KEPT = [Dashboard()]
            FIRST = KEPT[0].canvas
            def turn():
                KEPT.append(Dashboard())
        """),
        rounds=1,
        warm=47,
    )
    assert (owner.path, owner.holding.kind) == ("train.KEPT", "list")


def test_locals_of_a_running_loop_are_found_and_named_by_their_function(load: Load) -> None:
    program = load("""
        def play(look):
            losses = []
            for step in range(30):
                losses.append(bytes(10_000))
                if step in (9, 29):
                    look()
    """)
    seen = []
    program.play(lambda: seen.append(take_census(ROOTS)))
    [owner] = find_owners(*seen)
    assert owner.path == "play() in train.py: losses"
    assert owner.holders == ("train.py, local losses of play()", "list of 30", "bytes")
    assert owner.bytes_grown == pytest.approx(20 * 10_033, rel=0.02)


def test_a_linked_list_is_one_holding(load: Load) -> None:
    owner = the_owner(
        load("""
            class Node:
                __slots__ = ("next", "data")
            head = Node()
            head.next, head.data = None, None
            def turn():
                for _ in range(20):
                    node = Node()
                    node.next, node.data = head.next, bytes(1000)
                    head.next = node
        """)
    )
    assert (owner.path, owner.holding.length) == ("train.head.next", 300)
    assert owner.bytes_grown == pytest.approx(200 * 1081, rel=0.1)


SLOW = pytest.mark.slow
DEEP = {
    "lists": ("chain = [chain]", 300_000),
    "dicts": ("chain = {each: chain}", 100_000),
    "nodes": ("chain = Node(chain)", 1_000_000),
}
"""What makes a chain one longer, and how long it is."""


@pytest.mark.long
@pytest.mark.parametrize("shape", ["dicts", pytest.param("lists", marks=SLOW), pytest.param("nodes", marks=SLOW)])
def test_a_chain_of_any_depth_grows_and_costs_no_more_than_other_objects(load: Load, shape: str) -> None:
    """No call goes deeper with it, a path has a few hops, and a census ends at its number of objects."""
    longer, length = DEEP[shape]
    program = load(f"""
        class Node:
            __slots__ = ("next",)
            def __init__(self, next):
                self.next = next
        def turn(times, chain):
            for each in range(times):
                {longer}
            return chain
        chain = turn({length}, None)
    """)
    census = take_census(ROOTS)
    assert census.visited <= 200_000
    assert census.truncated == (length > 200_000)
    ways = [path for path in census.holdings if path.startswith("train.")]
    assert 0 < len(ways) <= 20
    assert max(path.count("[") + path.count(".") for path in ways) <= 20
    program.chain = program.turn(2000, None)
    before = take_census(ROOTS).without_objects()
    program.chain = program.turn(length // 10, program.chain)
    foremost = max(find_owners(before, take_census(ROOTS)), key=lambda owner: owner.bytes_grown)
    assert foremost.path.startswith("train.chain")


@pytest.mark.long
def test_a_flat_program_has_no_owners(load: Load) -> None:
    """Work that ends where it began: buffers overwritten, a full deque, a model that trains, a result replaced."""
    program = load("""
        import collections, torch
        import numpy as np
        net = torch.nn.Linear(20, 20)
        optimizer = torch.optim.Adam(net.parameters())
        ring, recent, best = np.zeros((100, 20)), collections.deque(maxlen=4), None
        def turn():
            global best
            loss = net(torch.ones(8, 20)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ring[len(recent)] = 1.0
            recent.append(np.zeros(1000))
            best = {k: v.clone() for k, v in net.state_dict().items()}
    """)
    assert owners(program) == []


def test_a_cache_that_filled_before_is_no_owner(load: Load) -> None:
    program = load("""
        table = {}
        def turn():
            for i in range(200):
                table.setdefault(i, bytes(5000))
    """)
    assert owners(program) == []


def test_what_is_held_twice_grows_once(load: Load) -> None:
    program = load("""
        import numpy as np
        class Log:
            def __init__(self):
                self.again = []
        FIRST, log = [], Log()
        def turn():
            array = np.zeros(10_000)
            FIRST.append(array)
            log.again.append(array.reshape(100, 100))
    """)
    owner = owners(program)[0]
    assert owner.path == "train.FIRST"
    assert sum(o.bytes_grown for o in owners(program)) == pytest.approx(10 * 80_000, rel=0.1)


def test_a_holder_that_grew_a_little_too_is_only_an_ancestor(load: Load) -> None:
    """The table gets an entry of 1 KB a turn, and a list in it 10 KB: the list explains nine tenths."""
    program = load("""
        table = {"log": []}
        def turn():
            table["log"].append(bytes(10_000))
            table[f"turn_{len(table)}"] = bytes(1000)
    """)
    assert the_owner(program).path == "train.table['log']"


def test_a_holder_that_grew_for_itself_is_an_owner_too(load: Load) -> None:
    program = load("""
        table = {"log": []}
        def turn():
            table["log"].append(bytes(10_000))
            table[f"turn_{len(table)}"] = bytes(10_000)
    """)
    found = {owner.path: owner.bytes_grown for owner in owners(program)}
    assert found == {
        "train.table": pytest.approx(10 * 10_033, rel=0.05),
        "train.table['log']": pytest.approx(10 * 10_033, rel=0.05),
    }


def test_items_that_keep_more_one_after_the_other_are_the_owner(load: Load) -> None:
    """Sixty pages are there from the beginning, and each keeps its words when it is read: the mean has no more."""
    program = load("""
        class Page:
            def __init__(self, number):
                self.number, self.size, self.report = number, (595, 842), None

        report = [Page(number) for number in range(60)]
        unread = iter(report)

        def turn():
            next(unread).words = [f"word {n}" for n in range(1000)]
    """)
    before = take_census(ROOTS).without_objects()
    owner = the_owner(program)
    assert (owner.path, owner.holding.kind) == ("train.report[*]", "object")
    assert find_owners(before._replace(sampled_items=6), take_census(ROOTS)) == [], "other items were drawn"
    words = [f"word {n}" for n in range(1000)]
    assert owner.bytes_grown == pytest.approx(10 * sum(map(sys.getsizeof, [words, *words])), rel=0.2)


@pytest.mark.parametrize("kept", ["np.zeros(10_000)", "bytes(80_000)", "[bytes(8000) for _ in range(10)]"])
@pytest.mark.parametrize("count", [12, 160])
def test_what_items_of_a_list_of_constant_length_keep_from_their_first_use_on_is_an_owner(
    load: Load, kept: str, count: int
) -> None:
    """Images that are opened at the beginning, and each keeps its data once it is read."""
    program = load(f"""
        import numpy as np

        class Image:
            def __init__(self):
                self.size, self.data = (48, 48), None

        images = [Image() for _ in range({count})]
        unread = iter(images)

        def turn():
            for _ in range({count} // 12):
                next(unread).data = {kept}
    """)
    before = take_census(ROOTS).without_objects()
    assert owners(program, rounds=4, warm=0) == [], "nothing had any before: it may be there for a moment"
    owner = the_owner(program, rounds=4, warm=2)
    assert (owner.path, owner.in_more_items) == ("train.images[*].data", True)
    assert owner.bytes_grown == pytest.approx(count // 12 * 4 * 80_000, rel=0.35)
    assert owner.contents.leaves
    rate = Slope(1e5, 1e5, 1e5)
    growth = Growth(6, 1, None, rate, "turn")
    assert owner_evidence(owner, steps=4, growth=growth, drift=rate).advice == (
        "Drop it when the item is done with: `item.data = None`, for each `item` of `train.images`. Each item keeps "
        "one from its first use on."
    )
    table = LibraryTable("nibabel", ("Nifti1Image.uncache()",))
    of_library = owner_evidence(replace(owner, table=table), steps=4, growth=growth, drift=rate)
    assert of_library.advice == table.advice, "the library has a call that lets go"
    assert find_owners(before._replace(sampled_items=6), take_census(ROOTS)) == [], "other items were drawn"


def test_items_that_replace_what_they_keep_are_no_owner(load: Load) -> None:
    program = load("""
        import numpy as np

        class Worker:
            def __init__(self):
                self.batch = np.zeros(10_000)

        workers = [Worker() for _ in range(40)]

        def turn():
            for worker in workers:
                worker.batch = None if worker.batch is None else np.ones(10_000)
    """)
    assert owners(program) == []


def test_a_way_leads_to_what_stands_in_the_place_of_a_container() -> None:
    """A dict that is copied whenever it grows, in an object, in the newest item of a list."""

    class Sinks:
        def __init__(self, names: dict[str, list[int]]) -> None:
            self.names = names

    kept = [Sinks({}), Sinks({"a": [1], "b": [2]})]
    roots = Roots(named=(("kept", kept),))
    way = ("kept", "[*]", ".names", "['b']")
    assert resolve_hops(roots, way) is kept[1].names["b"]
    kept[1].names = {**kept[1].names, "b": [3, 4]}
    assert resolve_hops(roots, way) == [3, 4]
    kept[1].names = {}
    assert resolve_hops(roots, way) is None
    assert resolve_hops(roots, ("gone", "[*]")) is None
    kept += [Sinks({"b": [number]}) for number in range(3)]
    assert resolve_all_ways(roots, way, 2) == [[1], [2]]
    keyed = Roots(named=(("kept", {each: n for n, each in enumerate(kept)}),))
    assert resolve_all_ways(keyed, ("kept", "[key]", ".names", "['b']"), 2) == [[1], [2]]
    assert resolve_hops(keyed, ("kept", "[key]")) is kept[-1]


def test_a_table_of_weak_references_grows_with_what_others_keep(load: Load) -> None:
    program = load("""
    import weakref
    class Client: ...
    clients, by_number, every = [], weakref.WeakValueDictionary(), weakref.WeakSet()
    def come(n):
        for _ in range(n):
            client = Client()
            client.page = bytes(100)
            clients.append(client)
            every.add(client)
            by_number[len(by_number)] = client
    come(10)
    """)
    before = census_at(0)
    program.come(2000)
    now = census_at(1)
    each = {owner.path.partition(".")[2]: owner.bytes_grown for owner in find_owners(before, now)}
    assert sorted(each) == ["by_number", "clients", "every"]
    (owner,) = find_grown_owners(before, now, sum(each.values()), 1, seeks_handles=False)
    assert (owner.path, owner.bytes_grown) == ("train.clients", sum(each.values()))


def test_children_of_one_name_are_all_reached(load: Load) -> None:
    """Of an object of C the collector says what it refers to, and no names: two lists are both `<list>`."""
    program = load("first, second = [1], [2, 3]\nheld = property(first, second)")
    found = resolve_all_ways(Roots(), ("train.held", ".<list>"), 64)
    assert [id(each) for each in found] == [id(program.first), id(program.second)]


def test_a_way_asks_once_which_modules_are_the_users(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes milliseconds, and several times as many while allocations are traced."""
    program = load("""
    class Page:
        def __init__(self, n):
            self.words = [n]
    pages = [Page(n) for n in range(5)]
    """)
    asked: list[Roots] = []

    def census_at(roots: Roots) -> dict[str, dict[str, Any]]:
        asked.append(roots)
        return user_modules(roots)

    monkeypatch.setattr("flatwater_watch.diagnose.hops.user_modules", census_at)
    found = resolve_all_ways(Roots(), ("train.pages", "[*]", ".words"), 64)
    assert found == [page.words for page in program.pages]
    assert len(asked) == 1


def test_a_table_that_is_replaced_by_a_larger_one_is_told_by_the_name_of_the_table() -> None:
    pandas = pytest.importorskip("pandas")
    numpy = pytest.importorskip("numpy")
    holder = {"history": pandas.DataFrame({"price": numpy.zeros(1000)})}
    roots = Roots(named=(("holder", holder),))
    before = take_census(roots)
    rows = pandas.DataFrame({"price": numpy.ones(100_000)})
    holder["history"] = pandas.concat([holder["history"], rows], ignore_index=True)
    (owner,) = [found for found in find_owners(before, take_census(roots)) if found.path.endswith("holder['history']")]
    assert "float64[1, 101000]" in owner.contents.what
    assert resolve_hops(roots, owner.hops) is owner.container


def test_a_cache_of_numbers_is_told_by_the_arguments_that_it_keeps() -> None:
    class Client:
        def __init__(self) -> None:
            self.pool = bytes(10_000)

        @functools.lru_cache(maxsize=None)  # noqa: B019, UP033
        def files(self) -> int:
            return 7

    kept = Client.files
    Client().files()
    roots = Roots(named=(("kept", kept),))
    before = take_census(roots)
    for _ in range(20):
        Client().files()
    owners = [found for found in find_owners(before, take_census(roots)) if found.holding.kind == "cache"]
    assert [owner.contents.what for owner in owners] == ["21 × bytes of 10033 bytes"]
    assert {type(leaf) for leaf in owners[0].contents.leaves} == {bytes}
