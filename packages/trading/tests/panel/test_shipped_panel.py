"""The panel in the package: what its source says, adjusted, with its listings as real gaps."""

import runpy
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flatwater_trading.panel.config import SplitConfig
from flatwater_trading.panel.locate import shipped_panel_path
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import check_episode, split_days
from flatwater_trading.panel.store import open_panel

SCRIPT = Path(__file__).parents[4] / "scripts" / "build_shipped_panel.py"


@pytest.fixture(scope="module")
def panel() -> Panel:
    return open_panel(shipped_panel_path())


def test_holds_five_shares_from_their_listings_on(panel: Panel) -> None:
    assert panel.instruments == ("AAPL", "FB", "GOOG", "IBM", "MSFT")
    assert [panel.instruments[n] for n in panel.investable] == ["AAPL", "GOOG", "IBM", "MSFT"]
    first = [str(panel.dates[panel.valid[:, n].argmax()]) for n in range(5)]
    assert first == ["2000-03-01", "2012-05-18", "2004-08-19", "2000-03-01", "2000-03-01"]
    assert len(panel.dates) == 3270
    assert panel.valid[-1].all()


def test_no_split_is_left_in_the_prices(panel: Panel) -> None:
    """Apple's 2:1 splits of June 2000 and February 2005 would be days of -50 %; its real worst day is 2000-09-29."""
    close = panel.feature("close").astype(np.float64)
    change = close[1:] / close[:-1] - 1
    crashes = [(panel.instruments[n], str(panel.dates[t + 1])) for t, n in zip(*np.nonzero(change < -0.3), strict=True)]
    assert crashes == [("AAPL", "2000-09-29")]
    assert np.nanmax(change) < 0.25


def test_every_investable_instrument_has_training_days_under_the_default_splits(panel: Panel) -> None:
    splits = split_days(len(panel.dates), context=504, config=SplitConfig())
    check_episode(splits, 145)
    assert panel.valid[: splits.train.stop, panel.investable].any(axis=0).all()


def test_the_script_builds_this_very_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("bokeh_sampledata")
    script = runpy.run_path(str(SCRIPT))
    target = tmp_path / "shipped" / "panel.safetensors"
    monkeypatch.setitem(script["main"].__globals__, "shipped_panel_path", lambda: target)
    script["main"]()
    assert target.read_bytes() == shipped_panel_path().read_bytes()
    assert "3270 days x 5 instruments" in capsys.readouterr().out


def test_closes_are_the_adjusted_closes_of_the_source(panel: Panel) -> None:
    source = pytest.importorskip("bokeh_sampledata").package_path("stocks.csv.gz")
    for name, rows in pl.read_csv(source).group_by("Ticker"):
        n = panel.instruments.index(str(name[0]))
        held = panel.feature("close")[panel.valid[:, n], n]
        np.testing.assert_allclose(held, rows.sort("Date")["Adj Close"].to_numpy(), rtol=1e-6)
