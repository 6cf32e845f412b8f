"""The monitor of a process: cheap readings, and a costly investigation only on suspicion.

A reading at each step costs microseconds. If unaccounted memory rises, a census is taken; a second one finds the
container that grew, and traces find the line that fills it. Findings from readings alone (state filled for the first
time, freed memory kept, mapped files, slower steps) need no census. `states.py` has the table of states and events.
"""

from collections.abc import Collection
from math import inf

from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.garbage import Garbage
from flatwater_watch.diagnose.gc_sawtooth import is_negligible
from flatwater_watch.diagnose.handles import find_handles
from flatwater_watch.diagnose.investigation import (
    Investigation,
    gained_by_roots,
    judge_garbage_at_end,
    judge_owners_,
    search_garbage_now,
    stop_search_,
    wants_garbage,
)
from flatwater_watch.diagnose.investigator import Investigator
from flatwater_watch.diagnose.judge import CYCLIC
from flatwater_watch.diagnose.series_findings import judge_series, retention_at_the_end, slower_at_the_end
from flatwater_watch.diagnose.states import CaseState
from flatwater_watch.heap.census import Census
from flatwater_watch.meters.collector import GcSawtooth
from flatwater_watch.meters.system_calls import process_seconds
from flatwater_watch.series.readings import Reading, recent_slope
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import SHIPPED

__all__ = ["CaseState", "Monitor", "Reading"]

CASE, DRIFT = SHIPPED.investigating, SHIPPED.drift


class Monitor(Investigator):
    """Watches one process: call `observe` once a step, in the thread that trains, and `close` at the end."""

    _over: Collection[str] = ()
    """Owners that have stopped growing, at the end."""

    def observe(self, reading: Reading, *, seconds: float = inf, trace: bool = True) -> list[Finding]:
        """Record a reading, and return new findings: each once, and again if its verdict has changed.

        A reading whose step is not after the last one's is ignored.

        Args:
            reading: the latest.
            seconds: maximum CPU seconds of a census at this reading; it goes on at the next one. Near the limit it is
                taken whole, as a census under way keeps a few objects alive.
            trace: whether tracing may begin now.
        """
        start_seconds = process_seconds()
        if self._last is not None and reading.step <= self._last.step:
            return []
        self._last, self._may_trace = reading, trace
        self.censuses.seconds = seconds if reading.has_headroom else inf
        if not self.is_tracing:
            # A trace takes memory and time itself, so that a reading under it says nothing of the program.
            self._record.add(reading)
            self._news += judge_series(self._record, reading, self._unit)
        was_watching = self.state is CaseState.WATCHING
        self._follow_table(reading)
        # A census that the agent asked for belongs to no investigation, and goes on here.
        if was_watching and self.state is CaseState.WATCHING and self.censuses.is_under_way:
            self.censuses.advance(reading.step)
        news = self._publish_news()
        self._following.rises.skip_current_gain()  # last of all: memory of the work above is not the program's
        self.cost_seconds += process_seconds() - start_seconds
        return news

    def take_census(self, *, seconds: float | None = None) -> None:
        """Go on with a census for the callback, or begin one; nothing happens before the first reading.

        Args:
            seconds: maximum CPU seconds at this step; None for what the last reading has left.
        """
        if seconds is not None:
            self.censuses.seconds = seconds
        if self._last is not None:
            self.censuses.advance(self._last.step)

    def finish_pending(self, over: Collection[str] = ()) -> None:
        """Finish the investigation without further readings: accept proven findings, and wait for a search under way.

        Args:
            over: owners of findings that have stopped growing.
        """
        if self._last is None:
            return
        self._over = over
        self._news += slower_at_the_end(self._record, self._last, self._unit)
        self._news += retention_at_the_end(self._record, self._last, self._unit)
        self._may_trace = False  # no reading will come at which a trace could end
        if self.state is CaseState.TRACING and wants_garbage(self._case):
            self._case.held = CASE.still  # as if the wait for new garbage were over: the fork looks at what there is
            self._follow_table(self._last)
        if self._awaits_first_look:
            self.censuses.seconds = CASE.last_search
            self._follow_table(self._last)
        search = self._case.search
        if search is not None and search.is_done(CASE.last_search):
            self._follow_table(self._last)
        if self.state is CaseState.FOLLOWING:
            self.state = CaseState.WATCHING
            self._tell_line(self._last)
        if self.state is not CaseState.WATCHING:
            self._news += self._case.found  # found by a look, and waiting for a line or for the rest
        self._publish_news()
        # Suspected garbage is searched for once more if no cause is known (`judge_garbage_at_end`).
        self._suspect = (self._case.suspect is not None or self._suspect) and CYCLIC not in self._found
        asks_native = (
            self._open or (self.is_investigating and not self._awaits_first_look) or self.negligible_resets or over
        )
        if not self._suspect and asks_native:
            self._news += self._judge_unexplained(self._last, self._over)
            self._publish_news()

    def conclude(self) -> list[Finding]:
        """Finish without further readings; return all findings or, if there are none, containers that grew, as leads.

        The leads are containers that grew since the first census, without proof. Called at the end of a program without
        a finding, or of a run at its budget.
        """
        self.finish_pending()
        series = self._record.unaccounted
        if self._suspect and len(series.steps) > 1:
            steps = round(series.steps[-1] - series.steps[0])
            # Publishes what it finds; the result is part of findings() below.
            self.judge_garbage_at_end(series.values[-1] - series.values[0], steps)
        if not self.findings():
            self._news += self.find_since_beginning()
            self._publish_news()
        return self.findings()

    def root_gains(self, latest: tuple[int, Census] | None = None) -> list[tuple[str, int]]:
        """Roots with the bytes that each has gained since the beginning, new roots included: leads, not proofs.

        Args:
            latest: census from `take_whole_census`; None takes one.
        """
        latest, first = latest or self.take_whole_census(), self._first.before
        return [] if latest is None or first is None else gained_by_roots(first, latest[1])

    def take_whole_census(self) -> tuple[int, Census] | None:
        """Take a whole census at once, and give the step at which it began with it; None before the first reading."""
        self.censuses.discard()
        self.censuses.seconds = inf
        return None if self._last is None else self.censuses.advance(self._last.step)

    def judge_garbage_at_end(self, open_bytes: float, steps: int, teeth: GcSawtooth | None = None) -> list[Finding]:
        """The finding of cyclic garbage, if it is most of the bytes without a cause; else of native growth, if certain.

        Garbage may come and go too fast to show a slope.

        Args:
            open_bytes: bytes without a cause. 0 or less: nothing is searched.
            steps: steps in which they came.
            teeth: sawtooth of full collections; None if none was seen.
        """
        if self._last is None or steps <= 0 or open_bytes <= 0:
            return []
        garbage, growth = (
            search_garbage_now(self._lines, self._roots, self._tracer, self._last.step),
            self._process_growth(self._last),
        )
        explains_most, findings = garbage is not None and garbage.bytes >= CASE.garbage * open_bytes, list[Finding]()
        if garbage is not None and self._is_ordinary_backlog(garbage, teeth):
            self.waiting = garbage if garbage.bytes >= DRIFT.least_bytes else None
        elif garbage is not None and explains_most:
            findings = judge_garbage_at_end(garbage, self._record, growth, open_bytes, steps)
        asks_native = not (findings or explains_most or self._awaits_first_look)
        return self._record_findings(
            self._judge_unexplained(self._last, self._over, ended=True) if asks_native else findings
        )

    def _is_ordinary_backlog(self, garbage: Garbage, teeth: GcSawtooth | None) -> bool:
        """Whether the garbage is an ordinary backlog: small so far, or freed while it is small.

        At the end of a program no forecast of further garbage counts.
        """
        return garbage.is_ordinary_gc_backlog(self._record.swing_bytes, inf) or is_negligible(teeth, garbage.bytes)

    def _record_findings(self, found: list[Finding]) -> list[Finding]:
        """Publish findings, and return them as recorded: with a line, if one was found for them."""
        self._news += found
        self._publish_news()
        return [self._found[finding.owner] for finding in found]

    def confirm_unproven(self, open_bytes: int) -> list[Finding]:
        """Publish unproven findings if memory went on at their rate, and they are most of the bytes without a cause."""
        growth, last = self._unproven, self._last
        return (
            [] if growth is None or last is None else self._record_findings(growth.confirmed_findings(last, open_bytes))
        )

    def find_behind_handles(self, open_bytes: int, latest: tuple[int, Census] | None) -> list[Finding]:
        """Publish the container whose new items since the first census have handles to the open bytes: none, or one.

        Args:
            open_bytes: bytes without a cause, which are divided over these items.
            latest: census from `take_whole_census`.
        """
        baseline = self._first
        if self._last is None or latest is None or baseline.before is None or latest[0] <= baseline.since:
            return []
        owners = find_handles(baseline.before, latest[1], open_bytes)
        rate = open_bytes / (latest[0] - baseline.since)
        drift = Slope(rate, rate, rate)
        return self._record_findings(
            judge_owners_(self._case, None, owners, growth=self._process_growth(self._last), drift=drift)
        )

    def find_since_beginning(self) -> list[Finding]:
        """Findings of containers that gained since the first census: no proof, as nothing was read in between."""
        if self._last is None or self._first.before is None or self._last.step <= self._first.since:
            return []
        self.censuses.discard()
        self.censuses.seconds = inf
        slope = recent_slope(self._record.unaccounted)
        findings = self._compare_owners(self._first, self._process_growth(self._last), slope) or []
        step = self._last.step  # a container that is full by now has ended
        growing = (finding for finding in findings if finding.plateau_step is None or finding.plateau_step > step)
        return [finding for finding in growing if finding.bytes_per_step >= CASE.page]

    def stop_trace(self) -> None:
        """End the trace of this look, which goes on without a line; in the thread that began the trace."""
        self._stop_tracing()

    def close(self) -> None:
        """Stop tracing, and drop the census and the search that are under way."""
        stop_search_(self._case)
        self._case, self.state = Investigation(self._lines), CaseState.WATCHING
        self.censuses.discard()
        self._stop_tracing()
        self._following.rises.end()
