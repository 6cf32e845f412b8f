"""Closes as traded: kept beside adjusted ones through import, file, cut and choice, and no part of what is learned."""

from pathlib import Path

import numpy as np
import pytest

from flatwater_trading.panel.importing import read_prices
from flatwater_trading.panel.panel import Panel, choose_instruments, first_days
from flatwater_trading.panel.store import open_panel, save_panel
from flatwater_trading.panel.traded_closes import traded_ratio, with_raw_closes

HEAD = "symbol,date,open,high,low,close,adj close\n"
ROWS = "A,2024-01-02,10,12,9,10,5\nA,2024-01-03,5,6,4,5,5\nB,2024-01-02,3,3,3,3,3\nB,2024-01-03,4,4,4,4,4\n"


def import_text(folder: Path, text: str = HEAD + ROWS) -> Panel:
    file = folder / "prices.csv"
    file.write_text(text)
    return read_prices(file).panel


def test_both_closes_are_kept(tmp_path: Path) -> None:
    panel = import_text(tmp_path)
    assert panel.raw_close is not None
    assert panel.raw_close.tolist() == [[10, 3], [5, 4]]
    assert panel.feature("close").tolist() == [[5, 3], [5, 4]]
    save_panel(panel, tmp_path / "panel.safetensors")
    again = open_panel(tmp_path / "panel.safetensors")
    for other in (again, choose_instruments(again, ("B", "A"), ["B", "A"]), first_days(again, 1)):
        assert other.raw_close is not None
        assert other.raw_close.shape == other.valid.shape
    assert first_days(again, 1).raw_close.tolist() == [[10, 3]]  # type: ignore[union-attr]  # it was looked at above
    assert choose_instruments(again, ("B", "A"), ["B", "A"]).raw_close.tolist() == [[3, 10], [4, 5]]  # type: ignore[union-attr]  # the same


def test_they_do_not_change_what_a_panel_is(tmp_path: Path) -> None:
    """Runs on a file that was imported before they were kept go on."""
    panel = import_text(tmp_path)
    halved = ROWS.replace("A,2024-01-02,10,12,9,10,5", "A,2024-01-02,5,6,4.5,5,5")
    assert import_text(tmp_path, HEAD + halved).fingerprint == panel.fingerprint
    plain = halved.replace(",5\n", "\n").replace(",3\n", "\n", 1).replace("4,4,4,4,4", "4,4,4,4")
    only = import_text(tmp_path, "symbol,date,open,high,low,close\n" + plain)
    assert only.raw_close is None
    assert only.fingerprint == panel.fingerprint


@pytest.mark.parametrize(
    "head",
    [
        "date,A_close,A_adj close,B_close",
        "date,\"('A', 'Close')\",\"('A', 'Adj Close')\",\"('B', 'Close')\"",
    ],
)
def test_wide_files_keep_them_too(head: str, tmp_path: Path) -> None:
    panel = import_text(tmp_path, f"{head}\n2024-01-02,10,5,3\n2024-01-03,5,5,4\n")
    assert panel.raw_close is not None
    assert panel.raw_close.tolist() == [[10, 3], [5, 4]]


def test_a_close_that_is_mapped_to_the_adjusted_one_is_no_raw_one(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("symbol,date,adj close\nA,2024-01-02,5\nA,2024-01-03,6\n")
    assert read_prices(file, columns={"close": "adj close"}).panel.raw_close is None


def test_the_ratio_of_a_day_is_that_of_the_last_one_with_both_closes(tmp_path: Path) -> None:
    panel = import_text(tmp_path)
    assert [traded_ratio(panel, row, 0) for row in (0, 1)] == [2, 1]
    given = first_days(import_text(tmp_path), 2)
    joined = with_raw_closes(panel, given)
    np.testing.assert_array_equal(joined.raw_close, panel.raw_close)
    untraded = import_text(tmp_path, "date,A,B\n2024-01-02,1,2\n2024-01-03,1,2\n")
    assert untraded.raw_close is None
    assert traded_ratio(untraded, 1, 0) == 1
