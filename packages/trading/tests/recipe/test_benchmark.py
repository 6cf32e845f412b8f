"""A benchmark that is chosen afterwards: a column of the prices, or of another file."""

from pathlib import Path

import numpy as np
import pytest

from flatwater_trading.market.config import AccountConfig
from flatwater_trading.panel.panel import FEATURES, Panel, build_panel
from flatwater_trading.panel.splits import Days
from flatwater_trading.recipe.benchmark import find_benchmark, panel_benchmark
from flatwater_watch.errors import DataError

CLOSES = np.linspace(50, 70, 30)


def panel() -> Panel:
    values = np.full((30, 2, len(FEATURES)), np.nan, np.float32)
    values[:, 0], values[:, 1] = 100, CLOSES[:, None]
    values[12, 1] = np.nan
    dates = np.datetime64("2020-01-01") + np.arange(30)
    return build_panel(values=values, dates=dates, instruments=("A", "SPY"), investable=["A"])


def write_prices(file: Path, header: str, first: str, days: int, step: int = 1) -> str:
    dates = np.datetime64(first) + step * np.arange(days)
    columns = header.count(",") + 1
    rows = [f"{day},{','.join([str(10 + number)] * columns)}" for number, day in enumerate(dates)]
    file.write_text("\n".join([f"date,{header}", *rows]) + "\n")
    return str(file)


def test_a_column_is_bought_at_the_first_close_and_sold_at_the_last() -> None:
    found = find_benchmark("SPY", panel())
    account = AccountConfig()
    (name, curve), *_ = found.equity(Days(3, 20), account).items()
    assert name == "SPY held"
    held = CLOSES[19] * account.sale_factor / (CLOSES[3] * account.purchase_factor)
    assert float(curve[-1] / curve[0]) == pytest.approx(held, rel=1e-6)
    assert found.closes[12] == found.closes[11], "a day without a close has the last one"
    assert panel_benchmark(None, panel()) is None


def test_another_file_gives_the_last_close_up_to_each_day(tmp_path: Path) -> None:
    file = write_prices(tmp_path / "index.csv", "SPY", "2020-01-05", 20, step=2)
    closes = find_benchmark(file, panel()).closes[:, 0]
    assert closes[:4].tolist() == [0] * 4
    assert closes[4:8].tolist() == [10, 10, 11, 11]
    with pytest.raises(DataError, match="expected a close up to the first day"):
        find_benchmark(file, panel()).equity(Days(2, 9), AccountConfig())


def test_what_is_no_benchmark_is_refused_with_what_to_give(tmp_path: Path) -> None:
    file = write_prices(tmp_path / "two.csv", "X,Y", "2020-01-01", 20)
    assert find_benchmark(f"{file}:Y", panel()).name == "Y"
    for value, named in (
        ("NOBODY", "A, SPY"),
        (file, f"--benchmark {file}:X"),
        (f"{file}:Z", "expected one of X, Y, got Z"),
        (str(tmp_path / "none.csv"), "FILE:COLUMN"),
    ):
        with pytest.raises(DataError) as refused:
            find_benchmark(value, panel())
        assert named in str(refused.value), value
