"""Every number that decides a verdict, in a frozen value for each question.

The module lies below the other folders, as series and objects are judged by it too. A field's docstring has its unit,
its reason and measurements; "unmeasured" means that the number was chosen and no measurement of it is recorded. Numbers
that only decide the cost of a watch (how often it reads, how much it keeps) stay with the meters that they pace.
"""

from typing import NamedTuple

MIB = 1 << 20


class Drift(NamedTuple):
    """Numbers that decide when a series rises for good (`series/slope.py`)."""

    least_bytes: int = MIB
    """Minimum bytes of a material rise: allocators round up, and free lists come and go. Unmeasured."""
    least_share: float = 0.002
    """Minimum rise as a share of the resident bytes, if that is more: large programs are noisier. Unmeasured."""
    confidence: float = 0.99
    """Confidence if no object explains the growth: such a finding cannot be looked up in a container."""
    judged_points: int = 30
    """Number of points of a window that are judged, evenly chosen. Their 435 pairs take 0.2 ms."""
    minimum_points: int = 5
    """Number of points of the shortest window that is judged: four rises in a row."""
    minimum_points_without_object: int = 8
    """Minimum points of a drift without an object, as its rise may also be a slow warm-up. Unmeasured."""
    late_window_points: int = 12
    """Number of points of the short window, which sees a drift that began late in a long series."""
    blocks: int = 5
    """Number of parts of a window whose medians must go the same way."""
    blocks_rising: int = 3
    """Minimum number of the four differences between blocks that take part in a rise: two steps are not a drift."""
    participating_share: float = 0.25
    """Minimum difference, as a share of the mean one, for taking part. Unmeasured."""
    minimum_rise_deviations: float = 6.0
    """Minimum rise, in median deviations from its line. Pure noise reaches 1.5."""
    minimum_rise_noise: float = 3.0
    """Minimum suspicious rise, in usual differences of neighbours. A line over five points has 4."""
    jump_share: float = 0.5
    """Minimum size of a jump, as a share of a material rise. Unmeasured."""
    minimum_late_slope_share: float = 0.8
    """Minimum slope of a window's second half, as a share of its first half's. For log t it is 0.71 to 0.76."""
    judgements_in_row: int = 3
    """Judgements in a row that must find a drift without an object: each series is judged many times."""


class Filling(NamedTuple):
    """Numbers that decide when a buffer of a known size is being filled, by its touched bytes (`series/slope.py`)."""

    minimum_rises: int = 3
    """Minimum rises in each half of the stretch: full buffers and warm-ups have fewer."""
    minimum_readings: int = 8
    """Minimum readings of the stretch: full buffers and warm-ups have fewer."""
    maximum_pause_ratio: float = 2.0
    """A buffer counts as full after it has been flat for this many times its longest previous pause. Unmeasured."""
    minimum_late_rise_share: float = 0.5
    """Minimum rise of the second half, as a share of the first half's; below it the buffer is ending. Unmeasured."""
    large_array_bytes: int = 8 * MIB
    """Minimum bytes of an array whose pages are counted: each query to the kernel costs time. Unmeasured."""
    fully_touched_share: float = 0.98
    """Touched share from which on an array counts as touched: its ends share pages with others."""


class Slower(NamedTuple):
    """Numbers that decide when the steps of a phase take ever more time (`series/slowdown.py`)."""

    minimum_readings: int = 10
    """Number of readings of the shortest window. A machine's own speed changes by a fifth from second to second."""
    warm_up_divisor: int = 10
    """Number of equal parts of the readings, of which the first is left out, as caches are cold."""
    minimum_rise: float = 0.8
    """Minimum relative rise of the cost, which is a rate that falls by 44 %. Less may be another program: on a shared
    machine the cost changed by half."""
    minimum_late_rise_share: float = 0.3
    """Minimum rise after the middle, as a share of the rise before it: 0.5 for log t, 0 for a warm-up that has
    ended."""
    maximum_line_misfit: float = 1.1
    """Maximum deviations from a line, in deviations from one jump: the start of another program is a jump."""
    minimum_main_share: float = 0.5
    """Minimum share of the time gained for a segment of the program to be named: more than all others together."""
    comparison_divisor: int = 3
    """Number of equal stretches, of which the first and the last are compared to name the segment. Unmeasured."""


class Investigating(NamedTuple):
    """Numbers that decide when an investigation goes on or ends (`diagnose/investigator.py`, `investigation.py`)."""

    minimum_headroom_share: float = 0.1
    """Minimum free share of the limit for tracing and forks, which take memory themselves: 12 MB in a small run."""
    maximum_unproven_readings: int = 8
    """Maximum readings after a suspicion for a drift to be proven: growth may come in jumps."""
    maximum_comparisons: int = 3
    """Maximum censuses after the first one, while they do not explain the growth: it may come in bursts."""
    maximum_comparisons_unproven_native: int = 6
    """Maximum censuses after the first one, while growth without an object is not certain either."""
    maximum_fruitless_traces: int = 3
    """Number of traced comparisons at which an owner has grown without a line, before it is reported without one."""
    maximum_heap_waits: int = 8
    """Maximum readings at which a look at all containers waits until it is affordable, before the next question."""
    least_trace_cpu_seconds: float = 0.2
    """CPU seconds that must be left for a trace to begin, doubled each time that the budget has ended one, as an item
    may take longer to be made. Unmeasured."""
    maximum_suspended_traces: int = 16
    """Maximum traces that are begun again after an import has ended them. Unmeasured."""
    maximum_comparisons_with_trace: int = 16
    """Number of comparisons until an owner is reported without a line. They find bursts every second to sixth step."""
    maximum_idle_traced_readings: int = 6
    """Maximum traced readings in a row without a line: growth in jumps rests between them."""
    maximum_building_readings: int = 36
    """Further traced readings that are allowed while the traced bytes still rise: a page that BeautifulSoup parses in
    15 ms takes 1 to 3 s while it is traced, and 9 s with seven other busy processes on two cores."""
    minimum_building_share: float = 0.01
    """Minimum rise of the traced bytes, as a share of the usual growth."""
    minimum_bytes_per_step: int = 4096
    """Minimum bytes per step of an owner that is reported on demand. An owner that gains less than this in total since
    it was found has stopped. One page of the system."""
    first_rest_readings: int = 2
    """Number of readings without suspicion after an investigation, doubled each time. Unmeasured."""
    explained_rest_factor: int = 5
    """Factor of that number if the investigation explained the growth."""
    maximum_rest_readings: int = 64
    """Maximum number of such readings. Unmeasured."""
    maximum_modules_loaded: int = 5
    """Maximum modules loaded between two censuses if growth in a registry of a library is to be reported: more of them
    mean a program that still starts. pytest's `atexit` callbacks and handlers of logging were reported in one of 3
    runs."""
    minimum_garbage_readings: int = 2
    """Number of traced readings after which new objects may be garbage: one more, as the program holds the last."""
    minimum_garbage_share: float = 0.5
    """Minimum share of the growth for cyclic garbage: some garbage always waits."""
    last_search_seconds: float = 2.0
    """Seconds at the end for the census under way, and CPU seconds for a search for garbage, which takes 3 for a
    million objects: at most three times as long by the clock, if the machine is busy.
    """
    maximum_container_growth_ratio: float = 3.0
    """Maximum growth of all containers together, in growths of the process: they fill memory that others freed. Pages
    that are kept by their titles (`page_strings` of the cases) came to 30 times and more.
    """


class Owning(NamedTuple):
    """Numbers that decide when a container is an owner, and how it is described (`diagnose/owners.py`)."""

    explained_share: float = 0.8
    """Explained share of the growth, of a holder or of the process, from which on the rest counts as noise. Rates of
    two censuses err by up to a fifth."""
    least_bytes: int = 4096
    """Minimum growth of an owner in bytes: one page of the system."""
    least_share: float = 0.01
    """Minimum share of all growth for an owner. Unmeasured."""
    minimum_reported_share: float = 0.05
    """Minimum share of the process's growth for a finding to be reported, and to count as a cause."""
    minimum_library_call_share: float = 0.5
    """Minimum share of the process's growth for an owner that only a running call of a library reaches: most of that is
    freed when the call returns. The tree of a page that BeautifulSoup parses, seen at two stages, had 8 % of the growth
    of a flat program."""
    maximum_sampling_errors: float = 2.0
    """Standard errors by which two samples may differ by chance. A dict of trees with sizes of a Pareto distribution
    was the owner in 70 of 100 pairs of censuses without regard to them, a level below it in 9; with it in 200 of
    200."""
    maximum_printed_findings: int = 5
    """Maximum number of findings printed at one time."""
    maximum_dated_rate_ratio: float = 10.0
    """Maximum ratio of a rate's high bound to its low one for a date to be given. Unmeasured."""
    minimum_overlap_share: float = 0.8
    """Minimum share of neighbouring arrays that have most rows in common: a new episode begins a new window."""
    emptied_share: float = 0.5
    """Share of its greatest length below which a container was emptied. A leak never comes back to half of it; for a
    container that each episode fills, half of the checks see less."""
    maximum_checks_between_resets: int = 16
    """If a container that was emptied once is not seen empty again within this many checks, it counts as leaking. A
    container that each episode fills stays above half of its length for that long in one of 60,000 stretches."""
    minimum_base_ratio: float = 2.0
    """Minimum bytes that a view keeps alive, in its own bytes, to be reported as one of a larger base. Unmeasured."""


class Handles(NamedTuple):
    """Numbers that decide when native growth is divided over a container's new items (`diagnose/handles.py`)."""

    least_bytes: int = 1024
    """Minimum bytes behind a handle: its Python objects take about as much. Unmeasured."""
    maximum_items: int = 8
    """Maximum number of new items that are opened."""
    minimum_share_with_handle: float = 0.75
    """Minimum share of the new items that have a handle of their own. Unmeasured."""
    maximum_objects_below_item: int = 60
    """Maximum number of objects opened below one item. Unmeasured."""
    minimum_callbacks: int = 10
    """Minimum callbacks that came between the censuses, where what C code keeps with them is not seen: libraries
    register a few when they are imported, and 4 were said to hold 72 MiB each."""


class Rising(NamedTuple):
    """Numbers that decide when a line is named that runs while memory rises without an object (`meters/rises.py`)."""

    maximum_cpu_seconds: float = 0.5
    """Maximum CPU seconds of recording: about 15 us a line."""
    maximum_query_seconds: float = 5e-4
    """Maximum seconds of a query to the allocator at each line, which takes longer the more holes a heap has."""
    sufficient_rises: int = 12
    """Number of lasting rises, counted as rises of one size, that end the recording. A call of a service made 54 rises
    of a few bytes before the one of 2 MB that stayed."""
    minimum_growth_share: float = 0.25
    """Minimum bytes of lasting rises that end it, as a share of the bytes that memory has gained in as many steps
    before; material bytes are enough, as a program is slower meanwhile. Unmeasured."""
    minimum_rises: int = 3
    """Minimum rises of a line: one may be a library that is loaded, two chance."""
    minimum_main_share: float = 0.3
    """Minimum share of the rises' bytes for a line: a call that leaks may stand at two lines, or three."""
    maximum_readings: int = 40
    """Maximum readings of one recording: about as many as tracing may take."""
    maximum_tries: int = 3
    """Maximum number of recordings: growth in bursts may pause during one. Unmeasured."""


class Collecting(NamedTuple):
    """Numbers that decide when full collections are reported, and explain growth (`diagnose/gc_sawtooth.py`)."""

    minimum_collections: int = 1
    """Minimum full collections. The freed bytes are compared with those that came before each, or since the start."""
    minimum_freed_share: float = 0.8
    """Minimum share of the bytes between two collections that the second frees. The rest grows for good, and is not
    garbage; rates err by a fifth. Unmeasured."""
    maximum_wait_ratio: float = 2.0
    """Maximum bytes since the last full collection, in units of the usual amount between two: more is growth of another
    kind, which began later. Python waits a quarter longer for each full collection than for the collection before it.
    Unmeasured."""
    least_share: float = 0.1
    """Minimum share of the bytes in use that a collection frees to be a cause: all programs have smaller collections.
    Unmeasured."""
    reported_young_bytes: float = 64 * MIB
    """Bytes of young garbage from which on it is reported. A Flask server that is sent 2 MB a request comes to 45 MiB,
    graphs with an array of 3 MB each to 140 MiB."""
    harmless_bytes: float = 8 * MIB
    """Bytes of garbage, old or young, that may wait for the collector: it looks at old objects when a quarter as many
    have come. Three trees of a page a round come to 2.6 MiB, and stay at that for good."""
    maximum_wave_ratio: float = 4.0
    """Young garbage is assumed to reach at most this many times its size before it is collected, or the swing of the
    process if that is less. Unmeasured."""


class Ending(NamedTuple):
    """Numbers that decide on growth that goes on, and on programs that end (`agent/growth.py`, `agent/summary.py`)."""

    warm_up_divisor: int = 5
    """Number of equal parts of the readings, of which the first is warm-up. Unmeasured."""
    few_readings: int = 12
    """Maximum readings of a program that is judged, at its end, by its growth since the beginning."""
    last_census_seconds: float = 0.5
    """Maximum seconds of the last census: the program waits for it."""
    minimum_native_readings: int = 7
    """Minimum readings in a rising line for native growth in a program that ends."""
    minimum_owned_share: float = 0.5
    """Minimum share of the growth with an owner in such a program: more than all others together."""
    teardown_share: float = 0.3
    """Minimum share of the growth that is freed at the last reading if it was taken during teardown. A program whose
    event loop was being taken down had freed 49 % of it then, and the finding seemed to be over."""
    minimum_remaining_rate_share: float = 0.3
    """Minimum share of the rate found at first for a finding to go on: a table that is loaded grows like a leak, until
    it is complete."""
    minimum_readings_since_finding: int = 4
    """Number of readings after a finding before it is judged whether it goes on."""
    recent_readings: int = 12
    """Minimum number of readings over which it is judged, or all there are: growth in bursts pauses between them."""
    open_bytes: int = 32 * MIB
    """Bytes without a cause that are reported as an open question. The flat programs of the zoo gain 1 MiB at most
    after warm-up."""
    minimum_late_share: float = 0.25
    """Minimum share of the growth in the last half of the readings, or it has settled: 0.5 for a straight line, 0.3 for
    log t, 0 for a table that was loaded."""
    minimum_late_noise_ratio: float = 1.5
    """Minimum growth in the last third, in median deviations of its readings, to show without a census that it goes on:
    4 for a straight line. A window of bookings that is full swings by 4 MiB. Unmeasured."""


class Measuring(NamedTuple):
    """Numbers for the rate of an owner over all censuses, and of workers (`agent/census_history.py`, `workers.py`)."""

    least_bytes: int = 1 << 16
    """Minimum bytes of a holding that is remembered. Unmeasured."""
    minimum_censuses: int = 4
    """Minimum censuses over which a rate is measured: growth in jumps rests at some of them."""
    minimum_censuses_of_stop: int = 3
    """Minimum censuses for an owner to have stopped: one in which it is smaller, one in each half of the time since."""
    minimum_late_share: float = 0.05
    """Minimum gain of an owner in the newer half of its censuses, as a share of its gain before: exactly 0 for what was
    compiled once, 0.014 where a trace makes a program 70 times slower meanwhile."""
    quick_census_seconds: float = 0.01
    """Maximum CPU seconds of the last census for another one that only measures, whatever the program does."""
    maximum_cpu_share: float = 0.02
    """Share of the program's CPU time since the last census that such a census may take beyond them: one of a pickler
    with a million children, which are listed to be counted, takes 0.2 s."""
    maximum_time_share: float = 0.04
    """Share of the time that the watch earns (`agent/budget.py`). After a comparison in vain the last census must be no
    more of the time since: the credit is for the first answer, and a second comparison is mostly in vain as well."""
    minimum_owner_share: float = 0.5
    """Minimum share of the growth between two censuses for an owner's share to be taken from them."""
    minimum_worker_rise_share: float = 0.02
    """Minimum rise of the child processes' bytes, as a share of them: interpreters that start touch many pages."""
    minimum_workers_explained_share: float = 0.5
    """Minimum share of the workers' growth that findings inside the workers must explain; below it, the workers' total
    is reported as a finding of its own. Unmeasured."""
    minimum_generations: int = 3
    """Minimum workers, one after the other, that show how much a worker holds when it is replaced: one epoch of two
    need not."""
    maximum_generation_growth: float = 1.5
    """Maximum bytes of a worker, as a multiple of those of earlier workers, for memory to be given back: 1.0
    in a pool of two that replaces workers, 2 where each holds as much more as the one before."""


class Flat(NamedTuple):
    """Numbers that decide when a repeated test is flat (`faces/flatness.py`)."""

    minimum_rounds: int = 8
    """Minimum rounds after the warm-up: fewer do not tell growth from a table that doubles once."""
    traced_rounds: int = 3
    """Number of rounds at the end that are traced, if memory has grown until then."""
    minimum_late_share: float = 0.25
    """Minimum share of the growth in the last half of the rounds; less is a warm-up that was too short."""


# The numbers in use.
DRIFT = Drift()
FILLING = Filling()
SLOWER = Slower()
CASE = Investigating()
OWNING = Owning()
HANDLES = Handles()
RISING = Rising()
COLLECTING = Collecting()
ENDING = Ending()
MEASURING = Measuring()
FLAT = Flat()
