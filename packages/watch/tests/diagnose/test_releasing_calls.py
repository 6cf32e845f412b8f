"""A table of a library is not the user's to empty: its calls that let go are named."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from flatwater_watch.diagnose.code_use import UserCode
from flatwater_watch.diagnose.releasing_calls import LibraryTable, library_table
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.roots import Roots

LIBRARY = """
import collections
import functools
import queue

def decorated(function):
    @functools.wraps(function)
    async def wrapper(*arguments):
        return await function(*arguments)
    return wrapper

class Stash:
    def __init__(self):
        self.blocks = []

    def close(self):
        pass

class Converter:
    closed = False

    def __init__(self):
        self.stash, self._pages = Stash(), {}

    def close(self):
        self._begin()

    def flush(self):
        pass

    def removePage(self, page):
        del self._pages[page]

    def resetNumbers(self):
        return [len(page) for page in self._pages.values()]

    def reset_all(self):
        self._begin()

    def clear_view(self):
        self.view = len(self._pages)

    def _begin(self):
        self.stash, self._pages = Stash(), {}

    def convert(self):
        pass

class Silent:
    def __init__(self):
        self.seen = []

class Saver:
    def __init__(self):
        self.threads, self.writes = {}, {}

    def delete_thread(self, thread_id, *, strict=False):
        for key in list(self.writes):
            if key[0] == thread_id:
                del self.writes[key]

    def release_threads(self):
        threads = self.threads
        for thread in list(self.writes):
            threads.pop(thread)

    def _clear(self):
        self.writes.clear()

class Private:
    def __init__(self):
        self._saver = Saver()

class Reseller:
    def __init__(self):
        self._saver = Saver()

    def resell(self, thread_id):
        if len(self._saver.threads) > self.most_threads and self.sells(thread_id) and not self.is_closed:
            self._saver.delete_thread(thread_id)

    def part_with(self, thread_id):
        self._saver.delete_thread(thread_id)

class Observed:
    def __init__(self):
        self._notifiers = {}

    def observe(self, handler):
        self._notifiers[handler] = True

    def unobserve(self, handler):
        self._notifiers.pop(handler)

class Shell:
    def __init__(self):
        self._user_space, self.__names = {}, Names()

    @property
    def names(self):
        return self.__names

    @property
    def user_space(self):
        return self._user_space

    def reset(self):
        self.user_space.clear()

class Names:
    def __init__(self):
        self.__cache = {}

    @decorated
    async def cache_delete(self, key):
        await self._delete(key)

    async def _delete(self, key):
        del self.__cache[key]

class Client:
    def __init__(self, retries=0):
        self._messages, self._max_messages, self._max_tries = [], 0, retries

    def publish(self, message):
        if len(self._messages) < self._max_messages:
            self._messages.append(message)

    def max_messages_set(self, number):
        self._max_messages = number

    @property
    def max_messages(self):
        return self._max_messages

    @max_messages.setter
    def max_messages(self, value):
        self._max_messages = value

    def max_tries_set(self, number):
        self._max_tries = number

class Optimizer:
    def __init__(self, model_queue_size=None):
        self.models = []
        self.max_model_queue_size = model_queue_size

    def tell(self, model):
        if len(self.models) == self.max_model_queue_size:
            self.models.pop(0)
        self.models.append(model)

class Replayed:
    def __init__(self, rows, *, maxlen=None, max_tries=None):
        self._rows = [] if maxlen is None else collections.deque(maxlen=maxlen)

class Pool:
    def __init__(self):
        self.workers = [Worker()]

    def run_all(self, jobs, worker_lifespan=None, expire=None):
        pass

    def run_one(self, job, worker_lifespan=None):
        self.run_one(job)

class Worker:
    def __init__(self):
        self.state = {}

class Kept:
    def __init__(self, maxsize=100):
        self.rows = []

class Reader:
    def __init__(self, errors=None):
        self.buffer = queue.SimpleQueue()
        self.errors = errors

    def get_message(self, timeout=0.5):
        return self.buffer.get(timeout=timeout)

    def get_bus(self):
        return self.bus

    def run(self):
        return self.buffer.get()

class Silenced:
    def __init__(self):
        self.lines = queue.SimpleQueue()

class Tables:
    def __init__(self):
        self.tables, self.index = {}, {}

    def remove(self, table):
        dict.pop(self.tables, table, None)

    def __delitem__(self, key):
        del self.index[key]

class Scheduler:
    def __init__(self, spool_size=0):
        self._jobs, self._spool, self._seen = {}, [], []
        self.spool_size = spool_size

    def schedule(self, kind, job):
        self._jobs.setdefault(kind, set()).add(job)
        self._spool.append(job)

    def requeue(self, kind, job):
        self._jobs.pop(kind)
        self._jobs[kind] = {job}

    def unschedule(self, kind):
        with self.lock:
            del self._jobs[kind]

    def drop_job(self, kind, job):
        jobs = self._jobs.get(kind, set())
        jobs.remove(job)

    def remove_job(self, kind, job):
        self._jobs.get(kind, set()).remove(job)

    def remove_kind(self, kind):
        {}.get(self._jobs, set()).clear()

    def roll(self):
        if self.spool_size and len(self._spool) >= self.spool_size:
            self._spool.pop(0)

    def view(self):
        return len(self._spool) - self.first, self._seen

    def look_at(self, first):
        self.first = first

    def drop_seen(self, job):
        self._seen.remove(job)

    def latest_seen(self):
        self._latest = self._seen.pop()
        return self._latest

    def cycle_seen(self, job):
        self._seen.remove(job)
        self._seen.append(job)

class Attributes:
    def __init__(self):
        self._storage = {}

    def __setattr__(self, name, value):
        if name == "_storage":
            object.__setattr__(self, name, value)
        else:
            self._storage[name] = value

    def __delattr__(self, name):
        del self._storage[name]

class Page:
    def __init__(self, number):
        self.number = number

    def close(self):
        for name in list(vars(self)):
            if name.startswith("layout"):
                delattr(self, name)

class Report:
    def __init__(self):
        self._pages = [Page(number) for number in range(9)]

    def close(self):
        self._pages = []

    @property
    def pages(self):
        return self._pages

class Widget:
    def __init__(self):
        _widgets[id(self)] = self

    def close(self):
        _widgets.pop(id(self), None)

    def clear_output(self):
        pass

class Sink:
    def __init__(self):
        _sinks.add(self)

    def destroy(self):
        _sinks.remove(self)

class Register(type):
    __instances = {}

    @classmethod
    def clear_instances(cls):
        cls.__instances = {}

    @classmethod
    def disable_instances(cls):
        cls.__instances = None

class Task(metaclass=Register):
    pass

class State:
    def __init__(self):
        self.document = []

    def reset(self):
        self.document = []

    def clear_name(self):
        self.name = None

class Algorithm:
    def __init__(self):
        self.history = []

class WeakCache:
    def __init__(self):
        self.traced = []

    def cache_clear(self):
        raise ValueError

def clear_caches():
    raise ValueError

_cache, _traces, _STATE, _widgets, _sinks = {}, WeakCache(), State(), {}, set()

from os import remove

def purge():
    _cache.clear()

def current_state():
    return _STATE

def reset_output(state=None):
    current_state().reset()

def reset_names():
    current_state().clear_name()
"""
PROGRAM = """
    import patternlib
    from patternlib import Pool

    class Site:
        def __init__(self):
            self.converter, self.pages = patternlib.Converter(), []

    class Settings(patternlib.Observed):
        pass

    class Rows(patternlib.Observed):
        def __init__(self):
            self._notifiers = {}

    SETTINGS, ROWS, SHELL = Settings(), Rows(), patternlib.Shell()

    def solve(solver):
        solver(seed=3, save_history=True)

    SCHEDULER, ATTRIBUTES = patternlib.Scheduler(), patternlib.Attributes()

    def add(job):
        SCHEDULER.schedule("hourly", job)

    SITE, SILENT, SAVER = Site(), patternlib.Silent(), patternlib.Saver()
    TABLES = patternlib.Tables()
    REPORT = patternlib.Report()
    CLIENT, OPTIMIZER = patternlib.Client(), patternlib.Optimizer()
    LOG, SILENCED = patternlib.Reader(patternlib.queue.SimpleQueue()), patternlib.Silenced()
    REPLAYED, KEPT, POOL = patternlib.Replayed(()), patternlib.Kept(), Pool()

    def work():
        POOL.run_all([], expire=3)
    SOLVER, PRIVATE, RESELLER = patternlib.Algorithm(), patternlib.Private(), patternlib.Reseller()
    SAVERS = [patternlib.Saver() for _ in range(9)]
"""
TABLES = {
    "train.SITE.converter.stash.blocks": ("train.SITE.converter.reset_all()", "train.SITE.converter.close()"),
    "train.SITE.converter._pages": ("train.SITE.converter.removePage(page)", "train.SITE.converter.reset_all()"),
    "train.SAVER.writes": ("train.SAVER.delete_thread(thread_id)",),
    "train.SAVER.threads": ("train.SAVER.release_threads()",),
    "train.SAVERS[*].writes": ("item.delete_thread(thread_id)",),
    "train.PRIVATE._saver.writes": ("Saver.delete_thread(thread_id)",),
    "train.RESELLER._saver.writes": ("train.RESELLER.part_with(thread_id)",),
    "patternlib.Register._Register__instances": ("Register.clear_instances()",),
    "patternlib._STATE.document": ("patternlib.reset_output()",),
    "patternlib._traces.traced": ("patternlib.clear_caches()",),
    "patternlib._cache": ("patternlib.purge()",),
    "patternlib._widgets": ("Widget.close()",),
    "train.SETTINGS._notifiers": ("train.SETTINGS.unobserve(handler)",),
    "train.SHELL._user_space": ("train.SHELL.reset()",),
    "train.SHELL._Shell__names._Names__cache": ("train.SHELL.names.cache_delete(key)",),
    "train.TABLES.tables": ("train.TABLES.remove(table)",),
    "train.TABLES.index": ("del train.TABLES[key]",),
    "train.REPORT._pages[*]": ("item.close()",),
    "train.SCHEDULER._jobs": ("train.SCHEDULER.unschedule(kind)", "train.SCHEDULER.remove_job(kind, job)"),
    "train.SCHEDULER._seen": ("train.SCHEDULER.drop_seen(job)",),
    "train.ATTRIBUTES._storage": ("delattr(train.ATTRIBUTES, name)",),
    "train.SILENT.seen": (),
}
"""Calls by the path of the table."""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An installed package, as its folder says."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "patternlib.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(folder))
    yield importlib.import_module("patternlib")
    del sys.modules["patternlib"]


def test_the_call_that_lets_go_is_named(library: ModuleType, load: Callable[[str], ModuleType]) -> None:
    """Of what the program has a name for, the surest first."""
    load(PROGRAM)
    census = take_census(Roots(libraries=_globals_of(library)))
    tables = {path: library_table(census, path, UserCode(), library.Widget()) for path in TABLES}
    assert {path: table and table.calls for path, table in tables.items()} == TABLES
    sinks = library_table(census, "patternlib._sinks", UserCode(), library.Sink())
    assert sinks is not None
    assert sinks.calls == ("Sink.destroy()",)
    assert {table and table.library for table in tables.values()} == {"patternlib"}
    pages = tables["train.REPORT._pages[*]"]
    assert pages is not None
    assert pages.advice.startswith(
        "Call `item.close()` when this is done with, for each `item` of `train.REPORT.pages`. "
    )
    silent, solver, savers = (
        library_table(census, path, UserCode())
        for path in ("train.SILENT.seen", "train.SOLVER.history", "train.SAVERS[*].writes")
    )
    assert silent is not None
    assert silent.advice.startswith("Run the line that adds less often, ")
    assert "or make `train.SILENT` anew when a job is done. " in silent.advice
    assert solver is not None
    assert solver.advice.startswith("Leave `save_history` out where its result is not needed.")
    assert savers is not None
    assert ", for each `item` of `train.SAVERS`. " in savers.advice
    assert library_table(census, "train.SITE.pages", UserCode()) is None, "the user's own"
    assert library_table(census, "train.ROWS._notifiers", UserCode()) is None, "the user's class sets it"
    client, optimizer, scheduler = (
        library_table(census, f"train.{name}", UserCode())
        for name in ("CLIENT._messages", "OPTIMIZER.models", "SCHEDULER._spool")
    )
    assert scheduler is not None
    assert scheduler.bounds == ("Scheduler(spool_size=...)",)
    assert not scheduler.calls
    assert client is not None
    assert client.bounds == ("train.CLIENT.max_messages = value", "train.CLIENT.max_messages_set(number)")
    assert client.advice.startswith("Bound it by `train.CLIENT.max_messages = value` or ")
    assert optimizer is not None
    assert optimizer.bounds == ("Optimizer(model_queue_size=...)",)


BOUNDS = {
    "train.REPLAYED._rows": ("Replayed(maxlen=...)",),
    "train.KEPT.rows": (),
    "train.POOL.workers[*].state": ("train.POOL.run_all(..., worker_lifespan=...)",),
}
"""Arguments that bound what an object keeps, by the path of the table; one with a bound of its own needs none."""


@pytest.mark.usefixtures("library")
def test_an_argument_that_bounds_a_table_is_named(load: Callable[[str], ModuleType]) -> None:
    load(PROGRAM)
    census = take_census(Roots())
    tables = {path: library_table(census, path, UserCode()) for path in BOUNDS}
    assert {path: table and table.bounds for path, table in tables.items()} == BOUNDS


@pytest.mark.usefixtures("library")
def test_a_queue_that_a_library_makes_is_emptied_by_its_call(load: Callable[[str], ModuleType]) -> None:
    load(PROGRAM)
    census = take_census(Roots())
    log, silenced = (library_table(census, f"train.{name}", UserCode()) for name in ("LOG.buffer", "SILENCED.lines"))
    assert log is not None
    assert log.advice == (
        "Take items out as fast as they come, by `train.LOG.get_message()`. patternlib keeps each until it is taken."
    )
    assert silenced is not None
    assert silenced.advice.startswith("Take items out as fast as they come, or put fewer in. ")
    assert library_table(census, "train.LOG.errors", UserCode()) is None, "the user's code made it"


def _globals_of(library: ModuleType) -> tuple[tuple[str, object], ...]:
    """The tables that globals and a class of the library hold, with their paths."""
    instances = vars(library.Register)["_Register__instances"]
    return (
        ("patternlib._cache", library._cache),
        ("patternlib._widgets", library._widgets),
        ("patternlib._sinks", library._sinks),
        ("patternlib._traces", library._traces),
        ("patternlib._STATE", library._STATE),
        ("patternlib.Register._Register__instances", instances),
    )


ADVICE = {
    ("Saver.delete_thread(thread_id)", "Saver.clear()"): (
        "Call `Saver.delete_thread(thread_id)` for each that is done with, or `Saver.clear()` for all. patternlib "
        "keeps it until then."
    ),
    ("patternlib.purge()",): "Call `patternlib.purge()` when this is done with. patternlib keeps it until then.",
    (): (
        "Run the line that adds less often, once if it registers something. patternlib keeps it, and no call of it "
        "that lets go was found."
    ),
}


@pytest.mark.parametrize("calls", ADVICE)
def test_the_call_stands_first_and_no_advice_is_to_delete_from_a_private_table(calls: tuple[str, ...]) -> None:
    assert LibraryTable("patternlib", calls).advice == ADVICE[calls]
