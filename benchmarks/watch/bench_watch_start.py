"""What a watch costs a program at its start: CPU seconds with all children beside those of the program alone.

    python -m compileall -q packages && python benchmarks/watch/bench_watch_start.py

Each program is run alone and under the whole `flatwater watch` command, in turn, ten times; the median of the
differences is told, and which part the watched process has of it. It must be at most 0.3.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim, record_claims

from flatwater_watch.faces.runner import watched_environment

PAIRS = 10
MAXIMUM_SECONDS = 0.3
RUN = "import sys; from flatwater.cli.main import main; sys.exit(main())"
PROGRAMS = {
    "nothing": "pass",
    "a second of sleep": "import time; time.sleep(1)",
    "a second of work": "import time\ne = time.perf_counter() + 1\nwhile time.perf_counter() < e: sum(range(1000))",
    "prints": "for n in range(50_000): print(n)",
    "300,000 nested lists": "x = []\nfor _ in range(300_000): x = [x]\nimport time; time.sleep(1)",
    "300,000 lists in lists": "x = [[[n]] for n in range(300_000)]\nimport time; time.sleep(1)",
    "the standard library": "import asyncio, json, logging, re, subprocess, time; time.sleep(1)",
    "NumPy": "import numpy, time; time.sleep(1)",
}


def cpu_of(words: Sequence[str], environ: Mapping[str, str], folder: Path) -> float:
    """CPU seconds of a command and all that it waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, cwd=folder, env=environ, stdout=-3, stderr=-3, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def more(source: str, folder: Path) -> tuple[float, float, float]:
    """CPU seconds alone, and how many more in all, and in the program's own process: medians."""
    (folder / "train.py").write_text(source)
    notes = folder / "notes"
    words = [sys.executable, "train.py"]
    plain = dict(os.environ)
    each = []
    for _ in range(PAIRS):
        alone = cpu_of(words, plain, folder)
        whole = cpu_of([sys.executable, "-c", RUN, "watch", "--json", "watch.json", "--", *words], plain, folder)
        notes.mkdir()  # the program removes it: no runner holds it
        within = cpu_of(words, watched_environment(notes, None, None, plain), folder)
        each.append((alone, whole - alone, within - alone))
    alone, whole, within = (median(column) for column in zip(*each, strict=True))
    return alone, whole, within


if __name__ == "__main__":
    most = 0.0
    with tempfile.TemporaryDirectory() as place:
        print(f"{'program':<26}{'alone':>8}{'more':>8}{'within':>8}")
        for name, source in PROGRAMS.items():
            alone, whole, within = more(source, Path(place))
            most = max(most, whole)
            print(f"{name:<26}{alone:>8.3f}{whole:>8.3f}{within:>8.3f}", flush=True)
    print(f"most: {most:.3f}, must be at most {MAXIMUM_SECONDS}")
    name = f"CPU seconds that a watch takes at the start, most of {len(PROGRAMS)} programs"
    record_claims([Claim("watch", "more", name, f"{most:.2f}", f"≤ {MAXIMUM_SECONDS}", most <= MAXIMUM_SECONDS)])
    sys.exit(most > MAXIMUM_SECONDS)
