"""Target weights: what do they grow to on markets of known law, on days that nothing was chosen on (the holdout)?

    python benchmarks/trading/bench_weights.py [--markets trend ...] [--seeds 0 1 2] [--shorts] [--json]

Only the panel, the seed and the length of the splits are given: the rest are the defaults. Growth is the log of what
the money is multiplied by over the 1,000 days. The oracle knows the law and trades by the rules of purchases: one a
day, the instrument with the highest expected return of the next 20 days, held for 20. Weights may be changed every day,
so they can grow more than it.

Settings were chosen on seeds 100 and 101 of these markets. Seeds 0, 1 and 2, the default, were never looked at before.
The last four markets are of kinds that the library does not generate: their prices are made here, with what the oracle
expects of them.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import numpy as np
import torch
from bench_learning import JUDGED, MARKETS
from claims import Claim, record_claims
from sizes import Silent

from flatwater.trainers.loop import train_
from flatwater_trading.market.config import PortfolioConfig
from flatwater_trading.panel.locate import load_truth
from flatwater_trading.panel.panel import FEATURES, build_panel
from flatwater_trading.panel.store import save_panel
from flatwater_trading.recipe.weights.config import WeightsRunConfig
from flatwater_trading.recipe.weights.run import WeightsRun, compose, make_trader
from flatwater_trading.recipe.weights.score import score_weights

DAYS = 3781
NOISE = 0.012
"""Daily deviation of an instrument's own noise."""
HELD = np.arange(1, 21)
"""Days after a purchase until it is sold: what the oracle expects is the sum of their returns."""


@dataclass(frozen=True)
class OwnMarket:
    """A market of a kind that the library does not generate."""

    closes: np.ndarray
    """Closes [T, K] of what can be bought."""
    truth: np.ndarray
    """Expected log returns [T, K] of the days `HELD`, which the oracle knows."""
    watched: np.ndarray | None = None
    """Closes [T, C] of what can only be seen."""


def momentum_by_level(rng: np.random.Generator) -> OwnMarket:
    """Past shocks go on or are taken back; the level of a column that cannot be bought says which."""
    flips, strength, persistence = 1 / 150, 0.08, 0.95
    sign = 1 - 2 * (np.cumsum(rng.random(DAYS) < flips) % 2)
    shocks = NOISE * rng.standard_normal((DAYS, 30))
    returns, weighted, memory = np.empty_like(shocks), np.zeros(30), np.empty_like(shocks)
    for day in range(DAYS):
        returns[day] = shocks[day] + sign[day] * strength * weighted
        weighted = persistence * weighted + shocks[day]
        memory[day] = weighted
    # The next day's return has the whole memory, later days have what is left of it and of the sign.
    expected = strength * (persistence ** (HELD - 1) * (1 - 2 * flips) ** HELD).sum() * sign[:, None] * memory
    watched = (100 + 10 * sign + 2 * rng.standard_normal(DAYS))[:, None]
    return OwnMarket(prices_of(returns), expected - drag_of(returns), watched)


def volatility_timing(rng: np.random.Generator, *, strength: float) -> OwnMarket:
    """Calm days rise and restless ones fall; regimes live 60 days."""
    flips, calm, restless_drift = 1 / 60, 0.001 * strength, -0.002 * strength
    restless = np.cumsum(rng.random(DAYS) < flips) % 2 == 1
    drift = np.where(restless, restless_drift, calm)
    market = drift + np.where(restless, 0.018, 0.006) * rng.standard_normal(DAYS)
    own = 0.006 * rng.standard_normal((DAYS, 30))
    betas = rng.uniform(0.7, 1.3, 30)
    returns = market[:, None] * betas + own
    usual = (calm + restless_drift) / 2
    expected = len(HELD) * usual + ((1 - 2 * flips) ** HELD).sum() * (drift - usual)
    return OwnMarket(prices_of(returns), expected[:, None] * betas - drag_of(returns))


def ten_pairs(rng: np.random.Generator) -> OwnMarket:
    """Ten pairs of instruments whose distance returns to its mean, by a twentieth a day."""
    common, shocks, distance = np.cumsum(NOISE * rng.standard_normal((DAYS, 10)), 0), [], np.zeros(10)
    for shock in NOISE * rng.standard_normal((DAYS, 10)):
        distance = 0.95 * distance + shock
        shocks.append(distance)
    half = np.array(shocks) / 2
    levels = np.stack([common + half, common - half], -1).reshape(DAYS, 20)
    returns = np.diff(levels, axis=0, prepend=levels[:1]) + 0.006 * rng.standard_normal((DAYS, 20))
    expected = (0.95 ** len(HELD) - 1) * np.stack([half, -half], -1).reshape(DAYS, 20)
    return OwnMarket(prices_of(returns), expected - drag_of(returns))


def prices_of(returns: np.ndarray) -> np.ndarray:
    """Return closes whose mean daily return is not lifted by their variance."""
    return np.asarray(100 * np.exp(np.cumsum(returns - returns.var(0) / 2, axis=0)))


def drag_of(returns: np.ndarray) -> np.ndarray:
    """Return what `prices_of` takes from the log return of the days `HELD`, of each instrument."""
    return np.asarray(len(HELD) * returns.var(0) / 2)


OWN: dict[str, Callable[[np.random.Generator], OwnMarket]] = {
    "momentum by level": momentum_by_level,
    "volatility, strong": lambda rng: volatility_timing(rng, strength=1.0),
    "volatility, weak": lambda rng: volatility_timing(rng, strength=0.35),
    "ten pairs": ten_pairs,
}
KNOWN = {name: panel for name, panel in MARKETS.items() if name != "costs"}
TARGETS = {"interaction": 2.0, "trend": 2.0, "weak": 1.2, "reversal": 2.5, "lead": 0.9, "momentum by level": 3.0}
"""Growth that is wanted, in multiples of the oracle's."""
SHOWN = (
    "champion",
    "equal weight",
    "20-day momentum",
    "ridge, top five",
    "ridge, weights",
    "volatility rule",
    "oracle",
)


def store_own(market: OwnMarket, file: Path) -> None:
    """Store the panel of a market of this file."""
    closes, watched = market.closes, market.watched
    columns = closes if watched is None else np.concatenate([closes, watched], axis=1)
    values = np.full((*columns.shape, len(FEATURES)), np.nan, dtype=np.float32)
    for name in ("open", "high", "low", "close"):
        values[..., FEATURES.index(name)] = columns
    names = [f"S{n}" for n in range(columns.shape[1])]
    first = np.datetime64("2000-01-03")
    dates = np.busday_offset(first, np.arange(DAYS))
    panel = build_panel(values=values, dates=dates, instruments=names, investable=names[: closes.shape[1]])
    save_panel(panel, file)


def learn(market: str, seed: int, changes: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Train one run with the defaults, and play its holdout; log growth of each trader."""
    if market in KNOWN:
        panel = KNOWN[market].format(seed=seed)
        truth = load_truth(panel)
    else:
        own = OWN[market](np.random.default_rng([seed, 77]))
        panel, truth = str(folder / f"{market.replace(' ', '_').replace(',', '')}_{seed}.safetensors"), own.truth
        store_own(own, Path(panel))
    began = time.process_time()
    config = replace(WeightsRunConfig(seed=seed, threads=1, panel=panel, splits=JUDGED), **changes)
    run: WeightsRun = compose(config)
    train_(run.trainer, config.rounds, Silent())
    took = time.process_time() - began
    splits, trader = run.setup.splits, make_trader(run)
    learned_rows = range(splits.train.first, splits.train.stop)
    score = score_weights(trader.evaluation(run.panel, splits.holdout, learned_rows, truth, None))
    grown = {name: float(np.log1p(row["total_return"])) for name, row in score.rows.items()}
    return {
        **grown,
        "learned": float(np.log1p(score.learned_return)),
        "held": score.held_share,
        "rest": score.rest,
        "cpu_seconds": took,
    }


def line(row: dict[str, Any]) -> str:
    """Log growths of a run, side by side."""
    grown = "".join(f"{row[name]:>11.2f}" if name in row else f"{'':>11}" for name in SHOWN)
    share = f"{row['champion'] / row['oracle']:>8.2f}" if row.get("oracle") else f"{'':>8}"
    held = f"{row['held']:.0%} + {row['rest']}"
    return (
        f"{row['market']:<19}{row['seed']:>4}{grown}{share}{row['learned']:>9.2f}  {held:<20}{row['cpu_seconds']:>5.0f}"
    )


def main() -> None:
    """Train on every market and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markets", choices=[*KNOWN, *OWN], nargs="+", default=[*KNOWN, *OWN])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--shorts", action="store_true", help="weights may be below 0")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    account, rows = PortfolioConfig(shorts=options.shorts), list[dict[str, Any]]()
    if not options.json:
        titles = "".join(f"{name.removeprefix('20-day '):>11}"[:11] for name in ("champion", "equal", "momentum"))
        titles += "".join(f"{name:>11}" for name in ("ridge 5", "ridge w", "vol. rule", "oracle"))
        print(f"{'market':<19}{'seed':>4}{titles}{'share':>8}{'learned':>9}  {'held':<20}{'CPU s':>5}")
    with tempfile.TemporaryDirectory() as folder:
        for market in options.markets:
            for seed in options.seeds:
                rows.append({"market": market, "seed": seed} | learn(market, seed, {"account": account}, Path(folder)))
                if not options.json:
                    print(line(rows[-1]), flush=True)
    record_claims(claims(rows, "short" if options.shorts else ""))
    if options.json:
        print(json.dumps(rows, indent=1))


def claims(rows: list[dict[str, Any]], kind: str) -> Iterator[Claim]:
    """Yield the claim of each market: growth beside the oracle's, elsewhere beside the better of two ridge rules."""
    for market in dict.fromkeys(row["market"] for row in rows):
        of = [row for row in rows if row["market"] == market]
        mean = {name: sum(row[name] for row in of) / len(of) for name in SHOWN if all(name in row for row in of)}
        kind_said = ", long and short" if kind else ""
        name = f"target weights{kind_said}, market `{market}`, {len(of)} seeds, holdout: log growth of 1,000 days"
        key = f"weights{kind}.{market.replace(' ', '_').replace(',', '')}"
        if market == "none":
            apart = max(abs(math.expm1(row["champion"]) - math.expm1(row["equal weight"])) for row in of)
            cash = max(abs(math.expm1(row["champion"])) for row in of)
            rival = f"within {min(apart, cash):.3f} of equal weight or cash"
            yield Claim(
                "trading", key, name, f"{mean['champion']:.2f}", "within 3 points", min(apart, cash) <= 0.03, rival
            )
        elif market in TARGETS:
            wanted, share = TARGETS[market], mean["champion"] / mean["oracle"]
            said = f"{share:.2f} of the oracle's"
            yield Claim(
                "trading", key, name, said, f"{wanted:g} or more", share >= wanted, f"{mean['oracle']:.2f} (oracle)"
            )
        else:
            ridge = max(mean["ridge, top five"], mean["ridge, weights"])
            wins = mean["champion"] >= max(0.0, ridge)
            rivals = ", ".join(f"{mean[rule]:.2f} ({rule})" for rule in ("volatility rule", "oracle"))
            yield Claim(
                "trading",
                key,
                name,
                f"{mean['champion']:.2f}",
                "0 and ridge or more",
                wins,
                f"{ridge:.2f} (ridge), {rivals}",
            )


if __name__ == "__main__":
    main()
