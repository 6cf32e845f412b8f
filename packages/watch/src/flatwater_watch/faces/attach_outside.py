"""A watch of a running process from outside: its growth by kind of memory, but not the owners.

Only the kernel's counters are read, so the process is not disturbed, and need not be Python. Objects, owners and lines
are visible to `flatwater watch -- COMMAND` alone.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flatwater_watch.agent.outcome import Outcome, State
from flatwater_watch.diagnose.evidence import Evidence, growth_share
from flatwater_watch.diagnose.judge import limit_step, make_findings, select_causes
from flatwater_watch.diagnose.verdicts import VerdictName
from flatwater_watch.errors import ConfigError, until_interrupted
from flatwater_watch.faces.command_name import WATCH_COMMAND
from flatwater_watch.faces.summary_masking import masked_summary
from flatwater_watch.meters.mappings import descendant_memory
from flatwater_watch.meters.proc import available_bytes, process_command, read_kib_counters
from flatwater_watch.series.readings import Growth, Scale
from flatwater_watch.series.slope import Series, Slope, drift_slope
from flatwater_watch.thresholds import DRIFT, ENDING

READING_COUNT = 40
"""Number of readings, spread over the time."""
COUNTER_KINDS: dict[str, tuple[VerdictName, str, str]] = {
    "RssAnon": ("native", "anonymous memory", "heap, stacks and arrays; who holds it is not seen from outside"),
    "RssFile": ("mapped", "mapped files", "pages of files"),
    "RssShmem": ("mapped", "shared memory", "pages that several processes share"),
    "workers": ("native", "worker processes", "private bytes of the processes below it"),
}
"""Verdict, owner and content by counter: those of /proc/PID/status, and `workers`, which is summed over processes."""
_STATUS_COUNTERS = tuple(name for name in COUNTER_KINDS if name != "workers")
UNSEEN_OUTSIDE = (
    f"objects, owners and lines: from outside only totals are visible. Use `{WATCH_COMMAND} -- COMMAND` instead",
    "what the allocator has freed and kept: growth that is reported as native may be retention",
)

INSIDE_ADVICE = f"Start it again under `{WATCH_COMMAND} -- COMMAND`, which says who holds it and which line made it."


_CounterHistory = dict[str, Series]
"""Bytes of each counter of `COUNTER_KINDS`, and of `VmRSS`, the resident bytes; the steps of a series are seconds."""


def watch_outside(
    pid: int, seconds: float, limit: int | None = None, *, on_reading: Callable[[float], None] = lambda _: None
) -> dict[str, Any]:
    """Read a process's counters for some seconds, or until the process ends or Ctrl-C is pressed.

    Args:
        pid: process id.
        seconds: duration of the watch.
        limit: resident bytes at which the process must stop; by default its own and the system's free bytes.
        on_reading: callback at each reading, with the share of the time that is over.

    Returns:
        The JSON of `flatwater watch`, with growth per second.

    Raises:
        ConfigError: as in `check_attach_options`, or the process ended before it was read.
    """
    command_words = check_attach_options(pid, seconds)
    history = {name: Series() for name in (*COUNTER_KINDS, "VmRSS")}
    began = time.monotonic()
    with until_interrupted():  # Ctrl-C ends the loop, and the findings so far are reported
        for number in range(READING_COUNT):
            elapsed_seconds = time.monotonic() - began
            if not _read_once_(history, pid, elapsed_seconds):
                break
            on_reading(elapsed_seconds / seconds)
            # To the next point of the whole duration, so that delays of readings do not add up.
            time.sleep(max(0.0, (number + 1) * seconds / READING_COUNT - (time.monotonic() - began)))
    if not history["VmRSS"].steps:
        raise ConfigError(f"--attach {pid}: the process ended before it was read")
    return masked_summary(_summary_json(history, limit), command_words)


def _read_once_(history: _CounterHistory, pid: int, elapsed_seconds: float) -> bool:
    """Append a reading of the counters at `elapsed_seconds` to the history; return whether the process still lives."""
    counters = _read_counters(pid)
    if counters is not None:
        for name, series in history.items():
            series.add(elapsed_seconds, counters[name])
    return counters is not None


def check_attach_options(pid: int, seconds: float) -> list[str]:
    """Check that a process can be watched for some seconds, and return the words of its command.

    Raises:
        ConfigError: `seconds` is not positive, there is no such process, it belongs to somebody else, or the platform
            has no /proc.
    """
    if seconds <= 0:
        raise ConfigError(f"--seconds = {seconds}: expected a positive number")
    if not Path("/proc/self/status").exists():
        raise ConfigError(f"--attach {pid}: needs /proc, which this system has not. Use `{WATCH_COMMAND} -- COMMAND`.")
    if _read_counters(pid) is None:
        raise ConfigError(f"--attach {pid}: there is no such process, or it belongs to another user")
    return process_command(pid)


def _read_counters(pid: int) -> dict[str, int] | None:
    """Read the bytes of a process by counter; return None if it has ended, or belongs to another user."""
    try:
        counters = read_kib_counters(f"/proc/{pid}/status")
        return {name: counters[name] for name in ("VmRSS", *_STATUS_COUNTERS)} | {
            "workers": descendant_memory(pid).private
        }
    except (OSError, KeyError):  # KeyError: a zombie has no counters
        return None


def _find_causes(history: _CounterHistory, growth: Growth) -> tuple[list[Evidence], float]:
    """Find the counters that grow steadily.

    Returns:
        The evidence on each of these counters; and the bytes that they gained since the first reading, without workers.
    """
    causes = list[Evidence]()
    explained_bytes = 0.0
    for name, (verdict, owner, content) in COUNTER_KINDS.items():
        series = history[name]
        drift = drift_slope(series.steps, series.values, minimum=DRIFT.least_bytes)
        if drift is None:  # the counter does not grow steadily
            continue
        advice = INSIDE_ADVICE if verdict == "native" else None
        cause_share = growth_share(drift.per_step, growth)
        causes.append(
            Evidence(verdict=verdict, owner=owner, drift=drift, share=cause_share, what=content, advice=advice)
        )
        if name != "workers":  # their bytes are not in the process's resident memory
            explained_bytes += max(0.0, series.values[-1] - series.values[0])
    return causes, explained_bytes


def _judge_outcome(unexplained_bytes: int, *, has_causes: bool) -> Outcome:
    """Return the outcome: whether memory grows, with known facts and advice if bytes are left without a cause."""
    needs_explanation = unexplained_bytes >= ENDING.open_bytes
    state: State = "flat"
    if has_causes:
        state = "grows"
    elif needs_explanation:
        state = "unexplained"
    if not needs_explanation:
        return Outcome(state)
    return Outcome(state, bytes=unexplained_bytes, known=UNSEEN_OUTSIDE, next=(INSIDE_ADVICE,))


def _summary_json(history: _CounterHistory, limit: int | None) -> dict[str, Any]:
    """Return the JSON of `flatwater watch` from counters alone, with a finding for each counter that drifts."""
    seconds, resident = history["VmRSS"].steps, history["VmRSS"].values  # the steps of this history are seconds
    resident_now = int(resident[-1])
    limit_bytes = resident_now + available_bytes() if limit is None else limit
    grown_bytes = int(resident[-1] - resident[0])
    # Only the findings have bounds; of the whole growth, the rate alone is reported.
    slope = Slope(per_step=grown_bytes / (seconds[-1] or 1.0), low=0.0, high=0.0)  # 0 s after a single reading
    growth = Growth(step=round(seconds[-1]), resident=resident_now, limit=limit_bytes, whole=slope, unit="second")
    causes, explained_bytes = _find_causes(history, growth)
    # Growth that is not material needs no cause, and counts as explained.
    explained_share = min(1.0, explained_bytes / grown_bytes) if grown_bytes > DRIFT.least_bytes else 1.0
    unexplained_bytes = round((1 - explained_share) * grown_bytes)
    # A step is a second, and a second is the unit of the report.
    scale = Scale("second", per_unit=1.0, step=growth.step, units=growth.step, steps_per_second=1.0, now=time.time())
    findings = make_findings(select_causes(causes), growth, limit_step(causes, growth), scale=scale)
    return {
        "unit": "second",
        "steps": round(seconds[-1]),
        "seconds": round(seconds[-1], 3),
        "readings": len(seconds),
        "resident_bytes": resident_now,
        "resident_growth_bytes": grown_bytes,
        "explained_share": round(explained_share, 4),
        "outcome": _judge_outcome(unexplained_bytes, has_causes=bool(causes)).to_json(),
        "cost": {"cpu_share": 0.0, "bytes": 0},  # the watch is in another process
        "processes": 1,
        "findings": [finding.to_json() for finding in findings],
        "unseen": list(UNSEEN_OUTSIDE),
        "series": {
            "seconds": [round(second, 3) for second in seconds],
            "steps": [round(second) for second in seconds],
            "resident_bytes": [int(value) for value in resident],
            "file_bytes": [int(value) for value in history["RssFile"].values],
            "freed_bytes": [None] * len(seconds),
        },
    }
