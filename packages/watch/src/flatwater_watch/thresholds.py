"""Every number that decides a verdict, as one frozen value.

It lies below the other folders, as series and objects are judged by it too. A field says its unit, why it is there and
what was measured; "unmeasured" says that the number was chosen and no measurement of it is recorded. Numbers that only
decide what a watch costs (how often is read, how much is kept) stay with the meters that they pace.
"""

from typing import NamedTuple

MIB = 1 << 20


class Drift(NamedTuple):
    """When a series of numbers rises for good (`series/slope.py`)."""

    least_bytes: int = MIB
    """Bytes. No smaller rise is material: allocators round up, and free lists come and go. Unmeasured."""
    least_share: float = 0.002
    """Part of the resident bytes that a rise must reach, if that is more: large programs are noisier. Unmeasured."""
    sure: float = 0.99
    """Confidence where no object says what grows: there a false finding cannot be looked up in a container."""
    judged: int = 30
    """Points of a window that are judged, evenly chosen. Their 435 pairs take 0.2 ms."""
    fewest: int = 5
    """Points of the shortest window that is judged: four rises in a row."""
    unheld: int = 8
    """Points that must drift where no object is found: without one, a rise is also a slow warm-up. Unmeasured."""
    late: int = 12
    """Points of the short window, which sees a drift that began late in a long series."""
    blocks: int = 5
    """Parts of a window whose medians must go the same way."""
    blocks_rising: int = 3
    """Of the four differences between blocks, those that must take part: one step, or two, are no drift."""
    takes_part: float = 0.25
    """Part of the mean difference that one must reach to take part. Unmeasured."""
    stands_out: float = 6.0
    """Times the median deviation from its line that a rise must reach. Pure noise reaches 1.5."""
    noise: float = 3.0
    """Times the usual difference of neighbours that a suspicious rise must reach. A line over five points has 4."""
    stair: float = 0.5
    """Part of a material rise from which on a change is a stair. Unmeasured."""
    steady: float = 0.8
    """Part of the rise of a window's first half that its second half must reach. For log t it is 0.71 to 0.76."""
    again: int = 3
    """Judgements in a row that must find a drift without an object: each series is judged many times."""


class Filling(NamedTuple):
    """When a buffer of a known size is being filled, by its touched bytes alone (`series/slope.py`)."""

    rises: int = 3
    """Rises in each half of the stretch: full buffers and warm-ups have fewer."""
    points: int = 8
    """Readings of the stretch, for the same reason."""
    landing: float = 2.0
    """A buffer counts as full after it has been flat for this many times its longest previous pause. Unmeasured."""
    fading: float = 0.5
    """Part of the first half's rise below which the second half's says that the buffer comes to its end. Unmeasured."""
    large: int = 8 * MIB
    """Bytes from which on an array is looked at page by page: asking the kernel costs time for each. Unmeasured."""
    touched: float = 0.98
    """Part from which on an array counts as touched: its ends share pages with others."""


class Slower(NamedTuple):
    """When the steps of a phase take ever more time (`series/slowdown.py`)."""

    fewest: int = 10
    """Readings of the shortest window. A machine's own speed changes by a fifth from one second to the next."""
    beginning: int = 10
    """The first of so many equal parts of the readings is left out: caches are cold."""
    rise: float = 0.8
    """Part of itself by which the cost must rise, which is a rate that falls by 44 %. Less may be another program: on a
    shared machine the cost changed by half."""
    still: float = 0.3
    """Minimum rise after the middle, as a share of the rise before it: 0.5 for log t, 0 for a warm-up that has
    ended."""
    as_good: float = 1.1
    """Times the deviations from one jump that those from a line may be: another program's beginning is a jump."""
    mostly: float = 0.5
    """Part of the time gained that one part of the program must have to be named: more than all others together."""
    ends: int = 3
    """The first and the last of so many equal stretches are compared to name the part. Unmeasured."""


class Investigating(NamedTuple):
    """When an investigation goes on, and when it ends (`diagnose/investigator.py`, `diagnose/investigation.py`)."""

    headroom: float = 0.1
    """Part of the limit that must be free for tracing and forks, which take memory themselves: 12 MB in a small run."""
    patience: int = 8
    """Readings after a suspicion in which a drift may be proven: growth may come in stairs."""
    looks: int = 3
    """Censuses after the first one while those before do not explain the growth: it may come in bursts."""
    more_looks: int = 6
    """The same, while it is not sure either that no object holds what grows."""
    traced: int = 3
    """Traced looks at which an owner has grown and has no line, before it is told without one."""
    longest_trace: int = 16
    """Looks in all, after which an owner is told without a line. Bursts every second to sixth step are found within."""
    longest_traced: float = 0.2
    """Seconds that a census may take for which tracing waits: a traced program is about half as fast meanwhile."""
    slowest_traced: float = 1.0
    """CPU seconds of a census after which tracing ends: Python that only allocates is traced at a seventy-fifth of its
    speed, a census too. One of 0.09 s took 4, and the program 25 s for what it does in 11; one of 0.01 s takes 0.25."""
    still: int = 6
    """Traced readings in a row without a line: what grows in stairs rests between them."""
    built: int = 36
    """Further traced readings that are allowed while the traced bytes still rise: a page that BeautifulSoup parses in
    15 ms takes 1 to 3 s while it is traced, and 9 s beside seven busy processes on two cores."""
    asked: float = 1.5
    """CPU seconds of these readings, after which an owner is told as it is. A look at 64 pages of a document took 0.03
    to 0.3 s beside three busy processes, and 42 of them half of the time of the program. With 3 s it was traced for 20
    s in three of 20 runs, four at a time; with 1.5 s for 8 s at most in 16."""
    built_share: float = 0.01
    """Part of the usual growth by which it is more."""
    page: int = 4096
    """Minimum bytes per step of an owner that is reported on demand. An owner that gains less than this in all since it
    was found has stopped. One page of the system."""
    quiet: int = 2
    """Readings without suspicion after an investigation, doubled each time. Unmeasured."""
    quiet_found: int = 5
    """Times as many, where the investigation explained the growth."""
    longest_quiet: int = 64
    """Readings that the rest is doubled to at most. Unmeasured."""
    loaded: int = 5
    """Modules that may have been loaded between two looks, for what grew in a registry of a library's to be told: more
    are a program that still starts. pytest's `atexit` callbacks and handlers of logging were told in one of 3 runs."""
    dropped: int = 2
    """Traced readings after which what was made may be garbage: one later than made, as the program holds the last."""
    garbage: float = 0.5
    """Part of the growth that cyclic garbage must be: some garbage always waits."""
    last_search: float = 2.0
    """Seconds at the end for the census that is under way, and CPU seconds for a search for garbage, which takes 3 for
    a million objects: three times as long by the clock at most, where the machine is busy.
    """
    too_large: float = 3.0
    """Times the growth of the process that its containers may have grown by together: they take what others left. The
    pages that are kept by their titles (`page_strings` of the cases) came to 30 times and more.
    """


class Owning(NamedTuple):
    """When a container is the owner of growth, and how its content is told (`diagnose/owners.py`, `contents.py`)."""

    explained: float = 0.8
    """Part of the growth from which on the rest is taken for noise: of a holder's, and of the whole process's. Rates of
    two censuses err by up to a fifth."""
    least_bytes: int = 4096
    """Growth in bytes below which a container is not looked at: one page of the system."""
    least_share: float = 0.01
    """Part of all growth below which an owner is not looked at. Unmeasured."""
    told_share: float = 0.05
    """Part of the process's growth below which a finding is not told, and does not count as the cause."""
    passing_share: float = 0.5
    """Minimum share of the process's growth for an owner that only a running call of a library reaches: most of that is
    freed when the call returns. The tree of a page that BeautifulSoup parses, seen at two stages, had 8 % of the growth
    of a flat program."""
    told: int = 5
    """Findings told at one time."""
    dated: float = 10.0
    """Times the low bound of a rate that the high one may be for a date to be told. Unmeasured."""
    overlap: float = 0.8
    """Part of neighbouring arrays that must share all rows but a few: a new episode begins a new window."""
    emptied: float = 0.5
    """Part of its greatest length below which a container was emptied. What leaks never comes back to half of it; of
    what each episode fills, half of the looks see less."""
    emptied_looks: int = 16
    """If a container that was emptied once is not seen empty again within this many checks, it counts as leaking. A
    container that each episode fills stays above half of its length for that long in one of 60,000 stretches."""
    base: float = 2.0
    """Times its own bytes that a view must keep alive to be told as one of a larger base. Unmeasured."""


class Handles(NamedTuple):
    """When growth outside of Python is shared out over a container's new items (`diagnose/handles.py`)."""

    least_bytes: int = 1024
    """Bytes behind an item below which it is no handle: its Python objects take about as much. Unmeasured."""
    items: int = 8
    """New items that are looked into."""
    own: float = 0.75
    """Part of the new items that must have a handle that the others have not. Unmeasured."""
    below: int = 60
    """Objects looked at below one item. Unmeasured."""


class Rising(NamedTuple):
    """When a line is named that runs while memory rises without an object (`meters/rises.py`)."""

    seconds: float = 0.5
    """CPU seconds that the notes may take: about 15 us a line."""
    quick: float = 5e-4
    """Seconds above which the allocator is not asked at each line: its answer takes as long as it has holes."""
    enough: int = 24
    """Rises that were not given back after which no more are waited for. Unmeasured."""
    fewest: int = 3
    """Rises that a line must have: one may be a library that is loaded, two chance."""
    mostly: float = 0.5
    """Part of the rises' bytes that it must have: more than all other lines together."""
    readings: int = 40
    """Readings for which it is waited, at most: about as many as tracing may take."""
    tries: int = 3
    """Times that it is begun: growth in bursts may pause while it is noted. Unmeasured."""


class Collecting(NamedTuple):
    """When what full collections free is told, and when it is the cause of growth (`diagnose/gc_sawtooth.py`)."""

    fewest: int = 1
    """Full collections. What is freed is compared with what came before each, since the watch began for the first."""
    mostly: float = 0.8
    """Part of what comes between two collections that one must free. The rest grows for good, and is no garbage: a
    fifth is what rates err by. Unmeasured."""
    late: float = 2.0
    """Maximum bytes since the last full collection, in units of the usual amount between two: more is growth of another
    kind, which began later. Python waits a quarter longer for each full collection than for the one before.
    Unmeasured."""
    least_share: float = 0.1
    """Part of the bytes in use that a collection must free to be a cause: smaller ones are how Python works.
    Unmeasured."""
    felt: float = 64 * MIB
    """Bytes that come until a collection of young objects frees them, from which on that is told. A Flask server that
    is sent 2 MB a request comes to 45 MiB, graphs with an array of 3 MB each to 140 MiB."""
    little: float = 8 * MIB
    """Bytes of garbage, old or young, up to which the collector's next turn is awaited: it looks at old objects once a
    quarter as many have come. Three trees of a page a round come to 2.6 MiB, and stay at that for good."""
    wave: float = 4.0
    """Young garbage is assumed to reach at most this many times its size before it is collected, or the swing of the
    process if that is less. Unmeasured."""


class Ending(NamedTuple):
    """What still grows, and what is said of a program that ends (`agent/growth.py`, `agent/summary.py`)."""

    warm_up: int = 5
    """The first of so many equal parts of the readings is taken for warm-up. Unmeasured."""
    few: int = 12
    """Readings up to which a program that ends is judged by what grew since its beginning."""
    last_census: float = 0.5
    """Seconds that the last census may take: the program waits for it."""
    native: int = 7
    """Readings that must rise in a line before native growth is told of a program that ends."""
    mostly: float = 0.5
    """Part of the growth that must have an owner in such a program: more than all others together."""
    let_go: float = 0.3
    """Part of the growth that a program must free at its last reading for that reading to be one of its end. One whose
    event loop was being taken down had freed 49 % of it then, and the finding seemed to be over."""
    still: float = 0.3
    """Part of the growth found at first that must have gone on since, or the finding is of the past: a table that is
    loaded grows like a leak, until it is there."""
    wait: int = 4
    """Readings after a finding before its going on is judged, ..."""
    lately: int = 12
    """Minimum number of readings over which it is judged, or all there are: growth in bursts pauses between them."""
    open_bytes: int = 32 * MIB
    """Bytes without a cause that are told as an open question. The flat programs of the zoo gain 1 MiB at most after
    warm-up."""
    rising: float = 0.25
    """Part of the growth that must have come in the last half of the readings, or it has settled: 0.5 for a straight
    line, 0.3 for log t, 0 for a table that was loaded."""


class Weighing(NamedTuple):
    """How the rate of an owner is taken from all censuses (`agent/census_history.py`)."""

    least_bytes: int = 1 << 16
    """Bytes of a holding that is remembered. Unmeasured."""
    fewest: int = 4
    """Censuses over which a rate is measured, at least: what grows in stairs rests at some of them."""
    told: float = 0.5
    """Part of the growth that must lie between two censuses, or they do not tell an owner's share of it."""
    workers: float = 0.02
    """Part of the child processes' bytes that their rise must reach: interpreters that start touch many pages."""
    workers_owned: float = 0.5
    """Minimum share of the workers' growth that findings inside the workers must explain; below it, the workers' total
    is reported as a finding of its own. Unmeasured."""


class Flat(NamedTuple):
    """When a repeated test is flat (`faces/flatness.py`)."""

    fewest: int = 8
    """Rounds after the warm-up: fewer do not tell growth from a table that doubles once."""
    traced: int = 3
    """Rounds at the end that are traced, if memory has grown until then."""
    still: float = 0.25
    """Part of the growth that must come in the last half of the rounds; less is a warm-up that was too short."""


class Thresholds(NamedTuple):
    """All of them. A change is a new value: `SHIPPED._replace(drift=SHIPPED.drift._replace(sure=0.95))`."""

    drift: Drift = Drift()
    filling: Filling = Filling()
    slower: Slower = Slower()
    investigating: Investigating = Investigating()
    owning: Owning = Owning()
    handles: Handles = Handles()
    rising: Rising = Rising()
    collecting: Collecting = Collecting()
    ending: Ending = Ending()
    weighing: Weighing = Weighing()
    flat: Flat = Flat()


SHIPPED = Thresholds()
"""The values that judge."""
