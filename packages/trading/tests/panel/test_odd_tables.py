"""Odd tables of prices: each is read as it was meant or refused in a sentence, without a traceback or other numbers."""

import itertools
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest

from flatwater_trading.panel.importing import read_prices
from flatwater_watch.errors import DataError

DAYS = [date(2024, 1, 29) + timedelta(days=n) for n in range(14)]
"""With days above 12 and below, over a change of month."""
PRICES = [1234.5 + 7 * n for n in range(14)]


def table(head: str, rows: list[str], end: str = "\n") -> bytes:
    return (end.join([head, *rows]) + end).encode()


def daily(form: str = "%Y-%m-%d", number: str = "{}", separator: str = ",", symbol: str = "") -> list[str]:
    return [
        separator.join(filter(None, [day.strftime(form), symbol, number.format(price)]))
        for day, price in zip(DAYS, PRICES, strict=True)
    ]


def comma(price: float, *, thousands: str = ".") -> str:
    return f"{price:,.2f}".replace(",", "_").replace(".", ",").replace("_", thousands)


def read_right() -> Iterator[tuple[str, bytes]]:
    """What means the prices above, on the days above."""
    forms = ["%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d.%m.%Y", "%d-%b-%Y", "%d %B %Y", "%b %d %Y", "%m/%d/%Y", "%d/%m/%Y"]
    forms += [
        "%Y-%m-%dT00:00:00",
        "%Y-%m-%d 16:00",
        "%Y-%m-%dT16:00:00Z",
        "%Y-%m-%dT16:00:00+01:00",
        "%m/%d/%Y 4:00 PM",
    ]
    for form in forms:
        yield f"date {form}", table("date,A", daily(form))
    for name in ("Date", " DATE ", "<DATE>", "timestamp", "Datum", "", "index", "Trade Date"):
        yield f"head {name!r}", table(f"{name},A", daily())
    for separator in (";", "\t"):
        yield f"separator {separator!r}", table(separator.join(("date", "A")), daily(separator=separator))
    semicolons = [f"{day};{comma(price)}" for day, price in zip(DAYS, PRICES, strict=True)]
    yield "decimal comma", table("date;A", semicolons)
    yield "decimal comma, quoted", table("date,A", [row.replace(";", ',"') + '"' for row in semicolons])
    yield "thousands", table("date,A", [f'{day},"{price:,.2f}"' for day, price in zip(DAYS, PRICES, strict=True)])
    for money in ("${}", "€ {}", " {} ", '"{}"', "{}e0", "+{}", "{}000"):
        yield f"number {money}", table("date,A", daily(number=money))
    yield "Windows", table("date,A", daily(), "\r\n")
    yield "newest first", table("date,A", daily()[::-1])
    yield "no last newline", table("date,A", daily())[:-1]
    yield "byte order mark", b"\xef\xbb\xbf" + table("date,A", daily())
    yield "quoted head", table('"date","A"', daily())
    yield "long", table("date,symbol,close", daily(symbol="A"))
    yield (
        "long, shuffled columns",
        table("close,date,symbol", [f"{p},{d},A" for d, p in zip(DAYS, PRICES, strict=True)]),
    )
    yield (
        "Yahoo",
        table(
            "Date,Open,High,Low,Close,Adj Close,Volume",
            [f"{d},{p},{p},{p},{p},{p},9" for d, p in zip(DAYS, PRICES, strict=True)],
        ),
    )
    yield "Stooq", table("<TICKER>,<DATE>,<CLOSE>", [f"A,{d:%Y%m%d},{p}" for d, p in zip(DAYS, PRICES, strict=True)])
    yield (
        "a column of text beside",
        table("date,symbol,close,note", [f'{d},A,{p},"said ""so"",\nthen"' for d, p in zip(DAYS, PRICES, strict=True)]),
    )
    yield (
        "epoch",
        table("date,A", [f"{int((d - date(1970, 1, 1)).days) * 86400},{p}" for d, p in zip(DAYS, PRICES, strict=True)]),
    )
    yield (
        "epoch, ms",
        table(
            "date,A", [f"{int((d - date(1970, 1, 1)).days) * 86400000},{p}" for d, p in zip(DAYS, PRICES, strict=True)]
        ),
    )
    yield (
        "100 more columns",
        table("date,A," + ",".join(f"B{n}" for n in range(100)), [f"{row}{',1' * 100}" for row in daily()]),
    )


def refused_tables() -> Iterator[tuple[str, bytes]]:
    """What can mean nothing, or several things."""
    rows = daily()
    bad_numbers = (
        "inf",
        "-inf",
        "1e400",
        "twelve",
        "1.2.3",
        "--5",
        "0x10",
        "5%",
        "1 234.5",
        "-1",
        "0",
        "1e-40",
        "1e35",
        "١٢٣",
    )
    for number in bad_numbers:
        yield f"number {number}", table("date,A", [*rows[:5], f"{DAYS[5]},{number}", *rows[6:]])
    for day in (
        "2024-02-30",
        "2024-13-01",
        "yesterday",
        "",
        "nan",
        "2024-1",
        "31.02.2024",
        "24-01-05",
        "2024-01-29 x",
        "1e9",
        "²024-01-01",
    ):
        yield f"day {day!r}", table("date,A", [*rows[:5], f"{day},5", *rows[6:]])
    yield "two orders of dates", table("date,A", ["31/01/2024,1", "02/13/2024,2"])
    yield "no order of dates", table("date,A", ["01/02/2024,1", "02/02/2024,2"])
    yield "twice", table("date,A", [*rows, rows[0]])
    yield "unsorted", table("date,A", [rows[3], rows[1], rows[2]])
    yield "clock put back", table("date,A", ["2024-10-27T01:30,1", "2024-10-27T01:30,2"])
    yield "intraday", table("date,A", ["2024-10-27T01:30,1", "2024-10-27T02:30,2"])
    yield "empty lines", table("date,A", rows, "\n\n")
    yield "newline in a head", table('"date\n(local)",A', rows)
    yield "empty", b""
    yield "newlines", b"\n\n\n"
    yield "head alone", table("date,A", [])
    yield "one column", table("date", [row[:10] for row in rows])
    yield "no date", table("A,B", ["1,2", "3,4"])
    yield "no name, twice", table("date,A,,", [f"{row},1,2" for row in rows])
    for twice in ("AAA,AAA", "A,B,A", "A,,B,"):
        yield f"head {twice}", table(f"date,{twice}", [f"{day}{',1' * (twice.count(',') + 1)}" for day in DAYS])
    yield "two closes", table("date,symbol,close,Close", [f"{day},A,1,2" for day in DAYS])
    yield "short row", table("date,A,B", ["2024-01-01,1,2", "2024-01-02,1"])
    yield "long row", table("date,A,B", ["2024-01-01,1,2", "2024-01-02,1,2,3"])
    yield "quote not closed", table("date,A", ['2024-01-01,"1', "2024-01-02,2"])
    yield "no symbol", table("date,symbol,close", ["2024-01-01,A,1", "2024-01-02,,1"])
    yield "no price", table("date,A", [f"{day}," for day in DAYS])
    yield "high below low", table("date,symbol,open,high,low,close", ["2024-01-01,A,5,4,6,5"])
    yield "close above high", table("date,symbol,open,high,low,close", ["2024-01-01,A,5,6,4,7"])
    yield "Latin 1", "date,Müller\n2024-01-01,1\n".encode("latin-1")
    yield "mixed encodings", table("date,symbol,close", ["2024-01-01,Ä,1"]) + "2024-01-02,Ä,1\n".encode("latin-1")
    yield "zeros", bytes(1000)
    yield "binary", bytes(range(256)) * 4
    yield "numbers in two ways", table("date;A", ["2024-01-01;1.234,5", "2024-01-02;1,234.5"])
    yield "HTML", b"<html><body>Too many requests</body></html>"
    yield "JSON", b'{"error": "limit"}'
    yield "adjusted missing", table("date,symbol,close,adj close", ["2024-01-01,A,1,", "2024-01-02,A,1,1"])


RIGHT, REFUSED = dict(read_right()), dict(refused_tables())


@pytest.mark.parametrize("name", RIGHT)
def test_it_is_read_as_it_was_meant(name: str, tmp_path: Path) -> None:
    (tmp_path / "A.csv").write_bytes(RIGHT[name])
    panel = read_prices(tmp_path / "A.csv").panel
    assert panel.dates.tolist() == DAYS
    assert panel.instruments[0] == "A"
    np.testing.assert_allclose(panel.feature("close")[:, 0], PRICES, rtol=1e-7)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "A.csv").write_bytes(REFUSED[name])
    with pytest.raises(DataError) as wrong:
        read_prices(tmp_path / "A.csv")
    assert str(wrong.value).startswith(str(tmp_path / "A.csv"))
    assert len(str(wrong.value)) < 600


def test_there_are_120_tables() -> None:
    assert len(RIGHT) + len(REFUSED) + 20 >= 120


@pytest.mark.parametrize(("days", "columns"), [*itertools.product((1, 2, 15), (1, 2))])
def test_small_tables(days: int, columns: int, tmp_path: Path) -> None:
    names = [f"S{n}" for n in range(columns)]
    rows = [f"{date(2024, 1, 1) + timedelta(days=n)}{',5' * columns}" for n in range(days)]
    (tmp_path / "small.csv").write_bytes(table(",".join(["date", *names]), rows))
    assert read_prices(tmp_path / "small.csv").panel.valid.shape == (days, columns)


@pytest.mark.slow
def test_a_hundred_thousand_columns(tmp_path: Path) -> None:
    count = 100_000
    head = ",".join(["date", *(f"S{n}" for n in range(count))])
    (tmp_path / "wide.csv").write_bytes(table(head, [f"{day}{',5' * count}" for day in DAYS]))
    assert read_prices(tmp_path / "wide.csv").panel.valid.shape == (len(DAYS), count)
