"""Does it learn? Markets whose law is known, judged on days that nothing was chosen on (the holdout).

    python benchmarks/trading/bench_learning.py [--markets trend ...] [--seeds 0 1 2] [--algorithm hindsight] [--json]

Only the panel, the seed and the length of the holdout are given: the rest are the defaults. The oracle trades by the
same rules with the same account and knows the law: each day it asks for the instrument with the highest expected return
of the next 20 days, after costs, among those that it does not hold. It says what the signal is worth; shares are of its
return. All play the same 20 episodes of 145 days. The simple rules (`market/score_rules.py`) stand beside
the champion: a champion that does not beat them has learnt nothing that one line of code does not know. Where there is
no signal, or costs take it, there is nothing to have a share of, and the table has returns.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import numpy as np
import torch
from claims import Claim, record_claims
from sizes import Silent

from flatwater.trainers.loop import train_
from flatwater_trading.market.baselines import play_random_
from flatwater_trading.market.results import episode_summary
from flatwater_trading.market.score_rules import oracle_scores, play_rule_, score_rules
from flatwater_trading.market.simulator import Simulator, build_simulator, reset_
from flatwater_trading.panel.config import SplitConfig
from flatwater_trading.panel.locate import load_truth
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.run import ErlRun, compose
from flatwater_trading.training.lessons import lesson_days
from flatwater_trading.training.play import play_slices_

Algorithm = Literal["hindsight", "ddpg", "td3", "sac"]
EPISODES = 20
"""Episodes of 145 days on the holdout, on which everybody is judged."""
JUDGED = SplitConfig(validation_days=500, holdout_days=1000)
"""Four years to judge on; with the default of one year the judgement itself would be luck."""
SIZE = "synthetic:30x3781:signal_days={life}:signal={signal}:seed={seed}:law={law}"
WATCHED = "synthetic:31x3781:context_instruments=1:signal_days={life}:signal={signal}:seed={seed}:law={law}"
MARKETS = {
    "trend": SIZE.format(law="trend", signal=0.7, life=100, seed="{seed}"),
    "weak": SIZE.format(law="trend", signal=0.3, life=100, seed="{seed}"),
    "reversal": SIZE.format(law="reversal", signal=0.2, life=10, seed="{seed}"),
    "lead": WATCHED.format(law="lead", signal=0.3, life=50, seed="{seed}"),
    "regimes": SIZE.format(law="regimes", signal=0.12, life=20, seed="{seed}"),
    "interaction": WATCHED.format(law="interaction", signal=0.12, life=20, seed="{seed}"),
    "costs": SIZE.format(law="trend", signal=0.02, life=100, seed="{seed}"),
    "none": SIZE.format(law="none", signal=0, life=100, seed="{seed}"),
}
"""Panels by market: `signal` is a share of the variance of 20-day returns, `signal_days` a drift's life."""
DEAR_BPS = 100.0
"""Commission a side in the market `costs`: more than a month's drift is worth."""
NOTHING = ("costs", "none")
"""Markets in which there is nothing to earn."""
LEADS = {"interaction": 0.10}
"""Share of the oracle that is expected above ridge's, in markets whose law ridge cannot learn."""


def config_of(market: str, seed: int, algorithm: Algorithm) -> ErlRunConfig:
    """The default traders on that market."""
    config = ErlRunConfig(seed=seed, threads=1, panel=MARKETS[market].format(seed=seed), splits=JUDGED)
    if market == "costs":
        config = replace(config, env=replace(config.env, account=replace(config.env.account, cost_bps=DEAR_BPS)))
    return replace(config, learner=replace(config.learner, algorithm=algorithm))


def episode_starts(composition: ErlRun) -> torch.Tensor:
    """First rows of `EPISODES` episodes, spread evenly over the holdout."""
    days, steps = composition.setup.splits.holdout, composition.config.env.episode.days
    return torch.linspace(days.first, days.stop - steps, EPISODES).long()


def simulator(composition: ErlRun, starts: torch.Tensor) -> Simulator:
    """An env for the episodes that begin there, at their starts."""
    config, instruments = composition.config.env, len(composition.panel.investable)
    env = build_simulator(
        config, batch=len(starts), max_days=config.episode.days, instruments=instruments, device=torch.device("cpu")
    )
    end = starts + config.episode.days
    reset_(env, start=starts, trading_end=end - config.episode.settlement_days, end=end)
    return env


def play_members(composition: ErlRun) -> dict[str, torch.Tensor]:
    """Play the members and, last, the champion without noise; the results of each on the mean episode."""
    setup, run, starts = composition.setup, composition.trainer.run, episode_starts(composition)
    actors, days = run.learner.actor, composition.config.env.episode.days
    env = simulator(composition, starts.repeat(len(actors)))
    play_slices_(setup, run.market, env, actors=actors, starts=starts, days=days)
    summary = episode_summary(env, composition.config.env)
    return {name: value.view(len(actors), -1).mean(1) for name, value in summary.items()}


def play_rules(composition: ErlRun) -> dict[str, float]:
    """The mean return of each simple rule, and of the oracle."""
    market, config, truth, found = (
        composition.trainer.run.market,
        composition.config.env,
        load_truth(composition.config.panel),
        {},
    )
    asked = score_rules(market, config, lesson_days(composition.setup), composition.panel.calendar)
    assert truth is not None
    asked["oracle"] = lambda: oracle_scores(truth, config)
    for name, scores in asked.items():
        found[name] = play_scores(composition, scores())
    return found


def play_scores(composition: ErlRun, scores: np.ndarray) -> float:
    """The mean return of a rule with these scores [T, K]."""
    market, config = composition.trainer.run.market, composition.config.env
    known, returns = torch.from_numpy(scores), []
    for start in episode_starts(composition).tolist():
        env = simulator(composition, torch.tensor([start]))
        play_rule_(env, market, config, known, start=start, days=config.episode.days)
        returns.append(float(episode_summary(env, config)["total_return"]))
    return float(np.mean(returns))


def judge(composition: ErlRun) -> dict[str, float]:
    """Mean account returns of the holdout's episodes."""
    run, config = composition.trainer.run, composition.config.env
    members = play_members(composition)
    chance = simulator(composition, episode_starts(composition))
    play_random_(chance, run.market, config, days=config.episode.days, rng=torch.Generator().manual_seed(0))
    return {
        "champion": float(members["total_return"][-1]),
        "population": float(members["total_return"][:-1].mean()),
        **play_rules(composition),
        "random": float(episode_summary(chance, config)["total_return"].mean()),
        "trades": float(members["trades"][-1]),
        "refused": float(members["refused"][-1]),
        "champion_born": int(run.lineage.born[-1]),
    }


def learn(config: ErlRunConfig) -> dict[str, float]:
    """Train one run and judge it."""
    began = time.process_time()
    composition = compose(config)
    train_(composition.trainer, config.rounds, Silent())
    took = time.process_time() - began
    return {"seed": config.seed, **judge(composition), "cpu_seconds": took}


SHARES = ("champion", "population", "ridge", "20-day momentum", "12-1 momentum", "random")


def line(market: str, row: dict[str, float]) -> str:
    """Shares of the oracle's return; returns where there is nothing to have a share of."""
    nothing = market in NOTHING
    shares = "".join(f"{row[name]:>11.1%}" if nothing else f"{row[name] / row['oracle']:>11.2f}" for name in SHARES)
    return f"{market:<11}{row['seed']:>5}{row['oracle']:>8.1%}{shares}{row['refused']:>9.1%}{row['cpu_seconds']:>7.0f}"


def main() -> None:
    """Train on every market and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markets", choices=[*MARKETS], nargs="+", default=[*MARKETS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--algorithm", choices=["hindsight", "ddpg", "td3", "sac"], default="hindsight")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    if not options.json:
        titles = "".join(f"{name.removesuffix(' momentum'):>11}" for name in SHARES)
        print(f"{'market':<11}{'seed':>5}{'oracle':>8}{titles}{'refused':>9}{'CPU s':>7}")
    for market in options.markets:
        for seed in options.seeds:
            row = learn(config_of(market, seed, options.algorithm))
            rows.append({"market": market} | row)
            if not options.json:
                print(line(market, row), flush=True)
    record_claims(claims(rows, options.algorithm))
    if options.json:
        print(json.dumps(rows, indent=1))


def claims(rows: list[dict[str, Any]], algorithm: str) -> Iterator[Claim]:
    """Yield the claims of each market: what its champions earn, beside the best of the simple rules."""
    for market in dict.fromkeys(row["market"] for row in rows):
        of = [row for row in rows if row["market"] == market]
        whole = 1.0 if market in NOTHING else sum(row["oracle"] for row in of)
        shares = {name: sum(row[name] for row in of) / (whole if market not in NOTHING else len(of)) for name in SHARES}
        best = max(SHARES[2:], key=lambda name: shares[name])
        what = "mean return" if market in NOTHING else "share of the oracle's return"
        name = f"market `{market}`, {algorithm}, {len(of)} seeds, holdout: {what}"
        rival = f"{shares[best]:.2f} ({best})"
        key = market if algorithm == "hindsight" else f"{market}.{algorithm}"
        wanted, reached = goal(market, shares)
        yield Claim("trading", key, name, f"{shares['champion']:.2f}", wanted, reached, rival)


def goal(market: str, shares: dict[str, float]) -> tuple[str, bool | None]:
    """Return the share of the oracle that is expected, and whether it was reached: no law is lost to ridge."""
    if market in NOTHING:
        return "", None
    lead = LEADS.get(market, 0.0)
    return f"≥ ridge + {lead:.2f}" if lead else "≥ ridge", shares["champion"] >= shares["ridge"] + lead


if __name__ == "__main__":
    main()
