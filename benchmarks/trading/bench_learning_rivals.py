"""The default traders beside the algorithms of a famous library, on the same market, in the same CPU seconds.

    python benchmarks/trading/bench_learning_rivals.py [--markets trend weak] [--seeds 0 1 2] [--seconds S] [--json]

Needs Stable-Baselines3 (`pip install stable-baselines3`). Its agents get every help: the trading environment as one
batched `VecEnv` without copies of the panel; five features of each instrument at four lags and whether it is held, in
place of windows; one small network shared by all instruments (a flat one learnt less); the sale target fixed at its
largest; a trade's reward on the day of the purchase, so that a discount of 0.05 suffices; and the best of five looks at
the validation days. `--seconds` are those of training; left out, each agent gets what our run of the same seed took.
Gradient boosting (scikit-learn) and ridge get resolved gains and past returns, as the simple rules do. Shares are of
the oracle's return on the 20 episodes of `bench_learning.py`, on days that nothing was chosen on.
"""

# ruff: noqa: D101, D102, ARG002, ANN401, TID251  (the library asks for these methods, and draws from torch's generator)

import argparse
import json
import sys
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import gymnasium
import numpy as np
import torch
from bench_learning import MARKETS, config_of, episode_starts, judge, play_scores, simulator
from claims import Claim, record_claims
from sizes import Silent
from sklearn.ensemble import HistGradientBoostingRegressor

try:
    from stable_baselines3 import PPO, SAC, TD3
except ImportError:
    sys.exit("bench_learning_rivals.py needs Stable-Baselines3: pip install stable-baselines3")
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from torch import nn

from flatwater.trainers.loop import train_
from flatwater_trading.market.observation import account_block
from flatwater_trading.market.results import episode_summary
from flatwater_trading.market.score_rules import gain_features
from flatwater_trading.market.simulator import step_
from flatwater_trading.recipe.run import ErlRun, compose
from flatwater_trading.training.lessons import lesson_days

LAGS = (0, 5, 10, 19)
"""Days back at which an agent sees each feature."""
WIDTH = 32
LOOKS = 5
"""At the validation days; the best policy of them is judged."""
ENVS = {"ppo": 16, "sac": 4, "td3": 4}
CHUNK = 2_000
"""Env steps between two looks at the clock."""


class Traders(VecEnv):
    """B episodes in lock-step, on drawn training days. Observations [B, K x F], actions [B, K] in [-1, 1]."""

    def __init__(self, run: ErlRun, batch: int, seed: int) -> None:
        self.run, self.market = run, run.trainer.run.market
        reward = replace(run.config.env.reward, credit="entry")
        self.config = replace(run.config.env, reward=reward)
        self.draw = np.random.default_rng(seed)
        seen = self.market.observations[self.market.investable]  # [K, T, F]
        lagged = [seen.roll(lag, dims=1) for lag in LAGS]
        self.shown = torch.cat(lagged, dim=-1).transpose(0, 1).contiguous()  # [T, K, lags x F]
        self.features = self.shown.shape[-1] + 1
        columns = self.shown.shape[1]
        self.order = torch.full((batch, columns, 2), self.config.trade.target_high)
        super().__init__(
            batch,
            gymnasium.spaces.Box(-np.inf, np.inf, (columns * self.features,), np.float32),
            gymnasium.spaces.Box(-1.0, 1.0, (columns,), np.float32),
        )

    def begin(self, starts: torch.Tensor) -> np.ndarray:
        """The episodes that begin on these rows."""
        self.sim = simulator(self.run, starts)
        return self.observations()

    def reset(self) -> np.ndarray:
        days = lesson_days(self.run.setup)
        last = days.stop - self.config.episode.days
        return self.begin(torch.from_numpy(self.draw.integers(days.start, last, self.num_envs)))

    def observations(self) -> np.ndarray:
        day = torch.minimum(self.sim.day, self.sim.end - 1)
        held = account_block(self.sim, self.market)[..., :1]
        return torch.cat([self.shown[day], held], dim=-1).flatten(1).numpy()

    def trade(self, actions: np.ndarray) -> tuple[np.ndarray, bool]:
        """One day. Rewards, and whether the episodes have ended: all are of one length."""
        self.order[: len(actions), :, 0] = (torch.from_numpy(actions) + 1) / 2 * self.config.trade.coefficient_max
        step = step_(self.sim, self.market, self.config, self.order[: len(actions)])
        return step.reward.numpy() / 10, bool(step.terminated.all())

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        reward, ended = self.trade(self.actions)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if ended:
            for info, last in zip(infos, self.observations(), strict=True):
                info["terminal_observation"] = last
        obs = self.reset() if ended else self.observations()
        return obs, reward.copy(), np.full(self.num_envs, ended), infos

    def close(self) -> None: ...

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **named: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


# --- one small network for each instrument ---


class Shared(nn.Module):
    """[B, K x F] and, for a critic, actions [B, K] behind it: one number for each instrument, or their mean."""

    def __init__(self, columns: int, features: int, *, acts: bool = False, mean: bool = False) -> None:
        super().__init__()
        self.columns, self.features, self.acts, self.mean = columns, features, acts, mean
        self.net = nn.Sequential(
            nn.Linear(features + acts, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)
        )

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        seen = given[:, : self.columns * self.features].unflatten(1, (self.columns, self.features))
        if self.acts:
            seen = torch.cat([seen, given[:, self.columns * self.features :, None]], dim=-1)
        out = self.net(seen)[..., 0]
        return out.mean(1, keepdim=True) if self.mean else out


def sizes(policy: Any) -> tuple[int, int]:
    """Instruments and features, of a policy's spaces."""
    columns = policy.action_space.shape[0]
    return columns, policy.observation_space.shape[0] // columns


class Straight(nn.Module):
    """In place of a flat network before the heads: what comes in goes out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.latent_dim_pi = self.latent_dim_vf = width

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return seen, seen

    def forward_actor(self, seen: torch.Tensor) -> torch.Tensor:
        return seen

    def forward_critic(self, seen: torch.Tensor) -> torch.Tensor:
        return seen


class SharedPPO(ActorCriticPolicy):
    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = Straight(self.features_dim)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net, self.value_net = Shared(*sizes(self)), Shared(*sizes(self), mean=True)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


class SharedTD3(TD3Policy):
    def make_actor(self, features_extractor: Any = None) -> Any:
        actor = super().make_actor(features_extractor)
        actor.mu = nn.Sequential(Shared(*sizes(self)), nn.Tanh())
        return actor.to(self.device)

    def make_critic(self, features_extractor: Any = None) -> Any:
        return shared_critic(self, super().make_critic(features_extractor))


class SharedSAC(SACPolicy):
    def make_actor(self, features_extractor: Any = None) -> Any:
        actor = super().make_actor(features_extractor)
        actor.latent_pi = nn.Identity()
        actor.mu, actor.log_std = Shared(*sizes(self)), Shared(*sizes(self))
        return actor.to(self.device)

    def make_critic(self, features_extractor: Any = None) -> Any:
        return shared_critic(self, super().make_critic(features_extractor))


def shared_critic(policy: Any, critic: Any) -> Any:
    """The critic with shared networks in place of its own."""
    critic.q_networks = [Shared(*sizes(policy), acts=True, mean=True) for _ in critic.q_networks]
    for at, net in enumerate(critic.q_networks):
        setattr(critic, f"qf{at}", net)
    return critic.to(policy.device)


def agent(name: str, env: Traders, seed: int) -> Any:
    """Build an agent with the library's defaults, but for the discount and what the module's docstring says."""
    common: dict[str, Any] = {"gamma": 0.05, "seed": seed, "device": "cpu"}
    if name == "ppo":
        return PPO(SharedPPO, env, n_steps=128, batch_size=256, learning_rate=1e-3, **common)
    off: dict[str, Any] = {
        "learning_rate": 1e-3,
        "batch_size": 256,
        "learning_starts": 1_000,
        "buffer_size": 100_000,
        "train_freq": 4,
    }
    return SAC(SharedSAC, env, **off, **common) if name == "sac" else TD3(SharedTD3, env, **off, **common)


# --- training and judging ---


def mean_return(model: Any, run: ErlRun, starts: torch.Tensor) -> float:
    """Mean account return of a policy without noise on these episodes."""
    env = Traders(run, len(starts), 0)
    obs, ended = env.begin(starts), False
    while not ended:
        _, ended = env.trade(model.predict(obs, deterministic=True)[0])
        obs = env.observations()
    return float(episode_summary(env.sim, run.config.env)["total_return"].mean())


class Timed(BaseCallback):
    """Ends after so many CPU seconds, in which the policy is looked at five times; keeps the best."""

    def __init__(self, run: ErlRun, seconds: float) -> None:
        super().__init__()
        self.run_, self.seconds, self.began, self.apart = run, seconds, time.process_time(), 0.0
        self.best, self.looked = -np.inf, 0
        self.kept: dict[str, Any] = {}
        days = run.setup.splits.validation
        self.starts = torch.linspace(days.first, days.stop - run.config.env.episode.days, 8).long()

    def training_seconds(self) -> float:
        """CPU seconds of training."""
        return time.process_time() - self.began - self.apart

    def _on_step(self) -> bool:
        if self.training_seconds() >= (self.looked + 1) * self.seconds / LOOKS:
            at = time.process_time()
            score = mean_return(self.model, self.run_, self.starts)
            if score > self.best:
                self.best, self.kept = score, deepcopy(self.model.policy.state_dict())
            self.looked += 1
            self.apart += time.process_time() - at
        return self.looked < LOOKS


def library(name: str, run: ErlRun, seconds: float, seed: int) -> tuple[float, int]:
    """Mean return on the holdout of what a library's agent learnt, and the env steps that it took."""
    torch.manual_seed(seed)
    model = agent(name, Traders(run, ENVS[name], seed), seed)
    timed = Timed(run, seconds)
    model.learn(10**9, callback=timed)
    model.policy.load_state_dict(timed.kept)
    return mean_return(model, run, episode_starts(run)), int(model.num_timesteps)


def boosting(run: ErlRun, seed: int) -> float:
    """Gradient boosting on what ridge sees, fitted to the same days."""
    market, config = run.trainer.run.market, run.config.env
    features, gain, usable = gain_features(market, config, lesson_days(run.setup))
    days = lesson_days(run.setup)
    fitted = HistGradientBoostingRegressor(random_state=seed).fit(
        features[days.start : days.stop][usable], gain[usable]
    )
    everywhere = np.isfinite(features).all(-1)
    scores = np.full(features.shape[:2], np.nan)
    scores[everywhere] = fitted.predict(features[everywhere])
    return play_scores(run, scores)


COLUMNS = ("champion", "population", "ridge", "boosting", "20-day momentum", *ENVS)


def compare_on_market(market: str, seed: int, seconds: float | None) -> dict[str, Any]:
    """Everybody's mean return on one market."""
    config = config_of(market, seed, "hindsight")
    began = time.process_time()
    run = compose(config)
    train_(run.trainer, config.rounds, Silent())
    took = time.process_time() - began
    row: dict[str, Any] = {
        "market": market,
        "seed": seed,
        "cpu_seconds": took,
        **judge(run),
        "boosting": boosting(run, seed),
    }
    for name in ENVS:
        row[name], row[f"{name}_steps"] = library(name, run, seconds or took, seed)
    return row


def main() -> None:
    """Print a line for each market."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markets", choices=[*MARKETS], nargs="+", default=["trend", "weak"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    if not options.json:
        print(
            f"{'market':<11}{'seed':>5}"
            + "".join(f"{name.removesuffix(' momentum'):>11}" for name in COLUMNS)
            + f"{'CPU s':>7}"
        )
    for market in options.markets:
        for seed in options.seeds:
            row = compare_on_market(market, seed, options.seconds)
            rows.append(row)
            if not options.json:
                shares = "".join(f"{row[name] / row['oracle']:>11.2f}" for name in COLUMNS)
                print(f"{market:<11}{seed:>5}{shares}{row['cpu_seconds']:>7.0f}", flush=True)
    record_claims(claims(rows))
    if options.json:
        print(json.dumps(rows, indent=1))


def claims(rows: list[dict[str, Any]]) -> Iterator[Claim]:
    """Our champion beside the best of the library's agents and boosting, in the same CPU seconds."""
    for market in dict.fromkeys(row["market"] for row in rows):
        of = [row for row in rows if row["market"] == market]
        shares = {name: sum(row[name] for row in of) / sum(row["oracle"] for row in of) for name in COLUMNS}
        best = max(("boosting", *ENVS), key=lambda name: shares[name])
        name = f"market `{market}`, {len(of)} seeds, same CPU seconds: share of the oracle's return"
        ours, rival = shares["champion"], f"{shares[best]:.2f} ({best})"
        yield Claim("trading", market, name, f"{ours:.2f}", "ahead", ours > shares[best], rival)


if __name__ == "__main__":
    main()
