"""Regressions over a moving window, of which a coefficient each is wanted at the end.

Thread: https://github.com/statsmodels/statsmodels/issues/2113
Looks like: memory climbs with the windows, by several copies of the data of each.
Fix: keep `fit.params`, or call `fit.remove_data()`.
"""

import sys
import time

import numpy as np
import pandas as pd
import statsmodels.api as sm


def prices(days: int) -> pd.DataFrame:
    moves = np.random.default_rng(1).normal(size=(days, 6))
    return pd.DataFrame(moves, columns=["market", "size", "value", "momentum", "quality", "share"])


def main(rounds: int) -> None:
    table = prices(12_000 + 10 * rounds)
    fits = {}
    for n in range(rounds):
        window = table.iloc[10 * n : 10 * n + 12_000]
        factors = sm.add_constant(window.drop(columns="share"))
        fits[n] = sm.OLS(window["share"], factors).fit()  # <- here
        time.sleep(0.14)
    print(pd.Series({n: fit.params["market"] for n, fit in fits.items()}).describe())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
