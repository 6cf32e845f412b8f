"""Charts of a run's memory and pace: the ledger, held against the plan."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from flatwater.memory.planner import Plan
from flatwater.metrics.lines import thinned
from flatwater.reports.markup import Chart
from flatwater.rundir.statements import (
    BASE,
    FILES,
    OTHERS,
    REST,
    SLACK,
    LedgerLine,
    largest_groups,
    parts,
    rate,
)
from flatwater.units import format_bytes

MOST_GROUPS = 8
"""Owners with an area of their own, as many as there are colours."""
BUDGET_IN_VIEW = 2.0
"""A budget above so many times the memory used is told in words: drawn, it would flatten everything else."""
LOGARITHMIC = 30
"""Phases whose paces differ by more than this factor share a logarithmic axis."""
UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))

COLOURS = {FILES: "--files", BASE: "--base", OTHERS: "--others", SLACK: "--slack", REST: "--rest"}
PHASES = {
    "evaluate": "--owner-1",
    "validate": "--owner-2",
    "learn": "--owner-3",
    "evolve": "--owner-4",
    "settle": "--owner-5",
    "save": "--base",
}
FEW = 8
"""Rounds of which each has its own mark on the axis."""


def round_axis(rounds: Sequence[float]) -> dict[str, Any]:
    """The axis of rounds from edge to edge; one round alone stands in the middle."""
    axis: dict[str, Any] = {"title": {"text": "round"}, "tickformat": "d"}
    marks = {"dtick": 1} if rounds[-1] - rounds[0] < FEW else {}
    return axis | marks | {"range": [rounds[0] - 1, rounds[0] + 1] if len(rounds) == 1 else [rounds[0], rounds[-1]]}


def unit_of(values: Iterable[float]) -> tuple[str, int]:
    """The largest unit in which the largest value is at least 1, with its bytes."""
    most = max((abs(value) for value in values), default=0)
    return next((found for found in UNITS if most >= found[1]), UNITS[-1])


def memory_chart(ledger: Sequence[LedgerLine], plan: Plan | None) -> Chart:
    """Resident memory by owner, stacked, against the plan and the budget."""
    groups = largest_groups(ledger, MOST_GROUPS)
    stacked = [parts(line, groups) for line in ledger]
    most = max(line.resident for line in ledger)
    unit, size = unit_of([most])
    rounds = [line.round for line in ledger]
    colours = COLOURS | {name: f"--owner-{at}" for at, name in enumerate(groups, 1)}
    names = [FILES, BASE, *groups, *([OTHERS] if any(part[OTHERS] / most > 1 / 1000 for part in stacked) else [])]
    data = [
        _area(rounds, [max(0, part[name]) / size for part in stacked], name, colours[name], f"%{{y:,.2f}} {unit}")
        for name in (*names, SLACK, REST)
    ]
    levels = _levels(plan, ledger[-1])
    top = max([most, *(level for _, level, _ in levels if level <= BUDGET_IN_VIEW * most)])
    # A line from edge to edge, also where there is one round only.
    ends = [rounds[0] - 1, rounds[0] + 1] if len(rounds) == 1 else [rounds[0], rounds[-1]]
    data += [_level(ends, level / size, name, colour) for name, level, colour in levels if level <= top]
    above = [f"The {name} of {format_bytes(level)} is above the picture." for name, level, _ in levels if level > top]
    said = (
        "Each band is what one owner has in RAM after a round; all bands together are what the system counts. "
        "A flat run is a set of level bands; a red band that widens to the right is a leak. A step is where the run "
        "was resumed: the new process has libraries of its own size."
    )
    return Chart(
        title="Memory by owner",
        reading=" ".join((said, *above)),
        data=data,
        layout={"xaxis": round_axis(rounds), "yaxis": {"range": [0, 1.06 * top / size], "ticksuffix": f" {unit}"}}
        | {"barmode": "stack"},
        height=420,
    )


def owned_chart(ledger: Sequence[LedgerLine]) -> Chart:
    """The owners alone, stacked: in a small run the libraries leave no room for them in the whole picture."""
    groups = largest_groups(ledger, MOST_GROUPS)
    stacked = [parts(line, groups) for line in ledger]
    unit, size = unit_of(line.owned_bytes for line in ledger)
    rounds = [line.round for line in ledger]
    colours = COLOURS | {name: f"--owner-{at}" for at, name in enumerate(groups, 1)}
    return Chart(
        title="What the run owns",
        reading="The same owners without the libraries, which take most of a small run.",
        data=[
            _area(rounds, [part[name] / size for part in stacked], name, colours[name], f"%{{y:,.2f}} {unit}")
            for name in (*groups, OTHERS)
        ],
        layout={"xaxis": round_axis(rounds), "yaxis": {"ticksuffix": f" {unit}", "rangemode": "tozero"}}
        | {"barmode": "stack"},
        height=280,
    )


def _levels(plan: Plan | None, line: LedgerLine) -> list[tuple[str, int, str]]:
    """Name, bytes and colour of each horizontal line."""
    planned = [("plan between rounds", plan.base_bytes + plan.total_bytes, "--ink")] if plan is not None else []
    budget = line.budget or (plan.budget_bytes if plan is not None else 0)
    return [*planned, *([("budget", budget, "--budget")] if budget else [])]


def _area(rounds: list[int], values: list[float], name: str, colour: str, hover: str) -> dict[str, Any]:
    common: dict[str, Any] = {"x": rounds, "y": values, "name": name, "hovertemplate": hover}
    if len(rounds) == 1:  # an area of one point has no width
        return common | {"type": "bar", "marker": {"color": colour}, "width": 0.5}
    line = {"width": 0.5, "color": colour}
    return common | {"type": "scatter", "mode": "lines", "stackgroup": "all", "line": line, "fillcolor": colour}


def _level(rounds: Sequence[float], value: float, name: str, colour: str) -> dict[str, Any]:
    line = {"color": colour, "width": 1.5, "dash": "dash"}
    shape = {"type": "scatter", "mode": "lines", "line": line, "hoverinfo": "skip"}
    return {"x": list(rounds), "y": [value, value], "name": name} | shape


def unaccounted_chart(ledger: Sequence[LedgerLine]) -> Chart:
    """What nobody owns, alone: on the scale of the whole it would be too thin to see."""
    unit, size = unit_of([value for line in ledger for value in (line.unaccounted, line.slack)])
    rounds = [line.round for line in ledger]
    curves = ((REST, [line.unaccounted for line in ledger]), (SLACK, [line.slack for line in ledger]))
    return Chart(
        title="What nobody owns",
        reading="Both lines must stay level. Unaccounted memory that climbs is kept by something outside the state; "
        "slack that climbs is kept by the allocator after the program has freed it.",
        data=[
            curve(rounds, [value / size for value in values], name, COLOURS[name], hover=f"%{{y:,.2f}} {unit}")
            for name, values in curves
        ],
        layout={"xaxis": round_axis(rounds), "yaxis": {"ticksuffix": f" {unit}", "rangemode": "tozero"}},
        height=220,
    )


def resident_chart(rounds: list[float], resident: list[float]) -> Chart:
    """All that is known where a run has no ledger."""
    unit, size = unit_of(value for value in resident if isfinite(value))
    values = [value / size for value in resident]
    return Chart(
        title="Resident memory",
        reading="A level line is a run in constant memory. This run has no ledger, so who holds it is not known.",
        data=[curve(rounds, values, "resident", "--owner-1", hover=f"%{{y:,.2f}} {unit}")],
        layout={"xaxis": round_axis(rounds), "yaxis": {"ticksuffix": f" {unit}", "rangemode": "tozero"}},
    )


def curve(
    x: Sequence[object], y: Sequence[float], name: str, colour: str, *, hover: str = "%{y:,.2f}", width: float = 1.8
) -> dict[str, Any]:
    """A line; where it has one point only, that point. What is not finite is left out: JSON knows no NaN."""
    return {
        "type": "scatter",
        "mode": "lines" if sum(map(isfinite, y)) > 1 else "markers",
        "x": list(x),
        "y": [value if isfinite(value) else None for value in y],
        "name": name,
        "line": {"color": colour, "width": width},
        "marker": {"color": colour, "size": 7},
        "hovertemplate": hover,
    }


def phases_of(ledger: Sequence[LedgerLine]) -> list[str]:
    """Every phase of some round, in the order of the rounds."""
    return list(dict.fromkeys(name for line in ledger for name in line.phases))


def pace_chart(ledger: Sequence[LedgerLine]) -> Chart:
    """Steps per second of each phase that has more than a step a round."""
    rounds = [line.round for line in ledger]
    paces = {
        name: [rate(line.phases[name]) if name in line.phases else float("nan") for line in ledger]
        for name in phases_of(ledger)
        if any(name in line.phases and line.phases[name].steps > 1 for line in ledger)
    }
    means = [sum(known) / len(known) for pace in paces.values() if (known := [v for v in pace if isfinite(v) and v])]
    logarithmic = bool(means) and max(means) > LOGARITHMIC * min(means)
    axis = {"type": "log", "dtick": 1} if logarithmic else {"rangemode": "tozero"}
    scale = " The axis is logarithmic: the same distance is the same factor." if logarithmic else ""
    return Chart(
        title="Steps per second by phase",
        reading=f"A line that sinks is a phase whose steps take longer from round to round.{scale}",
        data=[curve(rounds, pace, name, PHASES.get(name, "--others")) for name, pace in paces.items()],
        layout={"xaxis": round_axis(rounds), "yaxis": axis},
        height=260,
    )


def time_chart(rounds: Sequence[float], seconds: dict[str, list[float]]) -> Chart:
    """Seconds of each phase, stacked: where a round's time goes."""
    data = [
        {
            "type": "bar",
            "x": list(rounds),
            "y": [value if isfinite(value) else None for value in values],
            "name": name,
            "marker": {"color": PHASES.get(name, "--others"), "line": {"width": 0}},
            "hovertemplate": "%{y:.2f} s",
        }
        for name, values in seconds.items()
    ]
    return Chart(
        title="Where the time goes",
        reading="Each column is one round. The highest part is the one to make faster.",
        data=data,
        layout={
            "xaxis": round_axis(rounds) | {"range": _columns(rounds)},
            "yaxis": {"ticksuffix": " s"},
            "barmode": "stack",
            "bargap": 0.12,
        },
        height=260,
    )


def _columns(rounds: Sequence[float]) -> list[float]:
    """The range in which the first and the last column are whole."""
    half = 0.5 if len(rounds) == 1 else 0.5 * (rounds[-1] - rounds[0]) / (len(rounds) - 1)
    return [rounds[0] - half, rounds[-1] + half]


def transients_chart(plan: Plan, ledger: Sequence[LedgerLine]) -> Chart:
    """Bytes that a phase makes and frees again: planned, and the highest measured."""
    measured = {
        name: max(peaks)
        for name in phases_of(ledger)
        if (peaks := [line.phases[name].peak or 0 for line in ledger if name in line.phases])
    }
    names = list(reversed([*plan.transients, *(name for name in measured if name not in plan.transients)]))
    unit, size = unit_of([*plan.transients.values(), *measured.values()])
    sides = (("measured, highest", measured, "--owner-1"), ("planned", plan.transients, "--base"))
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": names,
            "x": [values.get(name, 0) / size for name in names],
            "name": title,
            "marker": {"color": colour},
            "hovertemplate": f"%{{x:,.2f}} {unit}",
        }
        for title, values, colour in sides
    ]
    return Chart(
        title="What phases take and give back",
        reading="Memory above the resting level while a phase works. Planned is an estimate; a measured bar that is "
        "much longer than the planned one means that a kernel needs room of its own.",
        data=data,
        layout={
            "xaxis": {"ticksuffix": f" {unit}"},
            "yaxis": {"dtick": 1, "showgrid": False},
            "hovermode": "y unified",
        },
        height=90 + 44 * len(names),
    )


def seconds_by_phase(ledger: Sequence[LedgerLine], most: int) -> tuple[list[float], dict[str, list[float]]]:
    """Rounds, and each phase's seconds; at most `most` rounds, as columns narrower than a pixel are none."""
    lines = [ledger[at] for at in thinned(len(ledger), most)]
    seconds = {
        name: [line.phases[name].seconds if name in line.phases else 0.0 for line in lines]
        for name in phases_of(ledger)
    }
    return [float(line.round) for line in lines], seconds
