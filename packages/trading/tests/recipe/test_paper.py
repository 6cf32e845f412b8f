"""A paper account is the backtest of the same evenings, whatever is missed, ended, edited or adjusted again."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_traders import SMALL_PURCHASES, SMALL_WEIGHTS

import flatwater as fw
from flatwater.cli.main import main
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.panel import Panel, build_panel, first_days
from flatwater_trading.recipe.paper import PlayedEvenings, hold_account, play_account, read_journal
from flatwater_watch.errors import ConfigError, DataError, RunError

PANEL = "synthetic:6x460:signal=0.7:delistings=0"
WEIGHTS = SMALL_WEIGHTS | {"panel": PANEL, "account": {"stop": 0.03, "stop_rows": 4, "band": 0.02}}
PURCHASES = SMALL_PURCHASES | {"panel": PANEL, "splits": {"holdout_days": 90, "validation_days": 60}}


class Runs(dict[str, Path]):
    """A run of each kind, which is trained when the first test asks for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __missing__(self, recipe: str) -> Path:
        settings = WEIGHTS if recipe == "weights" else PURCHASES
        self[recipe] = fw.train(recipe, run=self._folder / recipe, quiet=True, **settings).path
        return self[recipe]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("paper"))


def trader_of(runs: Runs, recipe: str) -> Any:
    trader = fw.load(runs[recipe])
    return replace(trader, held=0.75) if recipe == "weights" else trader


def play(trader: Any, panel: Panel, account: Path, **options: Any) -> PlayedEvenings:
    with hold_account(account):
        return play_account(trader, panel, account, **options)


def adjusted_again(panel: Panel, factor: float, *, raw: bool) -> Panel:
    """The panel as a vendor gives it after a dividend: all prices lower; closes as traded stay."""
    return build_panel(
        values=panel.values * np.float32(factor),
        dates=panel.dates,
        instruments=panel.instruments,
        investable=[panel.instruments[n] for n in panel.investable],
        raw_close=panel.feature("close") if raw else None,
    )


@pytest.mark.parametrize("recipe", ["weights", pytest.param("erl", marks=pytest.mark.long)])
def test_evenings_are_the_days_of_a_backtest(recipe: str, runs: Runs, tmp_path: Path) -> None:
    trader, panel = trader_of(runs, recipe), load_panel(PANEL)
    found = trader.backtest(panel)
    first, days = found.result["first_day"], 14
    begin = int(np.searchsorted(panel.dates, np.datetime64(first)))
    account = tmp_path / "account"
    # One evening, three that were missed, none, the others.
    for stop, new in ((1, 1), (4, 3), (4, 0), (days, days - 4)):
        start = first if stop == 1 else None
        played = play(trader, first_days(panel, begin + stop), account, run="run", first=start)
        assert (played.new, len(played.evenings), played.notes) == (new, stop, ())
    equity = found.equity["champion"].to_list()[1 : days + 1]
    assert [each.equity for each in played.evenings] == pytest.approx(equity, rel=1e-6)
    assert played.evenings == read_journal(account)
    assert any(each.orders for each in played.evenings)
    assert all(each.cost > 0 for each in played.evenings if each.orders)


@pytest.mark.long
@pytest.mark.parametrize(("recipe", "raw"), [("weights", False), ("weights", True), ("erl", False)])
def test_prices_that_are_adjusted_again_move_no_money(recipe: str, raw: bool, runs: Runs, tmp_path: Path) -> None:  # noqa: FBT001
    trader, panel = trader_of(runs, recipe), load_panel(PANEL)
    if raw:
        panel = adjusted_again(panel, 1.0, raw=True)
    begin, accounts = 380, (tmp_path / "plain", tmp_path / "adjusted")
    for account in accounts:
        play(trader, first_days(panel, begin + 3), account, run="run", first=str(panel.dates[begin]))
    plain = play(trader, first_days(panel, begin + 8), accounts[0], run="run")
    lower = adjusted_again(panel, 0.9, raw=False)
    lower = replace(lower, raw_close=panel.raw_close)
    found = play(trader, first_days(lower, begin + 8), accounts[1], run="run")
    assert [each.equity for each in found.evenings] == pytest.approx([each.equity for each in plain.evenings], rel=1e-4)
    # Prices as traded have not changed; and who holds nothing on that evening has nothing to adjust.
    assert any("adjustment" in note for note in found.notes) == (not raw and bool(found.evenings[2].prices))


def test_a_table_that_a_person_edits_counts_and_one_that_is_left_over_does_not(runs: Runs, tmp_path: Path) -> None:
    trader, panel, account = trader_of(runs, "weights"), load_panel(PANEL), tmp_path / "account"
    play(trader, first_days(panel, 392), account, run="run", first=str(panel.dates[390]))
    held, evenings = account / "held.csv", read_journal(account)
    held.write_text(evenings[0].held)  # as if the call had ended after the journal was written
    played = play(trader, first_days(panel, 393), account, run="run")
    assert "written again" in played.notes[0]
    rows = [row if not row.startswith("cash,") else "cash,1000000.0" for row in held.read_text().splitlines()]
    held.write_text(edited := "\n".join(rows) + "\n")
    richer = play(trader, first_days(panel, 394), account, run="run")
    assert "edited" in richer.notes[0]
    assert richer.evenings[-1].equity > 5 * played.evenings[-1].equity
    held.write_text(edited)  # as if this call had ended between the two files, too
    again = play(trader, first_days(panel, 394), account, run="run")
    assert "written again" in again.notes[0]
    assert held.read_text() == richer.evenings[-1].held


def test_what_cannot_be_played_is_refused(runs: Runs, tmp_path: Path) -> None:
    trader, panel, account = trader_of(runs, "weights"), load_panel(PANEL), tmp_path / "account"
    play(trader, first_days(panel, 391), account, run="run")
    with pytest.raises(ConfigError, match="Leave --from and --cash out"):
        play(trader, panel, account, run="run", cash=5.0)
    with pytest.raises(ConfigError, match="train weights"):
        play(trader_of(runs, "erl"), panel, account, run="run")
    with pytest.raises(DataError, match=f"last evening is {panel.dates[390]}"):
        play(trader, first_days(panel, 300), account, run="run")
    with hold_account(account), pytest.raises(RunError, match="another process"), hold_account(account):
        pass
    with pytest.raises(ConfigError, match="the folder of a run"), hold_account(runs["weights"]):
        pass
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    with pytest.raises(ConfigError, match=r"got one with thesis\.txt"), hold_account(tmp_path / "other"):
        pass
    with (account / "journal.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(DataError, match=r"journal\.jsonl: line 2"):
        play(trader, panel, account, run="run")


def test_an_evening_whose_line_was_cut_off_is_played_again(runs: Runs, tmp_path: Path) -> None:
    trader, panel, account = trader_of(runs, "weights"), load_panel(PANEL), tmp_path / "account"
    play(trader, first_days(panel, 393), account, run="run", first=str(panel.dates[390]))
    journal = account / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-40])  # the line is written first, then the table
    second = read_journal(account)[-1]
    (account / "held.csv").write_text(second.held)
    assert second.date == str(panel.dates[391])
    played = play(trader, first_days(panel, 393), account, run="run")
    assert (played.new, journal.read_bytes()) == (1, whole)
    assert "cut off" in played.notes[0]


def test_the_command_plays_shows_and_draws(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(runs["weights"], "run")
    day = str(load_panel(PANEL).dates[-12])
    assert main(["paper", "run", "--from", day, "--cash", "5000"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "12 evenings played" in said
    assert "flatwater report paper" in said
    assert main(["paper", "run", "--json"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["paper", "run"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    lines = [json.loads(line) for line in Path("paper/journal.jsonl").read_text().splitlines()]
    assert (len(lines), lines[0]["date"]) == (12, day)
    assert lines[0]["equity"] + lines[0]["cost"] == pytest.approx(5000)
    assert main(["report", "paper"]) == 0
    assert "Under water" in Path("paper/report.html").read_text()
    assert main(["paper", "run", "--plan"]) == 0
    assert main(["paper", "run", "--from", "soon", "--account", "other"]) == 2
