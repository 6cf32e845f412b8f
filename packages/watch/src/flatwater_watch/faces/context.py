"""A watch from inside a program: `with flatwater_watch.watch() as w: ... w.step()`.

No signal handler is set, so it works in notebooks and together with other tools. The callbacks for other people's
trainers open and close the same watch, and so does a notebook's `%%watch`, which finds the boundaries as the runner
does. A boundary is a point at which a program has done one unit of its work, such as an optimizer step.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from rich.text import Text

from flatwater_watch.agent import spool
from flatwater_watch.agent.call_counters import set_listener
from flatwater_watch.agent.guard import Guard
from flatwater_watch.agent.main_thread_timer import start_ticking
from flatwater_watch.agent.process import ProcessWatch
from flatwater_watch.agent.step_hooks import hook_steps
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.finding_text import finding_lines
from flatwater_watch.errors import ConfigError
from flatwater_watch.faces.notebook_cells import evidence_with_cell_names, in_notebook
from flatwater_watch.faces.summary_lines import terminal_lines
from flatwater_watch.faces.summary_masking import masked_summary
from flatwater_watch.heap.roots import Roots
from flatwater_watch.meters.suspended_tracing import run_untraced
from flatwater_watch.meters.system_calls import monotonic
from flatwater_watch.terminal import Terminal
from flatwater_watch.thresholds import OWNING
from flatwater_watch.units import parse_bytes

PRINT_COLUMNS = 100
"""Columns of the lines on stderr."""
MINIMUM_SEARCH_GAP_SECONDS = 0.5
"""Minimum seconds between two searches for new findings."""
SEARCH_TIME_SHARE = 1 / 300
"""Share of the time that searches for new findings may take."""

_open_watches: list["Watch"] = []
"""The watch that is open in this process; at most one, because only one can trace allocations."""


def watch(*, unit: str = "round", budget: str | int | None = None, report: bool = True) -> "Watch":
    """Watch the memory of this process: `with flatwater_watch.watch() as w: ... w.step()`.

    Args:
        unit: name of one call of `step` in the findings.
        budget: bytes, or a text such as "8GiB", at which the process would have to stop: the end of the forecasts.
            By default the limit of the machine and its container. Nothing is stopped there.
        report: whether each finding is printed to stderr when it is found, and all of them at the end.

    Raises:
        ConfigError: the unit is not a word, or the budget is not an amount of memory.
    """
    return Watch(unit=unit, budget=budget, report=report)


class Watch:
    """A watch over a stretch of a program, made by `watch`; `step` is called in the thread that trains."""

    def __init__(
        self, *, unit: str | None, budget: str | int | None, report: bool, closes_for_next: bool = False
    ) -> None:
        """Prepare without watching.

        Args:
            unit: name of one call of `step`; None finds boundaries, needs no `step`, and works in the main thread only.
            budget: bytes, or a text such as "8GiB", at which the forecasts end.
            report: whether findings are printed to stderr.
            closes_for_next: whether the next watch closes this watch, as a trainer that fails may never call back.

        Raises:
            ConfigError: the unit is not a word, or the budget is not positive.
        """
        if unit is not None and not unit.isidentifier():
            raise ConfigError(f"watch: unit = {unit!r}: expected one word, such as 'round' or 'batch'")
        limit = parse_bytes(budget) if isinstance(budget, str) else budget
        if limit is not None and limit <= 0:
            raise ConfigError(
                f"watch: budget = {budget!r}: expected a positive amount, such as '8GiB'; None takes the machine's"
            )
        self._unit, self._limit, self._report, self._closes_for_next = unit, limit, report, closes_for_next
        # One for each part of the watch: a fault ends its own part alone.
        self._reading_guard, self._print_guard, self._tick_guard = Guard(), Guard(), Guard()
        self._has_begun = False
        self._process_watch: ProcessWatch | None = None
        """The watch of the process; None before it is open, or if it could not begin."""
        self._final_findings = list[Finding]()
        self._final_summary: dict[str, Any] | None = None
        """The summary at the end; None before."""
        self._printed_keys: set[tuple[str, str]] = set()
        """Verdict and owner of the findings that were printed."""
        self._next_search_time = 0.0
        """Time of `monotonic` from which on `step` searches for new findings."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Begin the watch, as `with` does; first close the open watch of a trainer, which gives way to the next one.

        Raises:
            ConfigError: the watch was used before, or another one is open.
        """
        if self._has_begun:
            raise ConfigError(
                "this watch has been used: each `with` needs one of its own, `with flatwater_watch.watch() as w:`."
            )
        if _open_watches and not _open_watches[0]._closes_for_next:  # noqa: SLF001  (of the same class)
            raise ConfigError(
                "a watch is open in this process: it sees everything, so there can be one only. Leave out this one, or "
                "begin it after the `with` block of the other."
            )
        if _open_watches:  # before this watch begins, as only one can trace allocations
            _open_watches[0].close()
        self._has_begun = True
        self._process_watch = self._reading_guard.run_or_default(None, run_untraced, self._start_process_watch)
        _open_watches.append(self)

    def _start_process_watch(self) -> ProcessWatch:
        """Make the watch of this process.

        Without a unit the watch finds boundaries by itself: hooks in libraries call its `step`, and a timer its `tick`.
        """
        watch = ProcessWatch(unit=self._unit, roots=Roots(), limit=self._limit, guard=self._reading_guard)
        watch.name_cause = evidence_with_cell_names  # in a notebook, findings name cells instead of files
        if self._unit is None:
            watch.boundaries.attach_counters_(hook_steps(watch.step))
            # Where no reading may be taken, as in an import, a tick only suspends a trace, as tracing slows imports.
            start_ticking(self._tick_guard, watch.tick, tick_if_forbidden=watch.suspend_stale_trace)
        return watch

    def __repr__(self) -> str:
        if self._final_summary is None:
            return f"<watch: {'open' if self._has_begun else 'not begun'}>"
        return "\n".join(terminal_lines(self._final_summary))

    @property
    def is_open(self) -> bool:
        """Whether `step` may be called."""
        return self._has_begun and self._final_summary is None

    def step(self) -> None:
        """Tell the watch that a round is done; new findings are printed at times.

        Raises:
            ConfigError: the watch is not open.
        """
        if not self.is_open:
            raise ConfigError("step: the watch is not open. Call it inside of `with flatwater_watch.watch() as w:`.")
        if self._process_watch is None or self._unit is None:  # it could not begin, or it finds boundaries by itself
            return
        self._process_watch.step(self._unit)
        if self._report and monotonic() >= self._next_search_time:
            self._print_guard.run(self._print_new_findings, self._process_watch)

    def findings(self) -> list[Finding]:
        """Return the findings so far, most bytes first, or the final findings after the end.

        Raises:
            ConfigError: the watch was never opened.
        """
        self._require_begun()
        if self._final_summary is not None:
            return self._final_findings
        return [] if self._process_watch is None else self._guarded_findings(self._process_watch.findings)

    def _guarded_findings(self, find_findings: Callable[[], list[Finding]]) -> list[Finding]:
        """Return the findings that a function finds; none if the watch fails in it."""
        return self._reading_guard.run_or_default(list[Finding](), run_untraced, find_findings)

    def summary(self) -> dict[str, Any]:
        """Return the JSON of `flatwater watch`: steps, growth, the share explained, the watch's own cost, findings.

        Raises:
            ConfigError: the watch was never opened.
        """
        self._require_begun()
        return self._make_summary(findings=None) if self._final_summary is None else self._final_summary

    def close(self) -> None:
        """End the watch and print the findings, as `with` does; a second call does nothing."""
        if not self.is_open:
            return
        process, findings = self._process_watch, list[Finding]()
        if process is not None:
            if self._unit is None:
                # First of all: no boundary and no tick may begin a reading while the last findings are made.
                set_listener(None)  # the counters of boundaries report to nobody
                self._tick_guard.has_ended = True
            findings = self._guarded_findings(process.find_final_findings_)
        summary = self._make_summary(findings)
        self._final_findings, self._final_summary = findings, summary
        if process is not None:
            # Without conclusions, which `find_final_findings_` has drawn.
            self._reading_guard.run_or_default(None, run_untraced, lambda: process.close(conclude=False))
            self._reading_guard.has_ended = True
        _open_watches.remove(self)
        if self._report:
            self._print_guard.run(run_untraced, self._print_end)
        # The faults once more, as the end itself may have failed.
        unseen = list(dict.fromkeys([*summary["unseen"], *self._faults()]))
        self._final_summary = summary | {"unseen": unseen}

    def _print_end(self) -> None:
        """Print the summary with all findings; in a notebook, name those that stand in the output above already."""
        _print_to_stderr(terminal_lines(self.summary(), printed_keys=self._printed_keys if in_notebook() else ()))

    def _make_summary(self, findings: list[Finding] | None) -> dict[str, Any]:
        """Return the summary with the faults of the watch; if it cannot be made, an empty summary with the faults.

        `findings` are the final findings; None takes the findings so far.
        """
        process = self._process_watch
        summary: dict[str, Any] | None = None
        if process is not None:
            # Without final findings, perhaps as the watch failed to find them, the findings so far are reported.
            reported_findings = findings or self.findings()
            summary = self._reading_guard.run_or_default(None, run_untraced, process.summary, reported_findings)
        if process is None or summary is None:
            return masked_summary(spool.unwatched_summary("", "") | {"unseen": self._faults()}, sys.argv)
        # The steps so far, as the last reading, which the summary is made of, may be some steps ago.
        steps = summary["steps"] if self._unit is None else process.boundaries.counts.get(self._unit, 0)
        return masked_summary(summary | {"steps": steps, "unseen": [*summary["unseen"], *self._faults()]}, sys.argv)

    def _faults(self) -> list[str]:
        """Return sentences on failures of the watch itself, each once."""
        return list(dict.fromkeys([*self._reading_guard.faults, *self._print_guard.faults]))

    def _require_begun(self) -> None:
        if not self._has_begun:
            raise ConfigError("the watch has not begun. Use it as `with flatwater_watch.watch() as w:`.")

    def _print_new_findings(self, process: ProcessWatch) -> None:
        """Print the findings that were not printed before, and set the time of the next search by this one's cost."""
        began = monotonic()
        new_findings = list[Finding]()
        new_keys = set[tuple[str, str]]()
        for finding in self.findings():
            # A merged finding has a key for each of its parts, and is not new if one of them was printed alone before.
            keys = {(finding.verdict, owner) for owner in (finding.owner, *finding.parts)}
            new_keys |= keys
            if not keys & self._printed_keys:
                new_findings.append(finding)
        self._printed_keys |= new_keys
        end = monotonic()
        self._next_search_time = end + max(MINIMUM_SEARCH_GAP_SECONDS, (end - began) / SEARCH_TIME_SHARE)
        if new_findings:
            steps = process.boundaries.counts.get(str(self._unit), 0)
            _print_to_stderr([f"flatwater, {self._unit} {steps}:", *_finding_lines(new_findings)])


def _finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Return the lines of the first findings, at most `OWNING.maximum_printed_findings` of them."""
    return [line for finding in findings[: OWNING.maximum_printed_findings] for line in finding_lines(finding)]


def _print_to_stderr(lines: Iterable[str]) -> None:
    """Print lines to stderr, with the verdicts in bold: in `leak: model.cache` the word before the colon."""
    # To stderr as it is now: a notebook, or a test, may have replaced it.
    console = Terminal(file=sys.stderr, width=PRINT_COLUMNS, force_jupyter=False)
    for line in lines:
        verdict, colon, description = line.partition(": ")
        has_verdict = colon and not line.startswith(" ")  # further lines of a finding are indented
        console.print(Text.assemble((verdict + colon, "bold"), description) if has_verdict else Text(line))
