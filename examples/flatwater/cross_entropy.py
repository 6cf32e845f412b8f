"""A recipe of one's own in one file: the cross-entropy method, which plays CartPole with weights drawn around a mean.

    flatwater train cross_entropy:SEARCH --rounds 20        in the folder of this file

`plan`, `sweep`, `resume`, `evaluate`, `report`, `runs` and `top` know it as well.
docs/flatwater/own-recipe.md explains it.
"""

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import torch

from flatwater.config import Count, Seed, config
from flatwater.recipes import (
    META,
    Column,
    Headline,
    Number,
    Phase,
    Plan,
    Progress,
    Recipe,
    Run,
    RunConfig,
    TableLayout,
    make_plan,
    refuse,
)
from flatwater.state import generator, nbytes, state

CPU = torch.device("cpu")


@config
class SearchConfig(RunConfig):
    """The settings: each has a range, a sentence for the help, and an option `--candidates`."""

    trainer: Literal["cross_entropy:SEARCH"] = "cross_entropy:SEARCH"
    """How the recipe is named, so that `flatwater resume` finds it."""
    seed: Seed = 0
    """Every random number of the run follows from it."""
    candidates: Count = 24
    """Weights that are tried in each round."""
    elites: Count = 6
    """The best of them, to which the mean moves."""


@state
class Search:
    """All that outlives a step. What is in it is planned, weighed and saved; anything else is gone."""

    progress: Progress
    mean: torch.Tensor
    deviation: torch.Tensor
    candidates: torch.Tensor
    returns: torch.Tensor
    rng: torch.Generator


def build(config: SearchConfig, device: torch.device) -> Search:
    """The state, whole and filled, so that its pages are in memory at once; on the meta device, its plan."""
    return Search(
        progress=Progress(),
        mean=torch.empty(4, device=device).fill_(0),
        deviation=torch.empty(4, device=device).fill_(1),
        candidates=torch.empty(config.candidates, 4, device=device).fill_(0),
        returns=torch.empty(config.candidates, device=device).fill_(0),
        rng=generator(config.seed, "candidates", device),
    )


class SearchTrainer:
    """The round: phases of numbered steps, each of which writes into the state."""

    def __init__(self, config: SearchConfig, run: Search) -> None:
        self.config, self.run, self.progress = config, run, run.progress
        self.env = gymnasium.make("CartPole-v1")
        self.phases = (
            Phase("draw", lambda: 1, self.draw_),
            Phase("play", lambda: config.candidates, self.play_),
            Phase("select", lambda: 1, self.select_),
        )

    def draw_(self, _: int) -> None:
        """New candidates around the mean."""
        self.run.candidates.normal_(generator=self.run.rng).mul_(self.run.deviation).add_(self.run.mean)

    def play_(self, number: int) -> None:
        """An episode of one candidate; its seed follows from round and number, so nothing of it has to be saved."""
        seed = self.progress.round * self.config.candidates + number
        self.run.returns[number] = self.episode(self.run.candidates[number], seed)

    def select_(self, _: int) -> None:
        """Move mean and deviation to the best."""
        best = self.run.candidates[self.run.returns.topk(self.config.elites).indices]
        torch.mean(best, 0, out=self.run.mean)
        torch.std(best, 0, out=self.run.deviation)

    def episode(self, weights: torch.Tensor, seed: int) -> float:
        """What an episode is worth that is played by linear weights."""
        seen, _ = self.env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            seen, reward, terminated, truncated, _ = self.env.step(int(weights.numpy() @ seen > 0))
            total, over = total + float(reward), terminated or truncated
        return total

    def settle_(self) -> dict[str, float]:
        """The round's numbers."""
        return {"return/mean": float(self.run.returns.mean()), "return/best": float(self.run.returns.max())}


@dataclass(frozen=True)
class SearchRun(Run):
    """What Flatwater asks of a run, apart from what it can answer itself."""

    def describe(self) -> str:
        """One line."""
        return f"{self.config.candidates} candidates on CartPole-v1"

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Episodes that nothing was learned from: the mean of the weights against the first mean, which is 0."""
        first, run = 2_000_000 if holdout else 1_000_000, self.trainer.run
        rows = {}
        for name, weights in {"mean": run.mean, "start": torch.zeros(4)}.items():
            paid = torch.tensor([self.trainer.episode(weights, first + number) for number in range(20)])
            rows[name] = {"return": float(paid.mean()), "worst": float(paid.min())}
        split = "holdout" if holdout else "held-out"
        return {"trainer": self.config.trainer, "split": split, "players": rows, "note": "20 episodes of other seeds"}


def plan(config: SearchConfig) -> Plan:
    """The build itself, on a device without memory."""
    return make_plan(nbytes(build(config, META)), dict, config=config, device=CPU)


def compose(config: SearchConfig) -> SearchRun:
    """A run, allocated whole."""
    held = plan(config)
    refuse(held)  # raises where it does not fit, with its largest owners
    return SearchRun(config, held, SearchTrainer(config, build(config, CPU)))


SEARCH = Recipe(
    config=SearchConfig,
    guide="Search for the weights of a linear player of CartPole, with the cross-entropy method.",
    plan=plan,
    compose=compose,
    layout=TableLayout(
        round="round",
        short="round",
        columns=(Column("return", "mean", 7, "return/mean"), Column("return", "best", 7, "return/best")),
        dispensable=frozenset(),
    ),
    curves={"best": "return/best", "mean": "return/mean"},
    journal="search",
    players="players",
    trained="mean",
    title="{split} episodes",
    headline=Headline("return", "return", "{:.1f}", "start", "{} at the start"),
    numbers=(Number("return", "return", "{:.1f}"), Number("worst", "worst", "{:.1f}")),
    said=("split", "note"),
    trained_on=lambda _: "CartPole-v1",
)
