"""Cells that hold lists of numbers: the same panel as from a column for each price."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flatwater_trading.panel.importing import import_panel
from flatwater_trading.panel.panel import FEATURES
from flatwater_watch.errors import DataError

DAYS = [f"2024-01-{day:02}" for day in range(1, 6)]
INDICATORS = [50.0, 0.0, 0.0, 0.0, 0.0]
A = [[10.0 + day, 10.5 + day, 11.0 + day, 9.5 + day, *INDICATORS] for day in range(5)]
B = [[20.0 + day, 20.5 + day, 21.0 + day, 19.5 + day, *INDICATORS] for day in range(5)]


def wide_values(folder: Path) -> np.ndarray:
    """The values of the same prices with a column for each."""
    columns = {
        f"{name}_{FEATURES[n]}": [row[n] for row in rows] for name, rows in (("A", A), ("B", B)) for n in range(4)
    }
    pl.DataFrame({"date": DAYS, **columns}).write_csv(folder / "wide.csv")
    return import_panel(folder / "wide.csv").values


@pytest.mark.parametrize("kind", [pl.List(pl.Float64), pl.Array(pl.Float32, 9)])
def test_parquet_with_lists(kind: pl.DataType, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame = pl.DataFrame({"__index_level_0__": DAYS, "A": pl.Series(A, dtype=kind), "B": pl.Series(B, dtype=kind)})
    frame.write_parquet(tmp_path / "p.parquet")
    panel = import_panel(tmp_path / "p.parquet")
    assert panel.instruments == ("A", "B")
    np.testing.assert_array_equal(panel.values, wide_values(tmp_path))
    assert "open = number 1, high = number 3, low = number 4, close = number 2" in caplog.text


@pytest.mark.parametrize("between", [",", ", ", " ", "\n  "])
def test_csv_with_lists_and_a_first_column_without_a_name(between: str, tmp_path: Path) -> None:
    cells = [[f'"[{between.join(map(str, row))}]"' for row in rows] for rows in (A, B)]
    lines = [",A,B", *(",".join(row) for row in zip(DAYS, *cells, strict=True))]
    (tmp_path / "p.csv").write_text("\n".join(lines))
    np.testing.assert_array_equal(import_panel(tmp_path / "p.csv").values, wide_values(tmp_path))


def test_a_missing_list_is_a_day_without_prices(tmp_path: Path) -> None:
    pl.DataFrame({"date": DAYS, "A": [A[0], None, [float("nan")] * 9, A[3], A[4]]}).write_parquet(
        tmp_path / "p.parquet"
    )
    assert import_panel(tmp_path / "p.parquet").valid[:, 0].tolist() == [True, False, False, True, True]


def test_lists_of_another_length_need_places(tmp_path: Path) -> None:
    pl.DataFrame({"date": DAYS, "A": [[10.0, 12.0, 9.0, 11.0, 500.0]] * 5}).write_parquet(tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"column A: .*5 numbers.*--map open=1 high=2 low=3 clo"):
        import_panel(tmp_path / "p.parquet")
    places = {"open": "1", "high": "2", "low": "3", "close": "4"}
    assert import_panel(tmp_path / "p.parquet", columns=places).feature("close")[:, 0].tolist() == [11] * 5
    with pytest.raises(DataError, match=r"column A: .*5 numbers"):
        import_panel(tmp_path / "p.parquet", columns=places | {"close": "6"})


def test_a_list_that_is_too_short_is_named(tmp_path: Path) -> None:
    pl.DataFrame({"date": DAYS, "A": [A[0], A[1], A[2][:4], A[3], A[4]]}).write_parquet(tmp_path / "p.parquet")
    with pytest.raises(DataError, match=r"row 3, column A: .*4 numbers.* 9\b"):
        import_panel(tmp_path / "p.parquet")


def test_text_in_a_list_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text('date,A\n2024-01-01,"[1,x,1,1,0,0,0,0,0]"\n')
    with pytest.raises(DataError, match=r"row 2, column A\[close\]: 'x' .*number"):
        import_panel(tmp_path / "p.csv")
