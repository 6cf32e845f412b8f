"""Charts of a run's memory and speed, from its ledger (a line for each round) and its plan."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from flatwater.memory.planner import Plan
from flatwater.rundir.records import (
    BASE,
    FILES,
    OTHERS,
    REST,
    SLACK,
    LedgerLine,
    largest_groups,
    resident_parts,
    steps_per_second,
)
from flatwater_watch.pages.chart import Axis, Bars, Chart, Line, axis_ends, round_axis
from flatwater_watch.pages.chart_values import byte_unit
from flatwater_watch.units import format_bytes

MAXIMUM_GROUPS = 8
"""Most owners with an area of their own, as many as there are colours."""
BUDGET_VIEW_RATIO = 2.0
"""A level above this multiple of the memory used is told in words: drawn, it would flatten all else."""
LOGARITHMIC_RATIO = 30
"""Factor between the fastest and the slowest phase above which their axis is logarithmic."""

PART_COLOURS = {FILES: "--files", BASE: "--base", OTHERS: "--others", SLACK: "--slack", REST: "--rest"}
PHASE_COLOURS = {
    "evaluate": "--owner-1",
    "validate": "--owner-2",
    "learn": "--owner-3",
    "baselines": "--owner-8",
    "collect": "--owner-2",
    "update": "--owner-3",
    "evolve": "--owner-4",
    "settle": "--owner-5",
    "save": "--base",
}


class _PlanLevel(NamedTuple):
    """A level line of the plan or the budget."""

    name: str
    bytes: int
    colour: str


def memory_chart(ledger: Sequence[LedgerLine], plan: Plan | None, round_name: str) -> Chart:
    """Return a chart of resident memory by owner, stacked, with lines for the plan and the budget."""
    groups = largest_groups(ledger, MAXIMUM_GROUPS)
    highest = max(line.resident for line in ledger)
    unit, size = byte_unit([highest])
    # An area below a thousandth of the highest would have no pixel.
    has_others = any(resident_parts(line, groups)[OTHERS] / highest > 1 / 1000 for line in ledger)
    names = [FILES, BASE, *groups, *([OTHERS] if has_others else []), SLACK, REST]
    levels = _plan_levels(plan, ledger[-1])
    # The upper end of the axis: a level far above the memory used is not drawn.
    top = max([highest, *(level.bytes for level in levels if level.bytes <= BUDGET_VIEW_RATIO * highest)])
    rounds = [line.round for line in ledger]
    lines = [
        Line(
            name=level.name,
            x=axis_ends(rounds),
            y=[level.bytes / size] * 2,  # the same at both ends
            colour=level.colour,
            width=1.5,
            dashed=True,
        )
        for level in levels
        if level.bytes <= top
    ]
    sentences = [
        f"The {level.name} of {format_bytes(level.bytes)} is above the picture."
        for level in levels
        if level.bytes > top
    ]
    explanation = (
        "Each band is the RAM of an owner after a round; all bands together are the system's count. "
        "A flat run is a set of level bands; a red band that widens to the right is a leak. A step is where the run "
        "was resumed: the new process has libraries of its own size."
    )
    return Chart(
        title="Memory by owner",
        reading=" ".join((explanation, *sentences)),
        marks=[*_stacked_bands(ledger, groups, names, size), *lines],
        x=round_axis(rounds, round_name),
        # A margin of 6 %, so that the highest line does not lie on the edge.
        y=Axis(unit=f" {unit}", span=(0, 1.06 * top / size)),
        height=420,
    )


def owned_chart(ledger: Sequence[LedgerLine], round_name: str) -> Chart:
    """Return a chart of the owners without the libraries, beside which those of a small run are too thin to see."""
    groups = largest_groups(ledger, MAXIMUM_GROUPS)
    unit, size = byte_unit(line.owned_bytes for line in ledger)
    return Chart(
        title="What the run owns",
        reading="The same owners without the libraries, which take most of a small run.",
        marks=_stacked_bands(ledger, groups, [*groups, OTHERS], size),
        x=round_axis([line.round for line in ledger], round_name),
        y=Axis(unit=f" {unit}", from_zero=True),
        height=280,
    )


def _stacked_bands(ledger: Sequence[LedgerLine], groups: list[str], names: Sequence[str], size: int) -> list[Line]:
    """Return a stacked band for each name, in units of `size` bytes.

    Args:
        ledger: lines of the ledger; each gives one point.
        groups: owners of memory, in the order of their colours.
        names: names of the bands, from the lowest.
        size: bytes of a unit of the axis.
    """
    stacked_parts = [resident_parts(line, groups) for line in ledger]
    colours = PART_COLOURS | {name: f"--owner-{index}" for index, name in enumerate(groups, 1)}
    rounds = [line.round for line in ledger]
    return [
        # Never below 0: a stack with a negative part would cover the part below it.
        Line(
            name=name,
            x=rounds,
            y=[max(0, part[name]) / size for part in stacked_parts],
            colour=colours[name],
            stacked=True,
        )
        for name in names
    ]


def _plan_levels(plan: Plan | None, line: LedgerLine) -> list[_PlanLevel]:
    """Return the levels of the plan, if there is one, and of the budget: a ledger line's, or else the plan's."""
    levels = []
    if plan is not None:
        levels.append(_PlanLevel("plan between rounds", plan.base_bytes + plan.total_bytes, "--ink"))
    if budget := line.budget or (plan.budget_bytes if plan is not None else 0):
        levels.append(_PlanLevel("budget", budget, "--budget"))
    return levels


def unaccounted_chart(ledger: Sequence[LedgerLine], round_name: str) -> Chart:
    """Return a chart of unaccounted memory and allocator slack, which next to all memory are too thin to see."""
    unit, size = byte_unit([value for line in ledger for value in (line.unaccounted, line.slack)])
    rounds = [line.round for line in ledger]
    curves = {REST: [line.unaccounted for line in ledger], SLACK: [line.slack for line in ledger]}
    return Chart(
        title="What nobody owns",
        reading="Both lines must stay level. Unaccounted memory that grows belongs to objects outside the state; "
        "slack that grows is memory that the program has freed and the allocator keeps.",
        marks=[
            Line(name=name, x=rounds, y=[value / size for value in values], colour=PART_COLOURS[name])
            for name, values in curves.items()
        ],
        x=round_axis(rounds, round_name),
        y=Axis(unit=f" {unit}", from_zero=True),
        height=220,
    )


def resident_chart(rounds: list[float], resident: list[float], round_name: str) -> Chart:
    """Return a chart of resident memory over the rounds, for a run without a ledger."""
    unit, size = byte_unit(value for value in resident if isfinite(value))
    values = [value / size for value in resident]
    return Chart(
        title="Resident memory",
        reading="A level line is a run in constant memory. This run has no ledger, so its owners are not known.",
        marks=[Line(name="resident", x=rounds, y=values, colour="--owner-1")],
        x=round_axis(rounds, round_name),
        y=Axis(unit=f" {unit}", from_zero=True),
    )


def phase_names(ledger: Sequence[LedgerLine]) -> list[str]:
    """Return the names of all phases, in the order in which the ledger first has them."""
    return list(dict.fromkeys(name for line in ledger for name in line.phases))


def pace_chart(ledger: Sequence[LedgerLine], round_name: str) -> Chart:
    """Return a chart of steps per second for each phase that has a round of more than one step."""
    rates_by_phase = {
        name: {line.round: steps_per_second(line.phases[name]) for line in ledger if name in line.phases}
        for name in phase_names(ledger)
        if any(name in line.phases and line.phases[name].steps > 1 for line in ledger)
    }
    means = []
    for by_round in rates_by_phase.values():
        # A zero marks a round without a measurement.
        measured_rates = [rate for rate in by_round.values() if isfinite(rate) and rate]
        if measured_rates:
            means.append(sum(measured_rates) / len(measured_rates))
    is_logarithmic = bool(means) and max(means) > LOGARITHMIC_RATIO * min(means)
    scale_sentence = " The axis is logarithmic: the same distance is the same factor." if is_logarithmic else ""
    return Chart(
        title="Steps per second by phase",
        reading=f"A falling line is a phase whose steps take longer from {round_name} to {round_name}.{scale_sentence}",
        marks=[
            Line(
                name=name,
                x=[*by_round],
                y=[*by_round.values()],
                colour=PHASE_COLOURS.get(name, "--others"),
                dots=len(by_round) < len(ledger),
            )
            for name, by_round in rates_by_phase.items()
        ],
        x=round_axis([line.round for line in ledger], round_name),
        y=Axis(kind="log") if is_logarithmic else Axis(from_zero=True),
        height=260,
    )


def time_chart(rounds: Sequence[float], seconds: Mapping[str, Sequence[float]], round_name: str) -> Chart:
    """Return a chart with a column for each round: the seconds of its phases, stacked."""
    # Half of the mean distance between two rounds, which lie further apart if they are thinned.
    half_width = 0.5 if len(rounds) == 1 else 0.5 * (rounds[-1] - rounds[0]) / (len(rounds) - 1)
    return Chart(
        title="Where the time goes",
        reading=f"Each column is one {round_name}. Make the highest part faster first.",
        marks=[
            Bars(name=name, at=rounds, values=values, colour=PHASE_COLOURS.get(name, "--others"), stacked=True)
            for name, values in seconds.items()
        ],
        # Half a column more on either side, so that all columns are whole.
        x=Axis(kind="round", title=round_name, span=(rounds[0] - half_width, rounds[-1] + half_width)),
        y=Axis(unit=" s"),
        height=260,
    )


def transients_chart(plan: Plan, ledger: Sequence[LedgerLine]) -> Chart:
    """Return a chart of each phase's temporary bytes: as planned, and the highest that was measured."""
    highest = {}
    for name in phase_names(ledger):
        # None: the peak was not measured.
        highest[name] = max(line.phases[name].peak or 0 for line in ledger if name in line.phases)
    # Reversed, as rows of horizontal bars are drawn from below.
    names = list(reversed([*plan.transients, *(name for name in highest if name not in plan.transients)]))
    unit, size = byte_unit([*plan.transients.values(), *highest.values()])
    bars = (("measured, highest", highest, "--owner-1"), ("planned", plan.transients, "--base"))
    return Chart(
        title="What phases take and give back",
        reading="Memory above the resting level while a phase works. Planned is an estimate; a measured bar that is "
        "much longer than the planned one means that a kernel needs extra memory.",
        marks=[
            Bars(
                name=title,
                at=names,
                values=[values.get(name, 0) / size for name in names],
                colour=colour,
                horizontal=True,
            )
            for title, values, colour in bars
        ],
        x=Axis(unit=f" {unit}"),
        y=Axis(rows=names),
        height=90 + 44 * len(names),  # in pixels: title and axis, and a row for each phase
    )
