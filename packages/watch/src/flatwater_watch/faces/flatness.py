"""Tests of whether repeating a piece of code makes the process hold more memory, and the owners if it does.

Memory is the resident bytes without mapped files and without memory that the allocator has freed and keeps, always
after a garbage collection: bytes that a collection frees are not held, nor are holes that temporaries leave behind.

A census lists the containers that the program reaches by name, with their bytes; an owner is a container that has grown
between two censuses. A round is one run of the code.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from flatwater_watch.agent.filling_arrays import FillingArrays, add_untouched_arrays_, planned_by_path, touched_by_path_
from flatwater_watch.diagnose.evidence import Evidence, leaf_evidence, owner_evidence, unowned_evidence
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.finding_text import finding_lines
from flatwater_watch.diagnose.judge import make_reportable_findings
from flatwater_watch.diagnose.lines import Tracer
from flatwater_watch.diagnose.owners import find_owners
from flatwater_watch.errors import require
from flatwater_watch.heap.census import Census, take_census
from flatwater_watch.heap.roots import Roots
from flatwater_watch.meters.allocator import used_bytes
from flatwater_watch.meters.limit import memory_limits
from flatwater_watch.meters.mappings import footprint
from flatwater_watch.series.readings import Growth
from flatwater_watch.series.slope import Series, Slope, robust_slope
from flatwater_watch.thresholds import FLAT, OWNING
from flatwater_watch.units import format_bytes, parse_bytes


@dataclass(frozen=True)
class FlatPlan:
    """The number of rounds of a test, and the growth that it allows."""

    rounds: int
    """Number of times that the code runs, the warm-up included."""
    allowed_bytes: int
    """Bytes by which memory may grow between the end of the warm-up and the last round."""
    warmup: int
    """Number of rounds of the warm-up."""

    @property
    def measured_rounds(self) -> int:
        """Number of rounds after the warm-up."""
        return self.rounds - self.warmup


def flat_plan(rounds: int = 50, growth: str | int = "1 MiB", warmup: int | None = None) -> FlatPlan:
    """Check the arguments of `pytest.mark.flat`, and return them as a plan.

    Args:
        rounds: number of times that the code runs.
        growth: bytes that memory may grow by, or a text such as "1 MiB".
        warmup: number of rounds of the warm-up; None takes a third of all.

    Raises:
        ConfigError: too few rounds are left after the warm-up, or the growth is not an amount of memory.
    """
    growth_bytes = parse_bytes(growth) if isinstance(growth, str) else growth
    require(growth_bytes > 0, "growth", growth, "a positive amount, such as '1 MiB': allocators round up")
    warmup_rounds = rounds // 3 if warmup is None else warmup
    require(warmup_rounds >= 1, "warmup", warmup_rounds, "1 round or more: the first fills caches")
    minimum_rounds = warmup_rounds + FLAT.minimum_rounds
    require(
        rounds >= minimum_rounds,
        "rounds",
        rounds,
        f"{minimum_rounds} or more with a warm-up of {warmup_rounds}, to tell growth from chance",
    )
    return FlatPlan(rounds, allowed_bytes=growth_bytes, warmup=warmup_rounds)


def check_max_growth(max_growth: str | int = "1 MiB") -> int:
    """Check the argument of `pytest.mark.flatwater`, and return it in bytes.

    Args:
        max_growth: bytes that a test may leave, or a text such as "1 MiB".

    Raises:
        ConfigError: the argument is not an amount of memory.
    """
    growth_bytes = parse_bytes(max_growth) if isinstance(max_growth, str) else max_growth
    require(growth_bytes > 0, "max_growth", max_growth, "a positive amount, such as '1 MiB': allocators round up")
    return growth_bytes


@dataclass(frozen=True)
class _MemoryPoint:
    """Bytes held after a number of rounds."""

    rounds: int
    """Rounds that were run."""
    held_bytes: int


@dataclass(frozen=True)
class _Baseline:
    """The state after the warm-up, for comparison."""

    census: Census
    """The census, without references to the program's objects."""
    filling_arrays: FillingArrays
    """Large arrays of which a part was never written, so that it takes no memory yet."""
    touched_bytes: dict[str, int]
    """Bytes of these arrays that are in memory, by path."""


def run_flatness_test(
    run: Callable[[], object], plan: FlatPlan, extra_roots: Sequence[tuple[str, object]] = ()
) -> str | None:
    """Run the code as planned; return None if memory is flat, else a text of several lines on the growth.

    After the warm-up, memory is measured at the beginning, halfway, and before the last `FLAT.traced_rounds` rounds.
    If it has grown by then, these rounds are traced, to find the lines that allocate; else they are measured too.

    Args:
        run: the code; its exceptions are not caught.
        plan: plan from `flat_plan`.
        extra_roots: objects with a name that outlive the rounds and are not variables of the program: they may be
            owners.
    """
    roots, tracer, series = Roots(named=tuple(extra_roots)), Tracer(), Series()
    last_untraced_round = plan.rounds - FLAT.traced_rounds
    # The warm-up, of which neither the series nor the memory at its start is used.
    _run_rounds(run, _MemoryPoint(rounds=0, held_bytes=0), last_round=plan.warmup, series=Series())
    baseline = _take_baseline(roots)
    start = _measure_memory(plan.warmup)  # after the census, which keeps memory of its own
    halfway_round = (plan.warmup + last_untraced_round) // 2
    middle = _run_rounds(run, start, last_round=halfway_round, series=series)
    end = _run_rounds(run, middle, last_round=last_untraced_round, series=series)
    has_grown = _memory_grows(start, middle, end, plan)
    if has_grown:  # else nothing is traced, as tracing slows the code down
        tracer.start()
    try:
        if has_grown:
            for _ in range(FLAT.traced_rounds):
                run()
        else:
            end = _run_rounds(run, end, last_round=plan.rounds, series=series)
            if not _memory_grows(start, middle, end, plan):
                return None
        rate = (end.held_bytes - start.held_bytes) / (end.rounds - start.rounds)
        findings = _find_growth(baseline, tracer, roots, plan=plan, rate=rate, series=series)
        return _failure_text(
            f"grew by {format_bytes(rate * plan.measured_rounds)} in the {plan.measured_rounds} rounds after a warm-up "
            f"of {plan.warmup}; {format_bytes(plan.allowed_bytes)} may be.",
            findings,
        )
    finally:
        tracer.stop()


def run_repeated_growth_test(
    run: Callable[[], object], allowed_bytes: int, extra_roots: Sequence[tuple[str, object]] = ()
) -> str | None:
    """Run the code; return None if its first or second run leaves no more than is allowed, else a text on the growth.

    Bytes that are left once may be a cache, or a module that was loaded. So code that leaves more runs a second time,
    and if it leaves more again, a third time with its allocations traced.
    """
    roots, tracer, series = Roots(named=tuple(extra_roots)), Tracer(), Series()
    gc.collect()
    start = _MemoryPoint(rounds=0, held_bytes=used_bytes())
    after_first_run = _run_rounds(run, start, last_round=1, series=series)
    if after_first_run.held_bytes - start.held_bytes <= allowed_bytes:
        return None
    after_second_run = _run_rounds(run, after_first_run, last_round=2, series=series)
    second_run_bytes = after_second_run.held_bytes - after_first_run.held_bytes
    if second_run_bytes <= allowed_bytes:
        return None
    baseline = _take_baseline(roots)
    tracer.start()
    try:
        run()
        plan = FlatPlan(rounds=3, allowed_bytes=allowed_bytes, warmup=2)  # the third run is compared with the baseline
        findings = _find_growth(baseline, tracer, roots, plan=plan, rate=second_run_bytes, series=series)
    finally:
        tracer.stop()
    left_bytes = format_bytes(second_run_bytes)
    return _failure_text(
        f"leaves {left_bytes} in memory each time that it runs; {format_bytes(allowed_bytes)} may be.", findings
    )


def _run_rounds(run: Callable[[], object], start: _MemoryPoint, last_round: int, series: Series) -> _MemoryPoint:
    """Run the code from the round after `start` up to `last_round`; add the used bytes after each round to the series.

    Returns:
        The memory after the last round, without garbage.
    """
    for number in range(start.rounds + 1, last_round + 1):
        run()
        series.add(number, used_bytes())
    return _measure_memory(last_round)


def _measure_memory(rounds: int) -> _MemoryPoint:
    """Measure the memory in use after a number of rounds, without garbage."""
    gc.collect()
    return _MemoryPoint(rounds, used_bytes())


def _memory_grows(start: _MemoryPoint, middle: _MemoryPoint, end: _MemoryPoint, plan: FlatPlan) -> bool:
    """Return whether memory grew from `start` to `end` by more than is allowed, and still grew after the middle.

    The allowed bytes of the plan are for all measured rounds, so fewer rounds are allowed their part of them.
    """
    gain = end.held_bytes - start.held_bytes
    late_gain = end.held_bytes - middle.held_bytes
    allowed_gain = plan.allowed_bytes * (end.rounds - start.rounds) / plan.measured_rounds
    return gain > allowed_gain and late_gain >= FLAT.minimum_late_share * gain


def _take_baseline(roots: Roots) -> _Baseline:
    """Return the state now, for a later comparison; it keeps no objects of the program alive.

    It holds a census, and the bytes that are in memory of each large array that was not yet written whole.
    """
    census, filling_arrays = take_census(roots), FillingArrays()
    add_untouched_arrays_(filling_arrays, census)
    return _Baseline(census.without_objects(), filling_arrays, touched_bytes=touched_by_path_(filling_arrays))


def _find_growth(
    baseline: _Baseline, tracer: Tracer, roots: Roots, *, plan: FlatPlan, rate: float, series: Series
) -> list[Finding]:
    """Find the owners of the growth: containers, arrays that are filled for the first time, and native code.

    Args:
        baseline: state after the warm-up, with which the state now is compared.
        tracer: tracer of the last rounds, which knows the lines that made objects.
        roots: names at which censuses begin.
        plan: plan of the test.
        rate: growth in bytes per round.
        series: used bytes by round.
    """
    slope = robust_slope(series.steps, series.values)
    # The interval is that of the readings of all rounds, widened so that it has the rate between the two ends.
    process_slope = Slope(per_step=rate, low=min(rate, slope.low), high=max(rate, slope.high))
    limit = min(memory_limits().values())
    growth = Growth(step=plan.rounds, resident=footprint().resident, limit=limit, whole=process_slope, unit="round")
    causes = []
    for owner in find_owners(baseline.census, take_census(roots)):
        line = tracer.find_line(owner.contents.leaves)
        causes.append(
            owner_evidence(owner, steps=plan.measured_rounds, growth=growth, drift=process_slope, made_at=line)
        )
    causes += _filling_array_causes(baseline, plan.measured_rounds, growth)
    # Growth that containers and arrays leave unexplained is of native code.
    explained_rate = sum(cause.drift.per_step for cause in causes)
    if explained_rate < OWNING.explained_share * rate:
        causes.append(unowned_evidence("native", process_slope.unexplained_part(explained_rate), growth))
    return make_reportable_findings(causes, growth)


def _filling_array_causes(baseline: _Baseline, rounds: int, growth: Growth) -> Iterator[Evidence]:
    """Yield the evidence on each large array of which more is in memory than at the baseline, `rounds` rounds ago."""
    final_sizes = planned_by_path(baseline.filling_arrays)
    for path, size in touched_by_path_(baseline.filling_arrays).items():
        earlier_size = baseline.touched_bytes.get(path, size)  # no gain without an earlier size
        rate = (size - earlier_size) / rounds
        if rate > 0:
            drift = Slope(per_step=rate, low=rate, high=rate)
            yield leaf_evidence(path, size, final_sizes[path], drift=drift, growth=growth)


def _failure_text(first_line: str, findings: Sequence[Finding]) -> str:
    """Return the failure text of a test: measured and allowed growth, then the findings."""
    return "\n".join([first_line, *(line for finding in findings for line in finding_lines(finding))])
