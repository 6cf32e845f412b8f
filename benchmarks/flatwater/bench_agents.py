"""CPU time of one agent of DQN, SAC and TD3 beside Stable-Baselines3, with equal layers, batches and updates.

    python benchmarks/flatwater/bench_agents.py [--agents dqn sac td3] [--turns 6] [--steps 500] [--compile]

Both play the environment in one copy, on one thread, with the same steps between updates. They take turns in one
process, so that other work on the machine slows both. Of the turns the cheapest counts. A step is what is not an
update: acting, the environment, and storing. Needs `pip install stable-baselines3`.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import gymnasium
import numpy as np
import stable_baselines3
import torch
from claims import Claim, record_claims
from stable_baselines3.common.noise import NormalActionNoise

from flatwater.api import resolve_config
from flatwater.recipes.evolve.run import compose

WARMUP = 300
WANTED_RATIO = 0.5
ENVS = {"dqn": "CartPole-v1", "sac": "Pendulum-v1", "td3": "Pendulum-v1", "ddpg": "Pendulum-v1"}
LIBRARY: dict[str, dict[str, Any]] = {
    # The target follows by 0.005 at each update, which is every fourth step.
    "dqn": {"batch_size": 64, "learning_rate": 5e-4, "train_freq": 4, "tau": 0.005, "target_update_interval": 4},
    "sac": {"batch_size": 256},
    "td3": {"batch_size": 256},
    "ddpg": {"batch_size": 256},
}
"""Our defaults in the library's words; the layers are equal as well."""
LAYERS = {"dqn": [64, 64], "sac": [256, 256], "td3": [256, 256], "ddpg": [256, 256]}

Play = Callable[[int], tuple[float, float, int]]
"""Plays some steps; returns the CPU seconds of steps and of updates, and the number of updates."""


def ours(name: str, *, compiled: bool) -> Play:
    """Return what plays our agent, after its warm-up."""
    learner = {"compile": compiled}
    settings = {"env": ENVS[name], "threads": 1, "replay": {"warmup": WARMUP}, "learner": learner}
    trainer = compose(resolve_config(name, None, settings)).trainer
    learned, profile, taken = trainer.run.learner.tally, trainer.profile, 0

    def play(steps: int) -> tuple[float, float, int]:
        nonlocal taken
        updates = learned.updates
        profile.clear_()
        for _ in range(steps):
            taken += 1  # from 1 on, as step 0 of a round clears the profile
            trainer.collector.step_(taken)
        update = profile.cpu["update"]
        return sum(profile.cpu.values()) - update, update, learned.updates - updates

    play(WARMUP + 50)
    return play


def theirs(name: str) -> Play:
    """Return what plays the library's agent, after its warm-up."""
    env, settings = gymnasium.make(ENVS[name]), LIBRARY[name]
    if name in {"td3", "ddpg"}:
        settings = settings | {"action_noise": NormalActionNoise(np.zeros(1), np.full(1, 0.1))}
    agent = getattr(stable_baselines3, name.upper())(
        "MlpPolicy", env, policy_kwargs={"net_arch": LAYERS[name]}, learning_starts=WARMUP, device="cpu", seed=0,
        **settings,
    )  # fmt: skip
    train, spent, updates = agent.train, 0.0, 0

    def timed(*, gradient_steps: int, batch_size: int) -> None:
        nonlocal spent, updates
        began = time.process_time()
        train(gradient_steps=gradient_steps, batch_size=batch_size)
        spent, updates = spent + time.process_time() - began, updates + gradient_steps

    agent.train = timed

    def play(steps: int) -> tuple[float, float, int]:
        nonlocal spent, updates
        spent, updates, began = 0.0, 0, time.process_time()
        agent.learn(steps, reset_num_timesteps=False)
        return time.process_time() - began - spent, spent, updates

    play(WARMUP + 50)
    return play


def measure(name: str, turns: int, steps: int, *, compiled: bool) -> dict[str, tuple[float, float, float]]:
    """Return each player's least CPU microseconds of a step, of an update, and of a step with its share of updates."""
    players = {"flatwater": ours(name, compiled=compiled), "sb3": theirs(name)}
    turns_of: dict[str, list[tuple[float, float, float]]] = {player: [] for player in players}
    for _ in range(turns):
        for player, play in players.items():
            step, update, updates = play(steps)
            turns_of[player].append((1e6 * step / steps, 1e6 * update / updates, 1e6 * (step + update) / steps))
    columns = {player: list(zip(*rows, strict=True)) for player, rows in turns_of.items()}
    return {player: (min(steps_), min(updates_), min(both)) for player, (steps_, updates_, both) in columns.items()}


def main() -> None:
    """A table, and a claim for each algorithm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", choices=[*ENVS], default=["dqn", "sac", "td3"])
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--compile", action="store_true", help="compile our updates, as a run of 16,000 updates does")
    given = parser.parse_args()
    torch.set_num_threads(1)
    claims = []
    print("agent  player     us/step  us/update  us/step with updates")
    for name in given.agents:
        found = measure(name, given.turns, given.steps, compiled=given.compile)
        for player, numbers in found.items():
            print(f"{name:6} {player:9} {numbers[0]:8,.0f} {numbers[1]:10,.0f} {numbers[2]:10,.0f}", flush=True)
        ratio = found["flatwater"][2] / found["sb3"][2]
        print(f"{name:6} ratio     {ratio:8.2f}")
        kind = "compiled" if given.compile else "eager"
        title = f"{name.upper()}, one agent, {kind}, equal settings: CPU time of a step over Stable-Baselines3's"
        rival = f"{found['sb3'][2]:,.0f} us against {found['flatwater'][2]:,.0f}"
        wanted = f"<= {WANTED_RATIO}"
        reached = ratio <= WANTED_RATIO
        claims.append(Claim("flatwater", f"{name}.{kind}", title, f"{ratio:.2f}", wanted, reached=reached, rival=rival))
    record_claims(claims)


if __name__ == "__main__":
    main()
