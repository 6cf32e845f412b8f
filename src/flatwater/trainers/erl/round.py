"""One generation of traders: learn, evaluate, validate, evolve; then the loop settles it and saves a checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.envs.trading.market import Market
from flatwater.envs.trading.results import fitness
from flatwater.evolution.variation import crown_
from flatwater.replay.rows import RowReplay, append_
from flatwater.replay.stored import store_
from flatwater.trainers.erl.evolve import evolve_
from flatwater.trainers.erl.explore import explorer
from flatwater.trainers.erl.learn import learning
from flatwater.trainers.erl.numbers import read_numbers_
from flatwater.trainers.erl.play import Moment, Outlook, draw_slices, play_
from flatwater.trainers.erl.setup import Setup
from flatwater.trainers.erl.state import Erl, has_champion
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
    phases = (
        learning(setup, run),
        Phase("evaluate", lambda: 1, lambda _: evaluate_(setup, run)),
        Phase("validate", lambda: 1, lambda _: validate_(setup, run)),
        Phase("evolve", lambda: 1, lambda _: evolve_(setup, run)),
    )
    return ErlTrainer(setup, run, phases)


def evaluate_(setup: Setup, run: Erl) -> None:
    """Every member plays the same random training slices; with noise where they learn from what they play."""
    config = setup.config
    starts = draw_slices(setup, setup.splits.train, config.evaluation.train_slices, run.generators["slices"])
    actors = run.learner.actor[:-1]
    explore = remember = None
    if run.replay is not None:
        explore = explorer(setup, run.learner, run.generators["exploration"])
        member = torch.arange(len(actors), device=setup.device).repeat_interleave(len(starts))
        remember = partial(remember_, run.replay, run.market, member)
    play_(
        setup,
        run.market,
        run.eval_env,
        actors=actors,
        starts=starts,
        days=config.env.episode.days,
        explore=explore,
        remember=remember,
    )
    run.scores.fitness.copy_(lowest_mean(fitness(run.eval_env, config.env).view(len(actors), -1), setup))


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


def validate_(setup: Setup, run: Erl) -> None:
    """Members and champion play the same walk-forward slices, without noise; the best of them is the champion.

    The champion is chosen here and never on training fitness. It is scored again on this generation's slices, so that
    it is beaten by a better trader and not by easier days.
    """
    config, scores = setup.config, run.scores
    count = config.evaluation.validation_slices
    starts = draw_slices(setup, setup.splits.validation, count, run.generators["slices"])
    days = config.env.episode.days
    outlook = play_(setup, run.market, run.val_env, actors=run.learner.actor, starts=starts, days=days)
    scores.validation.copy_(lowest_mean(fitness(run.val_env, config.env).view(-1, count), setup))
    scores.activity.copy_(outlook.planned.std(dim=2).mean(dim=(1, 2, 3)))
    crown_best_(run, outlook)


def crown_best_(run: Erl, outlook: Outlook) -> None:
    """Copy the best member to the champion's slot where it beats the champion on the same slices."""
    scores, lineage, learner = run.scores, run.lineage, run.learner
    best = int(scores.validation[:-1].argmax())
    beaten = not has_champion(run) or bool(scores.validation[best] > scores.validation[-1])
    scores.crowned.fill_(beaten)
    if beaten:
        for rows in learner.inherited:
            crown_(rows, best)
        for record in (scores.validation, scores.activity, lineage.ids, lineage.parents, lineage.born):
            record[-1] = record[best]
    scores.champion_value.copy_(scores.validation[-1])
    scores.importance.copy_(outlook.attention[best if beaten else -1])


def lowest_mean(values: Float[Tensor, "P S"], setup: Setup) -> Float[Tensor, "P"]:
    """Mean of the lowest slices of each member."""
    return values.topk(setup.config.evaluation.lowest, dim=1, largest=False).values.mean(1)
