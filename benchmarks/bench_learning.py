"""Does it learn? Markets with a planted signal, judged on days that nothing was chosen on (the holdout).

    python benchmarks/bench_learning.py [--signals 0.7 0.3 0] [--seeds 0 1 2] [--algorithm hindsight] [--json]

Only the panel, the seed and the length of the holdout are given: the rest are the defaults. The oracle trades by the
same rules with the same account and knows the truth: each day it asks for the instrument with the highest expected
return of the next 20 days among those it does not hold. It says what the signal is worth; shares are of its return.
Everybody plays the same 20 episodes of 145 days. The simple rules (`envs/trading/yardsticks.py`) stand beside the
champion, as a planted drift is what momentum looks for: a champion that does not beat them has learnt nothing that one
line of code does not know.
"""

import argparse
import json
import time
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from sizes import Silent

from flatwater.envs.trading.baselines import play_random_
from flatwater.envs.trading.observation import account_block
from flatwater.envs.trading.results import episode_summary
from flatwater.envs.trading.simulator import Simulator, build_simulator, reset_, step_
from flatwater.envs.trading.yardsticks import play_rule_, rules
from flatwater.panel.config import SplitConfig
from flatwater.panel.specification import parse_synthetic
from flatwater.panel.synthetic import synthetic_panel
from flatwater.runs.erl.composition import ErlRun, compose
from flatwater.runs.erl.config import ErlRunConfig
from flatwater.trainers.erl.lessons import lesson_days
from flatwater.trainers.erl.play import play_
from flatwater.trainers.loop import train_

Algorithm = Literal["hindsight", "ddpg", "td3"]
EPISODES = 20
"""Episodes of 145 days on the holdout, on which everybody is judged."""
JUDGED = SplitConfig(validation_days=500, holdout_days=1000)
"""Four years to judge on; with the default of one year the judgement itself would be luck."""
PANEL = "synthetic:30x3781:signal={signal}:signal_days=100:seed={seed}"
"""A share of the variance of 20-day returns is in a drift that lives 100 days."""


def config_of(signal: float, seed: int, algorithm: Algorithm) -> ErlRunConfig:
    """The default traders on that market."""
    config = ErlRunConfig(seed=seed, threads=1, panel=PANEL.format(signal=signal, seed=seed), splits=JUDGED)
    return replace(config, learner=replace(config.learner, algorithm=algorithm))


def episode_starts(composition: ErlRun) -> torch.Tensor:
    """First rows of `EPISODES` episodes, spread evenly over the holdout."""
    days, steps = composition.recipe.splits.holdout, composition.config.env.episode.days
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


def play_oracle(composition: ErlRun) -> Simulator:
    """The trader who knows the drift: each day the best instrument that it does not hold, if it is expected to gain."""
    run, config, spec = composition.trainer.run, composition.config.env, composition.config.panel
    assert spec is not None
    truth = synthetic_panel(parse_synthetic(spec)).drift[:, composition.panel.investable]
    expected = torch.from_numpy(np.nan_to_num(truth, nan=-1.0))
    starts = episode_starts(composition)
    env = simulator(composition, starts)
    order = torch.full((EPISODES, expected.shape[1], 2), config.trade.target_high)
    for day in range(config.episode.days):
        free = account_block(env, run.market)[..., 0] == 0
        gain, best = expected[starts + day].where(free, -1.0).max(1)
        order[..., 0] = 0.0
        order[torch.arange(EPISODES), best, 0] = config.trade.coefficient_max * (gain > 0)
        step_(env, run.market, config, order)
    return env


def play_members(composition: ErlRun) -> dict[str, torch.Tensor]:
    """What each member and the champion, the last, came to on the mean episode, without noise."""
    recipe, run, starts = composition.recipe, composition.trainer.run, episode_starts(composition)
    actors, days = run.learner.actor, composition.config.env.episode.days
    env = simulator(composition, starts.repeat(len(actors)))
    play_(recipe, run.market, env, actors=actors, starts=starts, days=days)
    summary = episode_summary(env, composition.config.env)
    return {name: value.view(len(actors), -1).mean(1) for name, value in summary.items()}


def play_rules(composition: ErlRun) -> dict[str, float]:
    """The mean return of each simple rule."""
    market, config, found = composition.trainer.run.market, composition.config.env, {}
    for name, scores in rules(market, config, lesson_days(composition.recipe)).items():
        known, returns = torch.from_numpy(scores()), []
        for start in episode_starts(composition).tolist():
            env = simulator(composition, torch.tensor([start]))
            play_rule_(env, market, config, known, start=start, days=config.episode.days)
            returns.append(float(episode_summary(env, config)["total_return"]))
        found[name] = float(np.mean(returns))
    return found


def judge(composition: ErlRun) -> dict[str, float]:
    """Mean account returns of the holdout's episodes."""
    run, config = composition.trainer.run, composition.config.env
    members = play_members(composition)
    chance = simulator(composition, episode_starts(composition))
    play_random_(chance, run.market, config, days=config.episode.days, rng=torch.Generator().manual_seed(0))
    return {
        "oracle": float(episode_summary(play_oracle(composition), config)["total_return"].mean()),
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


def line(signal: float, row: dict[str, float]) -> str:
    """Shares of the oracle's return; returns where there is no signal to have a share of."""
    per = row["oracle"] if signal else 1.0
    shares = "".join(f"{row[name] / per:>12.2f}" if signal else f"{row[name]:>12.1%}" for name in SHARES)
    return f"{signal:>6}{row['seed']:>5}{row['oracle']:>8.1%}{shares}{row['refused']:>9.1%}{row['cpu_seconds']:>7.0f}"


def main() -> None:
    """Train on every market and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", type=float, nargs="+", default=[0.7, 0.3, 0.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--algorithm", choices=["hindsight", "ddpg", "td3"], default="hindsight")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    if not options.json:
        titles = "".join(f"{name.removesuffix(' momentum'):>12}" for name in SHARES)
        print(f"{'signal':>6}{'seed':>5}{'oracle':>8}{titles}{'refused':>9}{'CPU s':>7}")
    for signal in options.signals:
        for seed in options.seeds:
            row = learn(config_of(signal, seed, options.algorithm))
            rows.append({"signal": signal} | row)
            if not options.json:
                print(line(signal, row), flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
