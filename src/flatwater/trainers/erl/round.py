"""One generation of traders: learn, evaluate, validate, evolve; then the loop settles it and saves a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.envs.trading.market import Market
from flatwater.envs.trading.results import fitness
from flatwater.evolution.generation import crown_best_, evolve_
from flatwater.replay.rows import RowReplay, append_
from flatwater.replay.stored import store_
from flatwater.trainers.erl.explore import explorer
from flatwater.trainers.erl.learn import learning
from flatwater.trainers.erl.numbers import read_numbers_
from flatwater.trainers.erl.play import Moment, Slices, draw_slices, slices_in
from flatwater.trainers.erl.setup import Setup
from flatwater.trainers.erl.state import Erl
from flatwater.trainers.loop import Phase, Progress


@dataclass(frozen=True)
class ErlTrainer:
    """The phases of a generation over a run's state; what the loop drives."""

    setup: Setup
    run: Erl
    phases: Sequence[Phase]

    @property
    def progress(self) -> Progress:
        """Where the run is."""
        return self.run.progress

    def settle_(self) -> dict[str, float]:
        """The generation's numbers."""
        return read_numbers_(self.setup, self.run)


def build_trainer(setup: Setup, run: Erl) -> ErlTrainer:
    """Bind the phases to the state. What is validated has learnt, so the last learning of a run is judged as well."""
    evaluation = setup.config.evaluation
    phases = (
        learning(setup, run),
        Phase("evaluate", lambda: evaluation.train_slices + 1, lambda step: evaluate_(setup, run, step)),
        Phase("validate", lambda: evaluation.validation_slices + 1, lambda step: validate_(setup, run, step)),
        Phase("evolve", lambda: 1, lambda _: next_generation_(setup, run)),
    )
    return ErlTrainer(setup, run, phases)


def evaluate_(setup: Setup, run: Erl, step: int) -> None:
    """Every member plays the same random training slices; with noise where they learn from what they play.

    Each step lets all members look at one slice; after the last slice all days are played, and fitness is known.
    """
    config, slices = setup.config, training_slices(setup, run)
    if step == 0:
        slices.begin_(draw_slices(setup, setup.splits.train, len(slices), run.generators["slices"]))
    if step < len(slices):
        slices.encode_(step)
        return
    explore = remember = None
    if run.replay is not None:
        explore = explorer(setup, run.learner, run.generators["exploration"])
        member = torch.arange(config.population.size, device=setup.device).repeat_interleave(len(slices))
        remember = partial(remember_, run.replay, run.market, member)
    slices.play_(explore, remember)
    run.scores.fitness.copy_(lowest_mean(fitness(run.eval_env, config.env).view(-1, len(slices)), setup))


def training_slices(setup: Setup, run: Erl) -> Slices:
    """What is evaluated on; played with noise where there is a replay."""
    actors, explored = run.learner.actor[:-1], run.replay is not None
    return slices_in(run.room, setup, run.market, run.eval_env, actors=actors, explored=explored)


def validation_slices(setup: Setup, run: Erl) -> Slices:
    """What is validated on, the champion included."""
    return slices_in(run.room, setup, run.market, run.val_env, actors=run.learner.actor)


def rebuild_(trainer: ErlTrainer) -> None:
    """Look again at the slices of a phase that a checkpoint was taken in: it leaves out what was seen of them."""
    progress = trainer.progress
    phase = trainer.phases[progress.phase].name
    if progress.step and phase in {"evaluate", "validate"}:
        slices_of = training_slices if phase == "evaluate" else validation_slices
        slices = slices_of(trainer.setup, trainer.run)
        slices.outlook.attention.zero_()
        for number in range(progress.step):
            slices.encode_(number)


def remember_(replay: RowReplay, market: Market, member: Int[Tensor, "B"], moment: Moment) -> None:
    """Every transition goes to the replay."""
    terminated = moment.step.terminated
    at = append_(
        replay,
        row=moment.row,
        action=moment.action,
        reward=moment.step.reward,
        terminated=terminated,
        member=member,
        account=moment.account,
    )
    if replay.windows is not None:
        store_(replay.windows, market.observations, at=at, row=moment.row, terminated=terminated)


def validate_(setup: Setup, run: Erl, step: int) -> None:
    """Members and champion play the same walk-forward slices, without noise; the best of them is the champion.

    The champion is chosen here and never on training fitness. It is scored again on this generation's slices, so that
    it is beaten by a better trader and not by easier days. Steps as of `evaluate_`.
    """
    scores, slices = run.scores, validation_slices(setup, run)
    if step == 0:
        slices.begin_(draw_slices(setup, setup.splits.validation, len(slices), run.generators["slices"]))
    if step < len(slices):
        slices.encode_(step)
        return
    slices.play_()
    scores.validation.copy_(lowest_mean(fitness(run.val_env, setup.config.env).view(-1, len(slices)), setup))
    scores.activity.copy_(slices.outlook.planned.std(dim=2).mean(dim=(1, 2, 3)))
    best = crown_best_(run.learner, run.lineage, scores.validation, [scores.activity])
    scores.crowned.fill_(best >= 0)
    scores.champion_value.copy_(scores.validation[-1])
    scores.importance.copy_(slices.outlook.attention[best] / slices.outlook.planned.shape[1])


def next_generation_(setup: Setup, run: Erl) -> None:
    """The next generation, by fitness on the training slices."""
    scores = run.scores
    scores.plateau = evolve_(
        setup.config.evolution,
        run.learner,
        run.lineage,
        run.schedule,
        fitness=scores.fitness,
        best=float(scores.validation[:-1].max()),
        generation=run.progress.round,
        rng=run.generators["evolution"],
    )


def lowest_mean(values: Float[Tensor, "P S"], setup: Setup) -> Float[Tensor, "P"]:
    """Mean of the lowest slices of each member."""
    return values.topk(setup.config.evaluation.lowest, dim=1, largest=False).values.mean(1)
