"""Figures of a year at every frequency, against empyrical: the same prices taken each day, week, month and quarter.

    python benchmarks/trading/bench_figures.py PRICES.parquet    # long form: symbol, date, close; needs empyrical

Each file is written, imported as a user would, and what makes a year follows from its dates alone. The curve is equal
amounts of all instruments, held. Prints the largest relative difference of Sharpe, Sortino, Calmar, alpha and beta.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from flatwater_trading.market import equity_measures

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import empyrical  # type: ignore[import-not-found]  # installed for this program alone
import numpy as np
import polars as pl
import torch
from claims import Claim, record_claims

from flatwater_trading.panel.importing import read_prices

TAKEN = {"daily": None, "weekly": "1w", "monthly": "1mo", "quarterly": "1q"}
KNOWN = {"daily": 252, "weekly": 52, "monthly": 12, "quarterly": 4}


def difference(prices: pl.DataFrame, frequency: str, folder: Path) -> float:
    """The largest relative difference at one frequency."""
    every = TAKEN[frequency]
    taken = prices if every is None else prices.group_by("symbol", pl.col("date").dt.truncate(every)).last()
    file = folder / f"{frequency}.parquet"
    taken.sort("symbol", "date").write_parquet(file)
    panel = read_prices(file).panel
    close = panel.feature("close").astype(np.float64)
    curve, market = (close[:, columns] / close[0, columns] for columns in (slice(0, 4), slice(None)))
    own, held = curve.mean(1), market.mean(1)
    returns, of_market = own[1:] / own[:-1] - 1, held[1:] / held[:-1] - 1
    equity, other, a_year = torch.from_numpy(own), torch.from_numpy(held), panel.calendar.a_year
    alpha, beta = equity_measures.alpha_beta(equity, other, a_year)
    found = [
        each(equity, a_year).item()
        for each in (equity_measures.sharpe, equity_measures.sortino, equity_measures.calmar)
    ]
    year = {"annualization": KNOWN[frequency]}
    ratios = (empyrical.sharpe_ratio, empyrical.sortino_ratio, empyrical.calmar_ratio)
    # Empyrical compounds alpha; ours is the line's height times the periods, so that is what is compared.
    line = empyrical.alpha(returns, of_market, **year)
    known = [each(returns, **year) for each in ratios]
    pairs = [*zip(found, known, strict=True), (beta.item(), empyrical.beta(returns, of_market))]
    pairs.append(((1 + alpha.item() / a_year) ** a_year - 1, line))
    print(f"{frequency:<10} {panel.calendar.in_words:<32} Sharpe {found[0]:.6f} and {known[0]:.6f}")
    return float(max(abs(ours / theirs - 1) for ours, theirs in pairs))


def main() -> None:
    """All frequencies."""
    prices = pl.read_parquet(sys.argv[1])
    with TemporaryDirectory() as folder:
        worst = max(difference(prices, frequency, Path(folder)) for frequency in TAKEN)
    print(f"largest relative difference: {worst:.1e}")
    name = "Sharpe, Sortino, Calmar, alpha and beta against empyrical, at four frequencies: largest difference"
    record_claims([Claim("trading", "largest", name, f"{worst:.1e}", "≤ 1e-6", worst <= 1e-6)])


if __name__ == "__main__":
    main()
