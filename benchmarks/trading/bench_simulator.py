"""The trading simulator steps at least 200,000 env steps per CPU second: 80 episodes, 108 instruments, one thread.

    python benchmarks/trading/bench_simulator.py [--json]

Prices and actions are synthetic; a quarter of the days buys nothing. Process time is counted, so a busy machine matters
less than for the clock, but it still matters: the best of the runs is shown beside the median.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import torch
from claims import Claim, record_claims

from flatwater.state.tree import nbytes
from flatwater_trading.market.config import TradingConfig
from flatwater_trading.market.market import Market
from flatwater_trading.market.simulator import Simulator, build_simulator, reset_, step_

WANTED = 200_000
DAYS = 1500
INSTRUMENTS = 108
CPU = torch.device("cpu")


def random_market(rng: torch.Generator) -> Market:
    """Independent random walks of 2 % a day."""
    walk = torch.randn(DAYS, INSTRUMENTS, generator=rng).mul_(0.02).cumsum(0)
    close = 100 * walk.exp()
    return Market(
        observations=torch.zeros(INSTRUMENTS, DAYS, 1),
        close=close,
        high=(close * 1.01).T.contiguous().T,
        last_close=close,
        last_day=torch.full((INSTRUMENTS,), DAYS - 1),
        investable=torch.arange(INSTRUMENTS),
        share_rate=torch.empty(0, INSTRUMENTS),
        impact_rate=torch.empty(0, INSTRUMENTS),
    )


def random_actions(rng: torch.Generator, *, days: int, batch: int) -> torch.Tensor:
    """[days, B, K, 2], with the coefficients of a quarter of the days below the threshold."""
    action = torch.rand(days, batch, INSTRUMENTS, 2, generator=rng)
    action[..., 0] *= torch.where(torch.rand(days, batch, 1, generator=rng) < 0.25, 1, 2)
    action[..., 1] = action[..., 1] * 40 + 10
    return action


def episodes_(
    sim: Simulator, market: Market, config: TradingConfig, *, actions: torch.Tensor, rng: torch.Generator
) -> None:
    """One batch of episodes from their resets to their ends."""
    lengths = config.episode
    start = torch.randint(lengths.context, DAYS - lengths.days, (len(sim.day),), generator=rng)
    reset_(sim, start=start, trading_end=start + lengths.trading_days, end=start + lengths.days)
    for day in range(lengths.days):
        step_(sim, market, config, actions[day % len(actions)])


def measure(batch: int, runs: int) -> dict[str, float]:
    """Env steps per CPU second: median and best of `runs`, and the simulator's bytes."""
    rng, config = torch.Generator().manual_seed(0), TradingConfig()
    market, actions = random_market(rng), random_actions(rng, days=20, batch=batch)
    sim = build_simulator(config, batch=batch, max_days=config.episode.days, instruments=INSTRUMENTS, device=CPU)
    episodes_(sim, market, config, actions=actions, rng=rng)
    rates = []
    for _ in range(runs):
        began = time.process_time()
        episodes_(sim, market, config, actions=actions, rng=rng)
        rates.append(batch * config.episode.days / (time.process_time() - began))
    return {
        "episodes": batch,
        "median": statistics.median(rates),
        "best": max(rates),
        "bytes": sum(nbytes(sim).values()),
    }


def main() -> None:
    """Print the table, or JSON; exit 1 if 80 episodes are slower than wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=15, help="batches of episodes that are timed")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(batch, given.runs) for batch in (16, 80, 256)]
    reached = next(row["median"] for row in rows if row["episodes"] == 80)
    name = f"steps of the market's simulator per CPU second, 80 episodes, {INSTRUMENTS} instruments"
    record_claims([Claim("trading", "steps", name, f"{reached:,.0f}", f"≥ {WANTED:,}", reached >= WANTED)])
    if given.json:
        print(json.dumps({"instruments": INSTRUMENTS, "wanted": WANTED, "reached": reached, "rows": rows}))
    else:
        print("episodes   steps per CPU second: median        best   simulator bytes")
        for row in rows:
            print(f"{row['episodes']:8.0f} {row['median']:30,.0f} {row['best']:11,.0f} {row['bytes']:17,.0f}")
        print(f"wanted with 80 episodes: {WANTED:,}; reached: {reached:,.0f}")
    if reached < WANTED:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
