"""Import: long and wide say the same, days stay aligned, and bad input is refused by file, row, column and reason."""

import datetime as dt
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flatwater_trading.panel.features import find_features, observed_features
from flatwater_trading.panel.importing import import_panel
from flatwater_trading.panel.panel import FEATURES, Panel
from flatwater_watch.errors import DataError

REAL = Path(__file__).parents[5] / "shared" / "data"
LONG = ("symbol", "date", "open", "high", "low", "close")
DAY = dt.date(2020, 1, 1)
Rows = list[list[object]]


def rows() -> Rows:
    """Two instruments on four days; BB has no second day. Rows are numbered from 1: AA 1 to 4, BB 5 to 7."""
    aa = [["AA", f"2020-01-0{d}", 10.0 + d, 12.0 + d, 9.0 + d, 11.0 + d] for d in (1, 2, 3, 4)]
    bb = [["BB", f"2020-01-0{d}", 20.0 + d, 22.0 + d, 19.0 + d, 21.0 + d] for d in (1, 3, 4)]
    return aa + bb


def csv(folder: Path, table: Rows, names: tuple[str, ...] = LONG) -> Path:
    lines = [",".join(names)] + [",".join("" if cell is None else str(cell) for cell in row) for row in table]
    (folder / "prices.csv").write_text("\n".join(lines) + "\n")
    return folder / "prices.csv"


def same(one: Panel, other: Panel) -> bool:
    return one.fingerprint == other.fingerprint


def test_long_form_is_aligned_by_day_and_holes_stay(tmp_path: Path) -> None:
    panel = import_panel(csv(tmp_path, rows()))
    assert panel.instruments == ("AA", "BB")
    np.testing.assert_array_equal(panel.dates, np.arange("2020-01-01", "2020-01-05", dtype="datetime64[D]"))
    np.testing.assert_array_equal(panel.feature("close"), [[12, 22], [13, np.nan], [14, 24], [15, 25]])
    np.testing.assert_array_equal(panel.feature("open")[:, 0], [11, 12, 13, 14])
    np.testing.assert_array_equal(panel.feature("high")[:, 1], [23, np.nan, 25, 26])
    np.testing.assert_array_equal(panel.feature("low")[:, 1], [20, np.nan, 22, 23])
    np.testing.assert_array_equal(panel.valid, [[True, True], [True, False], [True, True], [True, True]])


prices = st.lists(
    st.tuples(st.sampled_from(["AA", "B.B", "c-c"]), st.integers(0, 60), st.floats(2**-7, 2**17, width=32)),
    min_size=1,
    max_size=40,
    unique_by=lambda row: row[:2],
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(held=prices)
def test_every_price_lands_on_its_own_day_and_column(tmp_path: Path, held: list[tuple[str, int, float]]) -> None:
    held = sorted(held, key=lambda row: (row[1], row[0]))
    frame = pl.DataFrame(
        {
            "symbol": [name for name, _, _ in held],
            "date": [DAY + dt.timedelta(days=d) for _, d, _ in held],
            **{price: pl.Series([close for _, _, close in held], dtype=pl.Float32) for price in LONG[2:]},
        }
    )
    frame.write_parquet(tmp_path / "p.parquet")

    panel = import_panel(tmp_path / "p.parquet")

    found = {
        (panel.instruments[n], int((panel.dates[t] - np.datetime64(DAY)).astype(int))): float(
            panel.feature("close")[t, n]
        )
        for t, n in zip(*np.nonzero(panel.valid), strict=True)
    }
    assert found == {(name, day): float(np.float32(close)) for name, day, close in held}
    assert (np.diff(panel.dates) > np.timedelta64(0, "D")).all()


def _parquet(frame: pl.DataFrame, folder: Path) -> Path:
    frame.write_parquet(folder / "p.parquet")
    return folder / "p.parquet"


def _csv(frame: pl.DataFrame, folder: Path) -> Path:
    frame.write_csv(folder / "p.csv")
    return folder / "p.csv"


def _wide(frame: pl.DataFrame, pattern: str) -> pl.DataFrame:
    parts = [
        frame.filter(pl.col("symbol") == name)
        .drop("symbol")
        .rename({price: pattern.format(name=name, price=price) for price in LONG[2:]})
        for name in ("AA", "BB")
    ]
    return parts[0].join(parts[1], on="date", how="left")


@pytest.mark.parametrize(
    "write",
    [
        _parquet,
        lambda f, d: _parquet(f.with_columns(pl.col("date").str.to_date()), d),
        lambda f, d: _parquet(f.with_columns(pl.col("date").str.to_datetime() + pl.duration(hours=16)), d),
        lambda f, d: _parquet(f.with_columns(pl.col("symbol").cast(pl.Categorical)), d),
        lambda f, d: _parquet(f.with_columns(pl.col("date").str.replace_all("-", "").cast(pl.Int64)), d),
        lambda f, d: _csv(f.with_columns(pl.col("date").str.replace_all("-", "/")), d),
        lambda f, d: _csv(f.with_columns(date=pl.col("date") + "T00:00:00Z"), d),
        lambda f, d: _csv(f.with_columns(pl.col("close").alias("adj_close"), volume=7), d),
        lambda f, d: _csv(f.rename({"symbol": "Ticker", "date": "Timestamp", "open": "OPEN", "close": " Close"}), d),
        lambda f, d: _csv(f.sort("date", "symbol", descending=[False, True]), d),
        lambda f, d: _parquet(f.select(reversed(f.columns)), d),
        lambda f, d: _csv(_wide(f, "{name}_{price}"), d),
        lambda f, d: _parquet(_wide(f, "{name}.{price}"), d),
        lambda f, d: _csv(_wide(f, "{price}_{name}"), d),
        lambda f, d: _csv(_wide(f, "{name} {price}").with_columns(AA_volume=3, BB_dividends=5), d),
        lambda f, d: _parquet(_wide(f, "('{name}', '{price}')"), d),
        lambda f, d: _parquet(_wide(f, "('{price}', '{name}')"), d),
    ],
)
def test_every_accepted_form_gives_the_same_panel(tmp_path: Path, write: Callable[[pl.DataFrame, Path], Path]) -> None:
    frame = pl.DataFrame(rows(), schema=list(LONG), orient="row")
    assert same(import_panel(write(frame, tmp_path)), import_panel(csv(tmp_path, rows())))


def test_instruments_with_dots_and_underscores_keep_their_names(tmp_path: Path) -> None:
    frame = pl.DataFrame({"date": ["2020-01-01"]} | {f"{n}_{p}": [1.0] for n in ("BRK.B", "A_B") for p in LONG[2:]})
    assert import_panel(_csv(frame, tmp_path)).instruments == ("BRK.B", "A_B")


def test_one_price_each_is_the_close_and_it_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = csv(tmp_path, [["2020-01-01", 5, 6], ["2020-01-02", "", 7]], ("date", "ZZ", "AA"))
    with caplog.at_level(logging.WARNING):
        panel = import_panel(source)
    assert panel.instruments == ("ZZ", "AA")
    for price in LONG[2:]:
        np.testing.assert_array_equal(panel.feature(price), [[5, 6], [np.nan, 7]])
    assert "2 instruments" in caplog.text
    assert "open, high and low" in caplog.text


@pytest.mark.parametrize("text", ["", "nan", "NaN", "NA", "n/a", "null", "None", "-", "  "])
def test_the_usual_words_for_missing_are_understood(tmp_path: Path, text: str) -> None:
    table = rows()
    table[2][5] = text
    panel = import_panel(csv(tmp_path, table))
    np.testing.assert_array_equal(panel.valid[:, 0], [True, True, False, True])
    assert panel.feature("high")[2, 0] == 15


def test_only_the_chosen_are_investable(tmp_path: Path) -> None:
    np.testing.assert_array_equal(import_panel(csv(tmp_path, rows()), investable=["BB"]).investable, [1])
    with pytest.raises(DataError, match=r"investable .*: CC\. .*: AA, BB"):
        import_panel(csv(tmp_path, rows()), investable=["BB", "CC"])


def cell(row: int, column: str, value: object) -> Callable[[Rows], None]:
    def change(table: Rows) -> None:
        table[row - 1][LONG.index(column)] = value

    return change


def swap(one: int, other: int) -> Callable[[Rows], None]:
    def change(table: Rows) -> None:
        table[one - 1], table[other - 1] = table[other - 1], table[one - 1]

    return change


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cell(3, "close", 0), r"row 4, AA on 2020-01-03: close = 0: .*above 0"),
        (cell(6, "low", -1.5), r"row 7, BB on 2020-01-03: low = -1.5: .*above 0"),
        (cell(2, "high", 10.0), r"row 3, AA on 2020-01-02: high = 10, low = 11: "),
        (cell(7, "close", 30), r"row 8, BB on 2020-01-04: close = 30, high = 26: "),
        (cell(7, "close", 5), r"row 8, BB on 2020-01-04: close = 5, low = 23: "),
        (cell(4, "date", "2020-01-03"), r"row 5, AA: 2020-01-03 .* row 4\."),
        (cell(7, "date", "2020-01-01"), r"row 8, BB: 2020-01-01 .* row 6\."),
        (swap(2, 3), r"row 4, AA: 2020-01-02 .*2020-01-03 \(row 3\)\. Sort"),
        (cell(5, "date", "soon"), r"row 6, column date: 'soon' .*2013-03-01"),
        (cell(5, "date", "02/01/2020"), r"row 6, column date: '02/01/2020' .*2013-03-01"),
        (cell(5, "date", "2020-02-30"), r"row 6, column date: '2020-02-30' .*2013-03-01"),
        (cell(5, "date", ""), r"row 6, column date: an empty cell .*2013-03-01"),
        (cell(2, "open", "1O.5"), r"row 3, column open: '1O.5' .*number"),
        (cell(2, "open", "inf"), r"row 3, column open: 'inf' .*number"),
        (cell(2, "symbol", ""), r"row 3, column symbol: .*empty"),
        (lambda t: [cell(n, "close", None)(t) for n in (5, 6, 7)], r"column close: BB .*not one"),
        (list.clear, r".*no rows"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, spoil: Callable[[Rows], object], message: str) -> None:
    table = rows()
    spoil(table)
    with pytest.raises(DataError, match=rf"prices\.csv: {message}"):
        import_panel(csv(tmp_path, table))


def test_the_first_bad_row_of_the_file_is_the_one_named(tmp_path: Path) -> None:
    table = rows()
    for row in (3, 6):
        cell(row, "close", 0)(table)
    with pytest.raises(DataError, match="row 4, AA"):
        import_panel(csv(tmp_path, table))
    table = rows()
    swap(6, 7)(table)
    swap(2, 3)(table)
    with pytest.raises(DataError, match="row 4, AA"):
        import_panel(csv(tmp_path, table))


def test_wide_errors_name_the_column_of_the_file(tmp_path: Path) -> None:
    table = [[f"2020-01-0{d}", 1, 2, 1, 1.5, 1, 2, 1, 1.5] for d in (1, 2, 3)]
    names = ("date", *(f"{n}_{price}" for n in ("AA", "BB") for price in LONG[2:]))
    table[1][8] = -4
    with pytest.raises(DataError, match=r"row 3, BB on 2020-01-02: BB_close = -4: .*above 0"):
        import_panel(csv(tmp_path, table, names))
    table[1][8] = "x"
    with pytest.raises(DataError, match=r"row 3, column BB_close: 'x' .*number"):
        import_panel(csv(tmp_path, table, names))
    for row in table:
        row[8] = None
    with pytest.raises(DataError, match=r"column BB_close: BB .*not one"):
        import_panel(csv(tmp_path, table, names))
    with pytest.raises(DataError, match=r"row 4, AA: 2020-01-02 .*2020-01-03 \(row 3\)"):
        import_panel(csv(tmp_path, [table[0], table[2], table[1]], names))
    with pytest.raises(DataError, match=r"instrument BB .*\blow\b"):
        import_panel(csv(tmp_path, table, tuple(n.replace("BB_low", "volume") for n in names)))


@pytest.mark.parametrize("missing", LONG[1:])
def test_a_missing_column_is_named(tmp_path: Path, missing: str) -> None:
    names = tuple(name if name != missing else "other" for name in LONG)
    with pytest.raises(DataError, match=rf"column {missing} missing .*other.*--map {missing}=COLUMN"):
        import_panel(csv(tmp_path, rows(), names))


def test_a_date_and_a_close_are_one_instrument_and_a_column_beside_them_is_refused(tmp_path: Path) -> None:
    """A benchmark such as SPY.csv has no more; of `close` beside another column nothing says which is a price."""
    closes = [[f"2020-01-0{day}", 10.0 + day] for day in (1, 2, 3)]
    panel = import_panel(csv(tmp_path, closes, ("date", "close")))
    assert panel.instruments == ("prices",)
    assert panel.feature("close")[:, 0].tolist() == [11.0, 12.0, 13.0]
    with pytest.raises(DataError, match=r"column symbol and open .* missing"):
        import_panel(csv(tmp_path, [[*row, 5.0] for row in closes], ("date", "close", "ABC")))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"columns 'close' and 'Close' .*same name"):
        import_panel(csv(tmp_path, [[*row, 1] for row in rows()], (*LONG, "Close")))


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("a.csv", b"", r"a\.csv: .*empty"),
        ("a.csv", b"date,close\n", r"a\.csv: .*no rows"),
        ("a.csv", b"date\n2020-01-01\n", "no column .*prices"),
        ("a.parquet", b"not parquet", r"a\.parquet: .*as parquet"),
        ("a.csv", b"\xff\xfe\x00date", "a.csv: "),
        (
            "a.numbers",
            b"PK",
            r"a\.numbers: .*\.parquet, \.csv, \.csv\.gz, .*'\.numbers'\. Save",
        ),
    ],
)
def test_a_file_that_holds_no_prices_is_refused(tmp_path: Path, name: str, contents: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(DataError, match=message):
        import_panel(tmp_path / name)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        import_panel(tmp_path / "nothing.csv")


def test_a_rounding_error_between_close_and_high_is_no_error(tmp_path: Path) -> None:
    table = rows()
    cell(2, "close", 14 * (1 + 5e-6))(table)
    import_panel(csv(tmp_path, table))
    cell(2, "close", 14 * (1 + 5e-5))(table)
    with pytest.raises(DataError, match=r"row 3, AA .*close = 14\.0007, high = 14: "):
        import_panel(csv(tmp_path, table))


def test_a_real_panel_holds_the_file_as_it_is() -> None:
    source = REAL / "us_equities_adj_16x5402.parquet"
    if not source.exists():
        pytest.skip("the shared market data is not on this machine")
    panel, frame = import_panel(source), pl.read_parquet(source)
    assert panel.values.shape == (5402, 16, len(FEATURES))
    assert panel.valid.all()
    for name in ("AAPL", "XOM"):
        rows_of = frame.filter(pl.col("symbol") == name)
        for price in LONG[2:]:
            held = panel.feature(price)[:, panel.instruments.index(name)]
            np.testing.assert_array_equal(held, rows_of[price].to_numpy())


def test_an_adjusted_close_scales_every_price(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Yahoo's form: a split of two for one on the third day, and a volume that nobody wants."""
    file = tmp_path / "spy.csv"
    file.write_text(
        "Date,Open,High,Low,Close,Adj Close,Volume,Ticker\n"
        "2024-01-01,100,110,90,100,50,7,SPY\n2024-01-02,100,120,90,110,55,7,SPY\n2024-01-03,55,60,50,56,56,7,SPY\n"
    )
    panel = import_panel(file)
    assert panel.feature("close")[:, 0].tolist() == [50, 55, 56]
    assert panel.feature("high")[:, 0].tolist() == [55, 60, 60]
    assert "(Adj Close)" in caplog.text
    assert "not used: Volume" in caplog.text
    assert "splits" not in caplog.text

    wide = tmp_path / "wide.csv"
    wide.write_text("date,A_close,A_adj close,B_close\n2024-01-01,100,50,3\n2024-01-02,60,60,4\n")
    assert import_panel(wide).feature("close").tolist() == [[50, 3], [60, 4]]

    file.write_text(file.read_text().replace("110,55,7", "110,,7"))
    with pytest.raises(DataError, match=r"row 3, column Adj Close: .*\b110\b"):
        import_panel(file)
    wide.write_text("date,A_adj_close\n2024-01-01,100\n")
    with pytest.raises(DataError, match=r"column A_adj_close: A .*\bA_close\b"):
        import_panel(wide)


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (0.5, "-50.0% on 2020-01-03 (2:1)"),
        (0.5 * 1.035, "-48.2% on 2020-01-03 (2:1)"),  # with what the share did on that day
        (3.0, "+200.0% on 2020-01-03 (1:3)"),
        (8.0, "+700.0% on 2020-01-03 (1:8)"),
        (1 / 25, "-96.0% on 2020-01-03 (25:1)"),
    ],
)
def test_a_move_like_a_split_is_told(ratio: float, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    closes = [100.0, 101.0, 101.0 * ratio, 102.0 * ratio]
    text = "\n".join(f"2020-01-0{day},{close}" for day, close in enumerate(closes, start=1))
    (tmp_path / "p.csv").write_text(f"date,A\n{text}\n")
    import_panel(tmp_path / "p.csv")
    assert f"splits: A {said}" in caplog.text


def test_a_high_far_above_open_and_close_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = rows()
    table[1][3] = 140.0
    import_panel(csv(tmp_path, table))
    assert "AA on 2020-01-02: high = 140, low = 11, close = 13. A high" in caplog.text
    caplog.clear()
    import_panel(csv(tmp_path, rows()))
    assert "far apart" not in caplog.text


def test_days_that_have_not_come_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = rows()
    for row in table:
        row[1] = str(row[1]).replace("2020", "9020")
    import_panel(csv(tmp_path, table))
    assert "the newest day is 9020-01-04, and today is " in caplog.text


@pytest.mark.parametrize(
    ("signs", "currencies", "said"),
    [
        (("$", "€"), ("", ""), "prices in $, €: "),
        (("", ""), ("USD", "EUR"), "prices in EUR, USD: "),
        (("$", "$"), ("USD", "USD"), ""),
    ],
)
def test_prices_in_several_currencies_are_told(
    signs: tuple[str, str], currencies: tuple[str, str], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = [
        [*row[:2], *(f"{signs[row[0] == 'BB']}{price}" for price in row[2:]), currencies[row[0] == "BB"]]
        for row in rows()
    ]
    panel = import_panel(csv(tmp_path, table, (*LONG, "currency")))
    assert same(panel, import_panel(csv(tmp_path, rows())))
    assert said in caplog.text
    assert bool(said) == ("an account adds them up as one currency" in caplog.text)


def test_a_column_without_a_name_is_told_as_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import_panel(csv(tmp_path, [[*row, number] for number, row in enumerate(rows())], (*LONG, "")))
    assert "not used: a column without a name." in caplog.text


def test_nothing_is_said_of_a_file_that_is_refused_but_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "p.csv").write_text("date,A\n2020-01-02,100\n2020-01-01,-3\n")
    with pytest.raises(DataError, match=r"A = -3"):
        import_panel(tmp_path / "p.csv")
    assert not caplog.text
    (tmp_path / "p.csv").write_text("date,A\n2020-01-02,100\n2020-01-01,3\n")
    import_panel(tmp_path / "p.csv")
    prices, order = (record.message for record in caplog.records)
    assert "one price" in prices
    assert "newest day" in order


def test_a_crash_that_is_no_ratio_of_shares_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "p.csv").write_text("date,A\n2020-01-01,100\n2020-01-02,58\n2020-01-03,81\n")
    import_panel(tmp_path / "p.csv")
    assert "splits" not in caplog.text


@pytest.mark.parametrize("separator", [";", "\t"])
def test_files_of_other_countries_are_read(separator: str, tmp_path: Path) -> None:
    rows = [["Date", "SAP_open", "SAP_high", "SAP_low", "SAP_close"]]
    rows += [
        ["31.01.2024", "1.001,5", "1.010,25", "999,5", "1.005"],
        ["1.2.2024", "1.005,0", "1.006,0", "1.004,0", "1.005,5"],
    ]
    (tmp_path / "p.csv").write_text("\n".join(separator.join(row) for row in rows))
    panel = import_panel(tmp_path / "p.csv")
    assert [str(date) for date in panel.dates] == ["2024-01-31", "2024-02-01"]
    assert panel.feature("close")[:, 0].tolist() == [1005, 1005.5]
    assert panel.feature("high")[:, 0].tolist() == [1010.25, 1006]
    (tmp_path / "p.csv").write_text("\n".join(separator.join(row) for row in [*rows, ["2.2.24", "1", "1", "1", "1"]]))
    with pytest.raises(DataError, match=r"row 4, column Date: '2\.2\.24' .*2013-03-01"):
        import_panel(tmp_path / "p.csv")


def test_the_newest_day_may_come_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    turned = csv(tmp_path, rows()[::-1])
    panel = import_panel(turned)
    assert same(panel, import_panel(csv(tmp_path, rows())))
    assert "newest day" in caplog.text


def test_what_is_only_watched_may_be_of_any_sign(tmp_path: Path) -> None:
    table: Rows = [[f"2020-{1 + day // 28:02}-{1 + day % 28:02}", 100 + day % 3, 1 - day / 30] for day in range(60)]
    source = csv(tmp_path, table, ("date", "ETF_A", "SPREAD"))
    with pytest.raises(DataError, match=r"row 32, SPREAD on 2020-02-03: SPREAD = 0: .*--investable"):
        import_panel(source)
    panel = import_panel(source, investable=["ETF*"])
    assert panel.investable.tolist() == [0]
    assert panel.valid.all()
    np.testing.assert_allclose(panel.feature("close")[:, 1], [1 - day / 30 for day in range(60)], atol=1e-6)
    assert np.isfinite(panel.feature("rsi")[14:, 1]).all()
    seen = observed_features(panel, find_features(["close", "return", "macd_pct", "trix"]), 60, slice(1, 2))[:, 0]
    assert np.isfinite(seen[1:30, 1]).all()
    assert np.isnan(seen[30:, 1:]).all()
    assert np.isfinite(seen[:, 0]).all()


def test_a_pattern_that_fits_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"investable .*: ETF\*\. .*: AA, BB"):
        import_panel(csv(tmp_path, rows()), investable=["AA", "ETF*"])
    assert import_panel(csv(tmp_path, rows()), investable=["?A", "AA"]).investable.tolist() == [0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('"date,AAA,BBB\n2020-01-01,1,2\n', 1),
        ('date;AAA;BBB"\n2020-01-01;1;2\n', 1),
        ('date,AAA,BBB\n2020-01-01,1,2\n2020-01-02,"2,3\n2020-01-03,4,5\n', 3),
        ('date,AAA,BBB\n2020-01-01,1,2\n2020-01-02,2,3"\n2020-01-03,4,5\n', 3),
    ],
)
def test_a_quotation_mark_without_a_second_is_named_by_its_line(text: str, line: int, tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=rf"prices\.csv: line {line}: .*quotation mark"):
        import_panel(file)
