"""How often does the 90 % interval of a difference hold the truth? Returns of kinds whose mean is known to be 0.

    python benchmarks/trading/bench_intervals.py [--repeats 4000]

A row for each kind of returns, a column for each number of days: the share of intervals that hold 0, by
`estimate_difference` of the package, which every result, study and comparison uses.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import numpy as np
from claims import Claim, record_claims

from flatwater_trading.recipe.return_difference import estimate_difference

DAYS = (60, 126, 252, 1000)
WARM_UP_DAYS = 300
"""Days that are drawn before the first that counts, so that a process has forgotten how it began."""
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def correlated_drawer(correlation: float) -> Draw:
    """Return a drawer of returns whose neighbours have that correlation."""

    def draw(draws: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
        shocks = draws.standard_normal(shape)
        for day in range(1, shape[1]):
            shocks[:, day] += correlation * shocks[:, day - 1]
        return np.asarray(shocks)

    return draw


def draw_garch(draws: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Draw returns of a GARCH(1, 1) with heavy tails: restless stretches and calm ones."""
    returns, variance = draws.standard_t(6, shape) / np.sqrt(1.5), np.ones(shape[0])
    for day in range(shape[1]):
        returns[:, day] *= np.sqrt(variance)
        variance = 0.04 + 0.08 * returns[:, day] ** 2 + 0.88 * variance
    return np.asarray(returns)


def draw_seldom_invested(draws: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Draw the returns of a trader that is invested a third of the time, for 20 days each, and seldom wins much."""
    stretches = draws.random((shape[0], shape[1] // 20 + 2)) < 0.3
    invested = np.repeat(stretches, 20, axis=1)[:, 7 : shape[1] + 7]
    return np.asarray(invested * (draws.exponential(1, shape) - 1))


def draw_drifting(draws: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Draw returns whose mean drifts, with a life of 30 days and 2 % of the variance."""
    kept = np.exp(-1 / 30)
    drift = correlated_drawer(kept)(draws, shape) * np.sqrt(0.02 * (1 - kept**2))
    return np.asarray(drift + np.sqrt(0.98) * draws.standard_normal(shape))


KINDS: dict[str, Draw] = {
    "independent": correlated_drawer(0.0),
    "heavy tails (t of 4)": lambda draws, shape: draws.standard_t(4, shape),
    "correlation 0.1": correlated_drawer(0.1),
    "correlation 0.3": correlated_drawer(0.3),
    "correlation -0.2": correlated_drawer(-0.2),
    "GARCH, t of 6": draw_garch,
    "seldom invested": draw_seldom_invested,
    "a mean that drifts": draw_drifting,
}


def coverage(draw: Draw, days: int, repeats: int) -> float:
    """Return the share of intervals that hold the true mean."""
    returns = draw(np.random.default_rng(7), (repeats, WARM_UP_DAYS + days))[:, WARM_UP_DAYS:]
    nothing = np.zeros(days)
    found = [estimate_difference(each, nothing, a_year=252) for each in returns]
    return float(np.mean([each.low <= 0 <= each.high for each in found]))


def claims(rows: dict[str, list[float]]) -> Iterator[Claim]:
    """Yield a claim: the least and the largest share over the kinds, by number of days."""
    by_days = [sorted(shares) for shares in zip(*rows.values(), strict=True)]
    measured = ", ".join(f"{each[0]:.0%} to {each[-1]:.0%}" for each in by_days)
    at = " / ".join(f"{days:,}" for days in DAYS)
    yield Claim("trading", "coverage", f"share of 90 % intervals that hold the truth at {at} days, 8 kinds", measured)


def main() -> None:
    """Print a line for each kind of returns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=4000)
    repeats = parser.parse_args().repeats
    print(f"{'returns':<24}" + "".join(f"{days:>8,}" for days in DAYS))
    rows = {}
    for kind, draw in KINDS.items():
        rows[kind] = [coverage(draw, days, repeats) for days in DAYS]
        print(f"{kind:<24}" + "".join(f"{share:>8.1%}" for share in rows[kind]), flush=True)
    record_claims(claims(rows))


if __name__ == "__main__":
    main()
