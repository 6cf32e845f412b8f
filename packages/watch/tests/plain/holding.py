"""Ways in which plain Python holds what nobody needs any more, each a program that grows until its seconds are over.

    python packages/watch/tests/plain/holding.py list:text 8     # a list of texts
    python packages/watch/tests/plain/holding.py written_bytes 8

A container of one kind and items of one kind, or one of the ways by name. `# <- here` marks the line that makes what is
held, for `benchmarks/watch/bench_plain.py`.
"""

import array
import asyncio
import collections
import concurrent.futures
import contextlib
import contextvars
import csv
import ctypes
import functools
import heapq
import io
import itertools
import linecache
import logging
import queue
import sched
import selectors
import socket
import sys
import tempfile
import threading
import time
import types
import weakref
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

MARK = "# <- here"
PAUSE = 0.01


@dataclass
class Record:
    n: int
    name: str
    values: list[int]


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    label: str


class Client:
    pass


class Image:
    def __init__(self) -> None:
        self.data: bytes | None = None


ITEMS: dict[str, Callable[[int], Any]] = {
    "text": lambda n: f"a line of text with the number {n} in it, and some more of it",  # <- here
    "ints": lambda n: (n, n + 1, n * 7),  # <- here
    "dict": lambda n: {"id": n, "name": f"name {n}", "tags": [n, n + 1]},  # <- here
    "float": lambda n: n * 1.5,  # <- here
    "bytes": lambda n: bytes(200) + str(n).encode(),  # <- here
    "record": lambda n: Record(n, f"name {n}", [n]),  # <- here
    "point": lambda n: Point(n * 0.5, n * 0.25, f"p{n}"),  # <- here
    "list": lambda n: [n * 1.0, n * 2.0, n * 3.0],  # <- here
    "error": lambda n: ValueError(f"bad value {n}"),  # <- here
    "closure": lambda n: lambda: n,  # <- here
}


def large(n: int) -> bytes:
    return bytes(3000) + str(n).encode()  # <- here


class Kept:
    seen: list[Any] = []  # noqa: RUF012  (that it is shared is the leak)


HISTORY: list[Any] = []
LOCAL = threading.local()
VARIABLE: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("VARIABLE", default=())


def rounds(seconds: float) -> Iterator[int]:
    until, n = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        n += 1
        yield n
        time.sleep(PAUSE)


def adders() -> dict[str, Callable[[int, Any], object]]:
    """How to put item number n into a container of each kind."""
    row: list[Any] = []
    ordered: collections.OrderedDict[int, Any] = collections.OrderedDict()
    lists: collections.defaultdict[int, list[Any]] = collections.defaultdict(list)
    nested: dict[int, dict[int, Any]] = {}
    values: dict[int, Any] = {}
    keys: dict[Any, int] = {}
    every: set[Any] = set()
    recent: collections.deque[Any] = collections.deque()
    heap: list[Any] = []
    waiting: queue.Queue[Any] = queue.Queue()
    simple: queue.SimpleQueue[Any] = queue.SimpleQueue()
    return {
        "list": lambda _, item: row.append(item),
        "deque": lambda _, item: recent.append(item),
        "set": lambda _, item: every.add(item),
        "dict": lambda n, item: values.update({n: item}),
        "keys": lambda n, item: keys.setdefault(item, n),
        "ordered": lambda n, item: ordered.update({n: item}),
        "lists": lambda n, item: lists[n % 50].append(item),
        "nested": lambda n, item: nested.setdefault(n % 500, {}).__setitem__(n, item),
        "heap": lambda n, item: heapq.heappush(heap, [n, item]),
        "queue": lambda _, item: waiting.put(item),
        "simple_queue": lambda _, item: simple.put(item),
        "class": lambda _, item: Kept.seen.append(item),
        "global": lambda _, item: HISTORY.append(item),
    }


def fill(container: str, item: str, seconds: float) -> None:
    make, add, n = ITEMS[item], adders()[container], 0
    for _ in rounds(seconds):
        for _ in range(200):
            n += 1
            add(n, make(n))


def cached_calls(seconds: float) -> None:
    @functools.cache
    def answer(n: int) -> bytes:
        return large(n)

    for n in rounds(seconds):
        for k in range(10):
            answer(10 * n + k)


def added_text(seconds: float) -> None:
    log = ""
    for n in rounds(seconds):
        log += f"line {n} of a log that is added to again and again\n" * 200  # <- here


def added_bytes(seconds: float) -> None:
    data = bytearray()
    for _ in rounds(seconds):
        data.extend(bytes(20_000))  # <- here


def written_text(seconds: float) -> None:
    out = io.StringIO()
    for _ in rounds(seconds):
        out.write("a line of the report\n" * 1000)  # <- here


def written_bytes(seconds: float) -> None:
    out = io.BytesIO()
    for _ in rounds(seconds):
        out.write(b"a line of the report\n" * 1000)  # <- here


def written_rows(seconds: float) -> None:
    out = io.StringIO()
    writer = csv.writer(out)
    for n in rounds(seconds):
        for k in range(100):
            writer.writerow([n, k, "some text " * 20])  # <- here


def archive(seconds: float) -> None:
    with zipfile.ZipFile(io.BytesIO(), "w") as packed:
        for n in rounds(seconds):
            packed.writestr(f"{n}.txt", bytes(30_000))  # <- here


def spooled_file(seconds: float) -> None:
    with tempfile.SpooledTemporaryFile(max_size=1 << 30) as file:
        for _ in rounds(seconds):
            file.write(bytes(30_000))  # <- here


def numbers(seconds: float) -> None:
    seen = array.array("d")
    for _ in rounds(seconds):
        seen.extend(range(3000))  # <- here


def appended_array(seconds: float) -> None:
    import numpy as np

    losses = np.zeros(0)
    for _ in rounds(seconds):
        losses = np.append(losses, np.ones(3000))  # <- here


def array_of_objects(seconds: float) -> None:
    import numpy as np

    slots, at = np.empty(100_000, dtype=object), 0
    for _ in rounds(seconds):
        for _ in range(10):
            slots[at] = large(at)
            at += 1


def buffers(seconds: float) -> None:
    kept = []
    for _ in rounds(seconds):
        kept.append((ctypes.c_double * 4000)())  # <- here


def views(seconds: float) -> None:
    kept = []
    for n in rounds(seconds):
        kept.append(memoryview(large(n))[:10])


def elements(seconds: float) -> None:
    root = ET.Element("root")
    for n in rounds(seconds):
        for k in range(40):
            ET.SubElement(root, "item", {"n": str(n)}).text = "t" * 500 + str(k)  # <- here


def weak_keys(seconds: float) -> None:
    clients: list[Client] = []
    pages: weakref.WeakKeyDictionary[Client, bytes] = weakref.WeakKeyDictionary()
    for n in rounds(seconds):
        for _ in range(10):
            clients.append(Client())
            pages[clients[-1]] = large(n)


def callbacks_of_references(seconds: float) -> None:
    clients, kept = [], []
    for n in rounds(seconds):
        for _ in range(10):
            clients.append(Client())
            kept.append(weakref.ref(clients[-1], functools.partial(_ignored, large(n))))


def _ignored(*_: object) -> None:
    pass


def tracebacks(seconds: float) -> None:
    kept: list[Any] = []
    for n in rounds(seconds):
        for _ in range(5):
            try:
                _fail(n)
            except ValueError:
                kept.append(sys.exc_info()[2])


def _fail(n: int) -> None:
    data = large(n)
    raise ValueError(len(data))


def frames(seconds: float) -> None:
    kept: list[Any] = []

    def act(n: int) -> None:
        data = large(n)  # noqa: F841  (the frame holds it)
        kept.append(sys._getframe())

    for n in rounds(seconds):
        for _ in range(5):
            act(n)


def generators(seconds: float) -> None:
    kept = []

    def read(n: int) -> Iterator[int]:
        yield from large(n)

    for n in rounds(seconds):
        for _ in range(10):
            kept.append(read(n))
            next(kept[-1])


def coroutines(seconds: float) -> None:
    kept = []

    async def send(data: bytes) -> int:
        return len(data)

    for n in rounds(seconds):
        for _ in range(10):
            kept.append(send(large(n)))
    for each in kept:
        each.close()


def tasks(seconds: float) -> None:
    async def wait(n: int) -> int:
        data = large(n)
        await asyncio.sleep(3600)
        return len(data)

    async def main() -> None:
        kept = []
        for n in rounds(seconds):
            for _ in range(10):
                kept.append(asyncio.ensure_future(wait(n)))
            await asyncio.sleep(0)
        for each in kept:
            each.cancel()

    asyncio.run(main())


def code(seconds: float) -> None:
    kept = []
    for n in rounds(seconds):
        for k in range(5):
            kept.append(compile(f"def act(x):\n    return [x, {n}, {k}]\n" * 5, "<made>", "exec"))  # <- here


def classes(seconds: float) -> None:
    for n in rounds(seconds):
        for k in range(4):
            HISTORY.append(type(f"Made{n}_{k}", (), {"data": large(k)}))


def closures(seconds: float) -> None:
    handlers: dict[Any, Any] = {}
    for n in rounds(seconds):
        for k in range(10):
            handlers[n, k] = functools.partial(len, large(n))


def futures(seconds: float) -> None:
    kept = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for n in rounds(seconds):
            for _ in range(5):
                kept.append(pool.submit(large, n))


def exits(seconds: float) -> None:
    with contextlib.ExitStack() as stack:
        for n in rounds(seconds):
            for _ in range(10):
                stack.callback(len, large(n))  # <- here


def scheduled(seconds: float) -> None:
    plan = sched.scheduler()
    for n in rounds(seconds):
        for _ in range(10):
            plan.enter(3600, 1, len, (large(n),))


def cycled(seconds: float) -> None:
    again = itertools.cycle(iter(lambda: large(1), None))
    for _ in rounds(seconds):
        for _ in range(10):
            next(again)


def selectors_data(seconds: float) -> None:
    selector = selectors.DefaultSelector()
    for n in rounds(seconds):
        if n < 400:
            ours, theirs = socket.socketpair()
            selector.register(ours, selectors.EVENT_READ, (theirs, bytes(30_000)))  # <- here


def thread_local(seconds: float) -> None:
    def work() -> None:
        LOCAL.rows = []
        for n in rounds(seconds):
            for _ in range(10):
                LOCAL.rows.append(large(n))

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()


def context(seconds: float) -> None:
    for n in rounds(seconds):
        VARIABLE.set((*VARIABLE.get(), large(n)))


def log_records(seconds: float) -> None:
    class Keeping(logging.Handler):
        def __init__(self) -> None:
            super().__init__()
            self.records: list[logging.LogRecord] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.records.append(record)

    logger = logging.getLogger("shop")
    logger.setLevel(logging.INFO)
    logger.addHandler(Keeping())
    for n in rounds(seconds):
        for _ in range(30):
            logger.info("message %d %s", n, "p" * 300)  # <- here


def cached_lines(seconds: float) -> None:
    for n in rounds(seconds):
        linecache.cache[f"<file {n}>"] = (1, None, ["line of code\n"] * 4000, "file")  # <- here


def bound_method(seconds: float) -> None:
    add = list[bytes]().append
    for n in rounds(seconds):
        for _ in range(10):
            add(large(n))


def data_of_images(seconds: float) -> None:
    images = [Image() for _ in range(2000)]
    for image, _ in zip(images, rounds(seconds), strict=False):
        image.data = b"pixel" * 20_000  # <- here


def namespace(seconds: float) -> None:
    kept = types.SimpleNamespace(rows=[])
    for n in rounds(seconds):
        for _ in range(10):
            kept.rows.append(large(n))


WAYS = {
    one.__name__: one
    for one in (
        cached_calls, added_text, added_bytes, written_text, written_bytes, written_rows, archive, spooled_file,
        numbers, appended_array, array_of_objects, buffers, views, elements, weak_keys, callbacks_of_references,
        tracebacks, frames, generators, coroutines, tasks, code, classes, closures, futures, exits, scheduled, cycled,
        selectors_data, thread_local, context, log_records, cached_lines, bound_method,
        data_of_images, namespace,
    )
}  # fmt: skip
"""By name."""
PAIRS = [
    *(f"list:{item}" for item in ITEMS),
    *(f"{container}:{item}" for container in ("set", "keys") for item in ("text", "ints", "point")),
    *(
        f"{container}:{item}"
        for container in ("lists", "nested", "ordered", "queue", "simple_queue")
        for item in ("text", "dict")
    ),
    *(f"{container}:record" for container in ("deque", "dict", "heap", "class", "global")),
]


VERDICTS = {
    "queue": "backlog", "simple_queue": "backlog", "cached_calls": "cache", "array_of_objects": "filling",
}  # fmt: skip
"""Where it is no leak."""
OWNERS = {
    "list": "row", "deque": "recent", "set": "every", "dict": "values", "keys": "keys", "ordered": "ordered",
    "lists": "lists", "nested": "nested", "heap": "heap", "queue": "waiting", "simple_queue": "simple",
    "class": "Kept.seen", "global": "HISTORY", "cached_calls": "answer", "added_text": "log", "added_bytes": "data",
    "written_text": "out", "written_bytes": "out", "written_rows": "out", "archive": "packed", "spooled_file": "file",
    "numbers": "seen", "appended_array": "losses", "array_of_objects": "slots", "elements": "root",
    "weak_keys": "pages", "classes": "HISTORY", "closures": "handlers", "exits": "stack", "scheduled": "plan",
    "cycled": "again", "selectors_data": "selector", "thread_local": "LOCAL", "context": "VARIABLE",
    "log_records": "records", "cached_lines": "linecache", "bound_method": "add",
    "data_of_images": "images[*].data",
}  # fmt: skip
"""What the owner's path contains; where nothing else is said, `kept`."""


def run(name: str, seconds: float) -> None:
    container, _, item = name.partition(":")
    if item:
        fill(container, item, seconds)
    else:
        WAYS[name](seconds)


if __name__ == "__main__":
    run(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 8.0)
