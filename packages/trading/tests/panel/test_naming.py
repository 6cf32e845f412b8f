"""Which column is what: mapped by the user, guessed and said, or asked for with the option to write."""

from pathlib import Path

import pytest

from flatwater_trading.panel.importing import import_panel
from flatwater_trading.panel.panel import Panel
from flatwater_watch.errors import DataError

ROWS = "SAP,2024-01-02,140.5\nBMW,2024-01-02,98\nSAP,2024-01-03,141\nBMW,2024-01-03,97.5\n"


def import_text(folder: Path, text: str, **said: str) -> Panel:
    (folder / "kurse.csv").write_text(text)
    return import_panel(folder / "kurse.csv", columns=said)


def test_columns_of_any_name_are_mapped(tmp_path: Path) -> None:
    panel = import_text(tmp_path, f"was,wann,wieviel\n{ROWS}", symbol="was", date="wann", close="wieviel")
    assert panel.instruments == ("BMW", "SAP")
    for price in ("open", "high", "low", "close"):
        assert panel.feature(price).tolist() == [[98, 140.5], [97.5, 141]]


def test_names_of_vendors_are_guessed_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    panel = import_text(tmp_path, f"Kuerzel,Datum,PX_LAST\n{ROWS}")
    assert panel.feature("close").tolist() == [[98, 140.5], [97.5, 141]]
    assert "Kuerzel as symbol, Datum as date, PX_LAST as close" in caplog.text
    assert "--map symbol=" in caplog.text


def test_what_is_mapped_goes_before_what_would_be_guessed(tmp_path: Path) -> None:
    text = "symbol,date,last,close\nA,2024-01-02,5,7\n"
    assert import_text(tmp_path, text).feature("close").tolist() == [[7]]
    assert import_text(tmp_path, text, close="last").feature("close").tolist() == [[5]]


def test_an_asterisk_stands_for_the_instrument(tmp_path: Path) -> None:
    text = "Tag;SAP Kurs;BMW Kurs;SAP Umsatz\n02.01.2024;140,5;98;7\n03.01.2024;141,0;97,5;8\n"
    panel = import_text(tmp_path, text, date="Tag", close="* Kurs")
    assert panel.instruments == ("SAP", "BMW")
    assert panel.feature("close").tolist() == [[140.5, 98], [141, 97.5]]


def test_a_failed_guess_shows_the_option_to_write(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"column date and close missing .*Kuerzel, Wann, P\).*--map date=COLUMN c"):
        import_text(tmp_path, f"Kuerzel,Wann,P\n{ROWS}")
    with pytest.raises(DataError, match=r"--map close=PX: .*PX .*: symbol, date, P\)"):
        import_text(tmp_path, f"symbol,date,P\n{ROWS}", close="PX")
    with pytest.raises(DataError, match=r"--map kurs=P: .*symbol, date, open.*kurs"):
        import_text(tmp_path, f"symbol,date,P\n{ROWS}", kurs="P")


def test_a_share_whose_symbol_is_one_letter_is_no_price(tmp_path: Path) -> None:
    assert import_text(tmp_path, "date,AAPL,C,O\n2024-01-02,5,7,9\n").instruments == ("AAPL", "C", "O")
    panel = import_text(tmp_path, "t,o,h,l,c,v\n2024-01-02,5,7,4,6,100\n")
    assert [float(panel.feature(price)[0, 0]) for price in ("open", "high", "low", "close")] == [5, 7, 4, 6]


def test_a_file_of_one_instrument_has_the_name_of_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    head = "Date,Open,High,Low,Close\n"
    assert import_text(tmp_path, f"{head}2024-01-02,5,7,4,6\n").instruments == ("kurse",)
    assert "taken as kurse" in caplog.text
    with pytest.raises(
        DataError, match=r"column symbol missing, .*2024-01-02 \(row 2, column Date\).*--map symbol=COLUMN"
    ):
        import_text(tmp_path, f"{head}2024-01-02,5,7,4,6\n2024-01-02,5,7,4,6\n")


@pytest.mark.parametrize(
    ("text", "close"),
    [
        ('date,A\n2024-01-02,"2,665.30"\n', 2665.30),
        ('date,A\n2024-01-02,"1,002,665"\n', 1002665),
        ('date,A,B\n2024-01-02,"2,665","1,000.5"\n', 2665),
        ('date,A\n2024-01-02,"2.665,30"\n', 2665.30),
        ("date;A;B\n2024-01-02;1.005;10,25\n", 1005),
        ("date;A\n2024-01-02;10.25\n", 10.25),
        ("date;A;B\n2024-01-02;1,005;1,005.5\n", 1005),
        ("date,A\n2024-01-02,$189.25\n", 189.25),
        ("date;A;note\n2024-01-02;25.342;12,5\n2024-01-03;25.4;\n", 25.342),
        ("date;A;B;C\n2024-01-02;25.342;1.25;12,5\n2024-01-03;25.346;1.5;\n", 25342),
    ],
)
def test_a_column_writes_its_numbers_one_way_and_one_that_does_not_say_as_the_others(
    tmp_path: Path, text: str, close: float
) -> None:
    assert float(import_text(tmp_path, text).feature("close")[0, 0]) == pytest.approx(close, rel=1e-6)


def test_a_column_of_both_ways_is_refused_by_its_cell_unless_one_is_named(tmp_path: Path) -> None:
    text = "date;A\n2024-01-02;25.34\n2024-01-03;25,34\n"
    with pytest.raises(DataError, match=r"row 3, column A: '25,34' .*number"):
        import_text(tmp_path, text)
    (tmp_path / "p.csv").write_text("date;A\n2024-01-02;1.005\n")
    given = {way: import_panel(tmp_path / "p.csv", decimal=way) for way in ("point", "comma")}
    closes = {way: float(panel.feature("close")[0, 0]) for way, panel in given.items()}
    assert closes == pytest.approx({"point": 1.005, "comma": 1005})
