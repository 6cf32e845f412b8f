"""When a process of this machine was started, as the kernel counts: setting the machine's clock moves nothing of it."""

import os
from pathlib import Path


def started(pid: int) -> int | None:
    """Ticks from the start of the machine to that of the process; None where no such process lives.

    Raises:
        PermissionError: it lives and belongs to another user, and the system hides it from this one.
    """
    try:
        about = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        _require_hidden_from_nobody(pid)
        return None
    # The name of a program, in parentheses, may have spaces and parentheses; the third field and those after it follow.
    state, *fields = about.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def _require_hidden_from_nobody(pid: int) -> None:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return
