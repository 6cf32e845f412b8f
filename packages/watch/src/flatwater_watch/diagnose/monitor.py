"""The monitor of a process: cheap readings, and a costly investigation only on suspicion.

A reading at each step costs microseconds. If unaccounted memory rises, a census is taken; a second one finds the
container that grew, and traces find the line that fills it. Findings from readings alone (state filled for the first
time, freed memory kept, mapped files, slower steps) need no census.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from math import inf

from flatwater_watch.diagnose.evidence import GARBAGE_OWNER, Evidence, owner_evidence
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.garbage import Garbage
from flatwater_watch.diagnose.garbage_investigation import (
    garbage_evidence_at_end,
    search_garbage_at_end_,
    stop_search_,
    wants_garbage,
)
from flatwater_watch.diagnose.gc_sawtooth import is_negligible
from flatwater_watch.diagnose.handles import find_handles
from flatwater_watch.diagnose.investigation import Investigation, root_gains
from flatwater_watch.diagnose.investigator import Investigator
from flatwater_watch.diagnose.judge import select_causes
from flatwater_watch.diagnose.line_search import put_off_trace_
from flatwater_watch.diagnose.series_evidence import (
    collect_series_evidence_,
    retention_evidence_at_end,
    slowdown_evidence_at_end,
)
from flatwater_watch.diagnose.states import CaseEvent, CaseState
from flatwater_watch.diagnose.unexplained_growth import find_drift
from flatwater_watch.heap.census import Census
from flatwater_watch.meters.collector import GcSawtooth
from flatwater_watch.meters.system_calls import process_seconds
from flatwater_watch.series.readings import Reading, recent_slope
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import CASE, DRIFT

__all__ = ["CaseState", "Monitor", "Reading"]

Action = Callable[[Reading], CaseEvent | None]
"""The work on the way to the next state: it gets the latest reading and returns the next event, or None to wait."""
Transitions = dict[tuple[CaseState, CaseEvent], tuple[CaseState, Action | None]]
"""The next state and the action for each state and event; None for nothing to do."""


class Monitor(Investigator):
    """The monitor of one process: call `observe` once a step, in the thread that trains, and `close` at the end."""

    _stopped_owners: Collection[str] = ()
    """Owners that have stopped growing by the end of the program."""

    def observe(self, reading: Reading, *, seconds: float = inf, budget: float = inf) -> list[Finding]:
        """Record a reading, and return new findings: each once, and again if its verdict has changed.

        A reading whose step is not after the last one's is ignored.

        Args:
            reading: latest reading.
            seconds: maximum CPU seconds at this reading for a census, which goes on at the next one. Near the memory
                limit a census is taken whole, as one that is under way keeps a few objects alive.
            budget: CPU seconds left for what cannot be interrupted until the next reading, such as a trace.
        """
        start_seconds = process_seconds()
        if self._latest_reading is not None and reading.step <= self._latest_reading.step:
            return []
        self._latest_reading, self._budget_seconds = reading, budget
        self.censuses.slice_seconds = seconds if reading.has_headroom else inf
        if not self.is_tracing:
            # A trace takes memory and time itself, so that a reading under a trace says nothing of the program.
            self._history.add(reading)
            self._new_evidence += collect_series_evidence_(self._history, reading)
        was_watching = self.state is CaseState.WATCHING
        # The next action of the investigation, such as a census, a trace or a verdict (`_transitions`).
        self._advance_case(reading, CaseEvent.READING)
        if self.traces_allocations and self._budget_seconds < 0:  # also while a census is taken under the trace
            self.put_off_trace()
        # A census that the agent asked for belongs to no investigation, and goes on here.
        if was_watching and self.state is CaseState.WATCHING and self.censuses.is_under_way:
            self.censuses.advance_census_()
        new_findings = self._publish_new_findings()
        # Last, as memory that the work above took is not the program's.
        self._native_search.recorder.skip_current_gain()
        self.cost_seconds += process_seconds() - start_seconds
        return new_findings

    def take_census(self, *, seconds: float | None = None) -> None:
        """Go on with a census (snapshot of all containers), or begin one, for the callback `on_census`.

        Nothing happens before the first reading.

        Args:
            seconds: maximum CPU seconds at this step; None for those of the last reading, if no census used them.
        """
        if seconds is not None:
            self.censuses.slice_seconds = seconds
        if self._latest_reading is not None:
            self.censuses.advance_census_()

    def finish_pending(self, stopped_owners: Collection[str] = ()) -> None:
        """Finish the investigation without further readings: wait for its search, and publish proven causes.

        Args:
            stopped_owners: owners that have stopped growing, and explain nothing of the present growth.
        """
        if self._latest_reading is None:
            return
        self._stopped_owners = stopped_owners
        self._new_evidence += slowdown_evidence_at_end(self._history)
        self._new_evidence += retention_evidence_at_end(self._history, self._latest_reading)
        # No reading will come at which a trace could end.
        self._has_ended, self._budget_seconds = True, CASE.last_search_seconds
        # Repeated until the state stays, as one action of the end may start a fork, and the next one waits for it.
        previous_state: CaseState | None = None
        while self.state is not previous_state:
            previous_state = self.state
            self._advance_case(self._latest_reading, CaseEvent.END)
        if self.state is not CaseState.WATCHING:
            # The case was still looking for a line, or for a cause of the remaining growth.
            self._new_evidence += self._case.last_evidence
        self._publish_new_findings()
        # If garbage is still suspected, `explain_open_bytes_at_end` will search for it once more.
        was_suspected = self._case.suspected_garbage is not None or self._garbage_suspected
        self._garbage_suspected = was_suspected and GARBAGE_OWNER not in self._evidence_by_owner
        is_case_open = self.is_investigating and not self._awaits_first_comparison
        # Known owners may explain nothing of the growth now, as they are emptied or have stopped.
        has_idle_owners = bool(self.negligible_resets or stopped_owners)
        has_open_growth = self._is_unexplained or is_case_open or has_idle_owners
        if has_open_growth and not self._garbage_suspected:
            self._new_evidence += self._unexplained_evidence(self._latest_reading, self._stopped_owners)
            self._publish_new_findings()

    @property
    def is_bound_to_thread(self) -> bool:
        """Whether a trace runs that only the thread that began it can end."""
        recorder = self._native_search.recorder
        return (recorder.running and not recorder.is_in_other_threads) or self._tracer.traces_torch

    @property
    def is_investigating(self) -> bool:
        """Whether growth is proven, and its cause is being looked for."""
        return self.state not in {CaseState.BEGINNING, CaseState.WATCHING} and self._case.proven

    @property
    def suspects_growth(self) -> bool:
        """Whether memory rises that no known cause explains, so that its investigation is urgent.

        At the beginning every program's memory rises, so that only a drift (a lasting rise) counts until the first
        census is there.
        """
        reading = self._latest_reading
        if self.state is CaseState.BEGINNING and reading is not None:
            drifts, _ = find_drift(self._history, self._explaining_causes, reading)
            return drifts
        return self.state not in {CaseState.BEGINNING, CaseState.WATCHING}

    def evidence(self) -> list[Evidence]:
        """Return the evidence so far on each cause that is worth reporting."""
        return select_causes(self._known_evidence())

    # --- actions of the end ---

    @property
    def _awaits_first_comparison(self) -> bool:
        """Whether growth is proven but no containers are compared yet, so that it must not be called native yet."""
        return self.state is CaseState.COMPARING and self._case.proven and not self._case.comparisons

    def _advance_case(self, reading: Reading, event: CaseEvent | None) -> None:
        """Go from state to state, starting with an event, until an action returns no further event.

        The table `_transitions` gives the next state and its action, which gets the reading.
        """
        knows_drift = self.state not in {CaseState.BEGINNING, CaseState.WATCHING, CaseState.COUNTING}
        if knows_drift and event is CaseEvent.READING:
            drifts, self._growth_slope = find_drift(self._history, self._explaining_causes, reading)
            # A proof lasts: a tracer's own memory may hide the drift at the next comparison.
            self._case.proven = self._case.proven or drifts
        while event is not None:
            self.state, action = self._transitions[self.state, event]
            event = None if action is None else action(reading)

    @cached_property
    def _transitions(self) -> Transitions:
        """The next state and the action for each state and event: the whole flow of an investigation."""
        return {
            (CaseState.BEGINNING, CaseEvent.READING): (CaseState.BEGINNING, self._take_first_census),
            (CaseState.BEGINNING, CaseEvent.CENSUS_COMPLETE): (CaseState.WATCHING, None),
            (CaseState.WATCHING, CaseEvent.READING): (CaseState.WATCHING, self._check_readings),
            (CaseState.WATCHING, CaseEvent.SUSPICION): (CaseState.COUNTING, self._take_first_census),
            (CaseState.WATCHING, CaseEvent.NATIVE_CERTAIN): (CaseState.WATCHING, self._publish_native_growth),
            (CaseState.COUNTING, CaseEvent.READING): (CaseState.COUNTING, self._take_first_census),
            (CaseState.COUNTING, CaseEvent.CENSUS_COMPLETE): (CaseState.PROVING, None),
            (CaseState.PROVING, CaseEvent.READING): (CaseState.PROVING, self._await_drift),
            (CaseState.PROVING, CaseEvent.TIME_TO_COMPARE): (CaseState.COMPARING, self._compare_censuses),
            (CaseState.COMPARING, CaseEvent.READING): (CaseState.COMPARING, self._compare_censuses),
            (CaseState.COMPARING, CaseEvent.UNEXPLAINED): (CaseState.SEARCHING, self._add_library_roots),
            (CaseState.COMPARING, CaseEvent.COMPARED): (CaseState.COMPARING, self._choose_next_step),
            (CaseState.COMPARING, CaseEvent.UNPROVEN): (CaseState.WATCHING, self._close_unproven),
            (CaseState.COMPARING, CaseEvent.NO_LINE): (CaseState.TRACING, self._start_trace),
            (CaseState.COMPARING, CaseEvent.COMPARE_AGAIN): (CaseState.COMPARING, None),
            (CaseState.COMPARING, CaseEvent.COMPLETE): (CaseState.WATCHING, self._publish_evidence),
            (CaseState.SEARCHING, CaseEvent.LIBRARIES_GREW): (CaseState.COUNTING, None),
            (CaseState.SEARCHING, CaseEvent.READING): (CaseState.SEARCHING, self._check_garbage_search),
            (CaseState.SEARCHING, CaseEvent.TIME_TO_COMPARE): (CaseState.SEARCHING, self._compare_censuses),
            (CaseState.SEARCHING, CaseEvent.UNEXPLAINED): (CaseState.SEARCHING, self._add_library_roots),
            (CaseState.SEARCHING, CaseEvent.LIBRARIES_UNCLEAR): (CaseState.SEARCHING, self._start_garbage_search),
            (CaseState.SEARCHING, CaseEvent.COMPARED): (CaseState.COMPARING, self._choose_next_step),
            (CaseState.TRACING, CaseEvent.READING): (CaseState.TRACING, self._await_line),
            (CaseState.TRACING, CaseEvent.TIME_TO_COMPARE): (CaseState.COMPARING, self._compare_censuses),
            (CaseState.TRACING, CaseEvent.REFUSED): (CaseState.WATCHING, self._publish_evidence),
            (CaseState.WATCHING, CaseEvent.NATIVE_WITHOUT_LINE): (CaseState.RECORDING_RISES, self._start_recording),
            (CaseState.RECORDING_RISES, CaseEvent.REFUSED): (CaseState.WATCHING, None),
            (CaseState.RECORDING_RISES, CaseEvent.READING): (CaseState.RECORDING_RISES, self._await_rises),
            (CaseState.RECORDING_RISES, CaseEvent.TIME_TO_COMPARE): (CaseState.WATCHING, self._publish_native_line),
            (CaseState.BEGINNING, CaseEvent.END): (CaseState.BEGINNING, None),
            (CaseState.WATCHING, CaseEvent.END): (CaseState.WATCHING, None),
            (CaseState.COUNTING, CaseEvent.END): (CaseState.COUNTING, None),
            (CaseState.PROVING, CaseEvent.END): (CaseState.PROVING, None),
            (CaseState.COMPARING, CaseEvent.END): (CaseState.COMPARING, self._compare_first_at_end),
            (CaseState.SEARCHING, CaseEvent.END): (CaseState.SEARCHING, self._finish_garbage_search),
            (CaseState.TRACING, CaseEvent.END): (CaseState.TRACING, self._search_traced_garbage),
            (CaseState.RECORDING_RISES, CaseEvent.END): (CaseState.WATCHING, self._publish_native_line),
        }

    def _compare_first_at_end(self, _reading: Reading) -> CaseEvent | None:
        """Return `READING`, at which a whole census is taken and compared, if nothing was compared yet; else None."""
        if not self._awaits_first_comparison:
            return None
        self.censuses.slice_seconds = CASE.last_search_seconds
        return CaseEvent.READING

    def _finish_garbage_search(self, _reading: Reading) -> CaseEvent | None:
        """Wait for the fork that searches for garbage; return `READING`, at which its result is taken.

        None if there is no fork, or if it takes too long.
        """
        search = self._case.garbage_search
        is_done = search is not None and search.is_done(CASE.last_search_seconds)
        return CaseEvent.READING if is_done else None

    def _search_traced_garbage(self, _reading: Reading) -> CaseEvent | None:
        """Return `TIME_TO_COMPARE`, so that a fork searches the objects traced so far, if the trace is for garbage."""
        return CaseEvent.TIME_TO_COMPARE if wants_garbage(self._case) else None

    # --- answers at the end ---

    def conclude(self) -> list[Finding]:
        """Finish without further readings; record and return findings or, if there are none, leads.

        The leads are containers that grew since the first census, without proof. Called as a program ends without a
        finding, or as a run reaches its budget.
        """
        self.finish_pending()
        series = self._history.unaccounted
        if self._garbage_suspected and len(series.steps) > 1:
            steps = round(series.steps[-1] - series.steps[0])
            # This records its evidence, which `evidence()` below includes.
            self.explain_open_bytes_at_end(series.values[-1] - series.values[0], steps)
        if not self.evidence():
            self._record_evidence(self.find_since_beginning())
        return self.findings()

    def root_gains(self, latest: Census | None = None) -> list[tuple[str, int]]:
        """Return pairs of a root (global, local variable, registry) and its bytes gained since the first census.

        They are leads, not proofs, as two censuses prove no trend.

        Args:
            latest: census from `take_whole_census`; None takes one.
        """
        latest = latest or self.take_whole_census()
        first = self._first_case.baseline_census
        return [] if latest is None or first is None else root_gains(first, latest)

    @property
    def first_census_end(self) -> int:
        """Step at which the last object of the first census was read; 0 without a first census."""
        first = self._first_case.baseline_census
        return 0 if first is None else max((holding.step for holding in first.holdings.values()), default=0)

    def take_whole_census(self) -> Census | None:
        """Take a whole census (snapshot of all containers) at once; return None before the first reading.

        A trace that runs is ended before.
        """
        self._tracer.stop()
        self.censuses.discard_()
        self.censuses.slice_seconds = inf
        return None if self._latest_reading is None else self.censuses.advance_census_()

    def explain_open_bytes_at_end(
        self, open_bytes: float, steps: int, sawtooth: GcSawtooth | None = None
    ) -> list[Evidence]:
        """Return the evidence, at the end, on bytes without a cause: on cyclic garbage, or else on native growth.

        Garbage is searched for in a fork of the process, and is the cause if it has most of the bytes. Native growth is
        the cause if it is certain.

        Args:
            open_bytes: bytes without a cause; if there are none, nothing is searched.
            steps: steps in which these bytes came.
            sawtooth: sawtooth of full collections; None if no full collection was seen.

        Returns:
            The evidence, which is recorded; empty also if the garbage is an ordinary backlog (`ordinary_garbage`).
        """
        if self._latest_reading is None or steps <= 0 or open_bytes <= 0:
            return []
        garbage = search_garbage_at_end_(self._lines, self._roots, self._tracer, self._latest_reading.step)
        explains_most = garbage is not None and garbage.bytes >= CASE.minimum_garbage_share * open_bytes
        causes = list[Evidence]()
        if garbage is not None and self._is_ordinary_backlog(garbage, sawtooth):
            self.ordinary_garbage = garbage if garbage.bytes >= DRIFT.least_bytes else None
        elif garbage is not None and explains_most:
            causes = [garbage_evidence_at_end(garbage, self._history, open_bytes, steps)]
        # If an ordinary backlog explains most of the bytes, it leaves no native growth to look for.
        if not (causes or explains_most or self._awaits_first_comparison):
            causes = self._unexplained_evidence(self._latest_reading, self._stopped_owners, at_end=True)
        return self._record_evidence(causes)

    def _is_ordinary_backlog(self, garbage: Garbage, sawtooth: GcSawtooth | None) -> bool:
        """Return whether the garbage is an ordinary backlog of the collector: small, or freed while it is small."""
        # An infinite fall rules out the forecast of further garbage, of which none comes at the end of a program.
        is_ordinary = garbage.is_ordinary_gc_backlog(self._history.swing_bytes, largest_fall=inf)
        return is_ordinary or is_negligible(sawtooth, garbage.bytes)

    def _record_evidence(self, causes: list[Evidence]) -> list[Evidence]:
        """Record evidence, and return it with the lines and contents that are known for it."""
        self._new_evidence += causes
        self._publish_new_findings()
        return [self._add_details(cause) for cause in causes]

    def confirm_unproven(self, open_bytes: int) -> list[Evidence]:
        """Record and return the causes of an investigation without a proof, if what memory did since confirms them.

        Memory must have grown on at their rate, and they must explain most of `open_bytes`, the bytes without a cause.
        Else, or if each investigation ended with a proof, the list is empty.
        """
        unproven, reading = self._unproven, self._latest_reading
        if unproven is None or reading is None:
            return []
        return self._record_evidence(unproven.causes_if_growth_continues(reading, open_bytes))

    def find_behind_handles(self, open_bytes: int, latest: Census | None) -> list[Evidence]:
        """Record and return the evidence on the container whose new items have handles, for bytes without a cause.

        A handle is a small Python object that keeps memory of a C library alive. New are the items since the first
        census. The list is empty if there is no such container, or no census after the first one.

        Args:
            open_bytes: bytes without a cause, which are divided over the new items.
            latest: census from `take_whole_census`.
        """
        first_case = self._first_case
        if (
            self._latest_reading is None
            or latest is None
            or first_case.baseline_census is None
            or latest.step <= first_case.first_step
        ):
            return []
        owners = find_handles(first_case.baseline_census, latest, open_bytes)
        rate = open_bytes / (latest.step - first_case.first_step)
        drift = Slope(per_step=rate, low=rate, high=rate)  # no bounds are known
        growth = self._process_growth(self._latest_reading)
        # Without a search for lines, as `take_whole_census` has ended the trace.
        causes = [owner_evidence(owner, steps=owner.steps, growth=growth, drift=drift) for owner in owners]
        return self._record_evidence(causes)

    def find_since_beginning(self) -> list[Evidence]:
        """Take a whole census (snapshot), and return the evidence on containers that have grown since the first one.

        They are leads, as two censuses prove no trend. Empty if no step has come since the first census.
        """
        if (
            self._latest_reading is None
            or self._first_case.baseline_census is None
            or self._latest_reading.step <= self._first_case.first_step
        ):
            return []
        self.censuses.discard_()
        self.censuses.slice_seconds = inf
        slope = recent_slope(self._history.unaccounted)
        growth = self._process_growth(self._latest_reading)
        causes = self._compare_with_first_census_(self._first_case, growth, slope) or []
        step = self._latest_reading.step
        # Bounded containers that are full by now are left out.
        growing = (cause for cause in causes if cause.plateau_step is None or cause.plateau_step > step)
        return [cause for cause in growing if cause.drift.per_step >= CASE.minimum_bytes_per_step]

    @contextmanager
    def pause_trace(self) -> Iterator[None]:
        """Leave out of the trace what is allocated in the `with` block, also if the trace begins in it."""
        self._tracer.allocations.pause()
        try:
            yield
        finally:
            self._tracer.allocations.resume()

    def put_off_trace(self) -> None:
        """End a trace that costs too much, until it is affordable. Call it in the thread that began the trace."""
        self._new_evidence += put_off_trace_(self._case, self._tracer)

    def suspend_trace(self) -> None:
        """End the trace until the next reading begins it again. Call it in the thread that began the trace."""
        self._case.suspended_traces += 1
        # After too many suspensions the trace ends for good.
        self._case.is_trace_suspended = self._case.suspended_traces <= CASE.maximum_suspended_traces
        self._tracer.stop()

    def close(self) -> None:
        """Stop all traces, and drop the census and the search for garbage that are under way."""
        stop_search_(self._case)
        self._case, self.state = Investigation(self._lines), CaseState.WATCHING
        self.censuses.discard_()
        self._tracer.stop()
        self._native_search.recorder.end()
