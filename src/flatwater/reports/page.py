"""`report.html`: a run as one page."""

from collections.abc import Mapping
from math import isfinite
from statistics import median
from typing import Any

from flatwater.recipe import Recipe
from flatwater.reports.document import Tile, document, header
from flatwater.reports.markup import Html, tag, text
from flatwater.reports.records import RunRecords
from flatwater.reports.sections import sections
from flatwater.rundir.findings import GRAVE
from flatwater.units import format_bytes, format_duration, short_bytes

ROUNDS_OF_PACE = 8
"""Rounds whose median duration tells how long the rest will take."""


def page(run: RunRecords) -> str:
    """The whole page."""
    found, name = sections(run), run.path.resolve().name
    state = tag("span", run.state, class_=f"state {run.state}")
    top = header([name, " ", state], _subtitle(run), _tiles(run), found)
    written = f"Written by Flatwater from the run's folder alone, {run.read_at:%Y-%m-%d %H:%M %Z}."
    return document(name, top, found, written)


def _subtitle(run: RunRecords) -> Html:
    """Data, device, seed and versions, as far as the folder says."""
    facts = run.checkpoints[-1].facts if run.checkpoints else {}
    data, versions = facts.get("data"), facts.get("versions")
    said = [run.recipe.trained_on(run.config)]
    if isinstance(data, dict) and "days" in data:
        said.append(f"{data.get('instruments')} instruments, {data.get('days')} days")
        said.append(f"{data.get('first_day')} to {data.get('last_day')}")
    said.append(f"on {run.config.get('device', 'an unknown device')}")
    if run.config.get("threads"):
        said.append(f"{run.config['threads']} threads" if run.config["threads"] != 1 else "1 thread")
    said.append(f"seed {run.config.get('seed', '?')}")
    if isinstance(versions, dict):
        said.append(", ".join(f"{name} {version}" for name, version in versions.items()))
    return text(" · ".join(said))


def _tiles(run: RunRecords) -> list[Tile]:
    """At most six."""
    tiles: list[Tile] = [] if run.result is None else [_headline(run.recipe, run.result)]
    measured, metric = list(run.recipe.curves.items())[-1]
    known = [value for value in run.metrics.get(metric, []) if isfinite(value)]
    if known:
        tiles.append((measured, f"{known[-1]:.4g}", f"{known[0]:.4g} at first", ""))
    tiles.append(("rounds", f"{run.done} of {run.rounds}", _left(run), ""))
    if run.ledger:
        line = run.ledger[-1]
        budget = (
            f"{line.resident / line.budget:.0%} of the budget of {format_bytes(line.budget)}" if line.budget else ""
        )
        tiles.append(("resident", short_bytes(line.resident), budget, ""))
        share = 1 - abs(line.unaccounted) / line.resident if line.resident else 1.0
        tiles.append(("unaccounted", short_bytes(line.unaccounted), f"{share:.1%} have an owner", ""))
    grave = sum(finding.verdict in GRAVE for _, finding in run.findings)
    if run.findings or run.ledger:
        said = "memory is flat" if not run.findings else f"{grave} to act on"
        tiles.append(("findings", str(len(run.findings)), said, "bad" if grave else "good"))
    return tiles


def _headline(recipe: Recipe, result: Mapping[str, Any]) -> Tile:
    """What was trained, by its most important number, and what it is compared with."""
    headline, rows = recipe.headline, result[recipe.players]
    numbers = {name: row.get(headline.key) for name, row in rows.items()}
    own, other = (
        "-" if (number := numbers.get(name)) is None else headline.form.format(number)
        for name in (recipe.trained, headline.against)
    )
    return headline.title, own, headline.said.format(other), ""


def _left(run: RunRecords) -> str:
    """How long a round takes, and the rest of a run that is in training."""
    times = [run.metrics[name][-ROUNDS_OF_PACE:] for name in run.metrics if name.startswith("time/")]
    sums = [sum(value for value in row if isfinite(value)) for row in zip(*times, strict=True)]
    if not sums:
        return "none has ended"
    pace = median(sums)
    left = f", {format_duration(pace * (run.rounds - run.done))} left" if run.state == "training" else ""
    return f"{format_duration(pace)} each{left}"
