"""One case under `flatwater watch`, and what of its first finding is right."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expected_cases import LIBRARIES, growing, needs, program_of, right_lines

WATCH = "import sys; from flatwater.cli.main import main; sys.exit(main())"
LIMIT = 180


@dataclass(frozen=True)
class Said:
    """What was said of a program."""

    found: dict[str, Any]
    text: str


@dataclass(frozen=True)
class Right:
    """Which parts of the answer are right; of a flat program, all or none."""

    found: bool
    verdict: bool
    owner: bool
    line: bool | None
    """None where no line of the program makes the growth."""

    @property
    def all(self) -> bool:
        return self.found and self.verdict and self.owner and self.line is not False


def environment() -> dict[str, str]:
    """The environment of a program, with the folder of further libraries last in its path."""
    further = os.environ.get(LIBRARIES, "")
    path = os.pathsep.join(part for part in (os.environ.get("PYTHONPATH", ""), further) if part)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def missing(name: str) -> str:
    """Why a program cannot run, or nothing."""
    tried = subprocess.run(
        [sys.executable, "-c", f"import {needs(name)}"], env=environment(), capture_output=True, check=False
    )
    return f"{name} needs {needs(name)}: install it, or name its folder in {LIBRARIES}" if tried.returncode else ""


def watch(name: str, folder: Path) -> Said:
    """What `flatwater watch` says of a program."""
    told = folder / f"{name}.json"
    watched = [sys.executable, "-c", WATCH, "watch", "--json", str(told), "--", sys.executable, str(program_of(name))]
    ended = subprocess.run(
        watched, env=environment(), cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    if ended.returncode or not told.exists():
        raise RuntimeError(f"{name} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return Said(json.loads(told.read_text()), ended.stdout + ended.stderr)


def judge(name: str, said: Said) -> Right:
    """Compares the first finding with the table."""
    findings = said.found["findings"]
    if name not in growing():
        quiet = not findings
        return Right(quiet, quiet, quiet, None)
    case = growing()[name]
    if not findings:
        return Right(found=False, verdict=False, owner=False, line=False if case.line else None)
    first = findings[0]
    owner = any(word in first["owner"] for word in case.owners)
    line = None
    if case.line:
        made = first["made_at"] or {"file": "", "line": 0}
        line = Path(made["file"]).name == f"{name}.py" and made["line"] in right_lines(name)
    return Right(found=True, verdict=first["verdict"] in case.verdicts, owner=owner, line=line)
