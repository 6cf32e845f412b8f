"""Does evolution help? A population of 8 against the best of 8 agents that learn alone, with the same CPU seconds.

    python benchmarks/flatwater/bench_evolution.py [--envs Pendulum-v1 ...] [--seeds 0 1 2] [--seconds 60]

Three ways to spend the same CPU seconds, each in a process of its own with one thread, with the defaults of
`flatwater train evolve` besides:

    evolved   8 members that share a replay, are selected by their returns, crossed and mutated
    shared    8 members that share a replay, and are never replaced (`--evolution.elite-share 1`)
    alone     8 agents one after another (`--population.size 1`), each with an eighth of the seconds

Each way gives one policy: the champion, or the agent whose last evaluation was the best. It plays 20 episodes on seeds
that nothing was chosen by. CPU seconds begin with the end of a run's first round, so that imports and plan do not
count, and evaluations do, as choosing is part of each way. Updates are not compiled.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import gymnasium
from claims import Claim, record_claims

import flatwater as fw

MEMBERS, EPISODES = 8, 20
JUDGED = 20_000
"""First seed of the episodes that a policy is judged on."""
NEVER = 1 << 20
"""Rounds of a run that its CPU seconds end."""
ALGORITHMS = {"Pendulum-v1": "td3", "MountainCarContinuous-v0": "td3", "CartPole-v1": "dqn"}
WAYS = ("evolved", "shared", "alone")


def spent_seconds() -> float:
    """CPU seconds of this process, and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def stop_after(seconds: float) -> Callable[[Any], None]:
    """Return a callback that stops a run at the end of the round in which its CPU seconds are spent."""
    began: list[float] = []

    def on_round(round_: Any) -> None:  # noqa: ANN401  (the round, as `fw.train` hands it over)
        began.append(spent_seconds())
        if began[-1] - began[0] >= seconds:
            round_.stop()

    return on_round


def train(env: str, seed: int, seconds: float, folder: Path, **settings: Any) -> fw.TrainedRun:  # noqa: ANN401  (settings of any type)
    """Return a run that has spent so many CPU seconds."""
    learner = {"algorithm": ALGORITHMS[env], "compile": False}
    common: dict[str, Any] = {"threads": 1, "quiet": True, "trackers": (), "rounds": NEVER, "seed": seed, "run": folder}
    common |= settings
    run: fw.TrainedRun = fw.train("evolve", env=env, learner=learner, on_round=stop_after(seconds), **common)
    return run


def best_run(way: str, env: str, seed: int, seconds: float, folder: Path) -> fw.TrainedRun:
    """Return the run whose policy this way chooses."""
    if way != "alone":
        settings: dict[str, Any] = {"population": {"size": MEMBERS}}
        if way == "shared":
            settings["evolution"] = {"elite_share": 1.0}
        return train(env, seed, seconds, folder / "run", **settings)
    runs = [
        train(env, MEMBERS * seed + each, seconds / MEMBERS, folder / f"run{each}", population={"size": 1})
        for each in range(MEMBERS)
    ]
    return max(runs, key=lambda run: run.metrics["champion/return"][-1])


def judge(run: fw.TrainedRun, env_id: str) -> float:
    """Return the mean return of the run's policy over episodes that nothing was chosen by."""
    policy, env, returns = fw.load(run.path), gymnasium.make(env_id), []
    for seed in range(JUDGED, JUDGED + EPISODES):
        obs, _ = env.reset(seed=seed)
        returns.append(0.0)
        over = False
        while not over:
            action, _ = policy.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            returns[-1] += float(reward)
            over = terminated or truncated
    return mean(returns)


def play(way: str, env: str, seed: int, seconds: float) -> dict[str, float]:
    """Return what a way reached, and the rounds and transitions of the run whose policy it chose."""
    with tempfile.TemporaryDirectory() as folder:
        run = best_run(way, env, seed, seconds, Path(folder))
        transitions = run.metrics["transitions"]
        return {"return": judge(run, env), "rounds": len(transitions), "transitions": transitions[-1]}


def play_apart(way: str, env: str, seed: int, seconds: float) -> dict[str, float]:
    """Return what a way reached, from a process of its own."""
    words = [sys.executable, __file__, "--play", way, "--envs", env, "--seeds", str(seed), "--seconds", str(seconds)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    printed = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return dict(json.loads(printed.splitlines()[-1]))


def main() -> None:
    """Print what each way reached, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=list(ALGORITHMS), choices=list(ALGORITHMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=90.0, help="CPU seconds of each way")
    parser.add_argument("--play", choices=WAYS, help="one way alone, in this process; prints JSON")
    given = parser.parse_args()
    if given.play:
        print(json.dumps(play(given.play, given.envs[0], given.seeds[0], given.seconds)))
        return
    found: dict[str, dict[str, list[float]]] = {env: {way: [] for way in WAYS} for env in given.envs}
    for seed in given.seeds:
        for env in given.envs:
            for way in WAYS:
                row = play_apart(way, env, seed, given.seconds)
                found[env][way].append(row["return"])
                size = f"{row['rounds']:.0f} rounds, {row['transitions']:,.0f} transitions"
                print(f"{env:26} seed {seed} {way:8} {row['return']:10.1f}   {size}", flush=True)
    record_claims(claims(found, given.seconds))


def claims(found: dict[str, dict[str, list[float]]], seconds: float) -> Iterator[Claim]:
    """The champion's return beside the two other ways."""
    for env, ways in found.items():
        evolved, shared, alone = (mean(ways[way]) for way in WAYS)
        name = (
            f"{ALGORITHMS[env].upper()} in {env}, champion of {MEMBERS} members after {seconds:.0f} CPU seconds, "
            f"mean of {len(ways['evolved'])} seeds"
        )
        rivals = f"{shared:.1f} (never replaced), {alone:.1f} (best of {MEMBERS} alone)"
        best_other = max(shared, alone)
        yield Claim("flatwater", env, name, f"{evolved:.1f}", "ahead of both", evolved > best_other, rivals)


if __name__ == "__main__":
    main()
