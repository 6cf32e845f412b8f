"""A round of target weights: members learn from stretches of days, then they are judged on days they did not see."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Span, Step, bind_step
from flatwater.algorithms.api import add_to_tally_, count_step_, read_tally_
from flatwater.nets.stack import views
from flatwater.state.random import stream
from flatwater.trainers.loop import Phase, Trainer
from flatwater_trading.market.portfolio import log_growth
from flatwater_trading.training.weights.blocks import stretch_starts
from flatwater_trading.training.weights.judge import judge_
from flatwater_trading.training.weights.state import WeightsSetup, WeightsState
from flatwater_trading.training.weights.weigher import DaySignals, weigh

WeightsTrainer = Trainer[WeightsSetup, WeightsState]
DAYS_OF_A_YEAR = 252
"""Days by which growth is multiplied before its gradient is taken, so that `grad_clip` applies to a year's growth."""
BPS = 10_000
"""Hundredths of a percent in a whole: the unit of a day's growth in metrics."""


def build_trainer(setup: WeightsSetup, state: WeightsState) -> WeightsTrainer:
    """Return the trainer of a run, with the phases `learn` and `judge` bound to its state."""
    learner = setup.config.learner
    step_ = bind_step(
        state.weights,
        state.adam,
        # By the round's number alone, not by the number of rounds, so that a run that is continued learns the same.
        lr=lambda: learner.lr / (1 + state.progress.round) ** 0.5,
        weight_decay=learner.weight_decay,
        clip=learner.grad_clip,
        groups=setup.groups,
    )
    phases = (
        Phase("learn", steps=lambda: learner.updates, step_=lambda _: learn_(setup, state, step_)),
        Phase("judge", steps=lambda: 1, step_=lambda _: judge_(setup, state)),
    )
    return Trainer(setup, state, phases, lambda: read_numbers_(state))


def learn_(setup: WeightsSetup, run: WeightsState, step_: Step) -> None:
    """Update every member by the gradient of its account's log growth over stretches of its own training days."""
    days = draw_days(setup, run.tally.updates)
    for span in setup.groups:
        growth, grad = _growth_and_gradient(setup, run, days[slice(*span)], span)
        run.adam.grad[slice(*span)] = grad
        add_to_tally_(run.tally, "growth", growth, span)
    # The step moves all weights by their gradients, and returns the gradients' norms with a mask of the finite ones.
    count_step_(run.tally, "grad_norm", *step_())
    # Counted last, as draws are named by the count and a resumed run must draw the same.
    run.tally.updates += 1


def draw_days(setup: WeightsSetup, update: int) -> Int[Tensor, "P S L"]:
    """Draw the rows of each member's S stretches of L consecutive days, for the update with this number.

    Each member has left out a block of the training days, so a stretch begins before this block or after it.
    """
    learner, members = setup.config.learner, setup.config.members.size
    rng = stream(setup.config.seed, "stretches", update, device=setup.device)
    draws = torch.rand(members, learner.stretches, generator=rng, device=setup.device)
    starts = []
    for block, draw in zip(setup.blocks, draws, strict=True):
        starts_before, starts_after = stretch_starts(setup.splits.train, block, setup.stretch_days)
        # Number of the start among all possible starts: those before the block, then those after it.
        number = (draw * (len(starts_before) + len(starts_after))).long()
        starts.append(
            torch.where(
                number < len(starts_before),
                starts_before.start + number,
                starts_after.start + number - len(starts_before),
            )
        )
    # From the first row of each stretch [P, S] to all its rows.
    return torch.stack(starts)[..., None] + torch.arange(setup.stretch_days, device=setup.device)


def _growth_and_gradient(
    setup: WeightsSetup, run: WeightsState, days: Int[Tensor, "p S L"], span: Span
) -> tuple[Float[Tensor, "p"], Float[Tensor, "p n"]]:
    """Return the mean daily log growth of some members, and the gradient of minus a year's growth by their weights.

    Args:
        setup: network and costs.
        run: weights and market.
        days: rows of the members' stretches.
        span: members [low, high).
    """
    market, rows = run.market, days.flatten(1)
    weights = run.weights[slice(*span)].detach().requires_grad_()  # these members' parameters
    signals = DaySignals(market.own[rows], market.shared[rows], market.tradable[rows])
    account = setup.config.account
    held_weights = weigh(views(weights, setup.layout), signals, account).view(*days.shape, -1)
    growth = log_growth(held_weights, market.following[days], market.costs(account, days), account.cash).mean((1, 2))
    (grad,) = torch.autograd.grad(-growth.sum() * DAYS_OF_A_YEAR, weights)
    return growth.detach(), grad


def read_numbers_(run: WeightsState) -> dict[str, float]:
    """Return the round's numbers, read from the device once, and clear the sums of its updates."""
    newest, best = run.newest, run.best
    numbers = {
        "unseen/growth": newest.growth * BPS,
        "unseen/resting": newest.resting * BPS,
        "unseen/lead": newest.lead * BPS,
        "unseen/deviation": newest.deviation * BPS,
        "validation/champion": best.growth * BPS,
        "champion/held": best.held,
        "champion/invested": best.invested,
        "champion/crowned": run.crowned,
    }
    sums = read_tally_(run.tally)
    # The growth of training in hundredths of a percent, like the other numbers.
    learning_numbers = {name: value * BPS if name == "train/growth" else value for name, value in sums.items()}
    return {name: float(value) for name, value in numbers.items()} | learning_numbers
