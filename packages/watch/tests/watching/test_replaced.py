"""A program that replaces the clocks, `os` or `json` is watched like another, at no greater cost."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from flatwater_watch.meters import system_calls

SOURCE = Path(__file__).parents[2] / "src"
MAIN = "import sys; from flatwater_watch.faces.main import main; sys.exit(main())"
PACE, FIRST = 0.05, 24
"""Seconds from one reading to the next, and readings above that pace, at most."""
PROGRAM = """
import builtins, json, os, posix, sys, time

sleep, now = time.sleep, time.perf_counter
REPLACE
KEPT = []
began = now()
while now() - began < 1.8 or len(KEPT) < 60:
    KEPT.append(bytearray(1 << 20))
    sleep(0.03)
sys.exit(6)
"""
NOTHING = "def nothing(*_, **__): return None\n"
FROZEN = "def frozen(*_, **__): return 0.0\n"
JUMPING = "import itertools\ncount = itertools.count()\ndef back(*_): return -1e6 * next(count)\n"
CLOCKS = ("monotonic", "time", "perf_counter", "process_time", "thread_time", "monotonic_ns", "time_ns")


def replacing_source(function: str, module: str, names: tuple[str, ...]) -> str:
    """As freezegun does: in the module, and wherever somebody has imported the function."""
    return dedent(f"""
    for name in {names!r}:
        real = vars({module})[name]
        for other in list(sys.modules.values()):
            for key, value in list(vars(other).items()) if hasattr(other, "__dict__") else ():
                if value is real and key not in ("sleep", "now") or other is {module} and key == name:
                    setattr(other, key, {function})
    """)


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "replace",
    [
        FROZEN + replacing_source("frozen", "time", CLOCKS),
        JUMPING + replacing_source("back", "time", CLOCKS),
        NOTHING + "time.sleep = nothing",
        NOTHING + replacing_source("nothing", "time", ("sleep",)),
        NOTHING
        + replacing_source("nothing", "os", ("listdir", "replace", "getpid", "open", "read", "write", "fork", "kill")),
        NOTHING + replacing_source("nothing", "json", ("dumps", "dump", "loads")) + "builtins.open = nothing",
    ],
    ids=["clocks stand", "clocks run back", "no sleep", "no sleep anywhere", "os", "json and open"],
)
def test_a_program_that_replaces_what_the_watch_needs_is_watched(tmp_path: Path, replace: str) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.replace("REPLACE", replace))
    line = [sys.executable, "-c", MAIN, "run", "--json", "out.json", "--", sys.executable, "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment, timeout=300)
    assert (done.returncode, done.stdout) == (6, ""), done.stderr
    summary = json.loads((tmp_path / "out.json").read_text())
    assert summary["findings"][0]["owner"] == "train.KEPT", summary["unseen"]
    assert not [sentence for sentence in summary["unseen"] if "failed" in sentence]
    seconds = summary["series"]["seconds"]
    assert seconds == sorted(seconds)
    assert 0 < summary["readings"] < max(3, seconds[-1]) / PACE + FIRST
    assert 0 <= summary["cost"]["cpu_share"] <= 1


def test_the_clocks_go_on_where_those_of_the_program_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(time, name, lambda: 0.0)
    before = system_calls.monotonic()
    system_calls.sleep(0.001)
    assert system_calls.monotonic() > before


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for text in ("a" * 300_000, "é\udc80", ""):
        system_calls.write_whole(str(path), text)
        assert path.read_text("utf-8", "surrogateescape") == text
        assert system_calls.read_file(str(path)) == text.encode("utf-8", "surrogateescape")
    assert list(tmp_path.iterdir()) == [path]
