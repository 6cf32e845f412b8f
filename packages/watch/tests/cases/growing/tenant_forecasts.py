"""Forecasts of one tenant after the other, the stores of a tenant in parallel in a pool of pathos.

Thread: https://github.com/uqfoundation/pathos/issues/131, https://github.com/uqfoundation/pathos/issues/74
Looks like: two more worker processes for each tenant, and the process that started them stays as it is.
Cause: pathos remembers each pool by its `id`, and the workers of a tenant that is done live on.
Fix: `pool.close()`, `pool.join()` and `pool.clear()` after `map`, or one pool for all tenants.
"""

import random
import sys
import time

import numpy as np
from pathos.pools import ProcessPool

_weather = {}


def weather_table(year):
    if year not in _weather:
        _weather[year] = np.random.default_rng(year).normal(10, 8, (365, 800))  # <- or here
    return _weather[year]


def forecast(store):
    weather = weather_table(2024)
    sales = np.random.default_rng(store).poisson(40, 365)
    column = weather[:, store % weather.shape[1]]
    slope = np.cov(column, sales)[0, 1] / column.var()
    return store, float(sales[-28:].mean() + slope * (column[-7:].mean() - column.mean()))


def run_tenant(tenant, stores):
    pool = ProcessPool(nodes=2, id=tenant)  # <- here
    return dict(pool.map(forecast, stores))  # <- or here


def main(tenants: int) -> None:
    random.seed(13)
    for done in range(tenants):
        tenant = f"tenant-{done:03d}"
        forecasts = run_tenant(tenant, random.sample(range(10_000), 8))  # <- or here
        print(f"{tenant}: {sum(forecasts.values()):.0f} sales expected", flush=True)
        time.sleep(1.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 11)
