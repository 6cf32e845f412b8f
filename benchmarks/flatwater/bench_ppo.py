"""PPO beside Stable-Baselines3's, on the same environments, with the same steps, epochs and layers, in one program.

    python benchmarks/flatwater/bench_ppo.py [--envs CartPole-v1 Acrobot-v1] [--seeds 0 1 2 3 4] [--steps N] [--json]
    python benchmarks/flatwater/bench_ppo.py --same                           returns alone, both with the same settings
    python benchmarks/flatwater/bench_ppo.py --speed                          speed alone

Needs `pip install stable-baselines3`, and Box2D for LunarLander. Both get 8 copies that are stepped one after another,
blocks of 128 steps, two layers of 64, discount 0.99 and lambda 0.95, and one thread. Returns are means over 40 episodes
of other seeds with the likeliest action, after the same agent steps; each has its own default rates and passes (4
epochs of 4 minibatches of the library, which are near its defaults). With `--same` both have those of RL Zoo, without
schedules and normalised observations, which ours has not. Speed is agent steps for each second of CPU time of training,
without evaluation, of both with 4 epochs of 4 minibatches, `learner.compile` beside it, and the example world on arrays
(`examples/flatwater/cartpole_tensors.py`) beside CartPole: all are timed in turns, and the median of the ratios counts.
Both spend most of it in Gymnasium's and torch's calls, so it varies with the machine.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import gymnasium
import torch
from claims import Claim, record_claims

try:
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
except ImportError:
    sys.exit("bench_ppo.py needs Stable-Baselines3: pip install stable-baselines3")
from sizes import Silent

from flatwater.algorithms.on_policy_config import PpoLearnerConfig
from flatwater.recipes.ppo.config import PpoRunConfig
from flatwater.recipes.ppo.run import BlocksRun, compose
from flatwater.runs.scores import score_players
from flatwater.trainers.blocks.config import EvaluationConfig
from flatwater.trainers.loop import train_

ENVS, BLOCK, EPISODES = 8, 128, 40
TURNS, BLOCKS = 10, 4
"""Turns in which all are timed, and the blocks of each."""
ARRAYS, WIDE = "cartpole_tensors:CartPole", (8, 64, 256)
"""The example world, and its copies."""
NEVER = 1 << 20
"""Rounds between two evaluations: there is none, and none is counted."""
JUDGED = 1 << 31
"""First seed of the episodes that the returns are taken on."""


@dataclass(frozen=True)
class Settings:
    """Settings of both programs: copies and steps of a block, and how it is learned from."""

    envs: int
    block: int
    minibatches: int
    epochs: int
    lr: float
    gamma: float
    lam: float
    entropy: float = 0.0

    def own(self) -> PpoLearnerConfig:
        """In our words; the library's weight of the critic's squared error is 0.5, and ours is of its half."""
        shape = PpoLearnerConfig(epochs=self.epochs, minibatches=self.minibatches, value_weight=1.0)
        return replace(shape, lr=self.lr, gamma=self.gamma, lam=self.lam, entropy_weight=self.entropy)

    def library(self) -> dict[str, Any]:
        """In the library's."""
        size = self.envs * self.block // self.minibatches
        shape = {"n_steps": self.block, "batch_size": size, "n_epochs": self.epochs, "ent_coef": self.entropy}
        return shape | {"learning_rate": self.lr, "gamma": self.gamma, "gae_lambda": self.lam}


SAME = {
    "CartPole-v1": Settings(8, 32, 1, 20, 1e-3, 0.98, 0.8),
    "Acrobot-v1": Settings(16, 256, 64, 4, 3e-4, 0.99, 0.94),
    "LunarLander-v3": Settings(16, 1024, 256, 4, 3e-4, 0.999, 0.98, 0.01),
}
"""RL Zoo's; both have two layers of 64 and a clip of 0.2 besides."""
NEAR = {"n_steps": BLOCK, "batch_size": ENVS * BLOCK // 4, "n_epochs": 4}
"""Passes of the library near its defaults."""


def own(env: str, seed: int, learner: PpoLearnerConfig, envs: int = ENVS, block: int = BLOCK) -> BlocksRun:
    """A run of `train ppo` with its defaults, apart from how it learns."""
    evaluation = EvaluationConfig(envs=EPISODES, every=NEVER)
    config = PpoRunConfig(env=env, seed=seed, envs=envs, block=block, threads=1, evaluation=evaluation, learner=learner)
    run = compose(config)
    train_(run.trainer, 1, Silent())  # the baselines are played in the first round, and nothing of it is counted
    return run


def library(name: str, seed: int, envs: int = ENVS, settings: Mapping[str, Any] = NEAR) -> Any:  # noqa: ANN401
    """The library's PPO, as near to the same settings as it can be; it ships no types."""
    env = make_vec_env(name, envs, seed=seed)
    agent: Any = stable_baselines3.PPO
    agent = agent("MlpPolicy", env, seed=seed, device="cpu", policy_kwargs={"net_arch": [64, 64]}, **settings)
    return agent.learn(envs * agent.n_steps)


def compare(name: str, seed: int, steps: int, *, same: bool) -> dict[str, float]:
    """Train both, and judge them."""
    if same:
        given = SAME[name]
        ours = own(f"gymnasium:{name}", seed, given.own(), given.envs, given.block)
        theirs = library(name, seed, given.envs, given.library())
    else:
        ours, theirs = own(f"gymnasium:{name}", seed, PpoLearnerConfig()), library(name, seed)
    blocks = steps // (ours.config.envs * ours.config.block)
    spent, start = [], time.process_time()
    for train in (
        lambda: train_(ours.trainer, 1 + blocks, Silent()),
        lambda: theirs.learn(steps, reset_num_timesteps=False),
    ):
        train()
        spent.append(time.process_time() - start)
        start = time.process_time()
    reached, _ = evaluate_policy(theirs, make_vec_env(name, ENVS, seed=10_000), EPISODES, deterministic=True)
    players = score_players(ours.trainer, ours.rows, JUDGED)
    return {
        "own": float(players["policy"].mean()),
        "library": float(reached),
        "random": float(players["random"].mean()),
        "own, CPU seconds": spent[0],
        "library, CPU seconds": spent[1],
    }


def speed(name: str) -> dict[str, float]:
    """Agent steps per CPU second of all, with the same passes, in turns."""
    passes = PpoLearnerConfig(epochs=4, minibatches=4)
    graph, env = replace(passes, compile=True), f"gymnasium:{name}"
    runs = {"own": own(env, 0, passes), "own, compiled": own(env, 0, graph)}
    if name == "CartPole-v1":
        runs |= {f"arrays, compiled, {envs} copies": own(ARRAYS, 0, graph, envs) for envs in WIDE}
    theirs = library(name, 0)
    took: dict[str, list[float]] = {key: [] for key in (*runs, "library")}
    for turn in range(TURNS):
        for key, run in runs.items():
            start = time.process_time()
            train_(run.trainer, 1 + (turn + 1) * BLOCKS, Silent())
            took[key].append((time.process_time() - start) / (BLOCKS * BLOCK * run.config.envs))
        start = time.process_time()
        theirs.learn(BLOCKS * ENVS * BLOCK, reset_num_timesteps=False)
        took["library"].append((time.process_time() - start) / (BLOCKS * ENVS * BLOCK))
    # The first turn compiles, and counts to nobody.
    found = {f"steps per CPU second, {key}": median(1 / each for each in took[key][1:]) for key in took}
    for key in runs:
        ratios = [theirs / mine for mine, theirs in zip(took[key][1:], took["library"][1:], strict=True)]
        found |= {f"times as fast, {key}": median(ratios)}
    return found


def main() -> None:
    """Print a line for each environment and seed, and the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=["CartPole-v1", "Acrobot-v1"], help="Gymnasium's names")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=51_200, help="of all copies together")
    parser.add_argument("--same", action="store_true", help="the same settings for both, and no speed")
    parser.add_argument("--speed", action="store_true", help="no returns")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "flatwater"))
    found: dict[str, dict[str, list[float]]] = {}
    for name in given.envs:
        gymnasium.spec(name)
        runs = [] if given.speed else [compare(name, seed, given.steps, same=given.same) for seed in given.seeds]
        found[name] = {key: [run[key] for run in runs] for key in (runs[0] if runs else ())}
        if not given.same:
            found[name] |= {key: [value] for key, value in speed(name).items()}
        if not given.json:
            for key, values in found[name].items():
                each = "  ".join(f"{value:8.2f}" for value in values)
                print(f"{name:14} {key:30} {mean(values):9.2f}   {each}")
    record_claims(claims(found, given.steps, same=given.same))
    if given.json:
        print(json.dumps(found, indent=1))


def claims(found: dict[str, dict[str, list[float]]], steps: int, *, same: bool) -> Iterator[Claim]:
    """Returns and speed beside the library's, each environment."""
    how = "the same settings" if same else "each one's own defaults"
    for env, numbers in found.items():
        if "own" in numbers:
            ours, theirs = mean(numbers["own"]), mean(numbers["library"])
            name = f"PPO in {env}, mean return after {steps:,} steps, {len(numbers['own'])} seeds, {how}"
            rival, key = f"{theirs:.1f} (Stable-Baselines3)", f"{env}.returns{'.same' * same}"
            yield Claim("flatwater", key, name, f"{ours:.1f}", "equal or better", ours >= theirs, rival)
        if faster := numbers.get("times as fast, own, compiled"):
            name = f"PPO in {env}, steps per CPU second, compiled: times Stable-Baselines3"
            rival = "1 (Stable-Baselines3)"
            yield Claim("flatwater", f"{env}.speed", name, f"{faster[0]:.2f}", "≥ 4", faster[0] >= 4, rival)


if __name__ == "__main__":
    main()
