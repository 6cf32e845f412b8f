"""The champion's score: the same whenever it is asked for, and the holdout only under a logged look."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from small_runs import entries

import flatwater as fw
from flatwater.cli.main import main
from flatwater_trading.market.config import AccountConfig
from flatwater_trading.panel.locate import load_panel
from flatwater_watch.errors import ConfigError

Train = Callable[..., Path]


def evaluate_run(run: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json", *options]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    return found


@pytest.mark.long
def test_evaluating_again_gives_the_result_of_the_run(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run", "--rounds", "2")
    before = {path.name for path in run.iterdir()}
    assert evaluate_run(run, capsys) == json.loads((run / "result.json").read_text())
    assert {path.name for path in run.iterdir()} == before, "no look at the holdout is logged"
    result = (run / "result.json").read_bytes()
    for name in ("result.json", "equity.parquet", "trades.parquet"):
        (run / name).unlink()  # as of a run that was stopped
    assert evaluate_run(run, capsys) == json.loads(result)
    assert (run / "result.json").read_bytes() == result
    assert {path.name for path in run.iterdir()} == before


def test_each_look_at_the_holdout_is_logged_before_it_is_taken(
    train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train("run", "--rounds", "2")
    walked = json.loads((run / "result.json").read_text())
    for number in (1, 2):
        assert main(["evaluate", str(run), "--holdout", "--json"]) == 0
        said = capsys.readouterr()
        assert f"look number {number} " in said.err
        looks = entries(run / "holdout_looks.jsonl")
        assert len(looks) == number
        assert all(look["round"] == 2 and look["time"] for look in looks)
    assert "looked " not in said.err
    (shutil.copytree(run, run.with_name("other")) / "holdout_looks.jsonl").unlink()
    assert main(["evaluate", str(run.with_name("other")), "--holdout"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "look number 1 " in told
    assert "looked 2 times" in told
    result = json.loads(said.out)
    dates = load_panel("synthetic:6x260").dates
    assert (result["split"], result["days"]) == ("holdout", 40)
    assert (result["first_day"], result["last_day"]) == (str(dates[-40]), str(dates[-1]))
    assert walked["last_day"] < result["first_day"]
    kept = json.loads((run / "holdout.json").read_text())
    assert {name: kept[name] for name in result} == result
    equity = pl.read_parquet(run / "holdout_equity.parquet")["champion"]
    assert equity[-1] / equity[0] - 1 == pytest.approx(result["traders"]["champion"]["total_return"], rel=1e-5)
    assert len(pl.read_parquet(run / "holdout_trades.parquet")) == result["traders"]["champion"]["trades"]
    assert main(["report", str(run)]) == 0
    assert "holdout days" in (run / "report.html").read_text()
    assert json.loads((run / "result.json").read_text()) == walked
    assert result["traders"] != walked["traders"]


@pytest.mark.long
def test_a_benchmark_is_bought_and_held(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run", "--rounds", "1", "--benchmark", "S1")
    result = json.loads((run / "result.json").read_text())
    panel, account = load_panel("synthetic:6x260"), AccountConfig()
    close = panel.feature("close")[:, 1]
    on = {str(date): n for n, date in enumerate(panel.dates)}
    first, last = on[result["first_day"]], on[result["last_day"]]
    assert panel.valid[[first, last], 1].all()
    held = close[last] * account.sale_factor / (close[first] * account.purchase_factor) - 1
    assert result["traders"]["S1 held"]["total_return"] == pytest.approx(float(held), rel=1e-4)
    assert "S2 held" in fw.evaluate(run, benchmark="S2")["traders"]
    assert main(["evaluate", str(run), "--benchmark", "S3"]) == 0
    assert "S3 held" in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"benchmark = 'SPY': .*S0, S1"):
        fw.evaluate(run, benchmark="SPY")
    assert main(["report", str(run)]) == 0
    assert "S3 held" in (run / "report.html").read_text()


def test_training_never_sees_the_holdout(tiny: list[str], tmp_path: Path) -> None:
    """A panel that ends differently in its last 40 days gives the same run, leaf by leaf."""
    panel = load_panel("synthetic:6x260")
    for name, factor in (("a", 1.0), ("b", 3.0)):
        columns: dict[str, object] = {"date": panel.dates}
        for n, instrument in enumerate(panel.instruments):
            for price in ("open", "high", "low", "close"):
                values = panel.feature(price)[:, n].astype("float64")
                values[-40:] *= factor
                columns[f"{instrument}_{price}"] = values
        pl.DataFrame(columns).fill_nan(None).write_parquet(tmp_path / f"{name}.parquet")
        options = ["--panel", str(tmp_path / f"{name}.parquet"), "--rounds", "2", "--run", str(tmp_path / name)]
        assert main(["train", "erl", *tiny, *options]) == 0
    leaves = []
    for name in ("a", "b"):
        manifest = json.loads((tmp_path / name / "checkpoints" / "000002.000000.json").read_text())
        leaves.append({leaf["path"]: leaf["sha256"] for leaf in manifest["leaves"]})
        assert manifest["facts"]["data"]["fingerprint"]
    assert leaves[0] == leaves[1]
    first, second = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("a", "b"))
    assert first["traders"] == second["traders"]
    assert first["data_fingerprint"] != second["data_fingerprint"]


def test_a_run_without_a_champion_cannot_be_evaluated(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run", "--rounds", "2")
    for later in ("000001", "000002"):
        (run / "checkpoints" / f"{later}.000000.json").unlink()
    assert main(["evaluate", str(run)]) == 2
    assert "no champion" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.usefixtures("painted")
def test_the_result_is_a_table_a_picture_and_files_that_agree(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run", "--rounds", "2")
    result = json.loads((run / "result.json").read_text())
    rules = ["20-day momentum", "12-1 momentum", "ridge"]
    assert [*result["traders"]] == ["champion", "buy and hold", "equal weight", *rules, "oracle", "random"]
    champion, oracle = (result["traders"][name]["total_return"] for name in ("champion", "oracle"))
    assert oracle > max(result["traders"][name]["total_return"] for name in [*rules, "random"])
    assert result["oracle_share"] == pytest.approx(champion / oracle)
    assert f"earned {result['oracle_share']:.0%} of what the law of this market allows" in result["verdict"]
    equity = pl.read_parquet(run / "equity.parquet")
    assert len(equity) == result["days"] + 1
    for trader, numbers in result["traders"].items():
        curve = equity[trader]  # of a hundred random traders, that of the one with the median return
        assert numbers["total_return"] == pytest.approx(curve[-1] / curve[0] - 1, abs=1e-5)
    trades = pl.read_parquet(run / "trades.parquet")
    champion = result["traders"]["champion"]
    assert len(trades) == champion["trades"]
    assert champion["win_rate"] == pytest.approx((trades["gain"] > 0).mean() or 0.0)
    assert trades["profit"].sum() == pytest.approx(equity["champion"][-1] - equity["champion"][0], abs=0.5)
    assert max(result["column_effects"].values()) > 0
    assert (run / "result.png").read_bytes().startswith(b"\x89PNG")

    capsys.readouterr()
    assert main(["evaluate", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    for trader in result["traders"]:
        assert any(line.strip().startswith(trader) for line in lines)
