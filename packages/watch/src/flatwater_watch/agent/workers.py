"""The memory of the processes that a program starts: DataLoader workers, vector environments, pools.

A sum is a look at the memory of all of them, which is costly: it is taken now and then.
"""

from dataclasses import dataclass, field

from flatwater_watch.agent.outcome import WORKERS_OWNER
from flatwater_watch.diagnose.evidence import Evidence
from flatwater_watch.meters.mappings import FamilyMemory, descendant_memory
from flatwater_watch.meters.system_calls import monotonic, thread_seconds
from flatwater_watch.series.slope import Series, drift_slope
from flatwater_watch.thresholds import DRIFT, ENDING, MEASURING

MAXIMUM_TIME_SHARE = 1 / 500
"""Maximum CPU seconds of the sums for each second of the program."""
INITIAL_CREDIT_SECONDS = 1.0
"""CPU seconds that the sums may take beyond that share: they are frequent at first, so that copy-on-write is seen in a
short program too."""
MINIMUM_GAP_SECONDS = 0.25
"""Minimum seconds between two sums."""
ADVICE = (
    "Give workers arrays (`numpy.array(rows)`) instead of lists of Python objects, or look for a list that each worker "
    "keeps. Workers that are forked share their parent's pages until one writes to them, and counting references is "
    "writing."
)


@dataclass(eq=False, repr=False)
class Workers:
    """The memory of the child processes, summed up now and then, and the time that the sums have taken."""

    family: FamilyMemory = field(default_factory=FamilyMemory)
    began: float = 0.0
    """Monotonic time of the first sums."""
    due: float = 0.0
    """Monotonic time from which on the next sums may be taken."""
    spent_seconds: float = 0.0
    """CPU seconds of all sums; wall time would make sums on a busy machine look costly, and so make them rare."""
    private_series: Series = field(default_factory=Series)
    """The child processes' private bytes since one of them last began, ended or loaded a library."""
    bytes_at_start: dict[int, int] = field(default_factory=dict)
    """Private bytes of each child at the second sum that saw it, when it has started, by its id."""


def measure_workers_(workers: Workers, step: int) -> int:
    """Return the private bytes of the child processes, each as at its beginning: they grow with their number alone.

    Their memory is summed up first, if the sums so far have taken no more than their share of the time. `step` is the
    number of boundaries that the program has passed.
    """
    now = monotonic()
    if now >= workers.due:
        _take_sums_(workers, step, now)
    # A child that was seen only once counts with its bytes at that time.
    return sum(workers.bytes_at_start.get(pid, size) for pid, size in workers.family.private_by_child.items())


def _take_sums_(workers: Workers, step: int, now: float) -> None:
    """Sum up the memory of the child processes, and set the time from which on that may be done again."""
    cpu_before = thread_seconds()
    previous = workers.family
    workers.family = descendant_memory()
    _note_children_(workers, previous, step)
    workers.began = workers.began or now
    workers.spent_seconds += thread_seconds() - cpu_before
    # Seconds until the sums are within their share of the time again; negative if they are within it now.
    wait_seconds = (workers.spent_seconds - INITIAL_CREDIT_SECONDS) / MAXIMUM_TIME_SHARE - (now - workers.began)
    workers.due = now + max(MINIMUM_GAP_SECONDS, wait_seconds)


def _note_children_(workers: Workers, previous: FamilyMemory, step: int) -> None:
    """Note the bytes of each child at its start, and add the sum of all private bytes to its series."""
    family = workers.family
    children = family.private_by_child.items()
    # A child gets an entry at its second sum: at the first it may still be starting.
    workers.bytes_at_start = {
        pid: workers.bytes_at_start.get(pid, size) for pid, size in children if pid in previous.private_by_child
    }
    if family.count != previous.count or family.libraries > previous.libraries:
        workers.private_series = Series()  # neither processes that began or ended nor their imports are growth
    # At most one point for each step, as a slope needs steps that rise.
    if family.count and (not workers.private_series.steps or step > workers.private_series.steps[-1]):
        workers.private_series.add(step, family.private)


def workers_evidence(workers: Workers) -> list[Evidence]:
    """Return the evidence that the child processes' private memory grows; empty if it does not."""
    series = workers.private_series
    if not series.values:
        return []
    # As no object and no line confirms the finding, it needs twice the usual bytes, and many even by its low bound.
    least_growth = max(2 * DRIFT.least_bytes, MEASURING.minimum_worker_rise_share * series.values[-1])
    slope = drift_slope(series.steps, series.values, minimum=least_growth, fewest=DRIFT.minimum_points_without_object)
    steps_passed = series.steps[-1] - series.steps[0]
    if slope is None or slope.low * steps_passed < ENDING.open_bytes:
        return []
    count = workers.family.count
    noun = "worker process" if count == 1 else "worker processes"
    what = f"private bytes of {count} {noun}: pages of their parent copied on write, or objects of their own"
    return [Evidence(verdict="native", owner=WORKERS_OWNER, drift=slope, what=what, advice=ADVICE)]
