"""Runs one program of the zoo under another memory tool, and writes as JSON what that tool points at.

    python rivals.py tracemalloc|objgraph|pympler|memray PROGRAM ROUNDS FILE [SECONDS]

memray records into a file, which is read afterwards. The others are asked again and again by a thread while the program
runs, since its local variables are gone at the end; what counts is the difference between the middle and the end.
"""

import gc
import json
import pickle
import runpy
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

EVERY = 0.7
"""Seconds between two looks, where none are given."""
CHAIN = 20
"""References followed from an object to a module."""

Look = Callable[[], Counter[str]]


def by_line() -> Counter[str]:
    """Tracemalloc: bytes by file and line."""
    own = [tracemalloc.Filter(inclusive=False, filename_pattern=file) for file in (__file__, tracemalloc.__file__)]
    found = tracemalloc.take_snapshot().filter_traces(own).statistics("lineno")[:2000]
    return Counter({f"{one.traceback[0].filename}:{one.traceback[0].lineno}": one.size for one in found})


def by_count() -> Counter[str]:
    """Objgraph: objects by type, all that the collector knows."""
    objgraph: Any = import_module("objgraph")  # each tool is imported where it is measured
    return Counter(objgraph.typestats(shortnames=False))


def by_size() -> Counter[str]:
    """Pympler: bytes by type."""
    muppy: Any = import_module("pympler.muppy")
    summary: Any = import_module("pympler.summary")
    return Counter({str(kind): size for kind, _, size in summary.summarize(muppy.get_objects())})


LOOKS: dict[str, Look] = {"tracemalloc": by_line, "objgraph": by_count, "pympler": by_size}


def chain_names(kind: str) -> list[str]:
    """Objgraph: names on the way from a module to the newest object of a type."""
    objgraph: Any = import_module("objgraph")
    objects = [obj for obj in gc.get_objects() if f"{type(obj).__module__}.{type(obj).__name__}".endswith(kind)]
    chain = objgraph.find_backref_chain(objects[-1], objgraph.is_proper_module, max_depth=CHAIN) if objects else []
    names = []
    for holder, held in pairwise(chain):
        space = holder if isinstance(holder, dict) else vars(holder) if isinstance(holder, type) else {}
        names += [str(key) for key, value in space.items() if value is held]
    return names


def importing() -> bool:
    """Whether the main thread reads modules: `gc.get_objects` in another one breaks a tuple that is being built there.

    The interpreter says "SystemError: bad argument to internal function", and the program ends.
    """
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001  (the only way to its stack)
    while frame is not None and "importlib._bootstrap" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None


def growth(before: bytes, after: bytes) -> Counter[str]:
    """Count the objects that there are more of between two looks."""
    counts: list[Counter[str]] = [pickle.loads(each) for each in (after, before)]  # noqa: S301  (written by this process)
    return counts[0] - counts[1]


def observe(tool: str, program: str, every: float) -> dict[str, Any]:
    """Run the program in this process, and say what grew most between its middle and its end."""
    look, seen, names = LOOKS[tool], list[tuple[float, bytes]](), list[str]()  # bytes, as a count would be counted next
    over = threading.Event()

    def keep_looking() -> None:
        while not over.wait(every):
            if importing():
                continue
            seen.append((time.monotonic(), pickle.dumps(look())))
            grown = growth(seen[len(seen) // 2][1], seen[-1][1]).most_common(1)
            if tool == "objgraph" and grown:
                names[:] = chain_names(grown[0][0])

    if tool == "tracemalloc":
        tracemalloc.start()
    began = time.monotonic()
    watcher = threading.Thread(target=keep_looking, daemon=True)
    watcher.start()
    runpy.run_path(program, run_name="__main__")
    over.set()
    watcher.join()
    if not seen:
        return {"top": None, "grown": 0, "names": []}
    middle = min(seen, key=lambda each: abs(each[0] - (began + seen[-1][0]) / 2))
    grown = growth(middle[1], seen[-1][1])
    top, amount = grown.most_common(1)[0] if grown else (None, 0)
    return {"top": top, "grown": amount, "names": names}


def record(program: str) -> dict[str, Any]:
    """memray: the line of the program that made most bytes of the peak."""
    memray: Any = import_module("memray")
    with tempfile.TemporaryDirectory(prefix="flatwater-rivals-") as folder:
        file = Path(folder) / "capture.bin"
        with memray.Tracker(file):
            runpy.run_path(program, run_name="__main__")
        capture = file.stat().st_size
        lines: Counter[str] = Counter()
        with memray.FileReader(file) as reader:
            for each in reader.get_high_watermark_allocation_records(merge_threads=True):
                frames = [frame for frame in each.stack_trace() if frame[1] == program]
                if frames:
                    lines[f"{frames[0][1]}:{frames[0][2]}"] += each.size
    top, amount = lines.most_common(1)[0] if lines else (None, 0)
    return {"top": top, "grown": amount, "names": [], "capture_bytes": capture}


def main(tool: str, program: str, rounds: str, file: str, every: str = str(EVERY)) -> None:
    """Run, and write; empty rounds leave them to the program."""
    sys.argv = [program, *rounds.split()]
    sys.path.insert(0, str(Path(program).parent))
    found = record(program) if tool == "memray" else observe(tool, program, float(every))
    Path(file).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
