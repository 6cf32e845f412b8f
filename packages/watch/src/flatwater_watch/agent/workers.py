"""The processes that a program starts: DataLoader workers, vector environments, pools. Summed by private bytes."""

from dataclasses import dataclass, field

from flatwater_watch.agent.outcome import OWNER
from flatwater_watch.diagnose.finding import Finding
from flatwater_watch.diagnose.judge import Evidence, judge
from flatwater_watch.meters.mappings import FamilyMemory, descendant_memory
from flatwater_watch.meters.system_calls import monotonic, thread_seconds
from flatwater_watch.series.readings import Growth
from flatwater_watch.series.slope import Series, drift_slope
from flatwater_watch.thresholds import SHIPPED

DRIFT, ENDING, WEIGHING = SHIPPED.drift, SHIPPED.ending, SHIPPED.weighing

SHARE = 1 / 500
"""CPU seconds for each second of the program that summing up may take, ..."""
CREDIT = 1.0
"""CPU seconds that sums of the workers may take beyond that share: they are frequent at first, so that copy-on-write is
seen in a short program too."""
EVERY = 0.25
"""Seconds between two sums, at least."""
ADVICE = (
    "Workers that are forked share their parent's pages until one writes to them, and counting references is writing: "
    "give them arrays instead of lists of Python objects, or look for a list that each worker keeps."
)


@dataclass
class Workers:
    """The children of this process."""

    family: FamilyMemory | None = None
    began: float = 0.0
    due: float = 0.0
    spent: float = 0.0
    """CPU seconds that all sums took; by the clock a busy machine would make them look dear, and be looked at less."""
    private: Series = field(default_factory=Series)
    count: int = 0


def measure_workers_(workers: Workers, clock: int) -> None:
    """Sum up the children, if that is a small part of the time since the last sum.

    Args:
        workers: the sums so far.
        clock: boundaries passed.
    """
    now = monotonic()
    if now < workers.due:
        return
    cpu = thread_seconds()
    workers.family = family = descendant_memory()
    workers.began = workers.began or now
    workers.spent += thread_seconds() - cpu
    overdrawn = (workers.spent - CREDIT) / SHARE - (now - workers.began)
    workers.due = now + max(EVERY, overdrawn)
    if family.count != workers.count:  # others began or ended: what they had is no growth
        workers.count, workers.private = family.count, Series()
    if family.count and (not workers.private.steps or clock > workers.private.steps[-1]):
        workers.private.add(clock, family.private)


def judge_workers(workers: Workers, growth: Growth) -> Finding | None:
    """The finding that the children's own memory grows by much, as no object and no line says so; None where not."""
    series = workers.private
    if not series.values:
        return None
    least = max(2 * DRIFT.least_bytes, WEIGHING.workers * series.values[-1])
    slope = drift_slope(series.steps, series.values, least=least, fewest=DRIFT.unheld)
    if slope is None or slope.low * (series.steps[-1] - series.steps[0]) < ENDING.open_bytes:
        return None
    noun = "worker process" if workers.count == 1 else "worker processes"
    what = f"private bytes of {workers.count} {noun}: pages of their parent copied on write, or objects of their own"
    return judge(Evidence(verdict="native", owner=OWNER, drift=slope, what=what, share=1.0, advice=ADVICE), growth)
