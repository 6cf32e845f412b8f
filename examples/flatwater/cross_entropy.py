"""A recipe of one's own in one file: the cross-entropy method, which plays CartPole with weights drawn around a mean.

    flatwater train cross_entropy:SEARCH --rounds 20        in the folder of this file

`plan`, `sweep`, `resume`, `evaluate`, `report`, `runs` and `top` know it as well.
docs/flatwater/own-recipe.md explains it.
"""

from typing import Literal

import gymnasium
import torch

from flatwater.config import Count, Seed, config
from flatwater.recipes import Phase, Progress, RunConfig, make_recipe
from flatwater.state import generator, state


@config
class SearchConfig(RunConfig):
    """Search for the weights of a linear player of CartPole, with the cross-entropy method."""

    trainer: Literal["cross_entropy:SEARCH"] = "cross_entropy:SEARCH"
    seed: Seed = 0
    candidates: Count = 24
    """Weights that are tried in each round."""
    elites: Count = 6
    """The best of them, to which the mean moves."""


@state
class Search:
    """All that outlives a step; anything else is gone at a resume."""

    progress: Progress
    mean: torch.Tensor
    deviation: torch.Tensor
    candidates: torch.Tensor
    returns: torch.Tensor
    rng: torch.Generator


def build(config: SearchConfig, device: torch.device) -> Search:
    """Return the state, whole and filled; on the meta device it is the plan."""
    return Search(
        progress=Progress(),
        mean=torch.empty(4, device=device).fill_(0),
        deviation=torch.empty(4, device=device).fill_(1),
        candidates=torch.empty(config.candidates, 4, device=device).fill_(0),
        returns=torch.empty(config.candidates, device=device).fill_(0),
        rng=generator(config.seed, "candidates", device),
    )


def play(weights: torch.Tensor, seed: int) -> float:
    """Return what an episode pays that is played by linear weights."""
    env = gymnasium.make("CartPole-v1")
    (seen, _), total, over = env.reset(seed=seed), 0.0, False
    while not over:
        seen, reward, terminated, truncated, _ = env.step(int(weights.numpy() @ seen > 0))
        total, over = total + float(reward), terminated or truncated
    return total


def phases(config: SearchConfig, run: Search) -> list[Phase]:
    """Return the round: phases of numbered steps, each of which writes into the state."""

    def draw_(_: int) -> None:
        run.candidates.normal_(generator=run.rng).mul_(run.deviation).add_(run.mean)

    def play_(number: int) -> None:
        run.returns[number] = play(run.candidates[number], run.progress.round * config.candidates + number)

    def select_(_: int) -> None:
        best = run.candidates[run.returns.topk(config.elites).indices]
        torch.mean(best, 0, out=run.mean)
        torch.std(best, 0, out=run.deviation)

    draw, select = Phase("draw", lambda: 1, draw_), Phase("select", lambda: 1, select_)
    return [draw, Phase("play", lambda: config.candidates, play_), select]


def score(_: SearchConfig, run: Search, first_seed: int) -> dict[str, list[float]]:
    """Return the returns of 20 episodes that nothing was learned from: of the mean, and of the first mean."""
    players = {"mean": run.mean, "start": torch.zeros(4)}
    return {name: [play(weights, first_seed + number) for number in range(20)] for name, weights in players.items()}


SEARCH = make_recipe(
    SearchConfig,
    build=build,
    phases=phases,
    numbers=lambda _, run: {"return/best": float(run.returns.max()), "return/mean": float(run.returns.mean())},
    score=score,
    players=("mean", "start"),
    curves={"best": "return/best", "mean": "return/mean"},
    knobs={"candidates": "candidates"},
)
