"""Runs beside each other: what differs, what came of each, and an interval where days are the same."""

import json
import shutil
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
from seen_page import HOSTILE, Seen, charts, filled_in
from synthetic_run import make_run

from flatwater.cli.main import main
from flatwater.comparisons.page import range_without_outliers
from flatwater.comparisons.side_by_side import (
    MACHINE_METRICS,
    differences_from_first,
    number_rows,
    read_compared_runs,
    setting_rows,
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


def make_finished(name: str, *, daily: float = 0.0, noise: float = 0.0, old: str = "", new: str = "") -> str:
    """A finished run whose champion earns so much more a day, as a fraction, than that of the others."""
    run = make_run(Path(name), 12)
    if old:
        config = run / "config.toml"
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new))
    table = pl.read_parquet(run / "equity.parquet")
    drawn = np.random.default_rng(1).standard_normal(len(table))
    more = daily + noise * (drawn - drawn.mean())
    champion = table["champion"].to_numpy() * np.cumprod(1 + more)
    table.with_columns(champion=pl.Series(champion)).write_parquet(run / "equity.parquet")
    return name


def test_only_settings_that_differ_are_listed() -> None:
    runs = read_compared_runs(
        {"a": Path(make_finished("a")), "b": Path(make_finished("b", old="size = 16", new='size = 8\nx = ["u", "v"]'))}
    )
    assert setting_rows(runs) == [("population.size", ["16", "8"]), ("population.x", ["-", "u v"])]


def test_of_two_recipes_only_settings_that_both_have_are_listed() -> None:
    """A run of traders beside one of target weights had a hundred rows, each with a number on one side alone."""
    other = make_finished("b", old="size = 16", new="size = 8\nextra = 3")
    config = Path(other, "config.toml")
    config.write_text(config.read_text().replace('trainer = "erl"', 'trainer = "weights"'))
    Path(other, "result.json").unlink()  # it is that of traders
    names = [name for name, _ in setting_rows(read_compared_runs({"a": Path(make_finished("a")), "b": Path(other)}))]
    assert {"recipe", "population.size"} <= {*names}
    assert "population.extra" not in names
    assert not any(name.startswith("members.") for name in names)


def test_runs_of_two_recipes_say_what_each_was_trained_on_and_whose_number_a_row_is() -> None:
    """PPO beside traders: two rows were named `return`, and neither environment nor prices were among the settings."""
    other = Path(make_finished("b"))
    config = other / "config.toml"
    config.write_text(config.read_text().replace('trainer = "erl"', 'trainer = "ppo"\nenv = "CartPole-v1"'))
    (other / "result.json").unlink()  # it is that of traders
    runs = read_compared_runs({"a": Path(make_finished("a")), "b": other})
    settings = dict(setting_rows(runs))
    assert settings["recipe"] == ["erl", "ppo"]
    assert settings["trained on"][1] == "CartPole-v1"
    assert "CartPole-v1" not in settings["trained on"][0]
    titles = [name for name, _ in number_rows(runs)]
    assert len(titles) == len({*titles})
    assert "return (erl)" in titles


def test_a_run_beside_its_twin_is_said_to_be_identical() -> None:
    make_finished("a")
    shutil.copytree("a", "twin")
    shutil.copytree("a", "other")
    lines = [json.loads(line) for line in Path("other/metrics.jsonl").read_text().splitlines()]
    lines[-1]["fitness/mean"] += 1e-6
    Path("other/metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    twin = [json.loads(line) for line in Path("twin/metrics.jsonl").read_text().splitlines()]
    for line in twin:
        line |= {name: 1.5 * value for name, value in line.items() if name.startswith(MACHINE_METRICS)}
        line["mirror/lag"] = 1.0
    Path("twin/metrics.jsonl").write_text("\n".join(map(json.dumps, twin)) + "\n")
    runs = read_compared_runs({name: Path(name) for name in ("a", "twin", "other")})
    said = [each.sentence for each in differences_from_first(runs)]
    assert said[0].startswith("B is identical to A: all settings, and every number")
    assert said[1].startswith("C earned the same as A")


def test_a_setting_that_an_older_run_lacks_has_its_default() -> None:
    older = Path(make_finished("older", old="size = 16", new=""))
    assert setting_rows(read_compared_runs({"a": Path(make_finished("a")), "older": older})) == []
    other = Path(make_finished("b", old="size = 16", new="size = 8"))
    assert setting_rows(read_compared_runs({"older": older, "b": other})) == [("population.size", ["16", "8"])]


def test_a_difference_has_an_interval_where_the_days_are_the_same() -> None:
    names = (make_finished("a"), make_finished("b", daily=0.001, noise=0.0005), make_finished("c", noise=0.01))
    better, same = differences_from_first(read_compared_runs({name: Path(name) for name in names}))
    assert better.difference is not None
    assert (better.difference.count, better.difference.units) == (249, "days")
    values = better.difference.values
    assert values["mean"] == pytest.approx(0.252, abs=0.02), "252 days of a thousandth"
    assert 0.2 < values["low"] < values["mean"] < values["high"] < 0.3
    assert better.sentence.startswith("B earned more than A (+2")
    assert "C is not distinguishable from A" in same.sentence


def test_runs_of_other_days_or_without_equity_say_why_there_is_none() -> None:
    runs = [make_finished(name) for name in "abc"]
    table = pl.read_parquet("b/equity.parquet")
    table[1:].write_parquet("b/equity.parquet")
    Path("c/equity.parquet").unlink()
    found = differences_from_first(read_compared_runs({name: Path(name) for name in runs}))
    assert [one.sentence for one in found] == [
        "B and A: no interval, their equity is of different days.",
        "C and A: no interval, for lack of the daily equity of C, which only a trader with a result has.",
    ]


def test_a_run_that_has_no_result_yet_stands_beside_one_that_has() -> None:
    make_run(Path("young"), 3, wanted=10)
    rows = dict(number_rows(read_compared_runs({name: Path(name) for name in (make_finished("a"), "young")})))
    assert rows["rounds"] == ["12/12", "3/10"]
    assert rows["return"] == ["+18.4%", "-"]
    assert rows["buy and hold: return"] == ["+12.1%", "-"]


def test_four_runs_fit_eighty_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flatwater_watch.terminal.WIDTH", 80)
    names = [make_finished(name, old="seed = 0", new=f"seed = {at}") for at, name in enumerate("abcd")]
    assert main(["compare", *names]) == 0
    said = capsys.readouterr().out
    assert [line.split() for line in said.splitlines() if line.startswith(" seed")] == [["seed", "0", "1", "2", "3"]]
    tables = [line for line in said.splitlines() if line.startswith(" ")]
    assert max(map(len, tables)) <= 80


def test_json_has_the_numbers_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", make_finished("a"), make_finished("b", daily=0.001), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["letter"] for run in found["runs"]] == ["A", "B"]
    assert found["runs"][0]["result"]["total_return"] == 0.184
    assert found["differences"][0]["interval"]["mean"] == pytest.approx(0.252, abs=0.02)
    assert (found["differences"][0]["count"], found["differences"][0]["units"]) == (249, "days")


def test_the_page_has_the_curves_over_each_other() -> None:
    assert main(["compare", make_finished("a"), make_finished("b", daily=0.001), "--page", "both.html"]) == 0
    seen = Seen(Path("both.html").read_text())
    assert seen.titles == ["Result", "Curves", "Settings that differ"]
    for chart in charts(seen):
        go.Figure(filled_in(chart))  # raises where an attribute is unknown
        assert [trace["name"].split()[0] for trace in chart["data"]] == ["A", "B"]
        assert len({json.dumps(trace["line"]["color"]) for trace in chart["data"]}) == 2
    assert "B earned more than A" in seen.text
    assert "chosen on the days " in seen.text
    assert "All settings are the same." in seen.text


def test_runs_of_a_recipe_without_a_rule_have_no_interval_and_no_reading_of_one() -> None:
    folders = [make_finished(name, old='trainer = "erl"', new='trainer = "ppo"') for name in "ab"]
    for folder in folders:
        Path(folder, "result.json").unlink()  # it is a trader's
    assert main(["compare", *folders, "--page", "both.html"]) == 0
    seen = Seen(Path("both.html").read_text())
    assert "B and A: no interval, one seed each " in seen.text
    assert not {"days", "equity", "trader"} & {*seen.text.lower().split()}
    assert "interval contains 0" not in seen.text


def test_what_a_run_says_is_no_markup() -> None:
    make_finished("a", old="seed = 0", new=f"seed = '{HOSTILE}'")
    assert main(["compare", "a", make_finished("b"), "--page", "both.html"]) == 0
    assert "img" not in Seen(Path("both.html").read_text()).tags


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["a"], "2 to 8 folders of runs"),
        (["a", "./a"], "compare: ./a "),
        (["a", "nowhere"], "nowhere: "),
        (["a", "b", "--page", "both.txt"], "--page both.txt: "),
        (["a", "b", "--page", "nowhere/both.html"], "--page nowhere/both.html: "),
    ],
)
def test_wrong_input_is_told(words: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    make_finished("a")
    make_finished("b")
    assert main(["compare", *words]) == 2
    said = capsys.readouterr()
    assert part in " ".join(said.err.split())
    assert said.out == ""


def test_single_values_do_not_flatten_the_others() -> None:
    level = [float(10 + at % 3) for at in range(20)]
    assert range_without_outliers(level) is None
    low, high = range_without_outliers([*level, -2500.0]) or (0, 0)
    assert 9 < low < 10
    assert 12 < high < 13
    assert range_without_outliers([1.0] * 19 + [2.0]) is None, "all others are the same: nothing says what is far"
    assert range_without_outliers([1.0, -9000.0]) is None, "too few"
