"""An agent of Stable-Baselines3 or SBX in a process of its own, with RL Zoo's settings, for bench_returns.py.

    python library_agent.py stable_baselines3|sbx ALGORITHM ENV SEED

Prints JSON: `curve`, rows of environment steps, CPU seconds, and the mean return of the likeliest action, and
`judging`, the CPU seconds of these evaluations, which `curve` leaves out.
"""

import importlib
import json
import os
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# One thread for each: XLA would take every core.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import gymnasium
import numpy as np
from gymnasium import wrappers
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

JUDGED = 10_000
"""First seed of the episodes that returns are taken on."""
GAMES = tomllib.loads(Path(__file__).with_name("returns.toml").read_text())
"""Algorithm -> environment -> its steps, and the settings of the libraries."""
POINTS, EPISODES = GAMES.pop("points"), GAMES.pop("episodes")


def own_seconds() -> float:
    """CPU seconds of this process since its start, and of processes that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@dataclass
class Judge(BaseCallback):  # type: ignore[misc]  # the library ships no types
    """Evaluates the agent at equal distances of steps."""

    steps: int
    env: VecEnv
    training: VecEnv
    curve: list[list[float]] = field(default_factory=list)
    judging: float = 0.0

    def __post_init__(self) -> None:
        super().__init__()

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.steps * (len(self.curve) + 1) // POINTS and len(self.curve) < POINTS - 1:
            self.judge()
        return True

    def judge(self) -> None:
        """Add a row: steps, CPU seconds without evaluations, return."""
        before = own_seconds()
        if isinstance(self.training, VecNormalize):
            self.env.obs_rms = self.training.obs_rms
        reached, _ = evaluate_policy(self.model, self.env, EPISODES, deterministic=True, warn=False)
        self.curve.append([self.num_timesteps, before - self.judging, float(reached)])
        self.judging += own_seconds() - before


def make_env(name: str, game: dict[str, Any], copies: int, seed: int) -> VecEnv:
    """Return copies of an environment, stepped one after another."""
    if name.startswith("MiniGrid"):
        importlib.import_module("minigrid")  # it registers its environments when it is imported

    def make() -> gymnasium.Env:
        env = gymnasium.make(name)
        for wrapper in game.get("wrappers", ()):
            module, _, attribute = wrapper.rpartition(":")
            env = getattr(importlib.import_module(module) if module else wrappers, attribute)(env)
        return env

    return make_vec_env(make, copies, seed=seed)


def read_setting(value: Any) -> Any:  # noqa: ANN401  (a number, a text or a list)
    """Return a setting in the library's form: `lin_X` becomes a function of the share of steps that is left."""
    if isinstance(value, str) and value.startswith("lin_"):
        return linear(float(value.removeprefix("lin_")))
    return value


def linear(first: float) -> Callable[[float], float]:
    """Return a value that falls from `first` to 0."""
    return lambda left: left * first


def activation(library: str, name: str) -> Any:  # noqa: ANN401  (a class of torch, or a function of flax)
    """Return the library's activation function of this name."""
    if library == "sbx":
        return getattr(importlib.import_module("flax.linen"), name)
    return {"relu": importlib.import_module("torch.nn").ReLU}[name]


def build_agent(library: str, algorithm: str, game: dict[str, Any], env: VecEnv, seed: int) -> Any:  # noqa: ANN401
    """Return an agent with the game's settings."""
    settings = {name: read_setting(value) for name, value in game["settings"].items()}
    policy = dict(game.get("policy", {}))
    if "activation" in policy:
        policy["activation_fn"] = activation(library, policy.pop("activation"))
    if library == "sbx":
        policy.pop("ortho_init", None)  # it always starts from the same distribution
    if "noise" in game:
        size = env.action_space.shape
        settings["action_noise"] = NormalActionNoise(np.zeros(size), game["noise"] * np.ones(size))
    if library == "stable_baselines3":
        importlib.import_module("torch").set_num_threads(1)
        settings["device"] = "cpu"
    agent = getattr(importlib.import_module(library), algorithm.upper())
    return agent("MlpPolicy", env, seed=seed, policy_kwargs=policy or None, **settings)


def main() -> None:
    """Train, and print the curve."""
    library, algorithm, name, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    game = GAMES[algorithm][name]
    training, held_out = make_env(name, game, game.get("n_envs", 1), seed), make_env(name, game, 1, JUDGED)
    if game.get("normalize"):
        training = VecNormalize(training, gamma=game["settings"].get("gamma", 0.99))
        held_out = VecNormalize(held_out, training=False, norm_reward=False)
    judge = Judge(game["steps"], held_out, training)
    agent = build_agent(library, algorithm, game, training, seed)
    agent.learn(game["steps"], callback=judge)
    judge.judge()
    print(json.dumps({"curve": judge.curve, "judging": judge.judging}))


if __name__ == "__main__":
    main()
