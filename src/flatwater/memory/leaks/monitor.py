"""Cheap watching, expensive digging only on suspicion: monitor, census, origin, verdict.

A reading a step costs microseconds. Where the memory that nobody accounts for rises, a census is taken and allocations
are traced until the next reading; the second census then says which container grew, and the traces which line fills it.
What the numbers alone can tell (state filled for the first time, freed memory kept, mapped files, slower steps) needs
no census.
"""

from collections.abc import Sequence
from math import inf

from flatwater.memory.leaks.census import Census
from flatwater.memory.leaks.dig import (
    Censuses,
    Counted,
    Dig,
    garbage_,
    held_,
    judged_,
    leave_,
    recounted,
    remember_,
    search_,
    waits_,
    wants_garbage,
)
from flatwater.memory.leaks.drift import Slope
from flatwater.memory.leaks.finding import Finding
from flatwater.memory.leaks.origin import Tracer
from flatwater.memory.leaks.owners import find_owners
from flatwater.memory.leaks.record import Reading, Record, read_numbers, recent_slope, slower_at_the_end
from flatwater.memory.leaks.roots import Roots
from flatwater.memory.leaks.suspicion import drift_of, most_looks, native, suspicious
from flatwater.memory.leaks.verdict import CYCLIC, EXPLAINED, Growth, foremost
from flatwater.memory.probes.bound import process_seconds

__all__ = ["Monitor", "Reading"]

HEADROOM = 0.1
"""Part of the limit that must be free for tracing, which takes memory itself."""
PATIENT = 8
"""Readings after a suspicion to prove a drift, which may come in stairs."""
LAST = 2.0
"""Seconds at the end for which a search for cyclic garbage is waited for."""
TRACED, LONGEST_TRACE = 3, 16
"""Looks at an owner that has grown, the first of them untraced, and looks in all, after which it has no line."""
LONGEST_TRACED = 0.2
"""Seconds that a census may take for which tracing waits, where one is needed to see what is new."""
PAGE = 4096
"""Bytes per step below which an owner is not told on demand."""
QUIET = 2
"""Readings without suspicion after a look that found nothing, and five times as many after one that found something;
doubled each time."""
LONGEST_QUIET = 64


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
        self._first: Dig | None = None
        self._dig: Dig | None = None
        self._may_trace = True
        self._found: dict[str, Finding] = {}
        self._quiet = 0
        self._patience = QUIET

    @property
    def tracing(self) -> bool:
        """Whether allocations are traced, for a reading or two: the program is then slower and larger than it is."""
        return self._tracer is not None and self._tracer.running

    @property
    def digging(self) -> bool:
        """Whether growth is proven, and a census waits for the next one."""
        return self._dig is not None and (self._dig.proven or self._dig.demanded)

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
            self._first = self._begun(Dig(demanded=True), reading)
        elif self._dig is not None and self._dig.before is None:
            self._begun(self._dig, reading)
        elif self._dig is not None:
            found += self._look(self._dig, reading)
        elif self._suspicious(reading):
            self._dig = Dig(demanded=False)
            self._begun(self._dig, reading)
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
        dig = self._dig
        if dig is not None and dig.search is not None and self._last is not None and dig.search.ended(LAST):
            self._news(self._look(dig, self._last))
        if self._dig is not None and self._dig.found:
            self._news(self._dig.found)

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
            self._news([finding for finding in owners if finding.bytes_per_step >= PAGE])
        return self.findings()

    def examine(self) -> None:
        """Take a census now, trace until the next reading, and tell then what grew, suspicious or not."""
        if self._last is not None and self._dig is None:
            self._dig, self.censuses.seconds = Dig(demanded=True), inf
            self.censuses.drop()
            self._begun(self._dig, self._last)
            self._trace(self._last, tensors=True, objects=True)

    def close(self) -> None:
        """Stop tracing, and leave the census and the search that are under way."""
        leave_(self._dig)
        self._dig = None
        self.censuses.drop()
        self._untrace()

    def _untrace(self) -> None:
        if self._tracer is not None:
            self._tracer.stop()

    # --- what a census tells ---

    def _suspicious(self, reading: Reading) -> bool:
        self._quiet -= 1
        return self._quiet < 0 and suspicious(self._record, self._found, reading)

    def _begun(self, dig: Dig, reading: Reading) -> Dig | None:
        """The dig with its first census; None while that is under way."""
        taken = self.censuses.take(reading.step)
        if taken is None:
            return None
        dig.since, dig.before = taken[0], taken[1].forget()
        return dig

    def _trace(self, reading: Reading, *, tensors: bool, objects: bool) -> bool:
        if self._tracer is None or not self._may_trace or not self._room(reading):
            return False
        self._tracer.start(tensors=tensors, objects=objects)
        return True

    @staticmethod
    def _room(reading: Reading) -> bool:
        return reading.limit is None or reading.limit - reading.resident >= HEADROOM * reading.limit

    def _look(self, dig: Dig, reading: Reading) -> list[Finding]:
        """Compare the census with the one before, and say what grew; or wait for another, or for its line."""
        growth = self._record.growth(reading, self._unit)
        drifts, slope = drift_of(self._record, self._found, reading)
        dig.proven = dig.proven or drifts  # a tracer's own memory may hide it at the next look
        if not (dig.proven or dig.demanded) and dig.waited < PATIENT:
            dig.waited += 1
            return []
        if self.tracing and self._room(reading) and (held_(dig) or waits_(dig, self._tracer)):
            return []
        found = self._seen(dig, reading, growth, slope)
        self._untrace()
        if found is None:  # it is not waited for while the program is slow
            return []
        known = sum(finding.bytes_per_step for finding in found)
        explained = dig.proven and known >= EXPLAINED * slope.low  # the growth is no surer than its interval
        if dig.demanded:
            found = [finding for finding in found if finding.bytes_per_step >= PAGE]
        elif not dig.proven:
            found = []
        elif self._wait(dig, reading, found, explained=explained):
            dig.found = found or dig.found
            return []
        if dig.proven and not explained:
            found += native(self._record, reading, growth, known)
        self._dig = None
        self._rest(found)
        return found

    def _seen(self, dig: Dig, reading: Reading, growth: Growth, slope: Slope) -> list[Finding] | None:
        """What one look finds in containers, else in cyclic garbage; None while the census or the search goes on."""
        if dig.search is not None and (dig.search.ended() or dig.looks >= most_looks(self._record)):
            return dig.seen + garbage_(dig, slope, growth) if dig.search.ended() else None
        traced = self.tracing and wants_garbage(dig)
        retold, dig.retold = dig.retold, None
        found = dig.found[1:] if traced else retold or self._owners(dig, growth, slope)
        if found is None:
            return None
        dig.looks += 1
        dig.seen = found
        rest = dig.proven and sum(finding.bytes_per_step for finding in found) < EXPLAINED * slope.low
        if rest and self._room(reading) and search_(dig, self._roots, self._tracer, reading.step):
            return None
        leave_(dig)
        return found

    def _wait(self, dig: Dig, reading: Reading, found: Sequence[Finding], *, explained: bool) -> bool:
        """Whether another look is worth it: for the line of an owner, or for one, as growth in bursts skips steps.

        Nothing is traced, and so slowed down, before an owner is proven.
        """
        again = dig.traced > 0  # tensors may lie deep in objects, and objects may be made of tensors
        if found and found[0].made_at is None and dig.traced < TRACED and dig.looks < LONGEST_TRACE:
            dig.traced += dig.grew  # nothing was made in the others
            uncounted = found[0].owner == CYCLIC or dig.traced_owner is not None  # no census is needed for it
            quick = uncounted or self.censuses.took <= LONGEST_TRACED
            return quick and self._trace(reading, tensors=dig.tensors or again, objects=not dig.tensors or again)
        return not explained and dig.looks < most_looks(self._record)

    def _owners(self, dig: Dig, growth: Growth, slope: Slope) -> list[Finding] | None:
        """Findings of the containers that grew; None while the census is under way. Only one of them is held on to."""
        taken = self.censuses.take(growth.step)
        if taken is None or dig.before is None or taken[0] <= dig.since:
            return None
        owners = find_owners(dig.before, taken[1])
        if owners:
            remember_(dig, owners[0], taken[1].holdings[owners[0].path])
        return judged_(dig, self._tracer, owners, growth=growth, drift=slope)

    def _rest(self, found: Sequence[Finding]) -> None:
        self._quiet = self._patience * (5 if found else 1)
        self._patience = min(2 * self._patience, LONGEST_QUIET)

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
