"""Prices of hours or minutes: refused with what to type, or made one row a day; whatever the times look like."""

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from flatwater.cli.main import main
from flatwater_trading.panel.importing import read_prices
from flatwater_trading.panel.panel import Panel
from flatwater_watch.errors import DataError

FIRST = datetime(2024, 3, 4, 9, 30)  # noqa: DTZ001  (as a file has it)
FORMS = {
    "ISO": lambda stamp: stamp.isoformat(),
    "space": lambda stamp: stamp.strftime("%Y-%m-%d %H:%M"),
    "zone": lambda stamp: stamp.isoformat() + "-05:00",
    "German": lambda stamp: stamp.strftime("%d.%m.%Y %H:%M:%S"),
    "American": lambda stamp: stamp.strftime("%m/%d/%Y %I:%M %p"),
    "seconds": lambda stamp: str(int(stamp.timestamp())),
    "milliseconds": lambda stamp: str(int(1000 * stamp.timestamp())),
}


def hourly(days: int = 20) -> pl.DataFrame:
    """Seven rows a day, in each of which the price rises by 1."""
    stamps = [FIRST + timedelta(days=day, hours=hour) for day in range(days) for hour in range(7)]
    close = [100.0 + n for n in range(len(stamps))]
    return pl.DataFrame({"date": stamps, "open": close, "close": close}).with_columns(
        high=pl.col("close") + 2, low=pl.col("close") - 3, open=pl.col("open") - 1
    )


def write_bars(frame: pl.DataFrame, form: str, file: Path) -> Path:
    stamps = [FORMS[form](stamp) for stamp in frame["date"]]
    frame.with_columns(date=pl.Series(stamps)).write_csv(file)
    return file


def row(panel: Panel, day: int) -> list[float]:
    return [float(panel.feature(name)[day, 0]) for name in ("open", "high", "low", "close")]


@pytest.mark.parametrize("form", FORMS)
def test_each_day_becomes_a_row(form: str, tmp_path: Path) -> None:
    file = write_bars(hourly(), form, tmp_path / "AAPL.csv")
    with pytest.raises(DataError, match=r"AAPL .*7 rows .*2024-03-04.*--bars daily .*--bars last"):
        read_prices(file)
    daily, last = (read_prices(file, bars=bars).panel for bars in ("daily", "last"))  # type: ignore[arg-type]  # both are
    assert daily.valid.shape == last.valid.shape == (20, 1)
    assert row(daily, 1) == [106, 115, 104, 113]
    assert row(last, 1) == [112, 115, 110, 113]


@pytest.mark.parametrize("shuffled", [False, True])
def test_the_order_of_rows_does_not_matter(shuffled: bool, tmp_path: Path) -> None:  # noqa: FBT001
    frame = hourly().with_columns(symbol=pl.lit("A"))
    both = pl.concat([frame, frame.with_columns(pl.col("open", "high", "low", "close") * 2, symbol=pl.lit("B"))])
    both = both.sample(fraction=1, shuffle=True, seed=0) if shuffled else both.reverse()
    both.write_parquet(tmp_path / "both.parquet")
    panel = read_prices(tmp_path / "both.parquet", bars="daily").panel
    assert row(panel, 1) == [106, 115, 104, 113]
    assert panel.feature("close")[:, 1].tolist() == (2 * panel.feature("close")[:, 0]).tolist()


def test_wide_files_and_holes(tmp_path: Path) -> None:
    """A day without a close is a hole, and a last row without one leaves the row before."""
    frame = (
        hourly()
        .select("date", A="close", B="close")
        .with_columns(B=pl.when(pl.col("date").dt.hour() == 15).then(None).otherwise(pl.col("B")))
    )
    file = write_bars(frame, "space", tmp_path / "wide.csv")
    for bars in ("daily", "last"):
        panel = read_prices(file, bars=bars).panel  # type: ignore[arg-type]  # both are
        assert panel.feature("close")[1].tolist() == [113, 112]


def test_a_time_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    frame = pl.concat([hourly(), hourly()[3:4]])
    with pytest.raises(DataError, match=r"row 142, AAPL: .*row 5\b"):
        read_prices(write_bars(frame, "ISO", tmp_path / "AAPL.csv"), bars="daily")


def test_daily_files_with_a_time_are_as_they_were(tmp_path: Path) -> None:
    frame = hourly().filter(pl.col("date").dt.hour() == 15)
    file = write_bars(frame, "ISO", tmp_path / "AAPL.csv")
    assert read_prices(file).panel.fingerprint == read_prices(file, bars="daily").panel.fingerprint


def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = write_bars(hourly(), "ISO", tmp_path / "AAPL.csv"), str(tmp_path / "out.safetensors")
    assert main(["panel", "import", str(file), "--out", out]) == 2
    assert "--bars daily" in capsys.readouterr().err
    assert main(["panel", "import", str(file), "--out", out, "--bars", "daily"]) == 0
    assert "20 days x 1 instruments" in capsys.readouterr().out
