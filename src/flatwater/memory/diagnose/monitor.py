"""Cheap watching, expensive investigating only on suspicion: monitor, census, origin, verdict.

A reading a step costs microseconds. Where the memory that nobody accounts for rises, a census is taken and allocations
are traced until the next reading; the second census then says which container grew, and the traces which line fills it.
What the numbers alone can tell (state filled for the first time, freed memory kept, mapped files, slower steps) needs
no census.
"""

from collections.abc import Sequence
from math import inf

from flatwater.memory.diagnose.finding import Finding
from flatwater.memory.diagnose.investigation import (
    Investigation,
    drift_of,
    garbage_,
    held_,
    judged_,
    leave_,
    most_looks,
    native,
    recounted,
    remember_,
    search_,
    suspicious,
    waits_,
    wants_garbage,
)
from flatwater.memory.diagnose.judge import CYCLIC, foremost
from flatwater.memory.diagnose.lines import Tracer
from flatwater.memory.diagnose.numbers import read_numbers, slower_at_the_end
from flatwater.memory.diagnose.owners import find_owners
from flatwater.memory.objects.census import Census, Censuses, Counted
from flatwater.memory.objects.roots import Roots
from flatwater.memory.probes.bound import process_seconds
from flatwater.memory.series.readings import Growth, Reading, Record, recent_slope
from flatwater.memory.series.slope import Slope
from flatwater.memory.thresholds import SHIPPED

CASE, OWNING = SHIPPED.investigating, SHIPPED.owning

__all__ = ["Monitor", "Reading"]


class Monitor:
    """Watches one process. Call `observe` once a step, in the thread that trains, and `close` at the end."""

    def __init__(
        self, roots: Roots, *, unit: str = "round", trace: bool = True, counted: Counted | None = None
    ) -> None:
        """Watch nothing yet.

        Args:
            roots: where a census begins.
            unit: what a step is called.
            trace: whether allocations may be traced, which slows steps down.
            counted: is told of each census.
        """
        self.cost_seconds = 0.0
        """CPU time spent here; the slowdown of the traced steps is not in it."""
        self._roots = roots
        self._unit, self._told = unit, counted
        self._tracer = Tracer(roots.packages) if trace else None
        self._record = Record()
        self._last: Reading | None = None
        self.censuses = Censuses(roots, self._counted)
        """One may be under way; between two steps it may go on."""
        self._first: Investigation | None = None
        self._case: Investigation | None = None
        self._may_trace = True
        self._found: dict[str, Finding] = {}
        self._quiet = 0
        self._patience = CASE.quiet

    @property
    def tracing(self) -> bool:
        """Whether allocations are traced, for a reading or two: the program is then slower and larger than it is."""
        return self._tracer is not None and self._tracer.running

    @property
    def investigating(self) -> bool:
        """Whether growth is proven, and a census waits for the next one."""
        return self._case is not None and (self._case.proven or self._case.demanded)

    def observe(self, reading: Reading, *, seconds: float = inf, trace: bool = True) -> list[Finding]:
        """Note a reading; a finding is returned once, and again if its verdict has changed.

        Args:
            reading: the latest.
            seconds: for which a census may hold the program up; it goes on at the next reading. Near the limit it is
                taken whole, as one that is under way keeps a few objects alive.
            trace: whether tracing may begin now.
        """
        began = process_seconds()
        if self._last is not None and reading.step <= self._last.step:
            return []
        self._last, self._may_trace = reading, trace
        self.censuses.seconds = seconds if self._room(reading) else inf
        found = []
        if not self.tracing:
            # Tracing takes memory and time itself: such a reading says nothing of the program.
            self._record.add(reading)
            found = read_numbers(self._record, reading, self._unit)
        if self._first is None:
            self._first = self._begun(Investigation(demanded=True), reading)
        elif self._case is not None and self._case.before is None:
            self._begun(self._case, reading)
        elif self._case is not None:
            found += self._look(self._case, reading)
        elif self._suspicious(reading):
            self._case = Investigation(demanded=False)
            self._begun(self._case, reading)
        elif self.censuses.under_way:
            self.censuses.take(reading.step)
        news = self._news(found)
        self.cost_seconds += process_seconds() - began
        return news

    def count(self, *, seconds: float | None = None) -> None:
        """Take a census for whoever is told of them: as far as the last reading's seconds go, or others."""
        if seconds is not None:
            self.censuses.seconds = seconds
        if self._last is not None:
            self.censuses.take(self._last.step)

    def findings(self) -> list[Finding]:
        """All causes known so far, with the forecast of now."""
        if self._last is None:
            return []
        growth = self._record.growth(self._last, self._unit)
        return foremost(list(self._found.values()), growth)

    def settle(self) -> None:
        """Take what is proven already for found, line or not, and wait two seconds for a search: no step will come."""
        if self._last is not None:
            self._news(slower_at_the_end(self._record, self._last, self._unit))
        case = self._case
        if (
            case is not None
            and case.search is not None
            and self._last is not None
            and case.search.ended(CASE.last_search)
        ):
            self._news(self._look(case, self._last))
        if self._case is not None and self._case.found:
            self._news(self._case.found)

    def conclude(self) -> list[Finding]:
        """What can be said now, when there is no step to wait for: all findings, else what grew since the beginning."""
        self.settle()
        if self._last is None or self._first is None or self._first.before is None:
            return []
        if not self._found and self._last.step > self._first.since:
            growth = self._record.growth(self._last, self._unit)
            slope = recent_slope(self._record.unaccounted)
            self.censuses.drop()
            self.censuses.seconds = inf
            owners = self._owners(self._first, growth, slope) or []
            self._news([finding for finding in owners if finding.bytes_per_step >= CASE.page])
        return self.findings()

    def examine(self) -> None:
        """Take a census now, trace until the next reading, and tell then what grew, suspicious or not."""
        if self._last is not None and self._case is None:
            self._case, self.censuses.seconds = Investigation(demanded=True), inf
            self.censuses.drop()
            self._begun(self._case, self._last)
            self._trace(self._last, tensors=True, objects=True)

    def close(self) -> None:
        """Stop tracing, and leave the census and the search that are under way."""
        leave_(self._case)
        self._case = None
        self.censuses.drop()
        self._untrace()

    def _untrace(self) -> None:
        if self._tracer is not None:
            self._tracer.stop()

    # --- what a census tells ---

    def _suspicious(self, reading: Reading) -> bool:
        self._quiet -= 1
        return self._quiet < 0 and suspicious(self._record, self._found, reading)

    def _begun(self, case: Investigation, reading: Reading) -> Investigation | None:
        """The case with its first census; None while that is under way."""
        taken = self.censuses.take(reading.step)
        if taken is None:
            return None
        case.since, case.before = taken[0], taken[1].forget()
        return case

    def _trace(self, reading: Reading, *, tensors: bool, objects: bool) -> bool:
        if self._tracer is None or not self._may_trace or not self._room(reading):
            return False
        self._tracer.start(tensors=tensors, objects=objects)
        return True

    @staticmethod
    def _room(reading: Reading) -> bool:
        return reading.limit is None or reading.limit - reading.resident >= CASE.headroom * reading.limit

    def _look(self, case: Investigation, reading: Reading) -> list[Finding]:
        """Compare the census with the one before, and say what grew; or wait for another, or for its line."""
        growth = self._record.growth(reading, self._unit)
        drifts, slope = drift_of(self._record, self._found, reading)
        case.proven = case.proven or drifts  # a tracer's own memory may hide it at the next look
        if not (case.proven or case.demanded) and case.waited < CASE.patience:
            case.waited += 1
            return []
        if self.tracing and self._room(reading) and (held_(case) or waits_(case, self._tracer)):
            return []
        found = self._seen(case, reading, growth, slope)
        self._untrace()
        if found is None:  # it is not waited for while the program is slow
            return []
        known = sum(finding.bytes_per_step for finding in found)
        explained = case.proven and known >= OWNING.explained * slope.low  # the growth is no surer than its interval
        if case.demanded:
            found = [finding for finding in found if finding.bytes_per_step >= CASE.page]
        elif not case.proven:
            found = []
        elif self._wait(case, reading, found, explained=explained):
            case.found = found or case.found
            return []
        if case.proven and not explained:
            found += native(self._record, reading, growth, known)
        self._case = None
        self._rest(found)
        return found

    def _seen(self, case: Investigation, reading: Reading, growth: Growth, slope: Slope) -> list[Finding] | None:
        """What one look finds in containers, else in cyclic garbage; None while the census or the search goes on."""
        if case.search is not None and (case.search.ended() or case.looks >= most_looks(self._record)):
            return case.seen + garbage_(case, slope, growth) if case.search.ended() else None
        traced = self.tracing and wants_garbage(case)
        retold, case.retold = case.retold, None
        found = case.found[1:] if traced else retold or self._owners(case, growth, slope)
        if found is None:
            return None
        case.looks += 1
        case.seen = found
        rest = case.proven and sum(finding.bytes_per_step for finding in found) < OWNING.explained * slope.low
        if rest and self._room(reading) and search_(case, self._roots, self._tracer, reading.step):
            return None
        leave_(case)
        return found

    def _wait(self, case: Investigation, reading: Reading, found: Sequence[Finding], *, explained: bool) -> bool:
        """Whether another look is worth it: for the line of an owner, or for one, as growth in bursts skips steps.

        Nothing is traced, and so slowed down, before an owner is proven.
        """
        again = case.traced > 0  # tensors may lie deep in objects, and objects may be made of tensors
        if found and found[0].made_at is None and case.traced < CASE.traced and case.looks < CASE.longest_trace:
            case.traced += case.grew  # nothing was made in the others
            uncounted = found[0].owner == CYCLIC or case.traced_owner is not None  # no census is needed for it
            quick = uncounted or self.censuses.took <= CASE.longest_traced
            return quick and self._trace(reading, tensors=case.tensors or again, objects=not case.tensors or again)
        return not explained and case.looks < most_looks(self._record)

    def _owners(self, case: Investigation, growth: Growth, slope: Slope) -> list[Finding] | None:
        """Findings of the containers that grew; None while the census is under way. Only one of them is held on to."""
        taken = self.censuses.take(growth.step)
        if taken is None or case.before is None or taken[0] <= case.since:
            return None
        owners = find_owners(case.before, taken[1])
        if owners:
            remember_(case, owners[0], taken[1].holdings[owners[0].path])
        return judged_(case, self._tracer, owners, growth=growth, drift=slope)

    def _rest(self, found: Sequence[Finding]) -> None:
        self._quiet = self._patience * (CASE.quiet_found if found else 1)
        self._patience = min(2 * self._patience, CASE.longest_quiet)

    # --- what is known ---

    def _counted(self, step: int, census: Census) -> None:
        self._found = {owner: recounted(found, census) for owner, found in self._found.items()}
        if self._told is not None:
            self._told(step, census)

    def _news(self, found: Sequence[Finding]) -> list[Finding]:
        """Put the findings into the books; those whose owner had no such verdict are news."""
        before = {owner: known.verdict for owner, known in self._found.items()}
        for finding in found:
            self._found[finding.owner] = finding
        fresh = {finding.owner for finding in found if before.get(finding.owner) != finding.verdict}
        return [finding for finding in self.findings() if finding.owner in fresh] if fresh else []
