"""Parts of a benchmark in processes of their own, so that memory that one part leaves does not count for the next."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from flatwater.rundir.layout import RunFolder
from flatwater_watch.meters.mappings import peak_bytes


def run_fresh(script: str, arguments: list[str]) -> dict[str, Any]:
    """Run a script in a fresh process and read the JSON in its last line of output; its errors are shown.

    Raises:
        SystemExit: the process failed.
    """
    done = subprocess.run([sys.executable, script, *arguments], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{Path(script).name} {' '.join(arguments)} failed with {done.returncode}")
    # The last line alone: libraries print above it.
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak_of(run: RunFolder) -> int:
    """Return the most that was resident: a run resets the kernel's mark in each phase, and keeps it in its ledger."""
    ledger = run.ledger.read_text(encoding="utf-8").splitlines()
    # The larger of both: the mark since the last reset, and the peak before it.
    return max(peak_bytes() or 0, int(json.loads(ledger[-1])["peak"]))
