"""`report.html` of a study: what all its folds show together, on one page."""

from collections.abc import Iterator, Mapping
from typing import Any

from flatwater.metrics.lines import thinned
from flatwater.recipes.erl.charts import TRADERS
from flatwater.reports.document import Tile, document, header
from flatwater.reports.markup import Chart, Html, Section, paragraph, table, tag
from flatwater.reports.memory_charts import curve
from flatwater.reports.records import MOST_POINTS
from flatwater.studies.records import StudyRecords, fold_rows, percent, plain, seed_rows, trader_rows

FAINT = "--quiet"


def study_page(study: StudyRecords) -> str:
    """The whole page."""
    sections = [
        Section(title="Result", blocks=list(_result(study))),
        Section(title="Folds", blocks=list(_folds(study))),
        Section(title="How sure", blocks=list(_sure(study))),
        Section(title="Runs", blocks=list(_runs(study))),
    ]
    name = study.path.resolve().name
    state = "finished" if all(run["state"] == "finished" for run in study.result["runs"]) else "stopped"
    top = header([name, " ", tag("span", state, class_=f"state {state}")], _subtitle(study), _tiles(study), sections)
    return document(name, top, sections, f"Written by Flatwater, {study.read_at:%Y-%m-%d %H:%M %Z}.")


def _subtitle(study: StudyRecords) -> str:
    result = study.result
    said = [str(result.get("panel") or "the panel that comes with Flatwater")]
    if study.pooled is not None:
        said.append(f"{study.pooled['days']:,} test days, {study.pooled['first_day']} to {study.pooled['last_day']}")
    said.append(f"folds: {result['folds']}, seeds: {', '.join(map(str, result['seeds']))}")
    return " · ".join(said)


def _tiles(study: StudyRecords) -> Iterator[Tile]:
    pooled = study.pooled
    if pooled is None:
        return
    own, equal = pooled["traders"]["champion"], pooled["traders"]["equal weight"]
    yield "champions, a year", percent(own["annual_return"]), f"equal weight {percent(equal['annual_return'])}", ""
    yield "Sharpe ratio", plain(own["sharpe"]), f"equal weight {plain(equal['sharpe'])}", ""
    yield "drawdown", percent(own["drawdown"], "{:.0%}"), f"equal weight {percent(equal['drawdown'], '{:.0%}')}", ""
    best = pooled["comparison"]["best"]
    differences = {f"less {best}": _of_comparison(pooled), "less equal weight": pooled["against_equal_weight"]}
    for title, found in differences.items():
        interval = f"90 % interval {found['low']:+.1%} to {found['high']:+.1%}"
        kind = "good" if found["low"] > 0 else "bad" if found["high"] < 0 else ""
        yield title, f"{found['mean']:+.1%}", interval, kind
    deflated = pooled["deflated"]
    yield "deflated Sharpe", f"{deflated['probability']:.0%}", f"for {deflated['tries']:,} tries", ""


def _of_comparison(pooled: Mapping[str, Any]) -> dict[str, float]:
    found = pooled["comparison"]
    return {"mean": found["difference"], "low": found["low"], "high": found["high"]}


def _result(study: StudyRecords) -> Iterator[Html | Chart]:
    pooled = study.pooled
    if pooled is None:
        yield paragraph("No fold has been tested with every seed yet, so there is nothing to pool.", class_="missing")
        return
    yield paragraph(pooled["verdict"])
    if study.equity is not None:
        yield _equity_chart(study)
    titles, rows, words = trader_rows(pooled)
    yield table(titles, rows, words=words)
    said = (
        "The champions of all seeds begin each fold with equal money; the next fold begins with what they ended with."
    )
    yield paragraph(f"{said} Random: the median trader of each fold. Note: {study.result['note']}.", class_="reading")


def _equity_chart(study: StudyRecords) -> Chart:
    assert study.equity is not None  # noqa: S101  (for the type checker: the caller has looked)
    kept = study.equity[thinned(len(study.equity), MOST_POINTS)]
    dates = [str(day) for day in kept["date"]]
    data = []
    for name in (column for column in kept.columns if column != "date"):
        values = kept[name].to_list()
        first = name == "champion"
        title = f"{'champions' if first else name} x {values[-1]:.2f}"
        line = curve(dates, values, title, TRADERS[name], hover="x %{y:.2f}", width=2.6 if first else 1.3)
        data.append(line | {"zorder": int(first)})
    starts = [str(row["first_day"]) for row in (study.pooled or {"by_fold": []})["by_fold"]]
    lines = [
        {"type": "line", "x0": day, "x1": day, "yref": "paper", "y0": 0, "y1": 1, "line": {"color": FAINT, "width": 1}}
        | {"opacity": 0.35}
        for day in starts
    ]
    return Chart(
        title="Equity over all test days",
        reading="In multiples of the money at the start, after costs; the scale is logarithmic. A vertical line begins "
        "a fold: traders are trained anew there, on all that lies to its left.",
        data=data,
        layout={"xaxis": {"type": "date"}, "yaxis": {"type": "log"}, "shapes": lines},
        height=420,
    )


def _folds(study: StudyRecords) -> Iterator[Html | Chart]:
    if study.pooled is None:
        yield paragraph("No fold is complete.", class_="missing")
        return
    titles, rows, _ = fold_rows(study.pooled, whole=True)
    yield table(titles, rows)
    yield paragraph(
        "Return of the champions together, of equal weight, and of the rule that earned most on these days; then "
        "the lowest and the highest seed alone, the turnover in the fold, and what share of the random traders with "
        "the same turnover earned less.",
        class_="reading",
    )


def _sure(study: StudyRecords) -> Iterator[Html | Chart]:
    if study.pooled is None:
        yield paragraph("No fold is complete.", class_="missing")
        return
    titles, rows, words = seed_rows(study.pooled)
    yield table(titles, rows, words=words)
    deflated, lead = study.pooled["deflated"], study.pooled["deflated_lead_over_equal_weight"]
    yield table(
        ("Sharpe ratio of a day", "measured", "the best of all tries by chance", "deflated"),
        [
            [name, f"{row['sharpe']:.4f}", f"{row['by_chance']:.4f}", f"{row['probability']:.0%}"]
            for name, row in (("champions", deflated), ("champions less equal weight", lead))
        ],
    )
    yield paragraph(
        f"Intervals: stationary block bootstrap of the daily differences (Politis and Romano 1994), blocks of 20 days. "
        f"Deflated: the probability that the true Sharpe ratio is above 0, although it may be the best of "
        f"{deflated['tries']:,} tries: members x generations of every run (Bailey and López de Prado 2014).",
        class_="reading",
    )


def _runs(study: StudyRecords) -> Iterator[Html | Chart]:
    rows = [[str(run[name]) for name in ("run", "state", "reason")] for run in study.result["runs"]]
    yield table(("run", "state", "reason"), rows, words=3)
    said = ["Each is a run folder of its own: ", tag("code", f"flatwater report {study.path}/{rows[0][0]}"), "."]
    yield paragraph(said, class_="reading")
