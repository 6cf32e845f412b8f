"""The watch of one process: it counts boundaries, reads memory now and then, and finds what grows.

A boundary is a place that the program passes again and again, such as the end of an episode; a program without such
places is read at ticks of a timer. Most boundaries are only counted. A reading is taken when `ReadingSchedule` says so,
in the thread that passed the boundary; then the monitor judges it. While memory grows, the monitor takes censuses
(which containers hold what) in slices, and traces allocations. The spool is a file with the newest summary.
"""

import threading
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from flatwater_watch.agent import census_history, growth, open_causes, summary
from flatwater_watch.agent import reading_schedule as schedule
from flatwater_watch.agent.boundaries import MAXIMUM_TICKS, TICK, Boundaries, ticks_until_time
from flatwater_watch.agent.budget import Budget
from flatwater_watch.agent.filling_arrays import FillingArrays, add_untouched_arrays_
from flatwater_watch.agent.guard import Guard
from flatwater_watch.agent.reading import RateMeter, has_main_returned, take_reading_
from flatwater_watch.agent.spool import write_spool
from flatwater_watch.agent.workers import Workers, measure_workers_, workers_evidence
from flatwater_watch.diagnose.evidence import Evidence
from flatwater_watch.diagnose.finding import AllocationSite, Finding
from flatwater_watch.diagnose.judge import NameCause
from flatwater_watch.diagnose.monitor import CaseState, Monitor
from flatwater_watch.heap.census import Census, restore_collector
from flatwater_watch.heap.roots import Roots
from flatwater_watch.meters.allocator_meter import AllocatorMeter
from flatwater_watch.meters.collector import CollectionListener, GcSawtooth
from flatwater_watch.meters.limit import memory_limits
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.meters.suspended_tracing import run_untraced
from flatwater_watch.meters.system_calls import monotonic, process_seconds, thread_seconds, wall_time
from flatwater_watch.series.readings import Reading
from flatwater_watch.thresholds import COLLECTING, DRIFT, ENDING, FILLING


class ProcessWatch:
    """A watch of this process: call `step` at each boundary, in any thread, and `close` at the end."""

    def __init__(
        self,
        unit: str | None = None,
        roots: Roots | None = None,
        limit: int | None = None,
        spool: str | None = None,
        guard: Guard | None = None,
        *,
        lines: dict[str, AllocationSite] | None = None,
    ) -> None:
        """Begin without a reading: the first is taken at the first boundary.

        Args:
            unit: kind of boundary at which readings are taken; None takes the slowest regular kind.
            roots: roots of the census; the user's modules and frames by default.
            limit: resident bytes at which the process must stop; by default the machine's limit.
            spool: path of the spool; None writes none.
            guard: guard of all work at a boundary; None makes a new guard.
            lines: allocating lines by owner, traced by earlier watches of this process.
        """
        self._guard = guard or Guard()
        self.boundaries = Boundaries(self._on_boundary, self._guard, unit)
        self.step = self.boundaries.step
        self.censuses = 0
        """Number of censuses that were taken to their end."""
        self.name_cause: NameCause | None = None
        """Function that gives evidence the names that people know; set by a face that has such names."""
        self._lines = {} if lines is None else lines
        self._unit, self._roots, self._spool, self._limit = unit, roots or Roots(), spool, limit
        self._closed = False
        self._collector_guard = Guard()
        """Guard of the callbacks of the garbage collector, in any thread: a fault there loses this evidence alone."""
        self._collector: CollectionListener | None = None  # before the first boundary
        # Monotonic times from which on the checks are due, and the next write of the summary.
        self._reset_check_due = self._rss_check_due = self._spool_due = 0.0
        self._rss_alarm_bytes = 0.0
        """Resident bytes at which a program is read before the next reading is due."""
        self._census_kind: str | None = None
        """Kind of boundary, besides the anchor, at which a census that is under way continues."""
        self._last_read_time, self._budget = 0.0, Budget()
        self._schedule = schedule.ReadingSchedule(inf, self._budget)
        self._discard_readings_()
        self._guard.undo = self.detach

    def _discard_readings_(self) -> None:
        """Discard all readings and findings; the counts of boundaries stay."""
        self._monitor = Monitor(self._roots, on_census=self._on_census, lines=self._lines, current_step=self._step_now)
        self._samples: list[growth.Sample] = []
        self._filling_arrays, self._workers = FillingArrays(), Workers()
        self._census_history = census_history.CensusHistory()
        self._allocator = AllocatorMeter()
        self._unread_by_class: Mapping[str, int] = {}
        self._growth_at_census = 0  # bytes, without those of large arrays, by which the next census is due at twice
        self._watch_bytes = 0  # resident bytes that the watch has made, not the program
        self._reading_thread = 0  # id of the thread that takes readings; 0 before the first
        self._samples_after_main = 0  # samples since the program's main code returned
        self._rates, self._reads_at_ticks = RateMeter(), False
        self._found_steps = self.boundaries.found_steps = dict[str, int]()
        self._root_gains: list[tuple[str, int]] = []

    def tick(self, ticks: int) -> int:
        """Count ticks of the timer; return the number of ticks to the next call.

        Without boundaries the next call is when a reading is due; with them, a trace or a census may need every tick.
        """
        boundaries_come_fast = self.boundaries.tick(ticks)
        if not self.boundaries.are_regular(self._unit):
            return ticks_until_time(min(self._schedule.due, self._rss_check_due))
        if self._monitor.traces_allocations:  # a step may compile, and take long
            if self._budget.trace_seconds() > self._budget.left_seconds(monotonic()):
                self._end_trace_(self._monitor.put_off_trace)
            return 1
        if not boundaries_come_fast:
            return 1
        # Readings are taken at the boundaries themselves, so that ticks become rarer.
        most_ticks = schedule.RESET_CHECK_TICKS if self._monitor.reset_tracker.has_recent_container else MAXIMUM_TICKS
        return min(2 * ticks, most_ticks)

    def suspend_stale_trace(self) -> int:
        """Suspend a trace where no reading may be taken, as in an import; return the ticks to the next call."""
        is_stale = monotonic() - self._last_read_time >= schedule.STALE_TRACE_SECONDS
        if is_stale and self._monitor.traces_allocations:  # tracing makes an import fifty times slower
            self._end_trace_(self._monitor.suspend_trace)
        return 1

    def _end_trace_(self, end: Callable[[], None]) -> None:
        """Pay for a trace of allocations, and end it by `end`, a method of the monitor, if this thread may."""
        if self._may_read(TICK):  # some tracers can be ended in their own thread only
            self._budget.pay_for_trace_()
            self._guard.run(run_untraced, end)

    def _on_boundary(self, kind: str, now: float) -> bool:
        """Do the work that is due at a boundary; return whether a reading was due."""
        # A program that was read at ticks has come to its own loop: read now.
        if self._reads_at_ticks and kind != TICK and self.boundaries.are_regular(self._unit):
            self._schedule.due = self._schedule.latest = 0.0
        if self._rss_check_due <= now < self._schedule.due:
            self._guard.run(run_untraced, self._check_rss_, now)
        # At the kind of boundary chosen for readings, or for a census; at any kind, once that one is overdue.
        is_due = now >= self._schedule.due and (
            kind in (self._unit or self._schedule.anchor, self._census_kind) or now >= self._schedule.latest
        )
        if is_due:
            self._guard.run(run_untraced, self._handle_due_boundary_, kind, now)
        return is_due

    def _check_rss_(self, now: float) -> None:
        """Check between two readings that are far apart whether resident memory has risen; if so, a reading is due."""
        self._rss_check_due = now + max(schedule.RSS_CHECK_SECONDS, self._schedule.gap)
        self._allocator.take_answer_()  # so that the process that gave the answer is not left as a zombie
        if footprint().resident >= self._rss_alarm_bytes:
            self._schedule.pace_by_clock_()  # the next readings too come soon
            grace = self._schedule.latest - self._schedule.due
            self._schedule.due, self._schedule.latest = now, now + grace  # both earlier by the same time

    def _handle_due_boundary_(self, kind: str, now: float) -> None:
        """Read memory; but at a tick, if the program has regular boundaries, only continue a census."""
        if self._closed or (self._unit is not None and kind != self._unit):
            return
        if kind == TICK and self.boundaries.are_regular(self._unit):
            if self._census_kind == TICK and self._may_read(kind):
                with self._monitor.pause_trace():
                    self._continue_at_tick_(now)
            return
        self._discard_if_trigger_changed_(kind)
        if not self._samples:
            self._start_readings_(kind, now)
        if self._may_read(kind):
            self._monitor.in_watch_thread = self._reading_thread != threading.get_ident()
            with self._monitor.pause_trace():
                self._read_and_judge_(now)

    def _discard_if_trigger_changed_(self, kind: str) -> None:
        """Discard all readings if the next ones are taken at boundaries and no more at ticks, or the reverse."""
        # Their steps cannot be compared. A program may pass a few boundaries, such as one epoch, and then none.
        fell_back_to_ticks = kind == TICK and self._unit is None and bool(self._samples) and not self._reads_at_ticks
        if fell_back_to_ticks or (self._reads_at_ticks and self.boundaries.are_regular(self._unit)):
            self._monitor.close()
            self._discard_readings_()

    def _may_read(self, kind: str) -> bool:
        """Return whether this thread may read: that of the first reading; at a tick any, unless a thread is traced."""
        return self._reading_thread == threading.get_ident() or (kind == TICK and not self._monitor.is_bound_to_thread)

    def _continue_at_tick_(self, now: float) -> None:
        """Run a slice of the census at a tick; if none is under way, check whether found containers were emptied."""
        # Many programs pass one boundary a second only, always at one place, where what they empty may be full.
        seconds = schedule.census_slice_seconds(self._schedule, now)
        if seconds > 0:
            start_cpu_seconds = thread_seconds()
            if self._monitor.censuses.is_under_way:
                self._monitor.censuses.run_slice_(seconds)
            else:
                self._check_resets_(now)
            cpu_seconds = thread_seconds() - start_cpu_seconds
            self._budget.pay_for_work_(cpu_seconds)
            self._rates.exclude_cpu_(cpu_seconds)
        self._census_kind = TICK if self._monitor.censuses.is_under_way else None

    def _check_resets_(self, now: float) -> None:
        """Check whether containers that were found were emptied, unless the last check was costly and lately."""
        if now >= self._reset_check_due:
            start_cpu_seconds = thread_seconds()
            self._monitor.reset_tracker.check_lengths(self._monitor.censuses.roots)
            self._reset_check_due = now + (thread_seconds() - start_cpu_seconds) / schedule.RESET_CHECK_SHARE

    def _start_readings_(self, kind: str, now: float) -> None:
        """Set the thread and the schedule of the readings, and begin to listen to collections, at the first reading."""
        self._reads_at_ticks = kind == TICK
        main_thread = threading.main_thread().ident or 0
        self._reading_thread = main_thread if self._reads_at_ticks else threading.get_ident()
        self._schedule = schedule.ReadingSchedule(now, self._budget)
        if self._collector is None:
            self._collector = CollectionListener(self._collector_guard.run)
            self._collector.start_listening()
        if self._limit is None:
            self._limit = min(memory_limits().values())

    def _read_and_judge_(self, now: float) -> None:
        """Take a reading, judge it, and schedule the next by the CPU time of both; drop a reading beyond comparison."""
        start_cpu_seconds = thread_seconds()
        if self._allocator.awaits_first_answer_():  # readings without its totals cannot be compared
            return
        if not self._samples and self._collector is not None:
            self._collector.reset_baseline()  # collections before the first reading do not count
        reading = self._take_reading_()
        if self._samples and reading.step <= self._samples[-1].reading.step:  # a rate needs steps between two readings
            return
        was_tracing, census_was_under_way = self._monitor.is_tracing, self._monitor.censuses.is_under_way
        new_findings = self._judge_reading_(reading, now)
        # Memory that the watch made here is not the program's growth.
        if thread_seconds() - start_cpu_seconds > schedule.ALLOCATING_CPU_SECONDS:
            self._watch_bytes += max(0, footprint().resident - reading.resident)
        paid_seconds = thread_seconds() - start_cpu_seconds
        self._schedule_next_reading_(reading, paid_seconds, census_was_under_way=census_was_under_way)
        self._write_spool_if_due(self._last_read_time, at_once=bool(new_findings))
        all_seconds = thread_seconds() - start_cpu_seconds
        self._budget.spent_seconds += all_seconds - paid_seconds  # `_schedule_next_reading_` has paid the others
        self._budget.cpu_at_last_payment = process_seconds()
        if was_tracing or reading.rates:  # traced steps are slower; and a rate that was read is not measured again
            self._rates.restart_(reading.step)
        else:
            self._rates.exclude_cpu_(all_seconds)

    def _judge_reading_(self, reading: Reading, now: float) -> list[Finding]:
        """Let the monitor judge a reading, and return new findings; keep the reading unless allocations are traced."""
        was_tracing = self._monitor.is_tracing
        if was_tracing:
            self._budget.pay_for_trace_()
        self._budget.is_credit_open = self._budget.is_credit_open or self._monitor.suspects_growth
        slice_seconds = schedule.census_slice_seconds(self._schedule, now, reading.step)
        left_seconds = self._budget.left_seconds(now)
        new_findings = self._monitor.observe(reading, seconds=slice_seconds, budget=left_seconds)
        # At a tick a program may be anywhere between filling and emptying its containers.
        if self._reads_at_ticks and left_seconds > 0:
            self._check_resets_(now)
        if not was_tracing:  # a trace takes memory itself
            self._append_sample_(reading, now - self._schedule.began)
            self._take_census_if_due(reading)
        self._found_steps.update({finding.owner: reading.step for finding in new_findings})
        return new_findings

    def _schedule_next_reading_(self, reading: Reading, cpu_seconds: float, *, census_was_under_way: bool) -> None:
        """Set the times, and the kinds of boundary, of the next reading and of the checks before it.

        `census_was_under_way` says so of the time before the judgement, which may have ended the census.
        """
        monitor, now = self._monitor, monotonic()
        self._last_read_time = now
        is_taking_census = census_was_under_way or monitor.censuses.is_under_way
        is_quiet = monitor.state is CaseState.WATCHING and not self._found_steps and not is_taking_census
        schedule.schedule_next_(
            self._schedule,
            now,
            cpu_seconds,
            self.boundaries.counts,
            is_investigating=monitor.is_investigating,
            is_taking_census=is_taking_census,
            is_tracing=monitor.is_tracing,
            quiet_cpu=self._budget.program_seconds() if is_quiet else None,
        )
        # Between readings, a rise of RSS above the recent peak brings the next reading forward.
        self._rss_check_due = now + max(schedule.RSS_CHECK_SECONDS, self._schedule.gap)
        self._rss_alarm_bytes = growth.recent_peak(self._samples) + DRIFT.jump_share * reading.material_bytes
        # Ticks continue a census under way, or else check whether containers that were found have been emptied.
        self._census_kind = TICK if monitor.censuses.is_under_way or monitor.reset_tracker.has_containers else None

    def _step_now(self) -> int:
        """Return the number of boundaries passed: of the user's kind, else of all kinds, or ticks if there are none."""
        return self.boundaries.boundary_count(self._unit, ticks=self._reads_at_ticks)

    def _take_reading_(self) -> Reading:
        """Take a reading; at ticks it has no rates per boundary, as a tick is no boundary of the program."""
        step = self._step_now()
        rates = {} if self._reads_at_ticks else self._rates.measure_rates_(step)
        children = measure_workers_(self._workers, step)
        return take_reading_(step, self._allocator, self._filling_arrays, children, limit=self._limit, rates=rates)

    def _take_census_if_due(self, reading: Reading) -> None:
        """Take a census if one is affordable, and growth has doubled since the last one or owners' sizes are due."""
        # A new large array may hold the growth.
        has_doubled = self._growth_besides_arrays(reading) >= max(FILLING.large_array_bytes, 2 * self._growth_at_census)
        owner_sizes_are_due = reading.step >= self._census_history.next_step and bool(self._found_owners())
        if (has_doubled or owner_sizes_are_due) and self._monitor.censuses.is_affordable:
            self._monitor.take_census()

    def _growth_besides_arrays(self, reading: Reading) -> int:
        """Return the resident bytes gained since the first reading, without those of large arrays that are known."""
        return reading.resident - self._samples[0].reading.resident - reading.owned_bytes

    def _on_census(self, census: Census) -> None:
        """Record the sizes of owners and the large arrays of a census that is complete."""
        self.censuses += 1
        self._unread_by_class = census.unread
        census_history.record_census_(self._census_history, census.step, census)
        add_untouched_arrays_(self._filling_arrays, census)
        if self._samples:
            grown_bytes = self._growth_besides_arrays(self._samples[-1].reading)
            self._growth_at_census = max(grown_bytes, FILLING.large_array_bytes // 2)

    def _take_last_census_(self) -> None:
        """Take a last reading, and a census for the sizes of the owners that were found."""
        reading = self._take_reading_()
        if reading.step > self._samples[-1].reading.step and not self._monitor.is_tracing:
            self._monitor.observe(reading, budget=0.0)  # 0: no trace may begin
            self._append_sample_(reading, monotonic() - self._schedule.began)
            self._monitor.take_census(seconds=ENDING.last_census_seconds)

    def _append_sample_(self, reading: Reading, seconds: float) -> None:
        """Keep a reading, taken `seconds` after the first boundary, with the counts of all boundaries."""
        if has_main_returned():
            self._samples_after_main += 1
        counts, spent_seconds = self.boundaries.all_counts, dict(self.boundaries.seconds)
        growth.append_sample_(self._samples, growth.Sample(seconds, counts, reading, self._watch_bytes, spent_seconds))

    def _found_owners(self) -> list[str]:
        """Return the paths of the containers that were found to grow, without kinds of memory such as native memory."""
        return [cause.owner for cause in self._monitor.evidence() if cause.holders]

    def findings(self) -> list[Finding]:
        """Return the findings that still grow, largest first, then workers and garbage that is freed.

        Rates are in the user's units; without a reading there is no finding.
        """
        return self._make_findings(*self._cause_groups()) if self._samples else []

    def _cause_groups(self) -> tuple[list[Evidence], list[Evidence]]:
        """Return the causes that still grow, and a second list: growth of workers, and garbage that is freed."""
        causes, garbage = open_causes.split_native_garbage(self._monitor.evidence(), self._gc_sawtooth())
        growing_causes = summary.select_growing_causes(causes, self._samples, self._found_steps, self._census_history)
        return growing_causes, [*workers_evidence(self._workers), *garbage]

    def _make_findings(self, growing_causes: list[Evidence], separate_causes: list[Evidence]) -> list[Finding]:
        """Return the findings on both groups of causes (see `_cause_groups`), in the user's units."""
        return summary.judge_causes(
            growing_causes,
            separate_causes,
            self._samples,
            growth.choose_scale(self._samples, self._unit, wall_time()),
            sawtooth=self._gc_sawtooth(),
            root_gains=self._root_gains,
            name_cause=self.name_cause,
        )

    def _gc_sawtooth(self) -> GcSawtooth | None:
        """Return medians over the last full collections; None until enough of them were seen."""
        return None if self._collector is None else self._collector.measure_sawtooth(COLLECTING.minimum_collections)

    def find_final_findings_(self, *, in_loop: bool = True) -> list[Finding]:
        """End pending work, and return the last findings; to be called once, before `close(conclude=False)`.

        This may pause the program for a census, and removes readings that were taken during teardown. `in_loop` says
        that the program is still in its loop, so that a last census sees its containers full.
        """
        with self.boundaries.exclude_other_threads():
            return self._find_at_end_(in_loop=in_loop)

    def _find_at_end_(self, *, in_loop: bool) -> list[Finding]:
        """Take a last reading or census, finish the investigation, and return the findings; none without a reading."""
        # First the readings are brought to an end: later ones are of the teardown.
        may_be_teardown = not in_loop and bool(self._monitor.evidence())
        growth.drop_teardown_samples_(self._samples, self._samples_after_main, check_last=may_be_teardown)
        if not in_loop:
            self._append_last_reading_()
        elif self._samples and self._found_owners() and self._monitor.censuses.is_short:
            self._take_last_census_()
        if not self._samples:
            return []
        # Then the monitor ends what is under way, and a last census shows which owners have stopped growing.
        causes = self._monitor.evidence()
        owners = summary.stopped_owners(causes, self._samples, self._found_steps, self._census_history)
        self._monitor.finish_pending(owners)
        takes_census = not in_loop and bool(self._found_owners()) and self._monitor.censuses.is_short
        self._census_history.has_ended = takes_census
        last_census = self._monitor.take_whole_census() if takes_census else None
        growing_causes, separate_causes = self._cause_groups()
        may_conclude = open_causes.may_conclude(self._monitor, self._samples, is_at_ticks=self._reads_at_ticks)
        if may_conclude and not (growing_causes or separate_causes):
            self._monitor.conclude()  # records causes without a proof, for `evidence`
            growing_causes = growth.causes_or_native_growth(self._monitor.evidence(), self._samples)
        if self._monitor.censuses.is_short:
            growing_causes = open_causes.drop_native_in_roots(self._monitor, self._samples, growing_causes, last_census)
        # At last causes are searched for that no finding explains.
        findings = self._make_findings(growing_causes, separate_causes)
        last_causes, self._root_gains = open_causes.find_open_causes(
            self._monitor,
            self._samples,
            findings,
            self._gc_sawtooth(),
            last_census,
            filled_bytes=self._filled_bytes,
            may_pause=self._monitor.censuses.is_short,
        )
        return summary.order_findings(self._make_findings(growing_causes, [*separate_causes, *last_causes]))

    @property
    def _filled_bytes(self) -> int:
        """Bytes that the process has gained since warm-up in containers that are full by now."""
        return census_history.filled_bytes(self._monitor.evidence(), self._census_history, self._samples)

    def _append_last_reading_(self) -> None:
        """Take a reading at the end, as the last one may be long ago; keep it unless it shows memory freed since."""
        reading = self._take_reading_()
        if not self._samples:
            return
        is_in_loop, is_traced = not self._samples_after_main, self._monitor.is_tracing
        if growth.is_last_reading_valid(self._samples[-1].reading, reading, is_in_loop=is_in_loop, is_traced=is_traced):
            self._append_sample_(reading, monotonic() - self._schedule.began)

    def summary(self, findings: list[Finding] | None = None) -> dict[str, Any]:
        """Return the state as the JSON of `flatwater watch`, with these findings; None takes those that hold now."""
        cpu_seconds = process_seconds() - self._budget.cpu_at_start
        fields = summary.build_summary(
            self._samples,
            self.findings() if findings is None else findings,
            unit=self._unit,
            counts=self.boundaries.all_counts,
            unread=self._unread_by_class,
            censuses=self.censuses,
            leads=self._root_gains,
            garbage=self._monitor.ordinary_garbage,
            refilled_paths=sorted(self._monitor.reset_tracker.periodically_emptied_paths),
            known_causes=self._monitor.evidence(),
            filled_bytes=self._filled_bytes,
            held_growth=census_history.held_growth(self._monitor.evidence(), self._census_history),
            seconds=max(0.0, monotonic() - self._schedule.began),
        )
        cpu_share = round(self._budget.spent_seconds / cpu_seconds, 5) if cpu_seconds > 0 else 0.0
        return fields | {
            "held": census_history.newest_owner_sizes(self._census_history),
            "cost": {"cpu_share": cpu_share, "cpu_seconds": round(cpu_seconds, 3), "bytes": self.cost_bytes},
            "processes": 1 + self._workers.family.count,
            "unseen": [*fields["unseen"], *self._collector_guard.faults],
        }

    cost_bytes = 0
    """Bytes that the watch itself takes; set by the caller, who measured them around the import."""

    def _write_spool_if_due(self, now: float, *, at_once: bool) -> None:
        if self._spool is not None and (at_once or now >= self._spool_due):
            self._spool_due = now + write_spool(self._spool, self.summary)

    def close(self, *, conclude: bool = True) -> None:
        """Stop the watch, and write the last summary to the spool; a second call does nothing.

        With `conclude`, `find_final_findings_` makes its findings, unless there are no readings.
        """
        if not self._closed:
            with self.boundaries.exclude_other_threads():
                self._close_(conclude=conclude)

    def _close_(self, *, conclude: bool) -> None:
        """Close the watch while no other thread reads; its last summary says that it has ended."""
        self._closed = True
        try:
            concludes = conclude and bool(self._samples)
            findings = self.find_final_findings_(in_loop=False) if concludes else self.findings()
        finally:
            self.detach()
        if self._spool is not None:
            write_spool(self._spool, lambda: self.summary(findings) | {"ended": True})

    def detach(self) -> None:
        """Stop the watch at once, and leave nothing in the program: no tracer, no callback of the collector."""
        self._closed = True
        self._schedule.due = self._schedule.latest = self._rss_check_due = inf
        self._monitor.close()
        self._allocator.close()
        if self._collector is not None:
            self._collector.close()

    def abandon(self) -> None:
        """Stop the watch at once, in a forked child, and write nothing."""
        restore_collector()  # the parent may have paused it for a census at the moment of the fork
        self._spool = None  # the file is the parent's
        self.detach()
