"""Would a linear path at ridge's solution help traders of purchases? The table of ADR 53, and its gains of 5 days.

    python benchmarks/trading/bench_linear_path.py [--markets trend ...] [--seeds 60 61] [--rounds N] [--json]

The path is a ridge regression of the gains of purchases on the day's features of the instrument, of the mean instrument
and of the columns that cannot be bought. Its forecast, in deviations of the gains, is added to the coefficient of the
network before tanh. A champion is trained three times: alone; beside the fixed path; and alone on gains of 5 days. The
first two play the 20 holdout episodes of `bench_learning.py` with each weight of network and path, by the rule of the
settings: shares of the oracle's return. The first and the last play the whole holdout by 5 and by 20 days: returns of a
year.

The numbers of the ADR came from a branch that is not kept; this program follows its description.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import numpy as np
import torch
from bench_learning import MARKETS, NOTHING, config_of, episode_starts, play_scores, simulator
from bench_rules import play_holdout
from claims import Claim, record_claims
from jaxtyping import Float
from sizes import Silent
from torch import Tensor

from flatwater.nets.stack import Params
from flatwater.trainers.loop import train_
from flatwater_trading.market.exits import trade_gains
from flatwater_trading.market.results import episode_summary
from flatwater_trading.market.score_rules import MAXIMUM_GAIN, RIDGE_PENALTY, oracle_scores
from flatwater_trading.panel.locate import load_truth
from flatwater_trading.policy.trader import Embedding, TraderActor, Trunk, apply_rowwise, instrument_features
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.run import ErlRun, compose
from flatwater_trading.training.executor import LocalTileExecutor
from flatwater_trading.training.lessons import build_outcomes, lesson_days
from flatwater_trading.training.play import play_slices_
from flatwater_trading.training.round import build_trainer

SEEDS = (60, 61)
"""Seeds of the ADR's table."""
SHORT_DAYS = 5
"""Days of the shorter gains."""
LAWS = [market for market in MARKETS if market not in NOTHING]
"""Markets with something to earn."""
NETWORK, PATH, BESIDE, HALF = (
    "network alone",
    "path alone",
    "network learned beside the fixed path",
    "the same, half of the network",
)
ADDED = "learned alone, path added, weight {}"
ADDED_WEIGHTS = (1, 2, 4)
"""Weights with which the path is added to a network that was learned alone."""


@dataclass(frozen=True)
class LinearPath:
    """The solution of ridge: gains in deviations, as a linear function of the day's features."""

    weights: Float[Tensor, " F"]
    intercept: float


def path_features(trunk: Trunk, today: Float[Tensor, "... N f"]) -> Float[Tensor, "... K F"]:
    """Return the day's features of each instrument, of the mean instrument, and of what cannot be bought."""
    own = today.index_select(-2, trunk.investable)
    others = (own.mean(-2), today.index_select(-2, trunk.context).flatten(-2))
    return torch.cat([own, *(each.unsqueeze(-2).expand(*own.shape[:-1], -1) for each in others)], dim=-1)


def solve_path(composition: ErlRun) -> LinearPath:
    """Solve ridge on the days that members learn from."""
    setup, market = composition.setup, composition.trainer.run.market
    rows, trade = lesson_days(setup), composition.config.env.trade
    target = torch.tensor([trade.target_high])
    gain = trade_gains(market, rows=rows, targets=target, trade=trade, account=composition.config.env.account)
    gain = gain[..., 0].double().clamp(-MAXIMUM_GAIN, MAXIMUM_GAIN)
    today = market.observations[:, rows.start : rows.stop].transpose(0, 1).double()
    known = gain.isfinite()
    samples, gains = path_features(setup.actor.trunk, today)[known], gain[known] / gain[known].std()
    centre, mean_gain = samples.mean(0), gains.mean()
    centred = samples - centre
    normal_matrix = centred.T @ centred + RIDGE_PENALTY * torch.eye(len(centre), dtype=centred.dtype)
    weights = torch.linalg.solve(normal_matrix, centred.T @ (gains - mean_gain))
    return LinearPath(weights.float(), float(mean_gain - centre @ weights))


@dataclass(frozen=True)
class PathEmbedding(Embedding):
    """The market on some days, and the path's forecast for each instrument."""

    forecast: Float[Tensor, "P M K"]


@dataclass(frozen=True)
class PathTrunk(Trunk):
    """A trunk that the path stands beside."""

    path: LinearPath

    def embed(self, params: Params, tokens: Tensor, today: Float[Tensor, "P M N F"]) -> PathEmbedding:
        """Embed the days, with the path's forecast."""
        forecast = path_features(self, today) @ self.path.weights + self.path.intercept
        return PathEmbedding(
            **vars(super().embed(params, tokens, today)), forecast=forecast.expand(*tokens.shape[:2], -1)
        )


@dataclass(frozen=True)
class PathActor(TraderActor):
    """An actor whose coefficient is a sum of network and path, before tanh."""

    network_weight: float
    """Factor of the network's coefficient; without it the sale target is the largest, as ridge's is."""
    path_weight: float

    def hidden_features(self, params: Params, embedding: Embedding) -> Float[Tensor, "P M K H1"]:
        """Return the head's hidden layer, and behind it the path's forecast."""
        assert isinstance(embedding, PathEmbedding)
        return torch.cat([instrument_features(params, embedding), embedding.forecast.unsqueeze(-1)], dim=-1)

    def head(self, params: Params, hidden: Tensor, missing: Tensor, account: Tensor | None) -> Float[Tensor, "P M K 2"]:
        """Return coefficients and sale targets in [-1, 1]."""
        assert account is None
        features, forecast = hidden[..., :-1], hidden[..., -1]
        coefficient, target = apply_rowwise(params, "action", torch.relu(features)).unbind(-1)
        coefficient = torch.tanh(self.network_weight * coefficient + self.path_weight * forecast)
        target = torch.tanh(target) if self.network_weight else torch.ones_like(target)
        return torch.stack([coefficient.masked_fill(missing, -1.0), target], dim=-1)


def with_path(composition: ErlRun, path: LinearPath, *, network: float, weight: float) -> ErlRun:
    """Return the run with a path beside its network, and with the same members."""
    actor, run = composition.setup.actor, composition.trainer.run
    trunk = PathTrunk(**(vars(actor.trunk) | {"path": path}))
    beside = PathActor(trunk, actor.layout, network_weight=network, path_weight=weight)
    setup = replace(composition.setup, actor=beside)
    return replace(composition, trainer=build_trainer(setup, run, LocalTileExecutor(setup, run)))


def play_champion(composition: ErlRun) -> float:
    """Play the champion on the holdout's episodes, by the rule of the settings; its mean return."""
    starts, run = episode_starts(composition), composition.trainer.run
    env, days = simulator(composition, starts), composition.config.env.episode.days
    play_slices_(composition.setup, run.market, env, actors=run.learner.actor[-1:], starts=starts, days=days)
    return float(episode_summary(env, composition.config.env)["total_return"].mean())


def play_holdout_by_days(composition: ErlRun) -> dict[str, float]:
    """Play the champion on the whole holdout, held for 5 days and for those of the settings; returns of a year."""
    trade = composition.config.env.trade
    rules = (replace(trade, hold_days=SHORT_DAYS), trade)
    return {f"by {rule.hold_days} days": play_holdout(composition, rule) for rule in rules}


def shorten_gains_(composition: ErlRun) -> None:
    """Write the gains of 5 days over those that members learn from, on the same days."""
    setup, run = composition.setup, composition.trainer.run
    config = setup.config
    env = replace(config.env, trade=replace(config.env.trade, hold_days=SHORT_DAYS))
    gain = build_outcomes(replace(setup, config=replace(config, env=env)), run.market).gain
    assert run.outcomes is not None
    # Purchases of 5 days can be learned on a few days more, which are left out.
    run.outcomes.gain.copy_(gain[: len(run.outcomes.gain)])


def learn(config: ErlRunConfig) -> dict[str, Any]:
    """Train alone, beside the path, and on gains of 5 days; the shares of the oracle, and the returns of a year."""
    alone = compose(config)
    train_(alone.trainer, config.rounds, Silent())
    path, truth = solve_path(alone), load_truth(config.panel)
    assert truth is not None
    beside = with_path(compose(config), path, network=1, weight=1)
    train_(beside.trainer, config.rounds, Silent())
    ways = {NETWORK: alone, PATH: with_path(alone, path, network=0, weight=1), BESIDE: beside}
    ways[HALF] = with_path(beside, path, network=0.5, weight=1)
    ways |= {ADDED.format(weight): with_path(alone, path, network=1, weight=weight) for weight in ADDED_WEIGHTS}
    oracle = play_scores(alone, oracle_scores(truth, config.env))
    shares = {name: play_champion(way) / oracle for name, way in ways.items()}
    short = compose(config)
    shorten_gains_(short)
    train_(short.trainer, config.rounds, Silent())
    gains = {f"gains of {SHORT_DAYS} days": short, f"gains of {config.env.trade.hold_days} days": alone}
    return {"shares": shares, "a_year": {name: play_holdout_by_days(each) for name, each in gains.items()}}


def main() -> None:
    """Train on every market; print the means over the seeds as two tables, or every run as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markets", choices=LAWS, nargs="+", default=LAWS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*SEEDS])
    parser.add_argument("--rounds", type=int, help="generations; left out: those of the defaults")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for market in options.markets:
        for seed in options.seeds:
            config = config_of(market, seed, "hindsight")
            config = replace(config, rounds=options.rounds or config.rounds)
            rows.append({"market": market, "seed": seed} | learn(config))
            print(f"{market}, seed {seed}: {rows[-1]['shares'][NETWORK]:.2f} of the oracle alone", file=sys.stderr)
    record_claims(claims(rows))
    print(json.dumps(rows, indent=1) if options.json else "\n".join(tables(rows, options.markets)))


def tables(rows: list[dict[str, Any]], markets: list[str]) -> Iterator[str]:
    """Yield the lines of two tables, a column for each market: shares of the oracle, and returns of a year."""
    yield f"{'share of the oracle':<40}" + "".join(f"{market:>13}" for market in markets)
    for name in rows[0]["shares"]:
        yield f"{name:<40}" + "".join(f"{mean_share(rows, market, name):>13.2f}" for market in markets)
    yield f"\n{'return of a year':<40}" + "".join(f"{market:>13}" for market in markets)
    for gains, by_days in rows[0]["a_year"].items():
        for days in by_days:
            means = (
                float(np.mean([row["a_year"][gains][days] for row in rows if row["market"] == market]))
                for market in markets
            )
            yield f"{gains + ', played ' + days:<40}" + "".join(f"{mean:>13.1%}" for mean in means)


def mean_share(rows: list[dict[str, Any]], market: str, name: str) -> float:
    """Return the mean over the seeds of a share of the oracle."""
    return float(np.mean([row["shares"][name] for row in rows if row["market"] == market]))


def claims(rows: list[dict[str, Any]]) -> Iterator[Claim]:
    """Yield a claim for each market: the network alone, beside the best way to add the path."""
    for market in dict.fromkeys(row["market"] for row in rows):
        shares = {name: mean_share(rows, market, name) for name in rows[0]["shares"]}
        alone, (best, share) = shares.pop(NETWORK), max(shares.items(), key=lambda each: each[1])
        name = f"market `{market}`, traders without a linear path, holdout: share of the oracle's return"
        yield Claim("trading", market, name, f"{alone:.2f}", rival=f"{share:.2f} ({best})")


if __name__ == "__main__":
    main()
