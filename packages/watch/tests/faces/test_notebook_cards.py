"""`%load_ext flatwater_watch` in a real IPython: `%%watch`, cards, cells by their numbers, and no finding twice."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "memory" / "watch"))
from watched import LEAK

from flatwater_watch.agent.spool import unwatched_summary
from flatwater_watch.faces.summary_lines import terminal_lines

pytestmark = pytest.mark.skipif(find_spec("IPython") is None, reason="IPython is not installed: pip install ipython")

SHELL = """
import contextlib, io, json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell = InteractiveShell.instance()
said = []
for cell in json.loads(sys.argv[1]):
    with capture_output() as caught:
        result = shell.run_cell(cell, store_history=True).result
    data = {} if result is None else shell.display_formatter.format(result)[0]
    data = caught.outputs[0].data if caught.outputs else data
    said.append({"printed": caught.stdout, "error": caught.stderr, **data})
print(json.dumps(said))
"""
BEGIN = (
    "import time, flatwater_watch\nKEPT = []\ndef keep():\n    KEPT.append(bytearray(400_000))\n    time.sleep(0.02)"
)
LOOP = "for _ in range(150):\n    keep()"


def shown(folder: Path, *cells: str) -> list[dict[str, Any]]:
    """What a shell showed of each cell."""
    line = [sys.executable, "-c", SHELL, json.dumps(cells)]
    ran = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env={"IPYTHONDIR": str(folder)}
    )
    assert ran.returncode == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_a_cell_is_watched_and_its_findings_are_cards_with_the_numbers_of_cells(tmp_path: Path) -> None:
    load, _, cell, _ = shown(tmp_path, "%load_ext flatwater_watch", BEGIN, f"%%watch\n{LOOP}\n1 / 0", "MORE = []")
    assert load["error"] == ""
    assert "ZeroDivisionError" in cell["printed"], "what a cell raises is shown as without the watch"
    card = cell["text/html"]
    assert card.count("<article") == 1
    assert "KEPT grows by" in card
    assert "the notebook, global KEPT" in card
    assert "In[2]:4 in keep" in card
    assert "leak: KEPT" in cell["text/plain"]
    assert "not seen: the watch failed" not in card


def test_lines_of_a_watched_cell_are_counted_from_its_first(tmp_path: Path) -> None:
    loop = "for _ in range(150):\n    HELD.append(bytearray(400_000))\n    time.sleep(0.02)"
    _, told = shown(tmp_path, "%load_ext flatwater_watch", f"%%watch\nimport time\nHELD = []\n{loop}")
    assert "In[2]:5" in told["text/html"]


def test_a_watch_in_code_tells_each_finding_once_and_without_colours(tmp_path: Path) -> None:
    loop = "with flatwater_watch.watch() as w:\n    for _ in range(150):\n        keep()\n        w.step()"
    _, _, told, watch = shown(tmp_path, "%load_ext flatwater_watch", BEGIN, loop, "w")
    assert told["error"].count("leak: KEPT grows by") == 1, told
    early = told["error"].startswith("flatwater, round")  # else the cell was over before the finding was sure
    assert ("leak: KEPT, as above" in told["error"]) == early
    assert "\x1b" not in told["error"] + told["printed"]
    assert "In[2]:4 in keep" in told["error"]
    assert "<article" in watch["text/html"]


def test_what_stands_above_already_is_named_only() -> None:
    found = replace(LEAK, limit_bytes=8 << 30)
    summary = unwatched_summary("train.py", "") | {"findings": [found.to_json()], "readings": 9}
    told = list(terminal_lines(summary, printed_keys={("leak", "train.KEPT")}))
    assert [line for line in told if "KEPT" in line][1:] == ["leak: train.KEPT, as above"]
    assert "  held by train.py, global KEPT" in terminal_lines(summary)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    _, wrong, much = shown(tmp_path, "%load_ext flatwater_watch", "%%watch --wrong\n1", "%%watch --budget much\n1")
    assert "`%%watch --budget 8GiB`" in wrong["error"] + wrong["printed"]
    assert re.search(r"'much' .*\b8GiB", much["error"] + much["printed"])
    assert "Traceback" not in wrong["error"] + wrong["printed"]
