"""Groups of seeds beside each other: rliable's formulas, and what tables and the page say of them."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from seen_page import Seen, charts, filled_in
from synthetic_run import make_run

from flatwater.cli.main import main
from flatwater.comparisons import seed_statistics as statistics
from flatwater.comparisons.side_by_side import differences_from_first, number_rows, read_compared_runs, setting_rows


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


def make_group(name: str, returns: list[float]) -> str:
    """A group of finished runs whose champions have these returns, and curves as much higher."""
    for seed, value in enumerate(returns):
        run = make_run(Path(name, f"seed-{seed}"), 12)
        config = (run / "config.toml").read_text().replace("seed = 0", f"seed = {seed}")
        (run / "config.toml").write_text(config)
        result = json.loads((run / "result.json").read_text())
        result["traders"]["champion"]["total_return"] = value
        (run / "result.json").write_text(json.dumps(result))
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        shifted = [line | {"fitness/mean": line.get("fitness/mean", 0.0) + value} for line in lines]
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in shifted))
    Path(name, "config.toml").write_bytes((run / "config.toml").read_bytes())
    Path(name, "seeds.json").write_text(json.dumps([*range(len(returns))]))
    return name


@pytest.mark.parametrize(
    ("values", "middle"),
    [
        ([3.0], 3.0),
        ([1.0, 2.0, 9.0], 4.0),
        ([9.0, 1.0, 2.0, 4.0], 3.0),
        ([100.0, 1.0, 2.0, 3.0, -50.0], 2.0),
        ([8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 4.5),
    ],
)
def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end_rounded_down(
    values: list[float], middle: float
) -> None:
    """As `scipy.stats.trim_mean(values, 0.25)`, by which rliable defines it."""
    assert statistics.seed_statistics(values).interquartile_mean == pytest.approx(middle)


def test_the_interval_is_that_of_all_draws_with_replacement() -> None:
    """Of four seeds there are 256 draws: their quantiles, weighed alike, are the bootstrap's limit."""
    values = [1.0, 2.0, 4.0, 8.0]
    means = [float(np.mean(sorted(drawn)[1:3])) for drawn in product(values, repeat=4)]
    found = statistics.seed_statistics(values)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.3)


def test_each_group_is_a_stratum_of_its_own() -> None:
    """Draws never mix two groups: where each has one value alone, the difference has no width."""
    found = statistics.seed_difference([5.0, 5.0, 5.0], [2.0, 2.0])
    assert (found.mean, found.low, found.interquartile_mean, found.high) == (3.0, 3.0, 3.0, 3.0)


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    draws = (statistics.seed_statistics(rng.normal(1.0, 1.0, 30).tolist()) for _ in range(200))
    assert 0.88 < np.mean([found.low < 1.0 < found.high for found in draws]) < 0.99


def test_a_difference_of_groups_is_told_over_their_seeds() -> None:
    names = (make_group("a", [0.1, 0.12, 0.11]), make_group("b", [0.3, 0.31, 0.5]), make_group("c", [0.0, 0.3, 0.1]))
    runs = read_compared_runs({name: Path(name) for name in names})
    better, same = differences_from_first(runs)
    assert better.sentence.startswith("B is above A in return (interquartile mean +26.0%, 95% interval ")
    assert better.sentence.endswith(", over 6 seeds.")
    assert same.sentence.startswith("C cannot be told from A in return ")
    rows = dict(number_rows(runs))
    assert rows["seeds"] == ["3", "3", "3"]
    assert rows["return, mean"] == ["+11.0%", "+37.0%", "+13.3%"]
    assert rows["return, 95% interval"][0] == "+10.0% to +12.0%"
    assert setting_rows(runs) == []


def test_a_single_run_or_an_unfinished_group_has_no_interval() -> None:
    make_group("a", [0.1, 0.2])
    make_run(Path("b"), 12)
    assert make_group("c", [0.3, 0.4])
    Path("c/seed-1/result.json").unlink()
    found = differences_from_first(read_compared_runs({name: Path(name) for name in "abc"}))
    assert [one.sentence.partition(" seeds")[0] for one in found] == [
        "B and A: no interval, B has fewer than 2",
        "C and A: no interval, C has fewer than 2",
    ]


def test_the_page_shades_the_interval_of_each_curve() -> None:
    make_group("a", [0.1, 0.12, 0.11])
    make_group("b", [0.3, 0.31, 0.5])
    assert main(["compare", "a", "b", "--page", "both.html"]) == 0
    seen = Seen(Path("both.html").read_text())
    fills = [trace for chart in charts(seen) for trace in chart["data"] if trace.get("fill") == "tonexty"]
    assert {trace["name"].split(",")[0] for trace in fills} == {"A", "B"}
    assert all(0 < trace["opacity"] < 1 for trace in fills)
    for chart in charts(seen):
        go.Figure(filled_in(chart))  # raises where an attribute is unknown
    assert "B is above A in return" in seen.text
    assert not {"days", "equity"} & {*seen.text.lower().split()}


def test_json_has_the_scores_of_the_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", make_group("a", [0.1, 0.2]), make_group("b", [0.3, 0.4]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"][0]["seeds"]["scores"] == [0.1, 0.2]
    assert found["differences"][0]["units"] == "seeds"
    assert found["differences"][0]["interval"]["interquartile_mean"] == pytest.approx(0.2)


def test_a_group_alone_shows_its_numbers_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_group("plain", [0.1, 0.2, 0.4])
    assert main(["compare", "plain", "--page", "plain.html"]) == 0
    shown = capsys.readouterr().out
    assert "interquartile mean" in shown
    assert "settings" not in shown
    assert main(["compare", "plain", "--json"]) == 0
    (side,) = json.loads(capsys.readouterr().out)["runs"]
    assert side["seeds"]["scores"] == [0.1, 0.2, 0.4]
    assert "<title>3 seeds" in (tmp_path / "plain.html").read_text()
    make_run(Path("alone"), 12)
    assert main(["compare", "alone"]) == 2
    assert "the folder of a group" in capsys.readouterr().err
