"""Orders: played day by day they are the trades of the simulator, and what cannot be used is refused in words."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traders import SMALL_PURCHASES

import flatwater as fw
from flatwater.cli.main import main
from flatwater_trading.cli.position_orders import position_order_sheet
from flatwater_trading.market.config import AccountConfig, EpisodeConfig, TradeConfig, TradingConfig
from flatwater_trading.market.market import build_market
from flatwater_trading.market.orders import MarketClose, Position, decide_orders, split_due_positions
from flatwater_trading.market.results import trade_columns
from flatwater_trading.market.simulator import build_simulator, reset_, step_
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.panel import FEATURES, Panel, build_panel, first_days
from flatwater_trading.panel.store import save_panel
from flatwater_trading.recipe.backtest import Backtest
from flatwater_trading.recipe.positions import Portfolio, name_in_cell, read_positions, spreadsheet_cell
from flatwater_trading.recipe.trader import Trader
from flatwater_trading.recipe.use_plan import plan_use
from flatwater_watch.errors import ConfigError, DataError

TINY = SMALL_PURCHASES | {
    "panel": "synthetic:6x500:signal=0.7",
    "splits": {"holdout_days": 100, "validation_days": 60},
}
DDPG = {"learner": {"algorithm": "ddpg", "ddpg": {"updates": 4, "batch_size": 8}}}
SAC = {"learner": {"algorithm": "sac", "sac": {"updates": 4, "batch_size": 8}}}
REPLAY = {"replay": {"generations": 3, "warmup": 50}, "env": TINY["env"] | {"account_observation": True}}
DEAR = {
    "half_spread_bps": 1.0,
    "per_share": 0.01,
    "least_commission": 12.5,
    "impact": 0.1,
    "impact_power": 0.6,
}
KINDS = {"hindsight": TINY, "ddpg": TINY | DDPG | REPLAY, "sac": TINY | SAC | REPLAY}


class Runs(dict[str, Path]):
    """A run of each kind of trader, which is trained when the first test asks for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __missing__(self, kind: str) -> Path:
        self[kind] = fw.train("erl", run=self._folder / kind, quiet=True, **KINDS[kind]).path
        return self[kind]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("orders"))


def day_by_day(trader: Trader, panel: Panel, days: range, trading_end: int) -> list[tuple[Any, ...]]:
    """The trades of somebody who asks every evening and does as told; after `trading_end` nothing is bought.

    The plan of the last evening is that of all: what a panel of each length takes would be tried out in a fork.
    """
    positions: tuple[Position, ...] = ()
    cash, done, plan = None, [], plan_use(trader.settings, panel)
    for day in days:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("flatwater_trading.recipe.trader.plan_use", lambda *_, **__: plan)
            orders = trader.orders(first_days(panel, day + 1), positions, cash)
        done += [(sale.instrument, sale.date, sale.price, sale.shares, sale.reason) for sale in orders.sales]
        positions, cash = orders.positions, orders.cash
        if orders.purchases and day >= trading_end:
            spent = sum(each.shares * each.price + each.cost for each in orders.purchases)
            positions, cash = positions[: len(positions) - len(orders.purchases)], cash + spent
    return sorted(done, key=lambda trade: (trade[1], trade[0]))


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["hindsight", "ddpg", "sac"])
def test_a_backtest_of_the_holdout_is_its_evaluation_and_trades_as_the_orders_say(
    kind: str, runs: dict[str, Path]
) -> None:
    assert_played_alike(runs[kind], TINY["panel"])


@pytest.mark.slow
def test_a_year_of_dear_orders_is_what_the_simulator_trades(tmp_path: Path) -> None:
    """Costs of all kinds, on prices with a volume."""
    plain, file = load_panel("synthetic:6x660:signal=0.7:delistings=0:halts=0:late_listings=0"), tmp_path / "dear.panel"
    volume = np.random.default_rng(0).lognormal(7, 0.7, (*plain.valid.shape, 1)).astype(np.float32)
    save_panel(
        build_panel(
            values=np.concatenate([plain.values, volume], -1),
            dates=plain.dates,
            instruments=plain.instruments,
            features=(*FEATURES, "volume"),
            origins={"volume": "column volume"},
        ),
        file,
    )
    env = TINY["env"] | {"account": DEAR}
    splits = {"holdout_days": 252, "validation_days": 60}
    run = fw.train("erl", run=tmp_path / "run", quiet=True, **TINY | {"panel": str(file), "splits": splits, "env": env})
    assert_played_alike(run.path, str(file))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS])
def test_a_year_of_orders_is_what_the_simulator_trades(kind: str, tmp_path: Path) -> None:
    """Without delistings: the simulator knows that data have ended, and somebody who lives day by day does not."""
    settings = KINDS[kind] | {
        "panel": "synthetic:6x660:signal=0.7:delistings=0",
        "splits": {"holdout_days": 252, "validation_days": 60},
    }
    assert_played_alike(fw.train("erl", run=tmp_path / kind, quiet=True, **settings).path, settings["panel"])


def assert_played_alike(run: Path, prices: str) -> None:
    """The run's holdout as one backtest, as its evaluation, and evening by evening."""
    trader, panel = fw.load(run), load_panel(prices)
    looks = run / "holdout_looks.jsonl"
    before = len(looks.read_text().splitlines()) if looks.exists() else 0
    found = trader.backtest(prices)
    assert len(looks.read_text().splitlines()) == before + 1, "a backtest of holdout days is a look"
    known = fw.evaluate(run, holdout=True)
    same = ("first_day", "last_day", "days", "traders", "comparison", "oracle_share", "column_effects")
    assert {name: found.result[name] for name in same} == {name: known[name] for name in same}
    assert known["verdict"].startswith(found.result["verdict"]), "a run also says how its rule was chosen"

    assert_sheet_adds_up(found)
    columns = ("instrument", "exit_date", "exit_price", "shares", "reason")
    wanted = [
        (name, str(date), price, shares, reason)
        for name, date, price, shares, reason in found.trades.select(columns).rows()
        if str(date) < known["last_day"]
    ]
    wanted.sort(key=lambda trade: (trade[1], trade[0]))
    first, settlement = int(np.searchsorted(panel.dates, np.datetime64(known["first_day"]))), 5
    stop = first + known["days"]
    played = day_by_day(trader, panel, range(first, stop - 1), stop - settlement)
    assert [(*trade[:2], trade[4]) for trade in played] == [(*trade[:2], trade[4]) for trade in wanted]
    for number, within in ((2, 1e-6), (3, 1e-5)):  # the last bit of a target: one evening alone, or among many
        assert [trade[number] for trade in played] == pytest.approx([trade[number] for trade in wanted], rel=within)
    assert len(wanted) > 10


def assert_sheet_adds_up(found: Backtest) -> None:
    """Exposure and turnover of each day are those of the result; scores have an analysis of the same days."""
    champion, equity = found.result["traders"]["champion"], found.equity["champion"].to_numpy()
    assert found.sheet["date"].to_list() == found.equity["date"].to_list()[1:]
    assert found.sheet["exposure"].mean() == pytest.approx(champion["exposure"], rel=1e-4)
    traded = (found.sheet["turnover"].to_numpy() * equity[1:]).sum()
    assert traded / equity.mean() == pytest.approx(champion["turnover"], rel=1e-4)
    assert found.sheet["exposure"][-1] == 0, "all is sold on the last day"
    assert found.result["benchmark"] == "equal weight"
    assert [each["rows"] for each in found.result["scores"]] == [1, 5, 10, 20, 60]
    known = found.sheet["ic 5"].fill_nan(None).drop_nulls()
    assert found.result["scores"][1]["ic"] == pytest.approx(known.mean())


@pytest.mark.long
def test_the_command_plays_days_of_choice_and_keeps_what_is_there(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, dates = tmp_path / "run", load_panel(TINY["panel"]).dates
    shutil.copytree(runs["hindsight"], run, ignore=shutil.ignore_patterns("holdout_looks.jsonl"))
    words = ["backtest", str(run), "--from", str(dates[300]), "--to", str(dates[420])]
    assert main([*words, "--json"]) == 0
    said = capsys.readouterr()
    found, place = json.loads(said.out), run / f"backtest-{dates[300]}-{dates[420]}"
    assert found["days_of"] == {"training": 40, "validation": 60, "holdout": 21, "newer": 0}
    assert "look number 1 " in said.err
    assert json.loads((place / "result.json").read_text()) == found
    equity, trades_ = (pl.read_parquet(place / f"{name}.parquet") for name in ("equity", "trades"))
    assert equity["champion"][-1] / equity["champion"][0] - 1 == pytest.approx(
        found["traders"]["champion"]["total_return"], rel=1e-5
    )
    assert len(equity) == 122
    assert len(trades_) == found["traders"]["champion"]["trades"] > 0
    assert main(words) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*words[:4], "--to", str(dates[390]), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert f": {tmp_path / 'out'}" in said.out.replace("\n", "")
    assert "look number" not in said.err, "no day of the holdout was played"
    again = fw.load(run).backtest(TINY["panel"], str(dates[300]), str(dates[420]))
    assert dict(again.result) == found
    again.write(place, force=True)
    assert main(["report", str(place)]) == 0
    assert "Information coefficient" in (place / "report.html").read_text()
    (place / "result.json").write_text(json.dumps(found | {"scores": [{"rows": 1}]}))
    assert main(["report", str(place)]) == 2
    assert "result.json" in capsys.readouterr().err


@pytest.mark.long
def test_a_benchmark_of_the_prices_is_what_risk_is_measured_against(runs: dict[str, Path]) -> None:
    trader = fw.load(runs["hindsight"])
    found, plain = trader.backtest(TINY["panel"], benchmark="S2"), trader.backtest(TINY["panel"])
    assert found.result["benchmark"] == "S2 held"
    assert found.result["traders"]["S2 held"]["beta"] == pytest.approx(1)
    curves = (found.equity[name].to_numpy() for name in ("champion", "S2 held"))
    own, market = (np.diff(each) / each[:-1] for each in curves)
    assert found.result["traders"]["champion"]["beta"] == pytest.approx(np.polyfit(market, own, 1)[0], rel=1e-3)
    assert found.equity.drop("S2 held").equals(plain.equity), "nothing is chosen by it"
    with pytest.raises(DataError, match="--benchmark SPY"):
        trader.backtest(TINY["panel"], benchmark="SPY")


@pytest.mark.long
def test_newer_days_are_played_and_told_apart(runs: dict[str, Path]) -> None:
    longer = load_panel("synthetic:6x540:signal=0.7")
    found = fw.load(runs["hindsight"]).backtest(longer)
    assert found.result["days_of"] == {"training": 0, "validation": 0, "holdout": 100, "newer": 40}
    assert "oracle" not in found.result["traders"], "nobody knows the law of prices that come as a panel"
    late = first_days(longer, 540)
    recent = build_panel(values=late.values[480:], dates=late.dates[480:], instruments=late.instruments)
    alone = fw.load(runs["hindsight"]).backtest(recent, str(late.dates[500]))
    assert alone.result["days"] == 40
    assert alone.result["traders"]["ridge"]["trades"] == 0, "the days that ridge is fitted to are not there"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("first", "last", "kind", "said"),
    [
        ("2020", None, ConfigError, "first day is '2020': "),
        (None, "yesterday", ConfigError, "last day is 'yesterday': "),
        ("2001-05-01", "2001-04-01", ConfigError, "first day is 2001-05-01 .*last day 2001-04-01"),
        ("2000-01-01", None, DataError, "2000-01-03, .*20 days"),
        ("2001-11-28", None, DataError, " 3 days .* 6 or more"),
        (None, "2001-07-01", DataError, "champion was chosen, .*2001-07-01"),
        ("2030-01-01", None, DataError, " 0 days .* 6 or more"),
    ],
)
def test_days_that_cannot_be_played_are_refused(
    first: str | None, last: str | None, kind: type[Exception], said: str, runs: dict[str, Path]
) -> None:
    with pytest.raises(kind, match=said):
        fw.load(runs["hindsight"]).backtest(TINY["panel"], first, last)


def split_ratios(close: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Prices as traded over adjusted ones, [T, K]: a few splits and dividends, known on days with a close alone."""
    steps = np.where(rng.random(close.shape) < 0.05, rng.choice([0.5, 1 / 7, 3.0, 0.98], close.shape), 1.0)
    ratios = 7 * steps.cumprod(0)
    for day, k in np.argwhere(np.isnan(close)):
        ratios[day, k] = ratios[day - 1, k] if day else 1.0
    return ratios


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([None, 0.5]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 2]),
)
def test_any_actions_on_any_prices_are_traded_alike(
    seed: int,
    share: float | None,
    gaps: bool,  # noqa: FBT001
    as_traded: bool,  # noqa: FBT001
    dear: bool,  # noqa: FBT001
    purchases: int,
) -> None:
    """Random prices with holes, random coefficients and targets: day by day against the batched simulator.

    Where prices are ordered as they were traded, they are the same trades in prices and shares of their days; where
    trades are dear, with costs of all kinds.
    """
    rng = np.random.default_rng(seed)
    days, count = 40, 4
    close = np.exp(rng.normal(0, 0.02, (days, count)).cumsum(0)) * 100
    values = np.full((days, count, len(FEATURES)), np.nan, np.float32)
    values[:, :, FEATURES.index("close")] = close
    values[:, :, FEATURES.index("high")] = close * (1 + rng.random((days, count)) * 0.02)
    if gaps:
        values[rng.random((days, count)) < 0.15] = np.nan
        values[-1] = np.nan_to_num(values[-1], nan=100)  # the data of none has ended
    names = tuple("ABCD")
    dates = np.datetime64("2020-01-01") + np.arange(days)
    ratios = split_ratios(values[..., 1].astype(float), rng) if as_traded else np.ones((days, count))
    panel = build_panel(
        values=np.concatenate([values, rng.lognormal(5, 0.7, (days, count, 1)).astype(np.float32)], -1),
        dates=dates,
        instruments=names,
        features=(*FEATURES, "volume"),
        raw_close=values[..., 1] * ratios.astype(np.float32),
    )
    config = TradingConfig(
        episode=EpisodeConfig(context=1, trading_days=days - 8, settlement_days=8),
        trade=TradeConfig(hold_days=4, purchases_a_day=purchases, target_low=0.5, target_high=3),
        account=AccountConfig(position_share=share, **DEAR if dear else {}),
    )
    actions = torch.from_numpy(rng.uniform([0, 0], [2.2, 4], (days, count, 2)).astype(np.float32))
    actions[-8:, :, 0] = 0  # settlement buys nothing

    market = build_market(panel, torch.zeros(count, days, 1), torch.device("cpu"), config.account)
    sim = build_simulator(config, batch=1, max_days=days, instruments=count, device=torch.device("cpu"))
    reset_(sim, start=torch.tensor([0]), trading_end=torch.tensor([days - 8]), end=torch.tensor([days]))
    for day in range(days):
        step_(sim, market, config, actions[day][None])
    known = trade_columns(sim, market, config, instruments=names, dates=panel.dates)

    positions: tuple[Position, ...] = ()
    cash, done = config.account.cash, []
    adjusted = panel.feature("close")
    for day in range(days):
        known_so_far = first_days(panel, day + 1)
        past = build_market(known_so_far, torch.zeros(count, day + 1, 1), torch.device("cpu"), config.account)
        raw_close = adjusted[: day + 1] * ratios[: day + 1] if as_traded else None
        evening = MarketClose(past, replace(known_so_far, raw_close=raw_close), config)
        grown = ratios[day - 1] / ratios[day] if day else np.ones(count)  # a broker splits shares overnight
        positions = tuple(replace(each, shares=each.shares * grown[names.index(each.instrument)]) for each in positions)
        sales, holdings = split_due_positions(evening, positions)
        for sale in sales:
            ratio = ratios[day, names.index(sale.instrument)]
            done.append((sale.instrument, sale.date, float(np.float32(sale.price / ratio)), sale.shares * ratio))
        orders = decide_orders(evening, actions[day], sales, holdings, cash)
        positions, cash = orders.positions, orders.cash
    wanted = list(zip(*(known[name] for name in ("instrument", "exit_date", "exit_price", "shares")), strict=True))
    order = sorted((str(name), str(date), float(price), float(shares)) for name, date, price, shares in wanted)
    assert [each[:3] for each in sorted(done)] == [each[:3] for each in order]
    assert [each[3] for each in sorted(done)] == pytest.approx([each[3] for each in order], rel=1e-4, abs=1e-2)
    assert cash == pytest.approx(float(sim.logs.equity[0, days]), rel=1e-4)


def test_the_command_keeps_its_books_in_one_file(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, held = str(runs["hindsight"]), tmp_path / "held.csv"
    first = ["orders", run, "--prices", TINY["panel"], "--after", str(held)]
    assert main(first) == 0
    said = capsys.readouterr().out
    day = str(load_panel(TINY["panel"]).dates[-1])
    assert f"close of {day}" in said
    book = read_positions(held)
    assert book.cash is not None
    assert main([*first, "--positions", str(held), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["date"] == day
    assert not again["purchases"] or not book.positions, "one purchase a day, however often it is asked for"
    assert again["cash"] == pytest.approx(book.cash)
    assert read_positions(held) == book
    assert main(["orders", run, "--prices", TINY["panel"], "--csv"]) == 0
    rows = pl.read_csv(StringIO(capsys.readouterr().out))
    assert rows.columns == ["order", "instrument", "shares", "price", "limit", "days", "date", "reason"]
    assert rows.filter(pl.col("order") == "buy")["instrument"].to_list() == [p.instrument for p in book.positions]
    assert main([*first, "--csv", "--json"]) == 2
    trader = fw.load(run)
    assert [each.instrument for each in trader.orders(TINY["panel"]).positions] == [
        p.instrument for p in book.positions
    ]


def test_a_day_without_any_price_is_said_to_be_one(runs: dict[str, Path]) -> None:
    panel = load_panel(TINY["panel"])
    values = np.array(panel.values)
    values[-1] = np.nan
    names = [panel.instruments[n] for n in panel.investable]
    closed = build_panel(values=values, dates=panel.dates, instruments=panel.instruments, investable=names)
    sheet = position_order_sheet(fw.load(runs["hindsight"]).orders(closed), ())
    assert f"no instrument that is not held has a price on {panel.dates[-1]}" in sheet.lines[0]


def test_an_account_without_money_buys_no_share(runs: dict[str, Path], tmp_path: Path) -> None:
    held, command = tmp_path / "held.csv", ["orders", str(runs["hindsight"]), "--prices", TINY["panel"], "--json"]
    assert main([*command, "--cash", "0", "--after", str(held)]) == 0
    book = read_positions(held)
    assert book.cash == 0
    assert not any(each.shares for each in book.positions)
    assert main([*command, "--positions", str(held)]) == 0


def test_reasons_name_every_feature_and_every_other_column(runs: dict[str, Path]) -> None:
    trader = fw.load(runs["hindsight"])
    orders = trader.orders(TINY["panel"])
    reasons = trader.reasons(TINY["panel"], orders, "S2")
    assert {reason.what for reason in reasons} == {*trader.features, "S0", "S1", "S3", "S4", "S5"}
    effects = [abs(reason.effect) for reason in reasons]
    assert effects == sorted(effects, reverse=True)
    assert effects[0] > 0


def test_prices_that_cannot_be_used_are_refused(runs: dict[str, Path]) -> None:
    trader = fw.load(runs["hindsight"])
    with pytest.raises(DataError, match=r"prices .*S5"):
        trader.orders("synthetic:5x260")
    with pytest.raises(DataError, match=r"19 days .*\b140\b"):
        trader.orders(first_days(load_panel(TINY["panel"]), 19))
    with pytest.raises(ConfigError, match="cash is left out"):
        trader.orders(TINY["panel"], [held_position()])
    with pytest.raises(ConfigError, match="cash = -1"):
        trader.orders(TINY["panel"], cash=-1)
    with pytest.raises(DataError, match=r"SPY .*not an instrument"):
        trader.orders(TINY["panel"], [held_position(instrument="SPY")], 5)
    with pytest.raises(DataError, match=r"1999-01-01, .*not a day"):
        trader.orders(TINY["panel"], [held_position(entry_date="1999-01-01")], 5)
    with pytest.raises(DataError, match=r"S1 .*twice"):
        trader.orders(TINY["panel"], [held_position(), held_position()], 5)


def held_position(**changes: Any) -> Position:
    day = str(load_panel(TINY["panel"]).dates[-3])
    given = {"instrument": "S1", "entry_date": day, "entry_price": 10.0, "target": 5.0, "shares": 3.0}
    return Position(**given | changes)


def test_columns_in_another_order_are_the_same_prices(runs: dict[str, Path]) -> None:
    trader, panel = fw.load(runs["hindsight"]), load_panel(TINY["panel"])
    order = [5, 3, 1, 0, 2, 4]
    mixed = build_panel(
        values=panel.values[:, order], dates=panel.dates, instruments=[panel.instruments[n] for n in order]
    )
    assert trader.orders(mixed) == trader.orders(panel)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("instrument,shares\n", r"expected the columns .*, entry_date, entry_price, .*, got instrument, shares\."),
        ("S1,yesterday,1,2,3\n", "row 2, column entry_date: 'yesterday' .*2024-01-31"),
        ('S1,2020-01-02,"1,5",2,3\n', "row 2, column entry_price: '1,5'.*number"),
        ("S1,2020-01-02,1,2,-3\n", "row 2, column shares: '-3'.*number"),
        ("S1,2020-01-02,1,2\n", "row 2, column shares: None.*number"),
        ("cash,,,,5\ncash,,,,5\n", "row 3: .*cash"),
    ],
)
def test_a_file_of_positions_that_cannot_be_read_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "held.csv"
    file.write_text(
        text if text.startswith("instrument") else f"instrument,entry_date,entry_price,target,shares\n{text}"
    )
    with pytest.raises(DataError, match=said):
        read_positions(file)


@given(st.text("=+-@'\t A1", max_size=6))
def test_no_cell_is_a_formula_and_each_reads_back(name: str) -> None:
    cell = spreadsheet_cell(name)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert name_in_cell(cell) == name


def test_names_of_all_kinds_are_written_to_a_file_and_read_back(tmp_path: Path) -> None:
    names = ["=cmd|' /C calc'!A0", "+1", "-x", "@SUM(1)", "'=x", "AAPL", "a,b", 'a"b']
    held = [Position(instrument=n, entry_date="2024-01-31", entry_price=1, target=2, shares=3) for n in names]
    Portfolio(tuple(held), 5.0).write(tmp_path / "held.csv")
    assert [each.instrument for each in read_positions(tmp_path / "held.csv").positions] == names
    assert "\n=" not in (tmp_path / "held.csv").read_text()


@pytest.mark.parametrize("file", ["/dev/zero", "pipe", "."])
def test_positions_that_never_end_or_begin_are_refused(file: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="no file"):
        read_positions(tmp_path / file)


ALONE = """
import json, sys, torch
files = {"about.json": ""}
program = torch.export.load(sys.argv[1], extra_files=files)
about = json.loads(files["about.json"])
action = program.module()(*torch.load(sys.argv[2]))
assert not [name for name in sys.modules if name.startswith("flatwater")]
print(json.dumps({"about": about, "action": action.tolist()}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hindsight", pytest.param("ddpg", marks=pytest.mark.slow)])
def test_an_exported_trader_acts_alike_where_there_is_no_flatwater(
    kind: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, given = tmp_path / "champion.pt2", tmp_path / "given.pt"
    assert main(["export", str(runs[kind]), "--to", str(file)]) == 0
    assert "at most 0" in capsys.readouterr().out
    trader = fw.load(runs[kind])
    features = trader.features_of(TINY["panel"])[None]
    account = torch.zeros(1, 6, 3)
    torch.save((features,) if kind == "hindsight" else (features, account), given)
    ran = subprocess.run([sys.executable, "-c", ALONE, file, given], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    assert found["about"]["instruments"] == list(trader.instruments)
    ranking = trader.orders(TINY["panel"]).ranking
    for name, coefficient in ranking:
        action = found["action"][0][found["about"]["investable"].index(name)]
        assert action[0] == pytest.approx(coefficient, abs=1e-6)
    assert len(ranking) == 5


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["hindsight", "ddpg"])
def test_a_trader_from_its_weights_trades_alike_without_the_run(
    kind: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, prices = tmp_path / "champion.safetensors", TINY["panel"]
    assert main(["export", str(runs[kind]), "--to", str(file)]) == 0
    trader, original = fw.load(file), fw.load(runs[kind])
    assert trader.orders(prices) == original.orders(prices)
    features = original.features_of(prices)
    account = None if kind == "hindsight" else np.zeros((6, 3))
    action = trader.act(features, account)
    assert np.array_equal(action, original.act(features))
    assert np.array_equal(trader.act(features[None], account)[0], action)
    for name, coefficient in original.orders(prices).ranking:
        assert action[original.investable.index(name), 0] == pytest.approx(coefficient, abs=1e-6)
    assert trader.backtest(prices).result == original.backtest(prices).result
    capsys.readouterr()
    assert main(["backtest", str(file)]) == 2
    assert "--prices" in capsys.readouterr().err
    assert main(["backtest", str(file), "--prices", prices]) == 0
    assert (tmp_path / "champion-backtest-2001-07-16-2001-11-30" / "result.json").is_file()


@pytest.mark.long
def test_features_of_another_shape_are_refused(runs: dict[str, Path]) -> None:
    trader = fw.load(runs["ddpg"])
    with pytest.raises(ConfigError, match=r"features = an array \[3\]: .*\[6, 20, 7\]"):
        trader.act(np.zeros(3))
    with pytest.raises(ConfigError, match=r"account = an array \[2, 3\]: .*\[1, 6, 3\]"):
        trader.act(np.zeros((6, 20, 7)), np.zeros((2, 3)))
    with pytest.raises(ConfigError, match=r"account\[2, 1\] is nan: expected a finite number"):
        trader.act(np.zeros((6, 20, 7)), np.where(np.arange(18).reshape(6, 3) == 7, np.nan, 0))
    with pytest.raises(ConfigError, match="account is given"):
        fw.load(runs["hindsight"]).act(np.zeros((6, 20, 7)), np.zeros((6, 3)))


@pytest.mark.long
def test_what_is_no_trader_has_no_orders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fw.train("ppo", run=tmp_path / "ppo", rounds=1, envs=2, block=16, evaluation={"envs": 2}, quiet=True)
    assert main(["orders", str(run.path), "--prices", "synthetic:2x60"]) == 2
    assert "`train erl`" in capsys.readouterr().err
    assert main(["backtest", str(run.path), "--prices", "synthetic:2x60"]) == 2
    assert "`train erl`" in capsys.readouterr().err
    assert main(["orders", str(tmp_path / "none"), "--prices", "x"]) == 2
    assert main(["orders", str(run.path), "--prices", "x", "--after", str(tmp_path / "held.txt")]) == 2
    assert "end in .csv" in capsys.readouterr().err


def split_file(panel: Panel, file: Path, ratio: float, *, both: bool = True, day: int = -3) -> None:
    """A panel as a long file whose shares were split `ratio`:1 on that day: raw prices, and adjusted closes."""
    days, names = panel.valid.shape[0], panel.instruments
    frames = []
    for n, name in enumerate(names):
        factor = np.ones(days)
        factor[:day] = ratio
        prices = {each: panel.feature(each)[:, n].astype(float) for each in ("open", "high", "low", "close")}
        raw = {each: column * factor for each, column in prices.items()} if both else prices
        whole = {"symbol": [name] * days, "date": panel.dates} | raw
        frames.append(pl.DataFrame(whole | ({"adj_close": prices["close"]} if both else {})))
    pl.concat(frames).fill_nan(None).drop_nulls().write_parquet(file)


def test_orders_are_in_prices_as_traded_where_the_file_has_both(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same decisions as on adjusted prices alone, in prices and shares that a broker takes."""
    trader, panel = fw.load(runs["hindsight"]), load_panel(TINY["panel"])
    split_file(panel, tmp_path / "both.parquet", 7.0)
    split_file(panel, tmp_path / "adjusted.parquet", 7.0, both=False)
    before = first_days(load_panel(str(tmp_path / "both.parquet")), len(panel.dates) - 5)
    plain = first_days(load_panel(str(tmp_path / "adjusted.parquet")), len(panel.dates) - 5)
    own, known = trader.orders(before), trader.orders(plain)
    assert own.as_traded
    assert not known.as_traded
    assert (own.ranking, own.equity, own.cash) == (known.ranking, known.equity, known.cash)
    (bought,), (bought_adjusted,) = own.purchases, known.purchases
    for name, power in (("price", 7), ("target_price", 7), ("shares", 1 / 7)):
        assert getattr(bought, name) == pytest.approx(power * getattr(bought_adjusted, name), rel=1e-6)
    # The day after the split: seven shares for one, which the user has written.
    after = first_days(load_panel(str(tmp_path / "both.parquet")), len(panel.dates) - 1)
    held_now = [replace(each, shares=7 * each.shares) for each in own.positions]
    kept = trader.orders(after, held_now, own.cash)
    assert kept.splits == (f"{bought.instrument} (7:1)",) or kept.sales
    wrong = [replace(own.positions[0], entry_price=bought_adjusted.price)]
    with pytest.raises(DataError, match=rf"{bought.instrument} .*as it was traded"):
        trader.orders(after, wrong, own.cash)
    run = str(runs["hindsight"])
    assert main(["orders", run, "--prices", str(tmp_path / "adjusted.parquet")]) == 0
    assert "--raw-prices FILE" in " ".join(capsys.readouterr().out.split())
    raw = ["--raw-prices", str(tmp_path / "both.parquet")]
    assert main(["orders", run, "--prices", str(tmp_path / "adjusted.parquet"), *raw]) == 0
    said = capsys.readouterr().out
    assert "as traded" in said
    assert "--raw-prices" not in said


def test_raw_prices_must_know_the_newest_day(runs: dict[str, Path]) -> None:
    panel = load_panel(TINY["panel"])
    with pytest.raises(DataError, match=rf"--raw-prices: S0 .*{panel.dates[-1]}"):
        fw.load(runs["hindsight"]).orders(panel, raw_prices=first_days(panel, len(panel.dates) - 1))


def test_prices_that_do_not_reach_back_as_far_as_a_feature_are_refused_with_the_feature(runs: dict[str, Path]) -> None:
    trader, panel = fw.load(runs["hindsight"]), load_panel(TINY["panel"])
    needed = 20 - 1 + 121  # the first of 20 days that are seen has a return over 120 rows
    assert trader.lookback == needed
    for act in (trader.orders, trader.features_of, lambda prices: trader.backtest(prices, str(prices.dates[-30]))):
        with pytest.raises(DataError, match=rf"{needed - 1} days .* expected {needed} or more, .* return_120 .* 121"):
            act(newest_days(panel, needed - 1))
    with pytest.raises(DataError, match=rf"expected number {needed} or later, .* return_120"):
        trader.backtest(newest_days(panel, needed + 30), str(panel.dates[-40]))


def test_a_feature_of_which_nothing_was_learned_needs_no_rows(runs: dict[str, Path]) -> None:
    trader = fw.load(runs["hindsight"])
    scale = trader.statistics.deviation.copy()
    scale[:, trader.features.index("return_120")] = np.inf
    forgetful = replace(trader, statistics=replace(trader.statistics, deviation=scale))
    assert forgetful.lookback == 20 - 1 + 61  # a return over 60 rows


def test_orders_name_columns_without_a_close_and_those_with_few(runs: dict[str, Path]) -> None:
    trader, panel = fw.load(runs["hindsight"]), load_panel(TINY["panel"])
    recent = newest_days(panel, 200)
    values = recent.values.copy()
    values[-2:, 0], values[:100, 1] = np.nan, np.nan
    orders = trader.orders(replaced_values(recent, values))
    sheet = position_order_sheet(orders, reasons=())
    names = panel.instruments
    assert names[0] in orders.unpriced
    assert names[1] in orders.short_histories
    day = panel.dates[-1]
    unpriced_names = ", ".join(orders.unpriced)
    assert f"Without a close on {day}, and so neither seen on that day nor traded: {unpriced_names}." in sheet.lines
    assert any(line.startswith("With fewer closes") and names[1] in line for line in sheet.lines)


def newest_days(panel: Panel, days: int) -> Panel:
    """The panel as a file of its newest days alone would be."""
    return replaced_values(panel, panel.values[-days:])


def replaced_values(panel: Panel, values: np.ndarray) -> Panel:
    """The newest days of a panel with other values; its indicators are those of all days."""
    return build_panel(
        values=values,
        dates=panel.dates[-len(values) :],
        instruments=panel.instruments,
        investable=panel.investable_names,
    )
