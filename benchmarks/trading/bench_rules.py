"""What is the choice of the rule of purchases worth, on days that nothing was chosen on (the holdout)?

    python benchmarks/trading/bench_rules.py [--markets trend ...] [--seeds 0 1 2] [--json]

Only the panel, the seed and the length of the holdout are given: the rest are the defaults, 252 validation days too.
A run's champion plays the 1,000 holdout days by the rule of the settings, and by the rule that was chosen on the
validation days. Returns are those of a year. `choice_seconds` is what the choice takes, once for each result or load.

The candidates were settled on seeds 40 and 41 of these markets.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import numpy as np
import torch
from bench_learning import MARKETS, NOTHING, config_of
from claims import Claim, record_claims
from sizes import Silent

from flatwater.trainers.loop import train_
from flatwater_trading.market.config import TradeConfig
from flatwater_trading.panel.config import SplitConfig
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.purchase_rules import describe_rule, final_return, make_simulator, rule_numbers, with_rule
from flatwater_trading.recipe.run import ErlRun, compose
from flatwater_trading.training.play import play_slices_

YEAR = 252


def play_holdout(run: ErlRun, rule: TradeConfig) -> float:
    """Play the champion on the holdout by a rule; its return of a year."""
    setup, market, days = with_rule(run.setup, rule), run.trainer.run.market, run.setup.splits.holdout
    simulator = make_simulator(setup, market, batch=1, days=len(days))
    first = torch.tensor([days.first])
    play_slices_(setup, market, simulator, actors=run.trainer.run.learner.actor[-1:], starts=first, days=len(days))
    return float((1 + final_return(simulator)) ** (YEAR / len(days)) - 1)


def learn(config: ErlRunConfig) -> dict[str, Any]:
    """Train one run, choose its rule, and play the holdout by both rules."""
    began = time.process_time()
    run = compose(config)
    train_(run.trainer, config.rounds, Silent())
    trained = time.process_time()
    choice = run.choose_rule()
    chosen = time.process_time()
    return {
        "seed": config.seed,
        "settings": play_holdout(run, run.config.env.trade),
        "chosen": play_holdout(run, choice.chosen),
        "rule": describe_rule(rule_numbers(choice.chosen), choice.unit),
        "cpu_seconds": trained - began,
        "choice_seconds": chosen - trained,
    }


def main() -> None:
    """Train on every market and print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markets", choices=[*MARKETS], nargs="+", default=[*MARKETS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    if not options.json:
        print(f"{'market':<13}{'seed':>5}{'settings':>10}{'chosen':>9}{'CPU s':>7}{'choice':>8}  rule")
    for market in options.markets:
        for seed in options.seeds:
            config = replace(config_of(market, seed, "hindsight"), splits=SplitConfig(holdout_days=1000))
            row = {"market": market} | learn(config)
            rows.append(row)
            if not options.json:
                numbers = f"{row['settings']:>10.1%}{row['chosen']:>9.1%}{row['cpu_seconds']:>7.1f}"
                print(f"{market:<13}{seed:>5}{numbers}{row['choice_seconds']:>8.2f}  {row['rule']}", flush=True)
    record_claims(claims(rows))
    if options.json:
        print(json.dumps(rows, indent=1))


def claims(rows: list[dict[str, Any]]) -> Iterator[Claim]:
    """Yield a claim for the markets with a law, and one for those in which there is nothing to earn."""
    kinds = {
        "law": ([row for row in rows if row["market"] not in NOTHING], "≥ the rule of the settings"),
        "nothing": ([row for row in rows if row["market"] in NOTHING], "within 1 point of the rule of the settings"),
    }
    for kind, (of, wanted) in kinds.items():
        if of:
            chosen, settings = (float(np.mean([row[name] for row in of])) for name in ("chosen", "settings"))
            reached = chosen >= settings if kind == "law" else abs(chosen - settings) <= 0.01
            name = f"rule of purchases chosen on validation days, {len(of)} runs, markets with "
            name += "a law" if kind == "law" else "nothing to earn"
            yield Claim(
                "trading",
                kind,
                f"{name}: return a year on the holdout",
                f"{chosen:+.1%}",
                wanted,
                reached,
                f"{settings:+.1%} (rule of the settings)",
            )


if __name__ == "__main__":
    main()
