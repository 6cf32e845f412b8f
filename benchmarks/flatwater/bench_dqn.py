"""DQN in CartPole with the settings of RL Zoo, beside Stable-Baselines3's DQN with the same.

    python benchmarks/flatwater/bench_dqn.py [--seeds 0 1 2] [--players flatwater sb3] [--steps 50000]

Both take 50,000 steps in one environment, on one thread, with layers, batches, rates, target and random actions alike;
then each plays 20 episodes that nothing was trained on, with the likeliest action. Flatwater has one agent, the last,
as the library has. Returns are of equal steps; the CPU seconds beside them are of training alone, of ours with an
evaluation of four episodes after every 2,500 steps. The library is needed for its own player alone.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import gymnasium
import torch
from claims import Claim, record_claims
from sizes import Silent

from flatwater.api import resolve_config
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.recipes.evolve.policy import make_trained_policy
from flatwater.recipes.evolve.run import compose
from flatwater.trainers.loop import train_

ENV, EPISODES = "CartPole-v1", 20
LEARNER = {
    "lr": 2.3e-3,
    "batch_size": 64,
    "train_every": 256,
    "updates": 128,
    "tau": 1.0,
    "target_every": 128,
    "epsilon": {"first": 1.0, "last": 0.04, "begins": 0, "ends": 8000},
}
"""RL Zoo's: its target is copied every ten steps, which is once between two trainings of 128 updates."""


def ours(seed: int, steps: int) -> tuple[Any, float]:
    """Train one agent; return what acts, and the CPU seconds."""
    settings = {"learner": LEARNER, "replay": {"capacity": 100_000, "warmup": 1000}, "net": {"hidden": 256}}
    config = resolve_config("dqn", None, {"env": ENV, "seed": seed, "threads": 1, **settings})
    run, began = compose(config), time.process_time()
    train_(run.trainer, steps // config.steps, Silent())
    return make_trained_policy(run).act, time.process_time() - began


def theirs(seed: int, steps: int) -> tuple[Any, float]:
    """Train the library's agent; return what acts, and the CPU seconds."""
    from stable_baselines3 import DQN  # noqa: PLC0415  (the only player that needs it)

    model = DQN(
        "MlpPolicy", gymnasium.make(ENV), learning_rate=2.3e-3, batch_size=64, buffer_size=100_000,
        learning_starts=1000, target_update_interval=10, train_freq=256, gradient_steps=128,
        exploration_fraction=0.16, exploration_final_eps=0.04, policy_kwargs={"net_arch": [256, 256]}, seed=seed,
        device="cpu",
    )  # fmt: skip
    began = time.process_time()
    model.learn(steps)
    return lambda obs: model.predict(obs, deterministic=True)[0], time.process_time() - began


def mean_return(act: Any) -> float:  # noqa: ANN401  (of either)
    """Return the mean return of the episodes."""
    env, total = gymnasium.make(ENV), 0.0
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=(HELD_OUT + episode) % 2**32)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(int(act(obs)))
            total, over = total + float(reward), terminated or truncated
    return total / EPISODES


def main() -> None:
    """Each player with each seed; a line for each, and the claim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--players", nargs="+", choices=["flatwater", "sb3"], default=["flatwater", "sb3"])
    parser.add_argument("--steps", type=int, default=50_000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {player: [] for player in given.players}
    for seed in given.seeds:
        for player in given.players:
            act, seconds = {"flatwater": ours, "sb3": theirs}[player](seed, given.steps)
            found[player].append(mean_return(act))
            print(f"{player:9} seed {seed}: return {found[player][-1]:6.1f} after {seconds:.0f} CPU s", flush=True)
    if "flatwater" in found:
        returns = ", ".join(f"{each:.0f}" for each in found["flatwater"])
        rival = f"{mean(found['sb3']):.0f} (Stable-Baselines3)" if "sb3" in found else ""
        count = f"{len(given.seeds)} seed{'s' if len(given.seeds) > 1 else ''}"
        name = f"DQN in CartPole, return after {given.steps:,} steps with RL Zoo's settings, {count}"
        solved = mean(found["flatwater"]) >= 475  # Gymnasium calls this solved
        record_claims([Claim("flatwater", "CartPole-v1", name, returns, "475: solved", solved, rival)])


if __name__ == "__main__":
    main()
