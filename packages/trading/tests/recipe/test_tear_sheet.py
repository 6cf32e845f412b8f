"""The tear sheet's numbers, each computed again from outside."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from flatwater_trading.panel.calendar import DAILY
from flatwater_trading.recipe.tear_sheet import (
    CHAMPION,
    find_drawdowns,
    month_rows,
    rolling_frame,
    rolling_window,
    tear_sheet,
    underwater_chart,
)
from flatwater_watch.pages.blocks import FoldedBlock, Paragraph, Table
from flatwater_watch.pages.chart import Chart, Grid

FIRST = date(2019, 12, 31)


def curves(days: int) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    market = rng.normal(0.0005, 0.01, days)
    own = 0.6 * market + rng.normal(0.0002, 0.004, days)
    return pl.DataFrame(
        {
            "date": [FIRST + timedelta(days=n) for n in range(days + 1)],
            CHAMPION: 1e5 * np.cumprod([1.0, *(1 + own)]),
            "SPY held": 1e5 * np.cumprod([1.0, *(1 + market)]),
        }
    )


def test_rolling_ratios_are_those_of_each_window() -> None:
    equity = curves(300)
    frame = rolling_frame(equity, [CHAMPION, "SPY held"], DAILY)
    window = rolling_window(300, DAILY)
    assert window == 100  # a third of the rows: half a year would be 126
    moves = {name: np.diff(equity[name]) / equity[name][:-1].to_numpy() for name in (CHAMPION, "SPY held")}
    for row in (window, 200, 300):
        last = {name: each[row - window : row] for name, each in moves.items()}
        for name, each in last.items():
            assert frame[name][row] == pytest.approx(each.mean() / each.std(ddof=1) * 252**0.5)
        covariance = np.cov(last[CHAMPION], last["SPY held"])
        assert frame["beta"][row] == pytest.approx(covariance[0, 1] / covariance[1, 1])
    assert frame["beta"].null_count() == frame[CHAMPION].null_count() == window
    idle = equity.with_columns(pl.lit(1e5).alias(CHAMPION))
    assert rolling_frame(idle, [CHAMPION, "SPY held"], DAILY)[CHAMPION].null_count() == 301, "cash has no ratio"


def test_losses_under_water_are_below_the_highest_so_far() -> None:
    equity = pl.DataFrame({"date": [FIRST + timedelta(days=n) for n in range(5)], CHAMPION: [100.0, 120, 90, 120, 60]})
    (line,) = underwater_chart(equity, [CHAMPION]).marks
    assert line.y == pytest.approx([0, 0, -25, 0, -50])
    assert find_drawdowns(equity[CHAMPION].to_list()) == [(1, 2, 3, -0.25), (3, 4, None, -0.5)]
    assert find_drawdowns([1.0, 2.0, 2.0, 3.0]) == []


def test_months_multiply_to_the_whole() -> None:
    equity = curves(800)
    rows = month_rows(equity)
    assert [row[0] for row in rows] == ["2020", "2021", "2022"]
    whole = np.prod([1 + float(row[-1].rstrip("%")) / 100 for row in rows])
    assert whole == pytest.approx(equity[CHAMPION][-1] / equity[CHAMPION][0], abs=0.005)
    for row in rows:
        months = np.prod([1 + float(cell.rstrip("%")) / 100 for cell in row[1:-1] if cell])
        assert months == pytest.approx(1 + float(row[-1].rstrip("%")) / 100, abs=0.01)


def test_a_sheet_draws_what_is_there() -> None:
    equity, sheet = curves(300), pl.DataFrame({"date": [FIRST], "exposure": [0.5], "turnover": [0.1]})
    whole = list(tear_sheet(equity, sheet, {"benchmark": "SPY held"}))
    assert [type(block) for block in whole] == [Chart, Grid, Grid, Table, FoldedBlock]
    assert [mark.name for mark in whole[0].marks] == [CHAMPION, "SPY held"]
    alone = list(tear_sheet(equity.drop("SPY held"), None, {}))
    assert [mark.name for mark in alone[0].marks] == [CHAMPION]
    assert len(alone[1].charts) == 1, "no beta without a benchmark"
    assert [type(block) for block in tear_sheet(equity[:5], None, {})] == [Paragraph]
