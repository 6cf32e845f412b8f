"""Price files as brokers and vendors write them: read as polars holds them, or refused with what to change."""

import datetime as dt
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flatwater_trading.panel.dates import DateOrder
from flatwater_trading.panel.importing import import_panel
from flatwater_trading.panel.panel import FEATURES, PRICES
from flatwater_watch.errors import DataError

REAL = Path(__file__).parents[5] / "shared" / "data"
NAMES = ("IBM", "MSFT")


def market(days: int = 40, first: dt.date = dt.date(2024, 1, 25)) -> pl.DataFrame:
    """The truth that each file holds: symbol, date, open, high, low, close, volume; prices of up to four digits."""
    chance, rows = random.Random(7), []
    for name, level in zip(NAMES, (1980.0, 410.0), strict=True):
        price = level
        for day in range(days):
            opened, price = price, round(price * (1 + chance.gauss(0, 0.01)), 2)
            high, low = round(max(opened, price) * 1.004, 2), round(min(opened, price) * 0.996, 2)
            rows.append((name, first + dt.timedelta(days=day), opened, high, low, price, 1000 + day))
    return pl.DataFrame(rows, schema=["symbol", "date", *PRICES, "volume"], orient="row")


def one(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("symbol") == "IBM").drop("symbol")


def wide(frame: pl.DataFrame, pattern: str) -> pl.DataFrame:
    parts = [
        frame.filter(pl.col("symbol") == name).select(
            "date", *(pl.col(price).alias(pattern.format(name, price)) for price in PRICES)
        )
        for name in NAMES
    ]
    return parts[0].join(parts[1], on="date")


def german(frame: pl.DataFrame) -> pl.DataFrame:
    def cell(number: float) -> str:
        return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))

    return frame.with_columns(
        pl.col("date").dt.strftime("%d.%m.%Y"), pl.col(PRICES).map_elements(cell, return_dtype=pl.String)
    )


def american(frame: pl.DataFrame, sign: str = "") -> pl.DataFrame:
    def cell(number: float) -> str:
        return f"{sign}{number:,.2f}"

    return frame.with_columns(
        pl.col("date").dt.strftime("%m/%d/%Y"), pl.col(PRICES).map_elements(cell, return_dtype=pl.String)
    )


def format_dates(frame: pl.DataFrame, form: str) -> pl.DataFrame:
    return frame.with_columns(pl.col("date").dt.strftime(form))


def lists(frame: pl.DataFrame) -> pl.DataFrame:
    """Nine numbers a cell, in the order of the features."""
    nine = pl.concat_list(pl.col("open"), "close", "high", "low", *[pl.lit(0.0)] * 5)
    parts = [frame.filter(pl.col("symbol") == name).select("date", nine.alias(name)) for name in NAMES]
    return parts[0].join(parts[1], on="date")


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Lists as pandas writes them to CSV, under a date without a name."""
    return frame.select(
        pl.col("date").alias(""),
        *(
            pl.concat_str(pl.lit("["), pl.col(name).cast(pl.List(pl.String)).list.join(","), pl.lit("]")).alias(name)
            for name in NAMES
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """A file as somebody writes it."""

    name: str
    make: Callable[[pl.DataFrame], pl.DataFrame]
    kind: str = "csv"
    separator: str = ","
    above: tuple[str, ...] = ()
    """Lines over the table of a workbook."""
    sheet: str | None = None
    """The one that is asked for; a workbook with `above` has another one, of notes."""
    columns: dict[str, str] = field(default_factory=dict)
    """What a user maps."""
    dates: DateOrder | None = None
    investable: tuple[str, ...] | None = None
    single: bool = False
    """It holds IBM alone, and takes its name from the file."""
    closes: bool = False
    """It holds closes alone."""
    refused: str | None = None


def rename_columns(*names: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Symbol, date, prices and volume under other names."""
    return lambda frame: frame.rename(dict(zip(frame.columns, names, strict=True)))


def _with_adjusted_close(frame: pl.DataFrame) -> pl.DataFrame:
    """Yahoo's: prices before a split of two for one, beside the close that is adjusted for it."""
    early = pl.col("date") < dt.date(2024, 2, 10)
    raw = [pl.when(early).then(2 * pl.col(price)).otherwise(pl.col(price)).alias(price.title()) for price in PRICES]
    return one(frame).select(pl.col("date").alias("Date"), *raw, pl.col("close").alias("Adj Close"), pl.col("volume"))


def _with_spread(frame: pl.DataFrame) -> pl.DataFrame:
    closes = frame.pivot("symbol", index="date", values="close")
    return closes.with_columns(SPREAD=pl.col("date").dt.day() / 10 - 1.5)


def _evenings(frame: pl.DataFrame) -> pl.DataFrame:
    evening = pl.col("date").cast(pl.Datetime("us")).dt.offset_by("20h")
    return wide(frame, "{}.{}").with_columns(evening.dt.replace_time_zone("America/New_York"))


def _last(frame: pl.DataFrame) -> pl.DataFrame:
    closes = frame.pivot("symbol", index="date", values="close")
    return closes.rename({name: f"{name} last" for name in NAMES})


def _papers(frame: pl.DataFrame) -> pl.DataFrame:
    return german(frame).rename({"symbol": "Papier", "date": "Tag", "close": "Wert"})


def _yfinance(frame: pl.DataFrame) -> pl.DataFrame:
    """Several tickers at once: a head of prices, a head of tickers, a head of the date."""
    parts = wide(frame, "{}|{}").with_columns(pl.all().cast(pl.String))
    pairs = [name.split("|") for name in parts.columns[1:]]
    heads = [["Ticker", *(name for name, _ in pairs)], ["Date", *[""] * len(pairs)]]
    # polars wants different names, and cuts nothing off: spaces do not count.
    names = ["Price", *(price.title() + " " * at for at, (_, price) in enumerate(pairs))]
    return pl.DataFrame([*heads, *parts.rows()], schema=names, orient="row")


VENDORS = (
    Vendor(name="plain long CSV", make=lambda f: f),
    Vendor(name="Yahoo, a split inside", make=_with_adjusted_close, single=True),
    Vendor(name="Stooq", make=rename_columns("<TICKER>", "<DATE>", "<OPEN>", "<HIGH>", "<LOW>", "<CLOSE>", "<VOL>")),
    Vendor(
        name="Nasdaq: dollars, US dates, newest first",
        make=lambda f: american(one(f), "$").reverse().rename({"date": "Date", "close": "Close/Last"}),
        single=True,
    ),
    Vendor(
        name="Investing: months by name, newest first",
        make=lambda f: format_dates(one(f), "%b %d, %Y").reverse().rename({"date": "Date", "close": "Price"}),
        single=True,
    ),
    Vendor(
        name="Alpha Vantage",
        make=lambda f: (
            one(f)
            .reverse()
            .rename({"date": "timestamp", "open": "1. open", "high": "2. high", "low": "3. low", "close": "4. close"})
        ),
        single=True,
    ),
    Vendor(
        name="Alpaca: bars of one letter, UTC",
        make=lambda f: format_dates(one(f), "%Y-%m-%dT05:00:00Z").rename(
            dict(zip(("date", *PRICES), "tohlc", strict=True))
        ),
        single=True,
    ),
    Vendor(
        name="Binance: milliseconds",
        make=lambda f: one(f).with_columns(pl.col("date").cast(pl.Datetime("ms")).cast(pl.Int64)),
        single=True,
    ),
    Vendor(
        name="FinRL",
        make=lambda f: f.select("date", "open", "high", "low", "close", "volume", pl.col("symbol").alias("tic"), day=0),
    ),
    Vendor(name="German broker: ; and 1.234,5", make=german, separator=";"),
    Vendor(
        name="German names, mapped",
        make=_papers,
        separator=";",
        columns={"symbol": "Papier", "date": "Tag", "close": "Wert"},
    ),
    Vendor(
        name="Bloomberg, closes", make=lambda f: f.select(Kuerzel="symbol", Datum="date", PX_LAST="close"), closes=True
    ),
    Vendor(name="UK dates", make=lambda f: format_dates(f, "%d/%m/%Y")),
    Vendor(name="NSE: 25-Jan-2024", make=lambda f: format_dates(f, "%d-%b-%Y")),
    Vendor(name="wide, tab", make=lambda f: wide(f, "{}_{}"), separator="\t"),
    Vendor(name="wide, mapped", make=_last, columns={"close": "* last"}, closes=True),
    Vendor(name="wide Parquet, evenings in New York", make=_evenings, kind="parquet"),
    Vendor(name="nine numbers a cell, Parquet", make=lists, kind="parquet"),
    Vendor(name="nine numbers a cell, text", make=lambda f: as_text(lists(f))),
    Vendor(name="ETFs and a spread", make=_with_spread, investable=NAMES, closes=True),
    Vendor(name="yfinance, several tickers", make=_yfinance),
    Vendor(name="Excel", make=lambda f: f, kind="xlsx"),
    Vendor(name="Excel, wide, under a title", make=lambda f: wide(f, "{}.{}"), kind="xlsx", above=("Kurse", "")),
    Vendor(name="Excel, 1.234,5 as text", make=german, kind="xlsx", above=("Kurse",), sheet="Kurse"),
    Vendor(name="Excel, yfinance", make=_yfinance, kind="xlsx"),
    Vendor(
        name="a spread that would be traded",
        make=_with_spread,
        refused=r"row 9, SPREAD on 2024-02-01: SPREAD = .*--investable",
    ),
    Vendor(
        name="ambiguous dates",
        make=lambda f: format_dates(f.filter(pl.col("date").dt.day() <= 12), "%m/%d/%Y"),
        refused=r"row 2, column date: 02/01/2024 \(row 2\).*--dates mdy",
    ),
    Vendor(
        name="names that nobody knows",
        make=rename_columns(*"abcdefg"),
        refused="column date missing.*--map date=COLUMN",
    ),
    Vendor(
        name="intraday bars",
        make=lambda f: pl.concat([f, f]),
        refused=r"row 82, IBM: 2024-01-25 .* row 2\.",
    ),
)


def write_vendor_file(vendor: Vendor, folder: Path) -> Path:
    file = folder / f"IBM.{vendor.kind}"
    frame = vendor.make(market())
    if vendor.kind == "parquet":
        frame.write_parquet(file)
    elif vendor.kind == "csv":
        frame.write_csv(file, separator=vendor.separator)
    else:
        write_workbook(vendor, frame, file)
    return file


def write_workbook(vendor: Vendor, frame: pl.DataFrame, file: Path) -> None:
    """Numbers as numbers, days as days, text as text; what can be read as a number as one."""
    pytest.importorskip("python_calamine", reason="the extra `excel` is not installed")
    xlsxwriter = pytest.importorskip("xlsxwriter", reason="it is a part of `dev`")
    with xlsxwriter.Workbook(file, {"default_date_format": "dd.mm.yyyy"}) as book:
        table = book.add_worksheet("Kurse")
        table.write_column(0, 0, vendor.above)
        for at, row in enumerate([frame.columns, *frame.rows()], start=len(vendor.above)):
            table.write_row(at, 0, row)
        book.add_worksheet("Notizen").write_column(0, 0, ["von Hand gepflegt", "siehe Kurse"])


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)
def test_a_file_is_read_as_it_was_meant_or_refused(vendor: Vendor, tmp_path: Path) -> None:
    file = write_vendor_file(vendor, tmp_path)
    if vendor.refused is not None:
        with pytest.raises(DataError, match=vendor.refused):
            import_panel(file)
        return
    panel = import_panel(
        file, columns=vendor.columns, dates=vendor.dates, investable=vendor.investable, sheet=vendor.sheet
    )
    truth = market()
    for name in NAMES[:1] if vendor.single else NAMES:
        rows, column = truth.filter(pl.col("symbol") == name), panel.instruments.index(name)
        assert panel.dates.tolist() == rows["date"].to_list()
        for price in PRICES:
            wanted = rows["close" if vendor.closes else price].to_numpy().astype(np.float32)
            np.testing.assert_array_equal(panel.feature(price)[:, column], wanted, err_msg=f"{name} {price}")


@pytest.mark.parametrize("name", ["us_equities_adj_16x5402.parquet", "us_equities_adj_108x5402.parquet"])
def test_real_prices_are_as_polars_holds_them(name: str) -> None:
    if not (REAL / name).exists():
        pytest.skip("the shared market data is not on this machine")
    panel, frame = import_panel(REAL / name), pl.read_parquet(REAL / name)
    assert panel.values.shape == (5402, frame["symbol"].n_unique(), len(FEATURES))
    for price in PRICES:
        wanted = frame.pivot("symbol", index="date", values=price).sort("date").select(panel.instruments).to_numpy()
        np.testing.assert_array_equal(panel.feature(price), wanted)


def workbook(file: Path, **sheets: list[list[object]]) -> Path:
    pytest.importorskip("python_calamine", reason="the extra `excel` is not installed")
    xlsxwriter = pytest.importorskip("xlsxwriter", reason="it is a part of `dev`")
    with xlsxwriter.Workbook(file, {"default_date_format": "yyyy-mm-dd"}) as book:
        for name, rows in sheets.items():
            for at, row in enumerate(rows):
                book.add_worksheet(name) if at == 0 else None
                book.get_worksheet_by_name(name).write_row(at, 0, row)
    return file


ROWS: list[list[object]] = [["date", "AA"], [dt.date(2024, 1, 2), 1.234], [dt.date(2024, 1, 3), "1.234,5"]]


def test_a_number_in_a_workbook_is_no_text(tmp_path: Path) -> None:
    """1.234 of a cell that holds a number stays, beside a text that has a comma before its decimals."""
    rows = [*ROWS, [dt.date(2024, 1, 4), "#N/A"], [dt.date(2024, 1, 5), "n/a"], [dt.date(2024, 1, 6), 7]]
    close = import_panel(workbook(tmp_path / "a.xlsx", only=rows)).feature("close")[:, 0]
    np.testing.assert_array_equal(close, np.array([1.234, 1234.5, np.nan, np.nan, 7], dtype=np.float32))


@pytest.mark.parametrize(
    ("sheets", "asked", "said"),
    [
        ({"one": ROWS, "two": ROWS}, None, r"2 sheets .*\(one, two\)\. .*--sheet NAME"),
        ({"one": ROWS}, "two", r"--sheet two: .*: one\)"),
        ({"one": [["a"]], "two": [[""]]}, "two", "sheet two .*empty"),
        (
            {"one": [["date", "date", "AA"], *[[row[0], *row] for row in ROWS[1:]]]},
            None,
            "two columns .*'date'",
        ),
        ({"one": [*ROWS, [dt.date(2024, 1, 4), "close"]]}, None, "row 4, column AA: 'close' .*number"),
        ({"one": [*ROWS, ["Source: a broker", None]]}, None, "row 4, column date: 'Source: a broker' .*2013-03-01"),
    ],
)
def test_a_workbook_is_refused_with_its_remedy(
    tmp_path: Path, sheets: dict[str, list[list[object]]], asked: str | None, said: str
) -> None:
    with pytest.raises(DataError, match=said):
        import_panel(workbook(tmp_path / "a.xlsx", **sheets), sheet=asked)


def test_a_workbook_without_the_extra_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(DataError, match=r"pip install 'flatwater-trading\[excel\]'"):
        import_panel(tmp_path / "a.xlsx")


def test_a_file_that_is_no_workbook_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine", reason="the extra `excel` is not installed")
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"a\.xlsx: .*workbook .*read: .*save"):
        import_panel(tmp_path / "a.xlsx")
