"""What should be checked in a panel is said in the same words by all that begin with a panel."""

from pathlib import Path

import numpy as np
import pytest
from small_traders import SMALL_PURCHASES

from flatwater.cli.main import main
from flatwater.config.mappings import from_mapping, to_mapping
from flatwater_trading.panel.notes import BEGIN_LATER, END_EARLIER, LIKE_SPLITS
from flatwater_trading.panel.oddities import find_oddities, oddity_texts
from flatwater_trading.panel.panel import FEATURES, Panel, build_panel
from flatwater_trading.panel.splits import Days
from flatwater_trading.panel.store import save_panel
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.result import prices_note
from flatwater_trading.recipe.run import compose
from flatwater_trading.recipe.weights.config import WeightsRunConfig
from flatwater_trading.recipe.weights.run import compose as compose_weights
from flatwater_trading.study.member import check_study

DAYS = 700


@pytest.fixture
def panel() -> Panel:
    """Four instruments: one whole, one split 4:1 on row 300, one from row 100 on, one until row 600."""
    moves = np.random.default_rng(0).normal(0, 0.01, (DAYS, 4))
    moves[300, 1] = -np.log(4)
    close = 100 * np.exp(moves.cumsum(0))
    close[:100, 2] = close[600:, 3] = np.nan
    values = np.repeat(close[..., None], len(FEATURES), -1).astype(np.float32)
    dates = np.datetime64("2015-01-01") + np.arange(DAYS)
    return build_panel(values=values, dates=dates, instruments=("WHOLE", "SPLIT", "LATE", "GONE"))


def test_moves_like_splits_and_parts_of_the_days_are_found(panel: Panel) -> None:
    found = find_oddities(panel)
    assert found[BEGIN_LATER] == [f"LATE {panel.dates[100]}"]
    assert found[END_EARLIER] == [f"GONE {panel.dates[599]}"]
    (jump,) = found[LIKE_SPLITS]
    assert jump.startswith("SPLIT -7")
    assert jump.endswith(f"on {panel.dates[300]} (4:1)")


def test_all_that_begin_with_a_panel_say_it(
    panel: Panel, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "odd.panel"
    save_panel(panel, file)
    texts = oddity_texts(panel)
    assert [*texts] == [BEGIN_LATER, END_EARLIER, LIKE_SPLITS]
    assert main(["panel", "show", str(file)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    lines = [f"{title}: {text}" for title, text in texts.items()]
    traders = from_mapping(ErlRunConfig, SMALL_PURCHASES | {"panel": str(file)}, "test")
    for title, text in texts.items():
        assert f"{title} {text}" in shown
    assert {*lines} <= {*compose(traders).about()}
    assert {*lines} <= {*compose_weights(WeightsRunConfig(panel=str(file), threads=1)).about()}
    answer = check_study({"config": to_mapping(traders), "folds": None, "begun": None})
    assert answer["about"] == lines
    assert (
        f"look like splits: {texts[LIKE_SPLITS]}"
        == answer["splits_note"].removeprefix(". Moves of the prices that ") + "."
    )


def test_a_study_says_notes_about_its_file_and_each_once(
    panel: Panel, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its check wrote them past the terminal's line, broken within words, and moves like splits once more."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    closes, names = panel.feature("close"), ("WHOLE", "SPLIT")
    rows = [f"{day},{name},{closes[n, k]:.4f},7" for n, day in enumerate(panel.dates) for k, name in enumerate(names)]
    Path("prices.csv").write_text("\n".join(["date,symbol,close,rank", *rows]))
    traders = from_mapping(ErlRunConfig, SMALL_PURCHASES | {"panel": "prices.csv"}, "test")
    about = check_study({"config": to_mapping(traders), "folds": None, "begun": None})["about"]
    assert "prices.csv: not used: rank." in about
    assert [line for line in about if "SPLIT -7" in line] == [about[-1]]
    assert caplog.records == []


def test_the_note_of_a_result_names_moves_like_splits_and_what_has_no_close_on_its_days(panel: Panel) -> None:
    """Splits of other days were named with each result of the shipped panel, whose shares fell by half in 2000."""
    early, late = prices_note(panel, Days(0, 100)), prices_note(panel, Days(200, 500))
    assert early == ". No close on any of these days: LATE"
    assert "look like splits: SPLIT -7" in late
    assert "No close" not in late
    assert prices_note(panel, Days(301, 500)) == "", "the close before the move is of another day"
