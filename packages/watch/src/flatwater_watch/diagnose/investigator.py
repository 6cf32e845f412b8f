"""The actions of an investigation: each asks the readings, a census, a trace or a fork, and returns an event.

`monitor.py` has the table of states, events and actions: at each reading the action of the present state runs, and the
event that it returns leads to the next state and action; None means to wait for the next reading. A case is one
investigation. A census is a snapshot of the program's containers, and an owner a container that grows.
"""

import gc
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import inf

from flatwater_watch.diagnose.evidence import (
    GARBAGE_OWNER,
    NOT_ASKED_ADVICE,
    CurrentContents,
    Evidence,
    owner_evidence,
)
from flatwater_watch.diagnose.finding import AllocationSite, Finding
from flatwater_watch.diagnose.garbage import Garbage
from flatwater_watch.diagnose.garbage_investigation import (
    finish_search_,
    start_search_,
    stop_search_,
    update_garbage_wait_,
    wants_garbage,
)
from flatwater_watch.diagnose.investigation import (
    Investigation,
    find_owner_line_,
    find_owners_since_baseline_,
    larger_contents,
    missing_since_lengths,
    record_first_owner_,
    take_grown_holders_,
)
from flatwater_watch.diagnose.judge import make_reportable_findings
from flatwater_watch.diagnose.line_search import may_find_line, put_off_trace_, search_owner_line_, start_trace_
from flatwater_watch.diagnose.lines import NativeLineSearch, Tracer
from flatwater_watch.diagnose.owners import census_with_new_containers
from flatwater_watch.diagnose.reset_tracker import ResetTracker
from flatwater_watch.diagnose.states import CaseEvent, CaseState
from flatwater_watch.diagnose.unexplained_growth import (
    UnprovenGrowth,
    comparison_limit,
    is_suspicious,
    native_growth_evidence,
)
from flatwater_watch.heap.census import Census, CensusListener, CensusTaker
from flatwater_watch.heap.libraries import CLIMB_RATIO, HeapPrice, heap_lengths
from flatwater_watch.heap.modules import imported_module_count
from flatwater_watch.heap.roots import Roots
from flatwater_watch.series.readings import Growth, Reading, ReadingHistory, recent_slope
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import CASE, ENDING, OWNING


class Investigator:
    """The state of an investigation, its next action at a reading, and the evidence that it collects."""

    in_watch_thread = False
    """Whether a thread of the watch is the caller: the torch operations and lines of the program run in others."""

    def __init__(
        self,
        roots: Roots,
        *,
        on_census: CensusListener | None = None,
        lines: dict[str, AllocationSite] | None = None,
        current_step: Callable[[], int] | None = None,
    ) -> None:
        """Prepare without a reading; the first census begins at the first reading.

        Args:
            roots: choice of the globals, variables and registries at which a census begins.
            on_census: callback for each census.
            lines: allocating lines by owner, traced by earlier watches of this process; new lines are added.
            current_step: function that returns the program's step, also between readings; None for the step of the
                latest reading.
        """
        self._roots, self._census_callback = roots, on_census
        self.censuses = CensusTaker(roots, self._on_census, current_step or self._latest_step)
        self._tracer = Tracer(roots.packages)
        self._native_search = NativeLineSearch(roots.packages)
        self._lines = {} if lines is None else lines
        # The readings, and the limits of the caller for work at the latest one.
        self._history = ReadingHistory()
        self._latest_reading: Reading | None = None
        self._budget_seconds, self._heap_price, self._has_ended = inf, HeapPrice(), False
        self._growth_slope = recent_slope(self._history.unaccounted)  # of all growth, in the series that drifts
        # The case under way, and the first one: at the end its first census shows all growth since the watch began.
        self.state = CaseState.BEGINNING
        self._first_case = self._case = Investigation(self._lines)
        self._pause_readings_left = 0  # counted down; once it is negative, rising memory may begin a case
        self._next_pause_readings = CASE.first_rest_readings  # doubled after each case
        self._new_evidence: list[Evidence] = []  # of this reading
        self._evidence_by_owner: dict[str, Evidence] = {}
        self._contents_by_owner: dict[str, CurrentContents] = {}  # only where they are more than in the evidence
        self.reset_tracker = ResetTracker()  # of containers to leave out, if they are emptied again and again
        self._garbage_suspected = False  # garbage was enough for the growth of the last case, and was not reported
        self._is_unexplained = False  # the last case explained too little: the readings are judged again each time
        self._asked_libraries = False  # for containers that became longer
        self._unproven: UnprovenGrowth | None = None
        self.ordinary_garbage: Garbage | None = None
        """Garbage that a collection frees while it is still small, if it was searched for: no finding."""
        self.cost_seconds = 0.0  # CPU seconds spent here, without the slowdown of traced steps

    @property
    def is_tracing(self) -> bool:
        """Whether allocations are traced, for a reading or two, which makes the program slower and larger."""
        return self.traces_allocations or self.state is CaseState.RECORDING_RISES

    @property
    def traces_allocations(self) -> bool:
        """Whether the tracer runs, for the line that made the items of an owner, or garbage."""
        return self._tracer.running

    def findings(self) -> list[Finding]:
        """Return all findings so far, by the latest reading, without containers that are emptied again and again."""
        reading = self._latest_reading
        if reading is None:
            return []
        return make_reportable_findings(self._known_evidence(), self._process_growth(reading))

    def _known_evidence(self) -> list[Evidence]:
        """Return the evidence on all causes so far, without containers that are emptied again and again."""
        emptied = self.reset_tracker.periodically_emptied_paths
        return [self._add_details(cause) for owner, cause in self._evidence_by_owner.items() if owner not in emptied]

    def _add_details(self, cause: Evidence) -> Evidence:
        """Return the evidence on a cause, with its contents and its lines as they are known by now."""
        # Only a cause with Python objects gets a line here: `_lines` may have one of an earlier cause of this owner.
        has_objects = cause.holders or cause.owner == GARBAGE_OWNER
        evidence = replace(
            cause,
            made_at=self._lines.get(cause.owner) if has_objects else None,
            contents=self._contents_by_owner.get(cause.owner),
            advice=cause.advice if self._asked_libraries or cause.verdict != "native" else NOT_ASKED_ADVICE,
        )
        return self._native_search.add_line(evidence)

    # --- actions: each does one thing, and returns the event that follows, or None to wait for the next reading ---

    def _check_readings(self, reading: Reading) -> CaseEvent | None:
        """Begin an investigation, by returning `SUSPICION`, if memory rises after the pause; else return None.

        Two things come first: `NATIVE_CERTAIN`, if the readings prove native growth that the last case left open, and a
        search for the line of native growth that has waited for this thread.
        """
        # The last case left growth open, or its owners are emptied again and again and explain nothing.
        if (self._is_unexplained or self.negligible_resets) and self._unexplained_evidence(reading):
            return CaseEvent.NATIVE_CERTAIN
        if self._native_search.waits:  # a try that could not be paid for, or the next one
            return self._native_line_event()
        self._pause_readings_left -= 1
        if self._pause_readings_left < 0 and is_suspicious(self._history, self._explaining_causes, reading):
            self._case = Investigation(self._lines)
            return CaseEvent.SUSPICION
        return None

    def _take_first_census(self, _reading: Reading) -> CaseEvent | None:
        """Go on with the first census of an investigation; return `CENSUS_COMPLETE` once it is complete, else None.

        It is the snapshot of all containers with which later ones are compared.
        """
        census = self.censuses.advance_census_()
        if census is None:
            return None
        self._case.first_step = census.step
        # Without references to objects, which would keep the program's objects alive until the second census.
        self._case.baseline_census = census.without_objects()
        self._case.module_count, self._case.frozen_count = imported_module_count(), gc.get_freeze_count()
        return CaseEvent.CENSUS_COMPLETE

    def _await_drift(self, _reading: Reading) -> CaseEvent | None:
        """Return `TIME_TO_COMPARE` once a lasting rise is proven, or after a few readings, as jumps prove nothing."""
        if self._case.proven or self._case.unproven_readings >= CASE.maximum_unproven_readings:
            return CaseEvent.TIME_TO_COMPARE
        self._case.unproven_readings += 1
        return None

    def _await_line(self, reading: Reading) -> CaseEvent | None:
        """Return None while the trace may still find the line of the owner or garbage, and then `TIME_TO_COMPARE`."""
        case, roots = self._case, self.censuses.roots
        if case.is_trace_suspended and self._can_trace(reading):
            start_trace_(case, self._tracer, roots, in_watch_thread=self.in_watch_thread)  # the same try goes on
        if case.is_trace_suspended:  # not affordable now
            if not case.unaffordable_traces:  # the evidence without a line is published meanwhile, once
                self._new_evidence += put_off_trace_(case, self._tracer)
            return None
        if self.is_tracing and reading.has_headroom:
            # Garbage first: while the trace waits for garbage, the line of the owner is not looked for.
            must_go_on = update_garbage_wait_(case, self._tracer) or search_owner_line_(case, self._tracer, roots)
            if must_go_on:
                return None
        return CaseEvent.TIME_TO_COMPARE

    def _check_garbage_search(self, reading: Reading) -> CaseEvent | None:
        """Take the evidence of the search for garbage and return `COMPARED`, if the search has ended.

        Else return `TIME_TO_COMPARE` while comparisons of censuses are left, or begin the search if none is under way.
        """
        case = self._case
        if 0 < case.heap_waits <= CASE.maximum_heap_waits:
            return CaseEvent.UNEXPLAINED  # leads back to `_add_library_roots`, which waited until it is affordable
        if case.garbage_search is not None and case.garbage_search.is_done():
            case.comparison_evidence = case.comparison_evidence + finish_search_(
                case, self._history, self._growth_slope, self._process_growth(reading), reading.material_bytes
            )
            return CaseEvent.COMPARED
        return CaseEvent.TIME_TO_COMPARE if self._may_compare_again else self._start_garbage_search(reading)

    @property
    def _may_compare_again(self) -> bool:
        """Whether a comparison of censuses is left; none is made while a trace looks for the line of garbage."""
        return self._case.comparisons < comparison_limit(self._history) and not wants_garbage(self._case)

    def _compare_censuses(self, reading: Reading) -> CaseEvent | None:
        """Compare all containers with the case's first snapshot, and keep the evidence in `comparison_evidence`.

        No census is taken if a trace has just found the owner's line, or looks for the line of garbage: then the
        evidence of the last comparison is kept.

        Return None while the census is under way, `UNEXPLAINED` if the owners explain too little, else `COMPARED`.
        """
        case = self._case
        traces_garbage = self.is_tracing and wants_garbage(case)
        causes: list[Evidence] | None
        if traces_garbage:
            causes = [cause for cause in case.last_evidence if cause.owner != GARBAGE_OWNER]
        elif case.has_new_line:
            causes = case.last_evidence
        else:
            causes = self._compare_with_first_census_(case, self._process_growth(reading), self._growth_slope)
        case.has_new_line = False
        if causes is None:
            return None
        if not traces_garbage:
            case.comparisons += 1
            case.last_evidence = causes or case.last_evidence
            case.was_in_vain = not self._are_enough(causes, 1 - OWNING.explained_share)
        case.comparison_evidence = causes
        # If a line may be found, less must be explained: the line of an owner comes before the owner of the rest.
        share = ENDING.minimum_owned_share if may_find_line(case) else OWNING.explained_share
        explains_enough = not traces_garbage and self._are_enough(causes, share)
        if explains_enough or not case.proven or not reading.has_headroom:
            return self._finish_comparison()
        return CaseEvent.UNEXPLAINED

    def _add_library_roots(self, reading: Reading) -> CaseEvent | None:
        """Find library objects that hold growing containers, and let the next censuses begin at them, too.

        The first call of a case only records the lengths of all containers; a later one finds what is longer by then.
        Return `LIBRARIES_GREW` if there are such objects, `LIBRARIES_UNCLEAR` if not, and None to wait until a look at
        all containers is affordable.
        """
        case, is_first = self._case, self._case.lengths_step is None
        if self.is_tracing:  # for the line of garbage: new roots would end the trace
            return CaseEvent.LIBRARIES_UNCLEAR
        missing_bytes = missing_since_lengths(case, reading.step, self._growth_slope.low, reading.material_bytes)
        # A later call also climbs from the containers to their holders, which takes longer.
        seconds = self._budget_seconds / (1 if is_first else CLIMB_RATIO)
        must_look = is_first or missing_bytes
        if must_look and not self._heap_price.update_and_check_(seconds):
            case.heap_waits += 1
            return None if case.heap_waits <= CASE.maximum_heap_waits else CaseEvent.LIBRARIES_UNCLEAR
        case.heap_waits = 0
        if is_first:
            case.lengths, case.lengths_step = heap_lengths(), reading.step
        self._asked_libraries |= not is_first
        holders, must_open_ids = take_grown_holders_(case, self._roots, missing_bytes)
        self.censuses.library_roots |= holders
        self.censuses.must_open_ids |= must_open_ids
        if holders:
            case.was_in_vain = False  # the next censuses see more
            stop_search_(case)
        return CaseEvent.LIBRARIES_GREW if holders else CaseEvent.LIBRARIES_UNCLEAR

    def _start_garbage_search(self, reading: Reading) -> CaseEvent | None:
        """Begin to search for garbage in a fork, which has the traces so far, and stop tracing.

        Return None if the search begins or waits, and `COMPARED` if it cannot begin. It waits until a look at all
        containers is affordable, as a fork costs about as much: the program copies each page that it writes to.
        """
        may_wait = self._case.garbage_search is None and self._may_compare_again and not self.is_tracing
        if may_wait and not self._heap_price.update_and_check_(self._budget_seconds):
            return None
        if not start_search_(self._case, self._roots, self._tracer, reading.step):
            return self._finish_comparison()
        self._tracer.stop()  # in the thread that began it, as torch modes belong to a thread
        return None

    def _finish_comparison(self) -> CaseEvent:
        """Stop the garbage search and the trace of this comparison, and return `COMPARED`."""
        stop_search_(self._case)
        self._tracer.stop()
        return CaseEvent.COMPARED

    def _choose_next_step(self, reading: Reading) -> CaseEvent:
        """Return the event after a comparison.

        `UNPROVEN` ends a case whose growth was no drift. `NO_LINE` begins a trace for the line of an owner that has
        none. `COMPLETE` ends the case with its evidence. `COMPARE_AGAIN` waits for more, as growth may come in bursts.
        """
        case, causes = self._case, self._case.comparison_evidence
        if not case.proven:
            return CaseEvent.UNPROVEN
        # Suspected garbage is traced before its proof, as a collection may free it; but once only, as it may not grow.
        seeks_garbage = not causes and not case.trace_tries and wants_garbage(case) and self._can_trace(reading)
        # A trace slows the program down, which owners of a small share alone are not worth.
        seeks_owner = may_find_line(case) and self._are_enough(causes, 1 - OWNING.explained_share)
        if seeks_garbage or seeks_owner:
            return CaseEvent.NO_LINE
        limit = comparison_limit(self._history)
        was_last = case.seeks_handles and case.comparisons >= limit
        if was_last or self._are_enough(causes):
            return CaseEvent.COMPLETE
        case.seeks_handles = case.comparisons + 1 >= limit  # in the last comparison only
        case.last_evidence = causes or case.last_evidence
        return CaseEvent.COMPARE_AGAIN

    def _start_trace(self, reading: Reading) -> CaseEvent | None:
        """Begin to trace for the line of the owner or garbage, or put the trace off until it is affordable.

        Return None, or `REFUSED` if no further reading may come, or if the memory limit is near.
        """
        case = self._case
        if case.first_owner_grew:  # else a trace had no new items to see, and does not count
            case.trace_tries += 1
        case.last_evidence = case.comparison_evidence
        if self._can_trace(reading):
            start_trace_(case, self._tracer, self.censuses.roots, in_watch_thread=self.in_watch_thread)
        elif self._has_ended or not reading.has_headroom:
            return CaseEvent.REFUSED
        else:
            self._new_evidence += put_off_trace_(case, self._tracer)
        return None

    def _publish_evidence(self, reading: Reading) -> CaseEvent | None:
        """Publish the evidence of the last comparison, with native growth if it explains too little; end the case."""
        causes = self._case.comparison_evidence
        has_suspect = self._case.suspected_garbage is not None
        self._garbage_suspected = has_suspect and all(cause.owner != GARBAGE_OWNER for cause in causes)
        # While garbage is suspected, growth without an owner may be garbage, and is not called native.
        if not self._garbage_suspected and not self._are_enough(causes):
            rate = sum(cause.drift.per_step for cause in causes)  # the rate that they explain
            causes = causes + native_growth_evidence(self._history, reading, self._process_growth(reading), rate)
        self._new_evidence += causes
        self._native_search.growing = self._case.owner_to_watch or self._native_search.growing
        self._is_unexplained = not self._garbage_suspected and not self._are_enough(causes)
        self._pause_after_case(is_explained=not self._garbage_suspected and not self._is_unexplained)
        return self._native_line_event()

    def _publish_native_growth(self, reading: Reading) -> CaseEvent | None:
        """Publish growth outside of Python objects (native) that the last case left open and the readings prove."""
        self._new_evidence += self._unexplained_evidence(reading)
        self._is_unexplained = False
        return self._native_line_event()

    def _native_line_event(self) -> CaseEvent | None:
        """Return `NATIVE_WITHOUT_LINE` if a search for the line that makes native memory is to begin now; else None."""
        causes = map(self._add_details, [*self._new_evidence, *self._evidence_by_owner.values()])
        begins = not self._has_ended and self._native_search.prepare_try(
            causes, must_wait=self._budget_seconds <= 0, in_other_threads=self.in_watch_thread
        )
        return CaseEvent.NATIVE_WITHOUT_LINE if begins else None

    def _start_recording(self, reading: Reading) -> CaseEvent | None:
        """Begin to record which line runs while memory rises; return `REFUSED` if the program is traced already."""
        return None if self._native_search.begin(reading, self._growth_slope) else CaseEvent.REFUSED

    def _await_rises(self, reading: Reading) -> CaseEvent | None:
        """Return `TIME_TO_COMPARE` once enough rises are recorded, or if the memory limit is near; None before."""
        is_finished = self._native_search.count_reading_(reading) or not reading.has_headroom
        return CaseEvent.TIME_TO_COMPARE if is_finished else None

    def _publish_native_line(self, _reading: Reading) -> None:
        """End the recording of rises; from now on `_add_details` adds its line to the causes that want one."""
        self._native_search.end()

    def _close_unproven(self, reading: Reading) -> None:
        """End the case without evidence, but keep its causes: `confirm_unproven` may report them at the end."""
        if self._case.comparison_evidence:
            self._unproven = UnprovenGrowth(self._case.comparison_evidence, reading)
        self._pause_after_case(is_explained=False)

    def _pause_after_case(self, *, is_explained: bool) -> None:
        """Clear the case, drop library roots that hold no owner, and begin a pause, twice as long as the last one."""
        self._case = Investigation(self._lines)
        owners = [*self._evidence_by_owner, *(cause.owner for cause in self._new_evidence)]
        roots = self.censuses.library_roots.items()
        # A root's path begins the paths of all owners below it.
        kept_roots = {root: obj for root, obj in roots if any(owner.startswith(root) for owner in owners)}
        self.censuses.library_roots = kept_roots
        if not kept_roots:
            self.censuses.must_open_ids = frozenset()
        self._pause_readings_left = self._next_pause_readings * (CASE.explained_rest_factor if is_explained else 1)
        self._next_pause_readings = min(2 * self._next_pause_readings, CASE.maximum_rest_readings)

    # --- evidence ---

    def _process_growth(self, reading: Reading) -> Growth:
        return self._history.growth(reading)

    def _unexplained_evidence(
        self, reading: Reading, stopped_owners: Collection[str] = (), *, at_end: bool = False
    ) -> list[Evidence]:
        """Return the evidence on growth that no Python object holds and no known cause explains; empty if not certain.

        Args:
            reading: latest reading.
            stopped_owners: owners that have stopped growing, and explain nothing of the present growth.
            at_end: whether no further reading comes.
        """
        causes = (cause for owner, cause in self._explaining_causes.items() if owner not in stopped_owners)
        # The unaccounted bytes leave out freed memory, files and declared state, so these causes explain none of them.
        explaining = (cause for cause in causes if cause.holders or cause.verdict in {"native", "leak"})
        explained_rate = sum(cause.drift.per_step for cause in explaining)
        growth = self._process_growth(reading)
        return native_growth_evidence(self._history, reading, growth, explained_rate, at_end=at_end)

    def _are_enough(self, causes: Sequence[Evidence], share: float = OWNING.explained_share) -> bool:
        """Return whether the rates of causes sum to at least a share, 0 to 1, of the growth of the process."""
        negligible = self.negligible_resets
        explained_rate = sum(cause.drift.per_step for cause in causes if cause.owner not in negligible)
        # The lower bound of the growth is certain, and no more of it.
        return explained_rate >= share * self._growth_slope.low

    def _can_trace(self, reading: Reading) -> bool:
        """Return whether a trace may begin: a reading can end it, the budget has CPU time for it, the limit is far."""
        # Each trace that cost too much doubles the CPU time for the next one.
        is_affordable = self._budget_seconds >= CASE.least_trace_cpu_seconds * 2**self._case.unaffordable_traces
        return not self._has_ended and is_affordable and reading.has_headroom

    def _compare_with_first_census_(self, case: Investigation, growth: Growth, slope: Slope) -> list[Evidence] | None:
        """Go on with a census; when it is complete, return evidence on containers that grew since the case's first one.

        None while it is under way, may not begin, or has no baseline to be compared with. The comparison is recorded in
        the case: the containers that it reached, new containers for the next comparison, and the first owner. `slope`
        is that of the memory that drifts, in bytes per step.
        """
        census = self.censuses.advance_census_() if self._may_take_census(case) else None
        if census is None or case.baseline_census is None or census.step <= case.first_step:
            return None
        owners = find_owners_since_baseline_(case, case.baseline_census, census, slope.per_step)
        # The first case is compared once, at the end of the program: no trace or further comparison follows.
        if case is not self._first_case:
            case.baseline_census = census_with_new_containers(case.baseline_census, census)
            if owners:
                record_first_owner_(case, owners)
            self.reset_tracker.track_owners(owners, growth.resident)
        for owner in owners:  # the lines are kept in `case.lines`, and not in the evidence
            find_owner_line_(case, self._tracer, owner.path, owner.contents.leaves)
        return [owner_evidence(owner, steps=owner.steps, growth=growth, drift=slope) for owner in owners]

    def _may_take_census(self, case: Investigation) -> bool:
        """Return whether the next census (snapshot of all containers) of a case may begin, or go on.

        After a comparison that explained next to nothing the next census must wait, until the time that it takes is
        again a small part of the program's; but not under a trace, nor near the memory limit, where it is taken whole.
        """
        if not case.was_in_vain or self.censuses.is_under_way or self.is_tracing:
            return True
        return self.censuses.is_earned_again or self.censuses.slice_seconds == inf

    def _latest_step(self) -> int:
        return 0 if self._latest_reading is None else self._latest_reading.step

    @property
    def negligible_resets(self) -> set[str]:
        """Paths of containers that are emptied again and again, and explain next to nothing of the growth."""
        reading = self._latest_reading
        return set() if reading is None else self.reset_tracker.negligible_paths(reading.resident)

    @property
    def _explaining_causes(self) -> dict[str, Evidence]:
        """The evidence on all causes that explain growth, by owner."""
        negligible = self.negligible_resets
        return {owner: cause for owner, cause in self._evidence_by_owner.items() if owner not in negligible}

    def _on_census(self, census: Census) -> None:
        """Record what known owners contain by a complete census, and pass the census on to the callback."""
        for cause in self._evidence_by_owner.values():
            contents = larger_contents(self._add_details(cause), census)
            if contents is not None:
                self._contents_by_owner[cause.owner] = contents
        if self._census_callback is not None:
            self._census_callback(census)

    def _publish_new_findings(self) -> list[Finding]:
        """Record the evidence of this reading; return the findings whose owner or verdict is new."""
        earlier_verdicts = {owner: cause.verdict for owner, cause in self._evidence_by_owner.items()}
        causes, self._new_evidence = self._new_evidence, []
        for cause in causes:
            self._evidence_by_owner[cause.owner] = cause
            self._contents_by_owner.pop(cause.owner, None)
        new_causes = [cause for cause in causes if earlier_verdicts.get(cause.owner) != cause.verdict]
        new_owners = {self._add_details(cause).native_owner or cause.owner for cause in new_causes}
        return [finding for finding in self.findings() if finding.owner in new_owners] if new_owners else []
