"""The page of a run: every part in it, whatever is missing; nothing from outside; nothing of a run read as markup."""

import json
import math
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
import pytest
from seen_page import HOSTILE, Seen, charts, colours, filled_in
from synthetic_run import append_line, finding, ledger_line, make_run

from flatwater.description import describe_recipe
from flatwater.recipes.ppo.recipe import PPO
from flatwater.reports.learning_charts import course_chart, update_charts
from flatwater.reports.page import page_sections, run_page
from flatwater.reports.records import read_run
from flatwater_watch.errors import RunError
from flatwater_watch.pages.chart import Chart, Grid, Line
from flatwater_watch.pages.chart_values import MAXIMUM_POINTS

CHARTS = 19
PARTS = ("Trading", "Tear sheet", "What it does", "Learning")
PARTS += ("Findings", "Memory", "Speed", "Alarms", "Checkpoints", "Configuration")


def read_page(run: Path) -> Seen:
    return Seen(run_page(read_run(run)))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def test_every_part_is_there_and_every_chart_is_what_plotly_takes(run: Path) -> None:
    found = read_page(run)
    assert tuple(found.titles) == PARTS
    assert [part.anchor for part in page_sections(read_run(run))] == [part.lower().replace(" ", "-") for part in PARTS]
    assert len(charts(found)) == CHARTS
    assert [value for name, value in found.attributes if name == "data-chart"] == [str(n) for n in range(CHARTS)]
    for chart in charts(found):
        go.Figure(filled_in(chart))  # raises where an attribute is unknown
    assert "Nothing grows" not in found.text


@pytest.mark.parametrize("ledger", ["kept", "removed"])
def test_every_chart_calls_a_round_what_the_recipe_calls_it(run: Path, ledger: str) -> None:
    if ledger == "removed":
        (run / "ledger.jsonl").unlink()
    records = read_run(run)
    records = replace(records, recipe=replace(records.recipe, round="lap"))
    found = [block for part in page_sections(records) for block in part.blocks if isinstance(block, Chart)]
    assert {chart.x.title for chart in found if chart.x.kind == "round"} == {"lap"}


def test_every_colour_is_defined_in_both_themes(run: Path) -> None:
    sheet = files("flatwater_watch.pages").joinpath("assets", "page.css").read_text()
    light, dark = sheet.split("@media (prefers-color-scheme: dark)", maxsplit=1)
    used = set().union(*(colours(chart) for chart in charts(read_page(run)))) | set(
        re.findall(r"var\((--[\w-]+)\)", sheet)
    )
    assert len(used) > 20
    for theme in (light, dark.split("* {", maxsplit=1)[0]):
        assert used <= set(re.findall(r"(--[\w-]+):", theme))


def test_the_page_loads_nothing(run: Path) -> None:
    found = read_page(run)
    assert {name for name, _ in found.attributes if name == "src"} == set()
    targets = [value for name, value in found.attributes if name == "href"]
    assert all(value.startswith("#") or value == "data:," for value in targets)
    assert set(found.tags).isdisjoint({"img", "iframe", "object", "embed", "base"})
    style = run_page(read_run(run)).split("<style>")[1].split("</style>")[0]
    assert "@import" not in style
    assert "url(" not in style


def test_what_a_run_says_is_never_markup(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", panel=HOSTILE.replace('"', ""))
    plain = read_page(make_run(tmp_path / "plain"))
    made = {"file": HOSTILE, "line": 1, "function": HOSTILE, "operation": HOSTILE}
    texts = dict.fromkeys(("owner", "what", "advice", "redundancy", "fingerprint"), HOSTILE)
    append_line(run / "findings.jsonl", finding() | texts | {"holders": [HOSTILE], "made_at": made, "round": 40})
    append_line(run / "alarms.jsonl", {"round": 50, "alarms": [f"{HOSTILE}: {HOSTILE}"]})
    line = ledger_line(61)
    line["owned"][HOSTILE] = 1 << 30
    line["phases"][HOSTILE] = line["phases"]["learn"]
    line["exchange"] = {"workers": [{"machine": HOSTILE, "unplanned": {HOSTILE: 8}}]}
    append_line(run / "ledger.jsonl", line)
    trades = pl.read_parquet(run / "trades.parquet").with_columns(instrument=pl.lit(HOSTILE))
    trades.write_parquet(run / "trades.parquet")
    result = json.loads((run / "result.json").read_text())
    result["effects"][HOSTILE] = result["column_effects"][HOSTILE] = 0.9
    result["note"] = result["split"] = HOSTILE
    (run / "result.json").write_text(json.dumps(result))

    found = read_page(run)
    assert found.tags.count("script") == plain.tags.count("script") == 3
    assert set(found.tags) == set(plain.tags)
    assert {name for name, _ in found.attributes} == {name for name, _ in plain.attributes}
    assert found.text.count(HOSTILE) > 10
    # plotly.js reads markup in names, texts and categories; only `meta`, which the legend shows, is plain text.
    traces = [trace for chart in charts(found) for trace in chart["data"]]
    assert "<img" not in json.dumps([{key: trace[key] for key in trace if key != "meta"} for trace in traces])
    assert HOSTILE in {trace["meta"] for trace in traces}


def test_the_numbers_are_those_of_the_files(run: Path) -> None:
    found = read_page(run)
    assert "Each of the 9 owners holds what was planned, to the byte. Round 60." in found.text
    assert "train.HALL grows by 3.00 MiB a round, and nothing ends it." in found.text
    assert "the limit of 1.32 GiB is reached at round 190" in found.text
    assert "train.py:41 in keep (aten::mm)" in found.text
    memory = next(chart for chart in charts(found) if any(trace.get("stackgroup") for trace in chart["data"]))
    stacked = [trace for trace in memory["data"] if trace.get("stackgroup")]
    for at, n in enumerate(range(1, 61)):
        total = sum(trace["y"][at] for trace in stacked) * (1 << 20)
        assert total == pytest.approx(ledger_line(n)["resident"], abs=16)  # single numbers are not drawn
    budget = next(trace for trace in memory["data"] if trace["name"] == "budget")
    assert budget["y"] == [1350, 1350]


def test_a_difference_from_the_plan_is_told_in_bytes(run: Path) -> None:
    line = ledger_line(61)
    line["owned"]["replay.action"] -= 4096
    line["owned_bytes"] -= 4096
    append_line(run / "ledger.jsonl", line)
    found = read_page(run)
    assert "1 of 9 owners differ from the plan" in found.text
    assert "-4,096" in found.text


def test_workers_are_held_against_the_plan(run: Path) -> None:
    assert "each of 2 workers" not in read_page(run).text
    worker = {"machine": "first", "private": 300 << 20, "planned": 299 << 20, "unplanned": {}}
    append_line(run / "ledger.jsonl", ledger_line(61) | {"exchange": {"workers": [worker, worker]}})
    assert "The state of each of 2 workers holds what was planned, to the byte" in read_page(run).text
    off = worker | {"unplanned": {"replay.action": -512}}
    append_line(run / "ledger.jsonl", ledger_line(62) | {"exchange": {"workers": [worker, off]}})
    found = read_page(run).text
    assert "but 1 holds what was planned" in found
    assert "replay.action +512" in found


def test_workers_of_a_cluster_are_added_up_by_machine(run: Path) -> None:
    worker = {"machine": "first", "private": 300 << 20, "planned": 299 << 20, "proportional": 310 << 20}
    line = ledger_line(61) | {"exchange": {"workers": [worker, worker, worker | {"machine": "second"}], "stores": 0}}
    append_line(run / "ledger.jsonl", line)
    found = read_page(run).text
    assert "first2598.00 MiB600.00 MiB620.00 MiBsecond1299.00 MiB300.00 MiB310.00 MiB" in found.replace("\n", "")
    assert "The object stores of all machines hold 0 B between two rounds." in found


def test_many_owners_have_a_short_table_and_a_long_one(run: Path) -> None:
    plan, line = json.loads((run / "plan.json").read_text()), ledger_line(61)
    more = {f"extra.n{n}": 1000 + n for n in range(40)}
    plan["owners"] |= more
    line["owned"] |= more
    line["owned_bytes"] += sum(more.values())
    (run / "plan.json").write_text(json.dumps(plan))
    append_line(run / "ledger.jsonl", line)
    found = read_page(run)
    assert "Each of the 49 owners" in found.text
    assert "36 smaller" in found.text
    assert [found.text.count(name) for name in ("extra.n0", "extra.n39")] == [1, 2]


def test_a_small_run_shows_its_owners_without_the_libraries(run: Path) -> None:
    titles = re.findall(r"<h3>(.*?)</h3>", run_page(read_run(run)))
    assert "What the run owns" not in titles
    small = ledger_line(1)
    small["resident"], small["base"] = small["resident"] * 20, small["base"] + small["resident"] * 19
    (run / "ledger.jsonl").write_text(json.dumps(small) + "\n")
    titles = re.findall(r"<h3>(.*?)</h3>", run_page(read_run(run)))
    assert "What the run owns" in titles


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path, rounds: int) -> None:
    run = make_run(tmp_path / "run", rounds, wanted=20)
    found = read_page(run)
    assert tuple(found.titles) == PARTS
    assert f"{rounds} of 20" in found.text
    assert "There is no result here" in found.text
    for chart in charts(found):
        go.Figure(filled_in(chart))


@pytest.mark.parametrize(("judged", "drawn"), [(math.nan, []), (3.0, ["held out"])])
def test_a_curve_is_in_the_legend_where_it_has_a_point(run: Path, judged: float, drawn: list[str]) -> None:
    metrics = {"round": [1.0, 2.0], "return/mean": [1.0, 2.0], "evaluation/policy": [math.nan, judged]}
    chart = course_chart(replace(read_run(run), recipe=describe_recipe(PPO, {}), metrics=metrics))
    assert [mark.name for mark in chart.marks] == ["return, training", *drawn]
    assert ("judged" in chart.reading) == bool(drawn)


OPTIONAL = ["plan.json", "metrics.jsonl", "ledger.jsonl", "findings.jsonl", "alarms.jsonl"]
OPTIONAL += ["result.json", "trades.parquet", "prices.parquet", "equity.parquet"]


@pytest.mark.parametrize("file", [*OPTIONAL, "all of them"])
def test_a_missing_file_is_told_and_all_else_is_shown(run: Path, file: str) -> None:
    for name in OPTIONAL if file == "all of them" else [file]:
        (run / name).unlink()
    found = read_page(run)
    assert tuple(found.titles) == PARTS
    silent = {"findings.jsonl", "alarms.jsonl", "trades.parquet", "prices.parquet", "equity.parquet"}
    told = found.text.count("There is no ") - found.text.count("There is no checkpoint here")
    assert (told > 0) == (file not in silent)


def test_empty_and_torn_records(run: Path) -> None:
    (run / "ledger.jsonl").write_text("")
    (run / "findings.jsonl").write_text('{"round": 3, "verd')
    (run / "alarms.jsonl").write_text("")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"round": 61, "fit')
    found = read_page(run)
    assert "60 of 60" in found.text
    assert "no alarms" in found.text


def test_numbers_that_are_not_finite_are_gaps(run: Path) -> None:
    append_line(run / "metrics.jsonl", {"round": 61, "fitness/mean": None, "validation/champion": None})
    course = next(chart for chart in charts(read_page(run)) if chart["data"][0]["meta"] == "fitness, lowest to highest")
    mean = next(trace for trace in course["data"] if trace["name"] == "fitness, mean")
    assert mean["y"][-1] is None
    assert "NaN" not in json.dumps(charts(read_page(run)))


def test_a_browser_runs_the_scripts_of_the_page_and_no_others(run: Path) -> None:
    content = run_page(read_run(run))
    found = Seen(content)
    policy = next(value for name, value in found.attributes if value.startswith("default-src"))
    assert content.index("Content-Security-Policy") < content.index("<title>")
    rules = dict(rule.split(" ", maxsplit=1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    hashes = [f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in found.scripts[1:]]
    assert rules["script-src"].split() == hashes
    assert len(hashes) == 2
    assert "on" not in {name[:2] for name, _ in found.attributes}


def test_a_long_run_has_a_small_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 3000)
    content = run_page(read_run(run))
    assert len(content.encode()) < 8_000_000
    found = Seen(content)
    for trace in (trace for chart in charts(found) for trace in chart["data"]):
        assert len(trace["x"]) <= MAXIMUM_POINTS
    by_round = [chart["data"][0]["x"] for chart in charts(found) if "range" in chart["layout"].get("xaxis", {})]
    assert len(by_round) > 3
    assert all((rounds[0], rounds[-1]) == (1, 3000) for rounds in by_round)


def test_a_damaged_file_is_named(run: Path) -> None:
    (run / "trades.parquet").write_bytes(b"no parquet")
    with pytest.raises(RunError, match=r"trades\.parquet: "):
        run_page(read_run(run))
    (run / "trades.parquet").unlink()
    (run / "result.json").write_text("{")
    with pytest.raises(RunError, match=r"result\.json: "):
        read_run(run)
    (run / "result.json").unlink()
    append_line(run / "findings.jsonl", {"round": 3, "verdict": "leak"})
    with pytest.raises(RunError, match=r"findings\.jsonl: .*round 3 "):
        read_run(run)


def test_an_axis_does_not_magnify_noise() -> None:
    """Memory of 380 MiB that moves by a tenth looks level; what moves by a tenth of its value fills the axis."""
    rounds = [1.0, 2.0, 3.0]

    def vertical(values: list[float]) -> tuple[float, float] | None:
        return Chart(title="", marks=[Line(name="", x=rounds, y=values, colour="--ink")]).drawn_y_axis.span

    assert vertical([379.9, 380.0, 379.9]) == pytest.approx((370.45, 389.45))
    assert vertical([-0.01, 0.0, 0.01]) is None
    assert vertical([380, 400, 420]) is None
    assert vertical([0.0, 0.0, 0.0]) is None
    assert vertical([math.nan, 0.0]) is None


def test_the_page_of_a_policy_has_its_losses(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    records = replace(read_run(run), recipe=describe_recipe(PPO, {}))
    rounds = records.metrics["round"]
    losses = {"round": rounds, "train/policy_loss": [0.5] * len(rounds), "train/sps": [1.0] * len(rounds)}
    returns = [1.0, *[math.nan] * (len(rounds) - 1)]
    for lengths, titles in ((returns, []), ([9.0] * len(rounds), ["steps of an episode"])):
        metrics = losses | {"return/mean": returns, "episode/length": lengths}
        (grid,) = update_charts(replace(records, metrics=metrics))
        assert isinstance(grid, Grid)
        assert [chart.title for chart in grid.charts] == ["policy loss", *titles]
        assert "clip" not in grid.reading
        assert "xplained" not in grid.reading
    assert list(update_charts(replace(records, metrics={"round": rounds}))) == []
