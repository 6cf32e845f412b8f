"""Does it learn? A market with a planted signal, seeds 0 1 2, judged on days that nothing was chosen on (the holdout).

    python benchmarks/bench_learning.py [--rounds 12] [--seeds 0 1 2] [--defaults] [--json]

The oracle trades by the same rules with the same account and knows the truth: each day it asks for the instrument with
the highest expected return of the next 20 days among those it does not hold. It says what the signal is worth; the
champion sees indicators. Everybody plays the same 20 episodes of 145 days; returns are the mean over them.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from sizes import Silent

from flatwater.config.toml import load_config
from flatwater.envs.trading import account
from flatwater.envs.trading.baselines import buy_and_hold, play_random_
from flatwater.envs.trading.observation import account_block
from flatwater.envs.trading.results import episode_summary
from flatwater.envs.trading.simulator import Simulator, build_simulator, reset_, step_
from flatwater.panel.specification import parse_synthetic
from flatwater.panel.synthetic import synthetic_panel
from flatwater.runs.erl.composition import ErlRun, compose
from flatwater.runs.erl.config import ErlRunConfig
from flatwater.trainers.erl.play import play_
from flatwater.trainers.loop import train_

EPISODES = 20
"""Episodes of 145 days on the holdout, on which everybody is judged."""
EXAMPLE = Path(__file__).resolve().parents[1] / "examples/planted_signal.toml"
"""70 % of the variance of 20-day returns is in a drift that lives 100 days."""


def config_of(seed: int, rounds: int) -> ErlRunConfig:
    """The settings that learn this market; what each of them is worth is in docs/learning.md."""
    config = load_config(ErlRunConfig, EXAMPLE)
    return replace(
        config, seed=seed, rounds=rounds, threads=1, panel=str(config.panel).replace("seed=0", f"seed={seed}")
    )


def default_config_of(seed: int, rounds: int) -> ErlRunConfig:
    """The default traders on the same market, with the same days and the same window."""
    config, defaults = config_of(seed, rounds), ErlRunConfig()
    env = replace(defaults.env, episode=config.env.episode)
    return replace(
        config,
        observation_features=defaults.observation_features,
        evaluation=defaults.evaluation,
        env=env,
        learner=defaults.learner,
    )


def episode_starts(composition: ErlRun) -> torch.Tensor:
    """First rows of `EPISODES` episodes, spread evenly over the holdout."""
    days, steps = composition.recipe.splits.holdout, composition.config.env.episode.days
    return torch.linspace(days.first, days.stop - steps, EPISODES).long()


def simulator(composition: ErlRun) -> Simulator:
    """An env for those episodes, at their starts."""
    config, starts = composition.config.env, episode_starts(composition)
    instruments = len(composition.panel.investable)
    device = torch.device("cpu")
    env = build_simulator(config, batch=EPISODES, max_days=config.episode.days, instruments=instruments, device=device)
    end = starts + config.episode.days
    reset_(env, start=starts, trading_end=end - config.episode.settlement_days, end=end)
    return env


def play_oracle(composition: ErlRun) -> Simulator:
    """The trader who knows the drift: each day the best instrument that it does not hold, if it is expected to gain."""
    run, config, spec = composition.trainer.run, composition.config.env, composition.config.panel
    assert spec is not None
    truth = synthetic_panel(parse_synthetic(spec)).drift[:, composition.panel.investable]
    expected = torch.from_numpy(np.nan_to_num(truth, nan=-1.0))
    env, starts = simulator(composition), episode_starts(composition)
    order = torch.full((EPISODES, expected.shape[1], 2), config.trade.target_high)
    for day in range(config.episode.days):
        free = account_block(env, run.market)[..., 0] == 0
        gain, best = expected[starts + day].where(free, -1.0).max(1)
        order[..., 0] = 0.0
        order[torch.arange(EPISODES), best, 0] = config.trade.coefficient_max * (gain > 0)
        step_(env, run.market, config, order)
    return env


def play_champion(composition: ErlRun) -> Simulator:
    """The trained champion, without noise."""
    recipe, run = composition.recipe, composition.trainer.run
    env, days = simulator(composition), composition.config.env.episode.days
    play_(recipe, run.market, env, actors=run.learner.actor[-1:], starts=episode_starts(composition), days=days)
    return env


def judge(composition: ErlRun) -> dict[str, float]:
    """Mean account returns of the holdout's episodes."""
    run, config = composition.trainer.run, composition.config.env
    champion = episode_summary(play_champion(composition), config)
    oracle = episode_summary(play_oracle(composition), config)
    chance = simulator(composition)
    play_random_(chance, run.market, config, days=config.episode.days, rng=torch.Generator().manual_seed(0))
    held = [
        account.total_return(buy_and_hold(run.market, start, start + config.episode.days, config.account))
        for start in episode_starts(composition).tolist()
    ]
    mean = {name: float(value.mean()) for name, value in champion.items()}
    best = float(oracle["total_return"].mean())
    return {
        "oracle": best,
        "champion": mean["total_return"],
        "share_of_oracle": mean["total_return"] / best,
        "buy_and_hold": float(torch.stack(held).mean()),
        "random": float(episode_summary(chance, config)["total_return"].mean()),
        "trades": mean["trades"],
        "oracle_trades": float(oracle["trades"].mean()),
        "mean_gain": mean["mean_gain"],
        "champion_born": int(run.lineage.born[-1]),
    }


def learn(config: ErlRunConfig) -> dict[str, float]:
    """Train one run and judge it."""
    began = time.process_time()
    composition = compose(config)
    train_(composition.trainer, config.rounds, Silent())
    took = time.process_time() - began
    return {"seed": config.seed, **judge(composition), "cpu_seconds": took}


def main() -> None:
    """Train every seed and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--defaults", action="store_true", help="the default settings instead, for comparison")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    if not options.json:
        print(f"{'seed':>4}{'oracle':>9}{'champion':>10}{'share':>7}{'hold':>8}{'random':>8}{'trades':>8}{'CPU s':>7}")
    for seed in options.seeds:
        row = learn((default_config_of if options.defaults else config_of)(seed, options.rounds))
        rows.append(row)
        if not options.json:
            print(
                f"{seed:>4}{row['oracle']:>9.1%}{row['champion']:>10.1%}{row['share_of_oracle']:>7.0%}"
                f"{row['buy_and_hold']:>8.1%}{row['random']:>8.1%}{row['trades']:>8.0f}{row['cpu_seconds']:>7.0f}",
                flush=True,
            )
    if options.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
