"""Programs that are run under `flatwater watch`, end to end."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

SOURCE = Path(__file__).parents[2] / "src"
MAIN = "import sys; from flatwater_watch.faces.main import main; sys.exit(main())"


@dataclass(frozen=True)
class Ran:
    """A program that has ended under the watch."""

    code: int
    stdout: str
    stderr: str
    summary: dict[str, Any]


Watched = Callable[..., Ran]


def environment(**changes: str) -> dict[str, str]:
    """Ours, with the package where it is."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **changes}


def runs_in(folder: Path) -> Watched:
    """What writes a program there and runs it: `watched(source, words of its command line)`."""

    def run(source: str, *words: str, options: tuple[str, ...] = (), command: tuple[str, ...] | None = None) -> Ran:
        (folder / "train.py").write_text(dedent(source))
        line = [sys.executable, "-c", MAIN]
        line += ["run", "--json", "out.json", *options, "--", *(command or (sys.executable, "train.py")), *words]
        ran = subprocess.run(
            line, cwd=folder, capture_output=True, text=True, check=False, env=environment(), timeout=300
        )
        result = folder / "out.json"
        summary = json.loads(result.read_text()) if result.exists() else {}
        return Ran(ran.returncode, ran.stdout, ran.stderr, summary)

    return run
