"""The lines that `flatwater watch` prints when the program has ended: findings in words, at most 100 columns."""

import textwrap
from collections.abc import Container, Iterator, Sequence
from typing import Any

from flatwater_watch.agent.outcome import Outcome, explained_shares, split_by_share
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.finding_text import (
    LABEL_WIDTH,
    WIDTH,
    brief_text,
    finding_lines,
    lines_below_brief,
    wrap_text,
)
from flatwater_watch.faces.run_comparison import comparison_lines
from flatwater_watch.phrases import unit_plural
from flatwater_watch.thresholds import OWNING
from flatwater_watch.units import format_bytes, format_duration

MINIMUM_SHARE_SECONDS = 5.0
"""CPU seconds of the watch from which on they are given as a share of the program's."""
RESTING_RATIO = 2.0
"""Seconds of a program, in its CPU seconds, from which on the share of the time is given as well."""
MAXIMUM_NAMES = 3
"""Maximum owners of small findings that are named."""
MINIMUM_KEPT_SHARE = 0.02
"""Minimum share of the growth for freed memory and files to be given next to the findings."""


def terminal_lines(
    summary: dict[str, Any],
    earlier_summary: dict[str, Any] | None = None,
    *,
    printed_keys: Container[tuple[str, str]] = (),
) -> Iterator[str]:
    """Yield the summary as lines of text.

    Args:
        summary: the JSON of `flatwater watch`.
        earlier_summary: the JSON of an earlier run, to compare with; None compares with nothing.
        printed_keys: verdict and owner of findings that were printed already.
    """
    findings = [Finding.from_json(record) for record in summary["findings"]]
    outcome = Outcome.from_json(summary["outcome"])
    yield from summary_head(summary)
    yield from _unexplained_lines(outcome)
    large_findings, small_findings = split_by_share(findings)
    for finding in large_findings[: OWNING.maximum_printed_findings]:
        yield ""
        if (finding.verdict, finding.owner) in printed_keys:
            yield f"{finding.verdict}: {finding.owner}, as above"
        elif finding is findings[0]:  # the first line of the summary has it in brief
            yield from lines_below_brief(finding)
        else:
            yield from finding_lines(finding)
    if small_findings:
        yield ""
        yield from textwrap.wrap(_small_findings_row(small_findings), WIDTH, subsequent_indent="  ")
    if len(large_findings) > OWNING.maximum_printed_findings:
        yield f"{len(large_findings) - OWNING.maximum_printed_findings} more are in the JSON"
    if earlier_summary is not None:
        yield ""
        yield from comparison_lines(summary, earlier_summary)
    if findings or summary["unseen"]:
        yield ""
    for sentence in summary["unseen"]:
        yield from textwrap.wrap(f"not seen: {sentence}", WIDTH, subsequent_indent=" " * LABEL_WIDTH)


def _small_findings_row(findings: Sequence[Finding]) -> str:
    """Return a row such as `and 5 smaller, 4% of the growth together: a.A, a.B, a.C and 2 more, in the JSON`."""
    count = len(findings)
    share_of_growth = f"{sum(finding.share for finding in findings):.0%} of the growth"
    names = ", ".join(finding.owner for finding in findings[:MAXIMUM_NAMES])
    ending = f" and {count - MAXIMUM_NAMES} more, in the JSON" if count > MAXIMUM_NAMES else ""
    return f"and {count} smaller, {share_of_growth}{' together' if count > 1 else ''}: {names}{ending}"


def _unexplained_lines(outcome: Outcome) -> Iterator[str]:
    """Yield the lines on growth without a cause, with known facts and advice."""
    if sentence := outcome.unexplained_growth_sentence():
        label = "" if outcome.state == "settled" else "open: "
        yield ""
        yield from textwrap.wrap(f"{label}{sentence}", WIDTH, subsequent_indent="  ")
    for label, sentences in (("  known", outcome.known), ("  try", outcome.next)):
        for number, sentence in enumerate(sentences):
            indent = (label if number == 0 else "").ljust(LABEL_WIDTH)
            yield from textwrap.wrap(f"{sentence}.", WIDTH, initial_indent=indent, subsequent_indent=" " * LABEL_WIDTH)


def summary_head(summary: dict[str, Any]) -> list[str]:
    """Return the first lines: the largest finding with its instruction, then figures of the run and of the watch."""
    findings = [Finding.from_json(record) for record in summary["findings"]]
    outcome = Outcome.from_json(summary["outcome"])
    first_words = outcome.first_words(findings=len(findings))
    if not summary["readings"]:
        return [f"flatwater: {first_words}"]
    unit = summary["unit"]
    steps = f"{summary['steps']} {unit if summary['steps'] == 1 else unit_plural(unit)}"
    duration = "" if unit == "second" else f" in {format_duration(summary['seconds'])}"
    # Kept: memory that the program has freed and the allocator keeps, and mapped files.
    findings_share, kept_share = explained_shares(summary["explained_share"], findings)
    explained_phrase = f"{findings_share + kept_share:.0%} explained"
    if findings and kept_share >= MINIMUM_KEPT_SHARE:
        explained_phrase = f"{findings_share:.0%} found, {kept_share:.0%} freed memory and files"
    growth = f"{format_bytes(summary['resident_growth_bytes'])} grown, {explained_phrase} · "
    if outcome.state == "settled":  # growth that has ended, on which the sentence below has the bytes
        growth = ""
    cost = f"cost {cost_time(summary['cost'], summary['seconds'])}, {format_bytes(summary['cost']['bytes'])}"
    figures = f"{first_words} · {steps}{duration} · {growth}{cost}"
    if not findings:
        return [f"flatwater: {figures}"]
    return [*wrap_text("flatwater: ", brief_text(findings[0]), "  "), figures]


def cost_time(cost: dict[str, Any], seconds: float) -> str:
    """Return the CPU time of the watch in words: seconds if it is less than `MINIMUM_SHARE_SECONDS`, else a share.

    The share is of the program's CPU time; for a program that mostly rests, the share of the time follows.

    Args:
        cost: the watch's `cpu_share`, a share of the program's CPU time `cpu_seconds`.
        seconds: duration of the watch.
    """
    share_of_cpu = f"{cost['cpu_share']:.1%} CPU"
    program_seconds: float | None = cost.get("cpu_seconds")
    if program_seconds is None:  # of a process that was watched from outside
        return share_of_cpu
    watch_seconds = cost["cpu_share"] * program_seconds
    if watch_seconds < MINIMUM_SHARE_SECONDS:  # in a program that only waits, they would be a large share
        return f"{watch_seconds:.1f} CPU s"
    # A program that rests leaves its core free: what is felt there is the share of the time.
    if RESTING_RATIO * program_seconds < seconds:
        return f"{share_of_cpu}, {watch_seconds / seconds:.1%} of the time"
    return share_of_cpu
