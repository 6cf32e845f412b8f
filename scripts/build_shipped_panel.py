"""Build the panel that comes with the package, from the stock prices of `bokeh_sampledata`.

    python scripts/build_shipped_panel.py

The source is public domain (Quandl WIKI prices; the package's `stocks.py` says so and gives the references): AAPL, IBM
and MSFT 2000-03-01 to 2013-03-01, GOOG from its listing in 2004, FB from 2012. Its open, high, low and close are as
quoted on the day. A split would look like a crash (AAPL halves on 2000-06-21 and 2005-02-28), so each day's four prices
are multiplied by that day's adjusted over quoted close, which takes out splits and dividends.
"""

import tempfile
from pathlib import Path

import polars as pl
from bokeh_sampledata import package_path

from flatwater_trading.panel.importing import import_panel
from flatwater_trading.panel.locate import shipped_panel_path
from flatwater_trading.panel.store import save_panel

PRICES = ("Open", "High", "Low", "Close")
INVESTABLE = ("AAPL", "GOOG", "IBM", "MSFT")
"""FB is a context column: it was listed after the last training day of the default splits."""


def main() -> None:
    """Adjust the prices, import and store the panel, and print what was stored."""
    quoted = pl.read_csv(package_path("stocks.csv.gz"))
    # One factor for the four prices of a day, so that high, low and close keep their order.
    factor = pl.col("Adj Close") / pl.col("Close")
    adjusted = quoted.select("Ticker", "Date", *(pl.col(price) * factor for price in PRICES))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "stocks.parquet"
        adjusted.write_parquet(source)
        panel = import_panel(source, investable=INVESTABLE)
    target = shipped_panel_path()
    target.parent.mkdir(exist_ok=True)
    save_panel(panel, target)
    days, columns = panel.valid.shape
    print(f"{target}: {days} days x {columns} instruments, {target.stat().st_size:,} bytes, {panel.fingerprint}")


if __name__ == "__main__":
    main()
