"""The actions of the table in `states.py`: each asks the readings, a census, a trace or a fork, and returns an event.

`monitor.py` calls them at each reading, and ends them.
"""

import sys
from collections.abc import Callable, Collection, Sequence

from flatwater_watch.diagnose.finding import AllocationSite, Finding
from flatwater_watch.diagnose.garbage import Garbage
from flatwater_watch.diagnose.investigation import (
    Investigation,
    UnprovenGrowth,
    find_drift,
    find_grown_owners,
    is_suspicious,
    judge_native_growth,
    judge_owners_,
    judge_search_,
    look_limit,
    note_first_owner_,
    record_lengths_,
    start_search_,
    stop_search_,
    take_grown_libraries_,
    update_garbage_wait_,
    update_trace_wait_,
    wants_garbage,
    with_current_content,
)
from flatwater_watch.diagnose.judge import CYCLIC, select_and_rank, wants_line
from flatwater_watch.diagnose.lines import NativeLineSearch, Tracer
from flatwater_watch.diagnose.reset_tracker import ResetTracker
from flatwater_watch.diagnose.states import TRANSITIONS, CaseAction, CaseEvent, CaseState
from flatwater_watch.heap.census import Census, CensusListener, CensusTaker
from flatwater_watch.heap.libraries import global_lengths
from flatwater_watch.heap.roots import Roots, lies_in_registry
from flatwater_watch.series.readings import Growth, Reading, ReadingHistory, recent_slope
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import SHIPPED

CASE, DRIFT, OWNING = SHIPPED.investigating, SHIPPED.drift, SHIPPED.owning


class Investigator:
    """The state of an investigation, its next action at a reading, and its findings."""

    aside = False
    """Whether the caller is a thread of the watch's own: torch operations and lines belong to the program's."""

    def __init__(
        self,
        roots: Roots,
        *,
        unit: str = "round",
        trace: bool = True,
        on_census: CensusListener | None = None,
        lines: dict[str, AllocationSite] | None = None,
    ) -> None:
        """Begin without a reading.

        Args:
            roots: roots of the censuses.
            unit: name of a step.
            trace: whether allocations may be traced, which slows steps down.
            on_census: callback for each census.
            lines: allocating lines by owner, traced by earlier watches of this process; new ones are added.
        """
        self.state = CaseState.BEGINNING
        self.cost_seconds = 0.0
        """CPU seconds spent here, without the slowdown of traced steps."""
        self._roots = roots
        self._unit, self._listener = unit, on_census
        self._tracer = Tracer(roots.packages) if trace else None
        self._following = NativeLineSearch(roots.packages, allowed=trace)
        self.waiting: Garbage | None = None
        """Garbage that a collection frees while it is still small, if it was searched for: no finding."""
        self._record = ReadingHistory()
        self._last: Reading | None = None
        self.censuses = CensusTaker(roots, self._on_census)
        """Censuses, one at a time, which may go on between two steps."""
        self._lines = {} if lines is None else lines
        self.levels = ResetTracker()
        """Tracker of found containers: those that are emptied again and again are not reported."""
        self._first = Investigation(self._lines)
        self._case = self._first
        self._may_trace = True
        self._found: dict[str, Finding] = {}
        self._news: list[Finding] = []
        """Findings of this reading."""
        self._suspect = False
        """Whether garbage was enough for the growth of the last investigation, and was not reported."""
        self._open = False
        """Whether the last investigation explained too little, so that the readings are judged again each time."""
        self._unproven: UnprovenGrowth | None = None
        self._quiet = 0  # readings still to rest; below 0 a suspicion counts again
        self._patience = CASE.quiet  # readings of the next rest, doubled at each
        self._slope = recent_slope(self._record.unaccounted)
        """Slope of all growth in the series that shows the drift."""
        self._actions = self._action_table()

    def _action_table(self) -> dict[CaseAction, Callable[[Reading], CaseEvent | None]]:
        """The method of each action; it gets the reading and returns the event that follows, None to wait."""
        return {
            CaseAction.KEEP: self._keep,
            CaseAction.COUNT: self._count,
            CaseAction.NOTICE: self._notice,
            CaseAction.PROVE: self._prove,
            CaseAction.LOOK: self._look,
            CaseAction.WIDEN: self._widen,
            CaseAction.SEARCH: self._search,
            CaseAction.ASK: self._ask,
            CaseAction.AWAIT_LINE: self._await_line,
            CaseAction.JUDGE: self._judge,
            CaseAction.TRACE: self._trace,
            CaseAction.TELL: self._tell,
            CaseAction.TELL_REST: self._tell_rest,
            CaseAction.LEAVE: self._leave,
            CaseAction.FOLLOW: self._follow,
            CaseAction.AWAIT_RISE: self._await_rise,
            CaseAction.TELL_LINE: self._tell_line,
        }

    @property
    def is_tracing(self) -> bool:
        """Whether allocations are traced, for a reading or two, which makes the program slower and larger."""
        return self._tracer is not None and (self._tracer.running or self.state is CaseState.FOLLOWING)

    @property
    def is_bound_to_thread(self) -> bool:
        """Whether a tracer is set in one thread: only that thread can end it."""
        return self._following.rises.running or (self._tracer is not None and self._tracer.traces_torch)

    @property
    def is_investigating(self) -> bool:
        """Whether growth is proven, and a census waits for a second one."""
        return self.state not in {CaseState.BEGINNING, CaseState.WATCHING} and self._case.proven

    @property
    def _awaits_first_look(self) -> bool:
        """Whether growth is proven, and no census has compared containers yet: it may not be called native before."""
        return self.state is CaseState.LOOKING and self._case.proven and not self._case.looks

    def _follow_table(self, reading: Reading) -> None:
        """Follow the table from this reading until an action answers with no event."""
        if self.state not in {CaseState.BEGINNING, CaseState.WATCHING, CaseState.COUNTING}:
            drifts, self._slope = find_drift(self._record, self._explaining_findings, reading)
            self._case.proven = self._case.proven or drifts  # a tracer's own memory may hide the drift at the next look
        event: CaseEvent | None = CaseEvent.READING
        while event is not None:
            self.state, action = TRANSITIONS[self.state, event]
            event = self._actions[action](reading)

    def findings(self) -> list[Finding]:
        """All findings so far, with the forecast as of now, without containers that are emptied again and again."""
        if self._last is None:
            return []
        refilled = self.levels.periodically_emptied
        reported = [finding for owner, finding in self._found.items() if owner not in refilled]
        return select_and_rank(reported, self._process_growth(self._last))

    # --- actions: each does one thing, and answers with the event that follows ---

    def _keep(self, _reading: Reading) -> None:
        """Keep the state until the next reading."""

    def _notice(self, reading: Reading) -> CaseEvent | None:
        """Ask for native growth that is certain by now; else begin a case if memory rises lately, after some rest."""
        if (self._open or self.negligible_resets) and self._judge_unexplained(reading):
            return CaseEvent.UNTOLD
        self._quiet -= 1
        if self._quiet < 0 and is_suspicious(self._record, self._explaining_findings, reading):
            self._case = Investigation(self._lines, libraries=global_lengths(self._roots))
            return CaseEvent.SUSPICION
        return None

    def _count(self, reading: Reading) -> CaseEvent | None:
        """Go on with the first census, and keep it without its objects when it is complete."""
        step_and_census = self.censuses.advance(reading.step)
        if step_and_census is None:
            return None
        # Without objects: nothing of the program may live longer until the second census.
        self._case.since, self._case.before = step_and_census[0], step_and_census[1].without_objects()
        self._case.modules = len(sys.modules)
        return CaseEvent.COUNTED

    def _prove(self, _reading: Reading) -> CaseEvent | None:
        """Wait for a proven drift, but for few readings: growth in stairs is looked at all the same."""
        if self._case.proven or self._case.waited >= CASE.patience:
            return CaseEvent.DUE
        self._case.waited += 1
        return None

    def _await_line(self, reading: Reading) -> CaseEvent | None:
        """Wait under the trace for new objects of the owner or of the garbage, unless the limit is near."""
        case, roots = self._case, self.censuses.roots
        if (
            self.is_tracing
            and reading.has_headroom
            and (update_garbage_wait_(case, self._tracer) or update_trace_wait_(case, self._tracer, roots))
        ):
            return None
        return CaseEvent.DUE

    def _ask(self, reading: Reading) -> CaseEvent | None:
        """Ask the fork for its garbage; while it searches, compare censuses again if looks are left."""
        case = self._case
        if case.search is not None and case.search.is_done():
            case.seen = case.seen + judge_search_(
                case, self._record, self._slope, self._process_growth(reading), reading.material_bytes
            )
            return CaseEvent.LOOKED
        return CaseEvent.DUE if case.looks < look_limit(self._record) and not wants_garbage(case) else None

    def _look(self, reading: Reading) -> CaseEvent | None:
        """Compare a census with the case's first one, and keep the findings in `seen`; traced findings need no census.

        It waits while the census is under way. Then a fork looks for garbage if the findings explain too little.
        """
        case, growth = self._case, self._process_growth(reading)
        retold, case.retold = case.retold, None
        seeks_garbage_line = self.is_tracing and wants_garbage(case)
        container_findings = [finding for finding in case.found if finding.owner != CYCLIC]
        findings = (
            container_findings if seeks_garbage_line else retold or self._compare_owners(case, growth, self._slope)
        )
        if findings is None:
            if self.censuses.took > CASE.longest_traced or self.censuses.spent > CASE.slowest_traced:
                self._stop_tracing()  # a long census must not keep the program slow
            return None
        case.looks += not seeks_garbage_line
        case.seen = findings
        if not case.proven or not reading.has_headroom or (not seeks_garbage_line and self._explains(findings)):
            return self._finish_look()
        return CaseEvent.UNEXPLAINED

    def _widen(self, _reading: Reading) -> CaseEvent:
        """Add, once, globals of libraries that may hold the rest; the next census is the first of two to compare."""
        library_globals = take_grown_libraries_(self._case, self._roots)
        self.censuses.libraries |= library_globals
        return CaseEvent.LONGER if library_globals else CaseEvent.UNEXPLAINED

    def _search(self, reading: Reading) -> CaseEvent | None:
        """Begin the fork with the traces so far, then stop tracing; the look ends if there is no fork to wait for."""
        if not start_search_(self._case, self._roots, self._tracer, reading.step):
            return self._finish_look()
        self._stop_tracing()
        return None

    def _finish_look(self) -> CaseEvent:
        """End the fork and the trace of this look, whose findings are in `seen`."""
        stop_search_(self._case)
        self._stop_tracing()
        return CaseEvent.LOOKED

    def _judge(self, reading: Reading) -> CaseEvent:
        """Choose the event after a comparison: trace for the owner's line, compare again (growth in bursts), or end.

        Tracing slows the program down, so it waits for a proven owner. Only garbage is traced before: it may be gone.
        """
        case, findings = self._case, self._case.seen
        if not case.proven:
            return CaseEvent.UNPROVEN
        # Once, as the garbage may not grow.
        seeks_garbage_line = not case.traced and wants_garbage(case) and self._can_trace(reading)
        lacks_line = findings[0].made_at is None and not case.hidden if findings else seeks_garbage_line
        if lacks_line and case.traced < CASE.traced and case.looks < CASE.longest_trace:
            return CaseEvent.NO_LINE
        if self._explains(findings) or (case.handles and case.looks >= look_limit(self._record)):
            return CaseEvent.DONE
        case.handles = case.looks + 1 >= look_limit(self._record)  # the last look
        case.found = findings or case.found
        return CaseEvent.AGAIN

    def _trace(self, reading: Reading) -> CaseEvent | None:
        """Begin to trace allocations for the line of the owner or garbage; refused if censuses would take too long."""
        case, again = self._case, self._case.traced > 0
        case.traced += case.grew  # a try without new items is no try
        case.found, case.held, case.made, case.built = case.seen, 0, None, 0
        record_lengths_(case, self.censuses.roots)
        needs_no_census = wants_garbage(case) or bool(case.sought)
        is_quick = needs_no_census or self.censuses.took <= CASE.longest_traced
        if not is_quick or self._tracer is None or not self._can_trace(reading):
            return CaseEvent.REFUSED
        # Tensors may lie deep in objects, and objects may be made of tensors: the second time both are traced.
        tensors, objects = case.tensors or again, not case.tensors or again
        self._tracer.start(tensors=tensors and not self.aside, objects=objects or self.aside)
        return None

    def _tell(self, reading: Reading) -> CaseEvent | None:
        """Publish the findings of this look, with native growth if they explain too little, and end the case."""
        findings = self._case.seen
        self._suspect = self._case.suspect is not None and all(finding.owner != CYCLIC for finding in findings)
        if not self._suspect and not self._explains(findings):
            explained = sum(finding.bytes_per_step for finding in findings)
            findings = findings + judge_native_growth(self._record, reading, self._process_growth(reading), explained)
        self._news += findings
        self._open = not self._suspect and not self._explains(findings)
        self._pause_after_case(explained=not self._suspect and not self._open)
        return self._wants_native_line()

    def _tell_rest(self, reading: Reading) -> CaseEvent | None:
        """Publish native growth that the last investigation left open, now that the readings prove it."""
        self._news += self._judge_unexplained(reading)
        self._open = False
        return self._wants_native_line()

    def _wants_native_line(self) -> CaseEvent | None:
        """The event that begins the search for a line of native growth, if a finding wants one."""
        findings = [*self._news, *self._found.values()]
        may_trace = self._may_trace and not self.aside
        return CaseEvent.LINELESS if may_trace and self._following.is_wanted(findings) else None

    def _follow(self, _reading: Reading) -> CaseEvent | None:
        """Begin to record which line runs while memory rises; refused if the program is traced already."""
        return None if self._following.begin() else CaseEvent.REFUSED

    def _await_rise(self, reading: Reading) -> CaseEvent | None:
        """Wait until enough rises are recorded, or the limit is near."""
        return CaseEvent.DUE if self._following.is_finished() or not reading.has_headroom else None

    def _tell_line(self, _reading: Reading) -> None:
        """End the recording, and publish the findings that want a line once more: `_publish_news` adds it."""
        self._following.end()
        self._news += [finding for finding in self._found.values() if wants_line(finding)]

    def _leave(self, reading: Reading) -> None:
        """End the case without a report; its unproven findings may be confirmed at the end (`confirm_unproven`)."""
        self._unproven = UnprovenGrowth(self._case.seen, reading) if self._case.seen else self._unproven
        self._pause_after_case(explained=False)

    def _pause_after_case(self, *, explained: bool) -> None:
        """Begin a new case, keep libraries' globals that own findings, and rest; each rest is twice as long."""
        self._case = Investigation(self._lines)
        owners = [*self._found, *(finding.owner for finding in self._news)]
        roots = {root: obj for root, obj in self.censuses.libraries.items() if any(o.startswith(root) for o in owners)}
        self.censuses.libraries = roots
        self._quiet = self._patience * (CASE.quiet_found if explained else 1)
        self._patience = min(2 * self._patience, CASE.longest_quiet)

    # --- evidence ---

    def _process_growth(self, reading: Reading) -> Growth:
        """Growth of the whole process as of a reading, in units of this monitor."""
        return self._record.growth(reading, self._unit)

    def _judge_unexplained(
        self, reading: Reading, without: Collection[str] = (), *, ended: bool = False
    ) -> list[Finding]:
        """The finding of native growth that no known finding explains.

        Args:
            reading: the latest.
            without: owners that explain nothing of the present growth.
            ended: whether no further reading comes.
        """
        findings = (finding for owner, finding in self._explaining_findings.items() if owner not in without)
        explaining = (finding for finding in findings if finding.holders or finding.verdict in {"native", "leak"})
        rate = sum(finding.bytes_per_step for finding in explaining)
        return judge_native_growth(self._record, reading, self._process_growth(reading), rate, ended=ended)

    def _explains(self, found: Sequence[Finding]) -> bool:
        """Whether findings explain most of the growth of the process, by bytes per step."""
        cleared = self.negligible_resets
        explained = sum(finding.bytes_per_step for finding in found if finding.owner not in cleared)
        return explained >= OWNING.explained * self._slope.low  # by the low bound: the growth is no surer than that

    def _can_trace(self, reading: Reading) -> bool:
        """Whether a trace may begin: allowed by the options and the caller, and the limit is not near."""
        return self._tracer is not None and self._may_trace and reading.has_headroom

    def _stop_tracing(self) -> None:
        """Stop the tracer if there is one; must run in the thread that began it, as torch modes belong to a thread."""
        if self._tracer is not None:
            self._tracer.stop()

    def _compare_owners(self, case: Investigation, growth: Growth, slope: Slope) -> list[Finding] | None:
        """Findings of the containers that grew since the case's first census; None while the second is under way."""
        step_and_census = self.censuses.advance(growth.step)
        if step_and_census is None or case.before is None or step_and_census[0] <= case.since:
            return None
        steps = step_and_census[0] - case.since
        owners = find_grown_owners(case.before, step_and_census[1], slope.per_step, steps, handles=case.handles)
        # A program that still imports fills registries, once.
        if len(sys.modules) > case.modules + CASE.loaded:
            owners = [owner for owner in owners if not lies_in_registry(owner.path)]
        if owners and case is not self._first:
            note_first_owner_(case, owners)
            self.levels.track_owners(owners, growth.resident)
        return judge_owners_(case, self._tracer, owners, growth=growth, drift=slope)

    # --- what is known ---

    @property
    def negligible_resets(self) -> set[str]:
        """Paths of containers that are emptied again and again, and explain nothing of the growth."""
        return set() if self._last is None else self.levels.negligible_paths(self._last.resident)

    @property
    def _explaining_findings(self) -> dict[str, Finding]:
        """Findings that explain growth, by owner."""
        cleared = self.negligible_resets
        return {owner: finding for owner, finding in self._found.items() if owner not in cleared}

    def _on_census(self, step: int, census: Census) -> None:
        """Update the findings' contents from a complete census, and pass it on to the callback."""
        self._found = {owner: with_current_content(finding, census) for owner, finding in self._found.items()}
        if self._listener is not None:
            self._listener(step, census)

    def _publish_news(self) -> list[Finding]:
        """Record the findings of this reading; return those whose owner had no such verdict before."""
        earlier_verdicts = {owner: finding.verdict for owner, finding in self._found.items()}
        findings, self._news = self._news, []
        for finding in findings:
            self._found[finding.owner] = self._following.with_found_line(finding)
        fresh = {finding.owner for finding in findings if earlier_verdicts.get(finding.owner) != finding.verdict}
        return [finding for finding in self.findings() if finding.owner in fresh] if fresh else []
