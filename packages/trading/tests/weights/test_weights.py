"""Target weights: exact, planned, blind to what comes, and the same money in simulator, orders and backtest."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_traders import SMALL_WEIGHTS
from trees import digest
from watchers import Silent

import flatwater as fw
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.reader import newest_intact, restore_state_
from flatwater.checkpoints.writer import save_checkpoint
from flatwater.cli.main import main
from flatwater.config.mappings import from_mapping
from flatwater.runs.policy_export import export, plan_export
from flatwater.state.tree import leaves, nbytes
from flatwater.trainers.loop import train_
from flatwater_trading.cli.weight_orders import portfolio_order_sheet
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.panel import build_panel, first_days
from flatwater_trading.panel.signals import REMEMBERED_ROWS, find_signals
from flatwater_trading.panel.store import save_panel
from flatwater_trading.recipe.positions import ShareTable, read_shares
from flatwater_trading.recipe.sections import trader_strokes
from flatwater_trading.recipe.weights.config import WeightsRunConfig
from flatwater_trading.recipe.weights.market import outline_market
from flatwater_trading.recipe.weights.orders import StopRecord, WeightOrders
from flatwater_trading.recipe.weights.plan import build_on_meta
from flatwater_trading.recipe.weights.recipe import WEIGHTS
from flatwater_trading.recipe.weights.run import WeightsRun, compose
from flatwater_trading.recipe.weights.trader import rebuild_trader
from flatwater_trading.study.config import StudyConfig
from flatwater_trading.study.folder import StudyFolder
from flatwater_trading.study.member import play_test_days
from flatwater_trading.study.pooling import as_json, pool_folds
from flatwater_watch.errors import ConfigError, DataError

PANEL = "synthetic:6x460:signal=0.7:context_instruments=1"
TINY = SMALL_WEIGHTS | {"panel": PANEL, "rounds": 2}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def tiny_run(**changes: Any) -> WeightsRun:
    return compose(from_mapping(WeightsRunConfig, TINY | changes, "test"))


def test_what_is_held_is_what_was_planned_and_never_moves(tmp_path: Path) -> None:
    run = tiny_run(panel=dear_panel(tmp_path), account=DEAR)
    # 2.50 for each of five instruments on 252 days, of 100,000.
    assert any("5 instruments on every day costs 3% of account.cash a year" in line for line in run.about())
    _, planned = build_on_meta(run.config, run.panel)
    held = nbytes(run.trainer.run)
    assert nbytes(planned) == held
    places = [leaf.value.data_ptr() for leaf in leaves(run.trainer.run) if isinstance(leaf.value, torch.Tensor)]
    assert train_(run.trainer, 2, Silent())
    assert nbytes(run.trainer.run) == held
    now = [leaf.value.data_ptr() for leaf in leaves(run.trainer.run) if isinstance(leaf.value, torch.Tensor)]
    assert now == places
    saved = [leaf.path for leaf in leaves(run.trainer.run) if not leaf.derived]
    assert not [path for path in saved if path.startswith(("market.", "unseen"))]


def test_a_run_resumed_after_any_step_is_the_run_that_went_on(tmp_path: Path) -> None:
    whole = tiny_run()
    assert train_(whole.trainer, 2, Silent())
    for stop in range(1, 8):  # the steps of both rounds: three updates and a judgement each
        stopped, resumed = tiny_run(), tiny_run()
        assert not train_(stopped.trainer, 2, Silent(left=stop))
        folder = tmp_path / str(stop)
        save_checkpoint(folder, stopped.trainer.run, round=1, step=stop, facts={}, config=CheckpointConfig())
        intact = newest_intact(folder, say=print)
        assert intact is not None
        restore_state_(resumed.trainer.run, intact)
        assert train_(resumed.trainer, 2, Silent())
        assert digest(resumed.trainer.run) == digest(whole.trainer.run), stop


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fw.train("weights", run=tmp_path_factory.mktemp("weights") / "run", quiet=True, **TINY).path


@pytest.mark.long
def test_the_sheet_of_a_backtest_is_that_of_its_result(trained: Path, tmp_path: Path) -> None:
    found = replace(fw.load(trained), held=0.75).backtest(PANEL, benchmark="S2")
    champion, equity = found.result["traders"]["champion"], found.equity["champion"].to_numpy()
    assert found.sheet["exposure"].mean() == pytest.approx(champion["exposure"])
    traded = (found.sheet["turnover"].to_numpy() * equity[1:]).sum()
    assert traded / equity.mean() == pytest.approx(champion["turnover"])
    assert found.result["benchmark"] == "S2 held"
    assert found.result["traders"]["S2 held"]["beta"] == pytest.approx(1)
    assert found.result["scores"][0]["days"] > 80
    found.write(tmp_path / "days")
    assert main(["report", str(tmp_path / "days")]) == 0
    assert "beta to S2 held" in (tmp_path / "days" / "report.html").read_text()


def test_a_backtest_with_a_damaged_row_is_named(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = fw.load(trained).backtest(PANEL)
    for row in (3, {"total_return": 10**400}):
        damaged = found.result | {"traders": found.result["traders"] | {"ridge, weights": row}}
        replace(found, result=damaged).write(tmp_path / "days", force=True)
        assert main(["report", str(tmp_path / "days")]) == 2
        assert "expected the result of `flatwater backtest`" in " ".join(capsys.readouterr().err.split())


def test_a_backtest_of_the_holdout_is_its_evaluation(trained: Path) -> None:
    found, known = fw.load(trained).backtest(PANEL), fw.evaluate(trained, holdout=True)
    same = ("first_day", "last_day", "days", "traders", "comparison", "verdict", "held")
    assert {name: found.result[name] for name in same} == {name: known[name] for name in same}


def test_the_verdict_says_what_was_held_and_why(trained: Path) -> None:
    trader = fw.load(trained)
    said = {part: replace(trader, held=part).backtest(PANEL).result["verdict"] for part in (0.0, 0.25, 1.0)}
    assert f"It held {trader.rest} alone: on days that the weights were not learned from" in said[0.0]
    assert f"It held 25% of the learned weights and {trader.rest} for the rest; held whole, they would" in said[0.25]
    assert "It held the learned weights whole." in said[1.0]


@pytest.mark.long
def test_a_study_pools_what_its_runs_have_played_on_their_test_days(trained: Path, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    for fold in (1, 2):
        shutil.copytree(trained, folder.run(fold, 0).path)
        play_test_days(folder.run(fold, 0))
    pooled = pool_folds(folder, StudyConfig(folds=2, seeds=(0,), days=460, data=""), WEIGHTS)
    assert pooled is not None
    known, found = fw.evaluate(trained, holdout=True), as_json(pooled)
    for name, row in known["traders"].items():
        assert found["traders"][name]["total_return"] == pytest.approx((1 + row["total_return"]) ** 2 - 1), name
    assert found["deflated"]["tries"] == 2 * 2 * 5  # folds, rounds, parts that may be held
    assert "20 tries" in found["verdict"]


DEAR = {"half_spread_bps": 2.0, "per_share": 0.01, "least_commission": 2.5, "impact": 0.5, "impact_power": 0.6}


def dear_panel(folder: Path, market: str = PANEL) -> str:
    """A market with a volume and closes as traded, stored."""
    plain, file = load_panel(market), folder / "dear.panel"
    volume = np.random.default_rng(0).lognormal(8, 0.7, (*plain.valid.shape, 1)).astype(np.float32)
    save_panel(
        build_panel(
            values=np.concatenate([plain.values, volume], -1),
            dates=plain.dates,
            instruments=plain.instruments,
            investable=[plain.instruments[n] for n in plain.investable],
            features=(*plain.features, "volume"),
            origins={"volume": "column volume"},
            raw_close=plain.feature("close") * 2,
        ),
        file,
    )
    return str(file)


LIMITS = {
    "long": {},
    "short and dear": {"shorts": True, "gross": 0.9, "largest": 0.3, "band": 0.05, "stop": 0.02, "stop_rows": 6} | DEAR,
    "slow": {"turnover": 0.1, "band": 0.02},
    "long and dear": {"cost_bps": 4.0, "slippage_bps": 3.0, "stop": 0.03, "stop_rows": 5} | DEAR,
}


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ("cash,1\nstop.peak,5\nstop.peak,6", ["row 4", "stop.peak"]),
        ("stop.since,2016-08-01\nstop.since,2016-08-02", ["row 3", "stop.since"]),
        ("cash,1\ncash,2", ["row 3", "cash"]),
        ("stop.peak,1e308", ["row 2, column shares", "1e308", "1,000,000,000,000,000"]),
        ("cash,1e16", ["row 2, column shares", "1e16"]),
        ("AAA,-1e16", ["row 2, column shares", "-1e16"]),
    ],
)
def test_a_table_of_shares_says_each_thing_once_and_in_numbers_that_can_be_meant(
    rows: str, named: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "held.csv"
    file.write_text(f"instrument,shares\n{rows}\n")
    with pytest.raises(DataError) as refused:
        read_shares(file)
    assert [part for part in named if part not in str(refused.value)] == []


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["short and dear", "long", "slow"])
def test_the_orders_of_each_evening_are_the_trades_of_the_backtest_to_the_cent(kind: str, tmp_path: Path) -> None:
    prices = dear_panel(tmp_path) if "dear" in kind else PANEL
    traded = assert_played_alike(TINY | {"panel": prices, "account": LIMITS[kind]}, tmp_path)
    assert len(traded) > (20 if "dear" in kind else 100)
    assert ("short" in kind) == any(order == "sell" and date == traded[0][0] for date, _, order in traded)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["long and dear", "short and dear", "slow"])
def test_a_year_of_orders_is_what_the_backtest_and_the_evaluation_trade(kind: str, tmp_path: Path) -> None:
    """252 evenings; the dear ones with costs of all kinds at once, on prices with volume and closes as traded."""
    market = PANEL.replace("6x460", "6x640")
    splits = {"holdout_days": 252, "validation_days": 60}
    settings = TINY | {"splits": splits, "panel": dear_panel(tmp_path, market) if "dear" in kind else market}
    traded = assert_played_alike(settings | {"account": LIMITS[kind]}, tmp_path)
    assert len({date for date, _, _ in traded}) > 20


def assert_played_alike(settings: dict[str, Any], folder: Path) -> list[tuple[str, str, str]]:
    """Play a run's holdout as its evaluation, as one backtest, and evening by evening from a table of shares.

    Returns date, instrument and kind of each order.
    """
    run, prices = fw.train("weights", run=folder / "run", quiet=True, **settings).path, settings["panel"]
    # Three quarters of what was learned, whatever it is worth: there must be something to trade.
    trader, panel = replace(fw.load(run), held=0.75), load_panel(prices)
    found = trader.backtest(prices)
    known = found.result
    assert known["days"] == settings["splits"]["holdout_days"]
    first = int(np.searchsorted(panel.dates, np.datetime64(known["first_day"])))
    table, done, account = ShareTable({}, None, None), [], trader.settings.account
    equity = found.equity["champion"].to_list()[1:]
    for day in range(first, first + known["days"] - 1):  # on the last one a backtest sells all
        orders = trader.orders(first_days(panel, day + 1), table.shares, table.cash, stop=table.stop)
        ShareTable(orders.shares, orders.cash, orders.stop).write(folder / "held.csv")
        table = read_shares(folder / "held.csv")
        weights = [abs(each.weight) for each in orders.holdings]
        assert sum(weights) <= account.gross + 1e-9
        assert max(weights, default=0) <= account.largest + 1e-9
        assert account.shorts or all(each.weight > 0 for each in orders.holdings)
        assert sum(each.value for each in orders.orders) <= account.turnover * orders.equity * 1.01
        done += [(orders.date, each.instrument, each.order, each.value) for each in orders.orders]
        assert orders.equity == pytest.approx(equity[day - first], abs=0.005)
    wanted = [
        (str(date), name, "buy" if value > 0 else "sell", abs(value))
        for date, name, value in found.trades.select("date", "instrument", "value").rows()
        if str(date) < known["last_day"]
    ]
    assert sorted((*each[:3],) for each in done) == sorted((*each[:3],) for each in wanted)
    assert [each[3] for each in sorted(done)] == pytest.approx([each[3] for each in sorted(wanted)], abs=0.005)
    assert bool(known.get("stopped")) == (account.stop is not None)
    return [(*each[:3],) for each in done]


def test_prices_after_a_day_move_no_earlier_weight(trained: Path) -> None:
    trader, panel = replace(fw.load(trained), held=0.75), load_panel(PANEL)
    values, day = panel.values.copy(), 400
    noise = np.random.default_rng(0).uniform(0.5, 2.0, values[day:].shape)
    values[day:] *= noise.astype(np.float32)
    other = build_panel(
        values=values,
        dates=panel.dates,
        instruments=panel.instruments,
        investable=[panel.instruments[n] for n in panel.investable],
    )
    one, two = find_signals(panel), find_signals(other)
    for name in ("own", "market", "tradable"):
        assert np.array_equal(getattr(one, name)[:day], getattr(two, name)[:day]), name
    assert np.array_equal(one.following[: day - 1], two.following[: day - 1])
    before, after = (trader.backtest(each, str(panel.dates[360])) for each in (panel, other))
    for name in ("champion", "minimum variance", "risk parity", "ridge, weights", "volatility rule"):
        rows = day - 360
        assert before.equity[name].to_list()[:rows] == after.equity[name].to_list()[:rows], name


def test_orders_name_the_instruments_without_a_close(trained: Path) -> None:
    trader, panel = fw.load(trained), load_panel(PANEL)
    values, names = panel.values.copy(), [panel.instruments[n] for n in panel.investable]
    values[-1, panel.investable[1:]] = np.nan
    other = build_panel(values=values, dates=panel.dates, instruments=panel.instruments, investable=names)
    orders = trader.orders(other)
    assert {each.instrument for each in orders.orders} <= {names[0]}
    assert orders.unpriced == (*names[1:], "C5")  # the context column has ended by then
    unpriced_names, day = ", ".join(orders.unpriced), panel.dates[-1]
    said = f"Without a close on {day}, and so neither seen on that day nor traded: {unpriced_names}."
    assert said in portfolio_order_sheet(orders).lines


def test_the_commands_write_what_they_read(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = tmp_path / "held.csv"
    assert main(["orders", str(trained), "--after", str(held)]) == 0
    assert "of the learned weights are held" in " ".join(capsys.readouterr().out.split())
    assert held.read_text().startswith("instrument,shares\n")
    # The same evening again: the account is where it wants to be.
    assert main(["orders", str(trained), "--positions", str(held), "--csv"]) == 0
    assert capsys.readouterr().out == "order,instrument,shares,price,value,weight\n"
    assert main(["orders", str(trained), "--plan"]) == 0
    assert main(["backtest", str(trained), "--plan"]) == 0
    capsys.readouterr()
    held.write_text("instrument,shares\nNOBODY,3\ncash,5\n")
    assert main(["orders", str(trained), "--positions", str(held)]) == 2
    assert "NOBODY is held" in " ".join(capsys.readouterr().err.split())
    held.write_text("name,quantity\nAA,3\n")
    assert main(["orders", str(trained), "--positions", str(held)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert (
        "expected the columns instrument, shares, got name, quantity. `flatwater orders RUN --after FILE` writes"
        in said
    )
    assert main(["report", str(trained)]) == 0
    assert "Weights of what it held most" in (trained / "report.html").read_text()


def test_a_training_ends_with_the_commands_that_take_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--rounds 1 --threads 1 --history 40 --splits.holdout-days 90 --splits.validation-days 60"
    members = "--members.size 2 --members.hidden 4 --learner.updates 3 --learner.days 20"
    run = tmp_path / "run"
    assert main(["train", "weights", "--panel", PANEL, *options.split(), *members.split(), "--run", str(run)]) == 0
    told = capsys.readouterr().out.rpartition("\nnext ")[2]  # a command a line, as they do not fit into one
    commands = [command.strip() for command in told.replace(" · ", "\n").splitlines()]
    assert commands == [f"flatwater evaluate {run}", f"flatwater orders {run}", f"flatwater resume {run} --rounds N"]


def test_a_policy_from_its_weights_trades_alike_without_the_run(trained: Path, tmp_path: Path) -> None:
    original, file = replace(fw.load(trained), held=0.75), tmp_path / "policy.safetensors"
    assert export(original, file) == 0
    policy = fw.load(file)
    assert torch.equal(policy.members, original.members)
    assert policy.act(PANEL) == original.act(PANEL)
    assert policy.orders(PANEL) == original.orders(PANEL)
    known, found = original.to_export(), policy.to_export()
    signals = nbytes(outline_market(load_panel(PANEL)))
    assert known.loading_bytes > sum(signals.values()) > found.loading_bytes == 0
    large = replace(known, loading_bytes=1 << 30)
    assert plan_export(large, ".safetensors", None).transient_bytes == 1 << 30
    assert (found.meaning, found.header) == (known.meaning, known.header)
    assert policy.folder is None
    for changed in ({"held": 2.0}, {"investable": ["gold"]}, {"settings": {"members": {"size": 3}}}):
        with pytest.raises(ValueError, match=r"held|investable|weight"):
            rebuild_trader({**known.header, **changed}, known.tensors)


@pytest.mark.long
@pytest.mark.parametrize("form", [".pt2", pytest.param(".onnx", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shorts", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_exported_program_weighs_the_newest_day_as_the_policy_does(
    *, form: str, shorts: bool, trained: Path, tmp_path: Path
) -> None:
    policy = replace(fw.load(trained), held=0.75, invested=not shorts)
    account = replace(policy.settings.account, shorts=shorts)
    policy = replace(policy, settings=replace(policy.settings, account=account))
    file, signals = tmp_path / f"policy{form}", policy.signals_of(PANEL)
    runtime = pytest.importorskip("onnxruntime") if form == ".onnx" else None
    assert export(policy, file) < 1e-12
    if runtime is None:
        weights = torch.export.load(file).module()(*signals)
    else:
        session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
        given = {name: each.numpy() for name, each in zip(policy.to_export().inputs, signals, strict=True)}
        weights = torch.from_numpy(session.run(None, given)[0])
    torch.testing.assert_close(weights[0].tolist(), [*policy.act(PANEL).values()], rtol=0, atol=1e-12)


def test_each_trader_has_a_line_of_its_own_and_the_tile_says_its_unit(trained: Path) -> None:
    traders = [*fw.evaluate(trained, holdout=True)["traders"], "SPY held"]
    strokes = trader_strokes(["date", *traders])
    assert set(strokes) == set(traders)
    assert len(set(strokes.values())) == len(traders) > 12
    assert strokes["champion"] == ("--champion", False)
    # Of traders, and of weeks: the lines that they have in every other chart.
    assert trader_strokes(["random", "20-week momentum"]) == {
        "20-week momentum": strokes["20-day momentum"],
        "random": strokes["random"],
    }
    assert main(["report", str(trained), "--out", str(trained / "page.html")]) == 0
    assert "champion, bps" in (trained / "page.html").read_text()


def test_a_held_share_beyond_all_bounds_is_left_out_of_the_page(trained: Path, tmp_path: Path) -> None:
    edited = shutil.copytree(trained, tmp_path / "edited", ignore=shutil.ignore_patterns("checkpoints"))
    result = json.loads((edited / "result.json").read_text())
    (edited / "result.json").write_text(json.dumps(result | {"held": 10**400}))
    assert main(["report", str(edited)]) == 0
    assert "of the learned weights; the rest is" not in (edited / "report.html").read_text()


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(("unit", "pause", "rows", "a_year"), [("month", 30.44, 240, 12), ("week", 7, 500, 52)])
def test_weeks_and_months_have_their_own_year(
    unit: str, pause: float, rows: int, a_year: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    days = np.datetime64("2000-01-03") + np.round(pause * np.arange(rows)).astype(int)
    closes = 50 * np.exp(np.random.default_rng(0).normal(0.005, 0.04, (rows, 4)).cumsum(0))
    file = tmp_path / "prices.csv"
    lines = [",".join([str(day), *map(str, row)]) for day, row in zip(days, closes.tolist(), strict=True)]
    file.write_text("\n".join(["date,AAA,BBB,CCC,DDD", *lines]) + "\n")
    with caplog.at_level(logging.WARNING):
        run = fw.train(
            "weights", run=tmp_path / "run", quiet=True, panel=str(file), rounds=1, learner={"updates": 2}, trackers=()
        ).path
    assert f"history = {a_year}" in caplog.text
    trader = replace(fw.load(run), held=0.5)
    assert trader.settings.splits.holdout_days == rows // 5
    found = trader.backtest(str(file))
    assert (found.result["periods_per_year"], found.result["days"]) == (a_year, rows // 5)
    curve = found.equity["champion"].to_numpy()
    moves = np.diff(curve) / curve[:-1]
    champion = found.result["traders"]["champion"]
    assert champion["sharpe"] == pytest.approx(moves.mean() / moves.std(ddof=1) * a_year**0.5)
    assert f"20-{unit} momentum" in found.result["traders"]
    orders = trader.orders(str(file))
    assert orders.date == str(days[-1])
    assert sum(each.weight for each in orders.holdings) <= 1 + 1e-9


def test_what_does_not_fit_is_refused_with_what_to_change() -> None:
    with pytest.raises(ConfigError, match=r"learner\.days = 5000: the .* training days"):
        tiny_run(learner={"days": 5000})
    with pytest.raises(ConfigError, match="from_run"):
        tiny_run(from_run="elsewhere")


def test_shares_without_cash_or_price_are_refused(trained: Path) -> None:
    trader = fw.load(trained)
    with pytest.raises(ConfigError, match="cash is left out"):
        trader.orders(PANEL, {"S0": 1.0})
    with pytest.raises(DataError, match="gold is held"):
        trader.orders(PANEL, {"gold": 1.0}, 1.0)
    account = replace(trader.settings.account, stop=0.1)
    careful = replace(trader, settings=replace(trader.settings, account=account))
    with pytest.raises(ConfigError, match=r"stop is left out: .*row stop\.peak"):
        careful.orders(PANEL, {"S0": 1.0}, 1.0)
    with pytest.raises(DataError, match=r"stopped on '1999-01-04', which is not a day of the prices"):
        careful.orders(PANEL, {"S0": 1.0}, 1.0, stop=StopRecord(peak=9.0, since="1999-01-04"))
    again = careful.orders(PANEL)
    assert again.stop == StopRecord(peak=account.cash)
    later = careful.orders(PANEL, again.shares, again.cash, stop=StopRecord(peak=2 * account.cash))
    assert (later.stop, later.shares) == (StopRecord(peak=2 * account.cash, since=later.date), {})
    assert careful.orders(PANEL, {}, later.cash, stop=later.stop).stop == later.stop, "the same evening once more"


@pytest.mark.long
def test_what_is_no_surer_than_chance_is_not_held() -> None:
    """A market without a signal: equal weights or cash, to the cent."""
    run = tiny_run(panel="synthetic:6x900:law=none:signal=0", splits={"holdout_days": 200, "validation_days": 200})
    assert train_(run.trainer, 2, Silent())
    row = run.score(holdout=True)
    assert row["held"] == 0
    equal = row["traders"]["equal weight"]["total_return"] if row["rest"] == "equal weight" else 0.0
    assert row["traders"]["champion"]["total_return"] == pytest.approx(equal, abs=1e-6)


def test_members_learn_from_stretches_as_long_as_the_training_days_hold() -> None:
    run = tiny_run(learner={}, history=70)
    train, (one, other) = run.setup.splits.train, run.setup.blocks
    assert run.setup.stretch_days == min(len(train) - len(one), len(train) - len(other)) - 1 < 128
    assert f"stretches of {run.setup.stretch_days} days" in run.about()[-1]
    assert train_(run.trainer, 1, Silent())
    with pytest.raises(ConfigError, match=r"learner\.days: the 21 training days, .* no stretch of 20"):
        tiny_run(learner={}, history=290)


def test_another_seed_learns_other_weights() -> None:
    one, two = tiny_run(), compose(replace(tiny_run().config, seed=1))
    for run in (one, two):
        assert train_(run.trainer, 1, Silent())
    assert not torch.equal(one.trainer.run.champion, two.trainer.run.champion)


def test_orders_name_what_signals_see_only_in_part(trained: Path) -> None:
    trader, panel = fw.load(trained), load_panel(PANEL)

    def orders_of_newest(days: int) -> WeightOrders:
        return trader.orders(
            build_panel(
                values=panel.values[-days:],
                dates=panel.dates[-days:],
                instruments=panel.instruments,
                investable=panel.investable_names,
            )
        )

    assert set(orders_of_newest(REMEMBERED_ROWS - 1).short_histories) == {*panel.instruments}
    assert len(orders_of_newest(REMEMBERED_ROWS).short_histories) < len(panel.instruments)
    assert len(trader.orders(panel).short_histories) < len(panel.instruments)


def test_a_backtest_that_begins_before_signals_have_their_rows_names_the_first_day_that_it_may(trained: Path) -> None:
    trader, panel = fw.load(trained), load_panel(PANEL)
    earliest = trader.lookback
    with pytest.raises(
        DataError, match=rf"number 6 .* number {earliest + 1} or later, as signals .* on {panel.dates[earliest]}"
    ):
        trader.backtest(panel, str(panel.dates[5]))
