"""What a watched program knows of itself, in a file that is always whole: it outlives kill -9."""

import json
import os
from pathlib import Path
from typing import Any


def write_spool(path: Path, summary: dict[str, Any]) -> None:
    """Replace the file in one step. Not synced to disk: it must survive the process, not the machine."""
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps(summary), encoding="utf-8")
    beside.replace(path)


def read_spools(folder: Path) -> list[dict[str, Any]]:
    """All summaries that the processes of one command left, the one that was watched longest first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda summary: -float(summary["seconds"]))
