"""A kernel of a notebook under the watch: each cell answers as without it, and the kernel ends when it is asked to."""

import json
import os
import subprocess
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[2] / "src"
WATCH = (sys.executable, "-c", "import sys; from flatwater_watch.faces.main import main; sys.exit(main())", "run")
CELL = """
import time
for _ in range(20):
    KEPT.append(bytearray(1 << 20))
    time.sleep(0.05)
print(len(KEPT))
"""
LATEST = 120.0
"""Seconds in which the kernel must answer, on a machine that has other work."""


CELLS = ("KEPT = []", *[CELL] * 8, "1 / 0")


def in_kernel(folder: Path, *before: str, cells: tuple[str, ...] = CELLS) -> tuple[int, list[str]]:
    """Run cells in a kernel that is started by a command line. Its exit code, and what came back of each cell."""
    connect: Any = import_module("jupyter_client.connect")
    client: Any = import_module("jupyter_client").BlockingKernelClient()
    file = folder / "connection.json"
    connect.write_connection_file(str(file))
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "IPYTHONDIR": str(folder / "ipython")}
    line = [*before, sys.executable, "-m", "ipykernel_launcher", "-f", str(file)]
    with subprocess.Popen(line, cwd=folder, env=environment) as kernel:
        client.load_connection_file(str(file))
        client.start_channels()
        try:
            _wait(client, time.monotonic() + LATEST)
            said = [_run(client, source) for source in cells]
            client.shutdown()
            return kernel.wait(LATEST), said
        finally:
            client.stop_channels()
            kernel.kill()


def _wait(client: Any, until: float) -> None:
    """The client takes a kernel for dead whose heartbeat it has not heard yet, with the watch and without."""
    while True:
        try:
            client.wait_for_ready(timeout=max(1.0, until - time.monotonic()))
        except RuntimeError:
            if time.monotonic() > until:
                raise
        else:
            return


def _run(client: Any, source: str) -> str:
    printed: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        printed.append(content.get("text", "") + content.get("data", {}).get("text/html", ""))

    answer = client.execute_interactive(source, timeout=LATEST, output_hook=hear)
    return f"{answer['content']['status']} {''.join(printed)}"


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("ipykernel") is None or find_spec("jupyter_client") is None, reason="ipykernel is not installed"
    ),
    pytest.mark.filterwarnings("default"),  # of the client, which is no dependency
]


def test_a_cell_of_a_kernel_is_watched_and_answers_with_a_card(tmp_path: Path) -> None:
    loop = "for _ in range(150):\n    KEPT.append(bytearray(400_000))\n    time.sleep(0.02)"
    cells = ("%load_ext flatwater_watch", "import time\nKEPT = []", f"%%watch\n{loop}", "print(len(KEPT))")
    code, (loaded, _, card, count) = in_kernel(tmp_path, cells=cells)
    assert (code, loaded, count) == (0, "ok ", "ok 150\n")
    assert card.count("<article") == 1
    assert "the notebook, global KEPT" in card
    assert "In[3]:3" in card
    assert "\x1b" not in card


def test_a_kernel_answers_as_without_the_watch_and_ends_cleanly(tmp_path: Path) -> None:
    watched = in_kernel(tmp_path, *WATCH, "--json", "out.json", "--")
    assert watched == in_kernel(tmp_path) == (0, ["ok ", *(f"ok {20 * n}\n" for n in range(1, 9)), "error "])
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["readings"] > 10
    assert not [sentence for sentence in told["unseen"] if "the watch failed" in sentence]
