"""Tiles of members: the unit that a generation is computed in, here or on any worker.

Every tile has the same shape, as the last tile is padded with copies of its last member, and its noise comes from a
stream that is named by its first member. So a member's numbers depend neither on the number of other members nor on the
process that computes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import Members, perturb
from flatwater.state.random import stream
from flatwater_trading.market.market import Market
from flatwater_trading.market.results import episode_summary
from flatwater_trading.market.simulator import Simulator
from flatwater_trading.training.config import ExplorationConfig
from flatwater_trading.training.play import DayTransitions, Explore, draw_slices, make_slice_play
from flatwater_trading.training.row_replay import Transitions, append_
from flatwater_trading.training.setup import ErlSetup
from flatwater_trading.training.state import TRAINING_MEASURES, VALIDATION_MEASURES, ErlState

VALIDATION_STREAM = "walk-forward slices"
"""Name of the stream that validation slices are drawn from. Under another name no run would resume bit for bit."""


@dataclass(frozen=True)
class TileTraining:
    """Results of the training slices of a tile's members."""

    fitness: Float[Tensor, "p"]
    """Mean fitness of each member's lowest slices."""
    slices: Mapping[str, Float[Tensor, "p S"]]
    """Numbers by the names of `TRAINING_MEASURES`."""
    transitions: Transitions | None
    """Transitions of the tile, padding included; valid until the next tile is played."""


@dataclass(frozen=True)
class TileValidation:
    """Results of the validation slices of a tile's members, and last of the champion."""

    value: Float[Tensor, "p+1"]
    """Mean fitness of the lowest slices; the champion's is the last."""
    slices: Mapping[str, Float[Tensor, "p+1 V"]]
    """Numbers by the names of `VALIDATION_MEASURES`."""
    activity: Float[Tensor, "p+1"]
    """Standard deviation over the days of the noiseless actions; of the actor's hidden layer if actions depend on the
    account."""
    attention: Float[Tensor, "p+1 N"]
    """Weight of each column in the attention, averaged over days and slices."""


def train_tile(setup: ErlSetup, run: ErlState, span: Span, round_: int) -> TileTraining:
    """Play random training slices with the members of a tile; with noise if members learn from these transitions.

    A tile is a span of members that are computed at once. All tiles play the same slices.

    Args:
        setup: configuration and networks.
        run: state; its simulator, buffers and transitions are written over.
        span: members [low, high) of the tile.
        round_: number of the generation, which names the streams.

    Returns:
        Results of the p members of the tile; if they learn from transitions, those of the tile, padding included.
    """
    # Transitions are kept, and noise is added, only if members learn from them.
    explored = run.played is not None
    rows = _padded_rows(setup, span)
    slices = make_slice_play(
        run.room, setup, run.market, run.eval_env, actors=run.learner.actor[rows], explored=explored
    )
    slices.plan_(draw_slices(setup, setup.splits.train, len(slices), "training slices", round_))
    if run.played is None:
        slices.play_()
    else:
        # Named by the tile's first member, so the noise depends neither on the process nor on the order of the tiles.
        noise = stream(setup.config.seed, "exploration", round_, span[0], device=setup.device)
        slices.play_(trader_explorer(setup, run.learner, noise), partial(_write_day_, run.played))
    count = span[1] - span[0]
    # Cut to the members: padding is played to keep the shape, and does not count.
    summary = {name: numbers[:count] for name, numbers in _summary_by_member(setup, run.eval_env, len(rows)).items()}
    return TileTraining(
        fitness=lowest_mean(summary["fitness"], setup),
        slices={name: summary[name] for name in TRAINING_MEASURES},
        transitions=run.played,
    )


def validate_tile(setup: ErlSetup, run: ErlState, span: Span, round_: int) -> TileValidation:
    """Play random validation slices with the members of a tile, and with the champion, without noise.

    A tile is a span of members that are computed at once. All tiles, and the champion with each, play the same slices.

    Args:
        setup: configuration and networks.
        run: state; its simulator and buffers are written over.
        span: members [low, high) of the tile.
        round_: number of the generation, which names the stream.

    Returns:
        Results of the p members of the tile, without its padding, and last of the champion.
    """
    # The champion's row is the last, after the members of this process.
    champion = torch.full((1,), setup.members, device=setup.device)
    rows = torch.cat([_padded_rows(setup, span), champion])
    slices = make_slice_play(run.room, setup, run.market, run.val_env, actors=run.learner.actor[rows])
    slices.plan_(draw_slices(setup, setup.splits.validation, len(slices), VALIDATION_STREAM, round_))
    slices.play_()
    summary = _summary_by_member(setup, run.val_env, len(rows))
    count = span[1] - span[0]

    def strip_padding(rows: Float[Tensor, "tile+1 ..."]) -> Float[Tensor, "p+1 ..."]:
        """Return the rows of the p members and, last, the champion's; padding is between them."""
        return torch.cat([rows[:count], rows[-1:]])  # an index list would be copied to the device

    return TileValidation(
        value=strip_padding(lowest_mean(summary["fitness"], setup)),
        slices={name: strip_padding(summary[name]) for name in VALIDATION_MEASURES},
        # Deviation over the days, then the mean over slices, instruments and parts of an action.
        activity=strip_padding(slices.planned_actions.actions_or_hidden.std(dim=2).mean(dim=(1, 2, 3))),
        # Added up over the slices.
        attention=strip_padding(slices.planned_actions.attention) / len(slices),
    )


def holding_return(setup: ErlSetup, market: Market, round_: int) -> Float[Tensor, ""]:
    """Return the mean gain of equal parts of all instruments over a generation's validation slices, without costs."""
    count = setup.config.evaluation.validation_slices
    # The same stream as in `validate_tile`, so the same slices.
    first_rows = draw_slices(setup, setup.splits.validation, count, VALIDATION_STREAM, round_)
    entry_price = market.last_close[first_rows]
    exit_price = market.last_close[first_rows + setup.config.env.episode.days - 1]
    has_price = entry_price > 0
    # 1 in the place of a missing price, so that nothing is divided by 0.
    gain = (exit_price / entry_price.where(has_price, 1) - 1) * has_price
    return gain.sum() / has_price.sum().clamp(min=1)


def _padded_rows(setup: ErlSetup, span: Span) -> Int[Tensor, "tile"]:
    """Return the rows of this process's weights that belong to members low ... high - 1, always `setup.tile` of them.

    A shorter tile is padded with the last member's row, so that all tiles have one shape.
    """
    low, high = span
    # This process has weights of its share of the members alone, so its row 0 is member `first_member`.
    first_member, _ = setup.share
    return torch.arange(low, low + setup.tile, device=setup.device).clamp(max=high - 1) - first_member


def _summary_by_member(setup: ErlSetup, env: Simulator, rows: int) -> dict[str, Float[Tensor, "p S"]]:
    """Return the numbers of `episode_summary` of the played episodes, with a row for each member."""
    return {name: column.view(rows, -1) for name, column in episode_summary(env, setup.config.env).items()}


def _write_day_(transitions: Transitions, today: DayTransitions) -> None:
    """Copy a day of all the tile's episodes into its row of the preallocated transitions; called after each step."""
    day = today.day
    transitions.row[day].copy_(today.row)
    transitions.action[day].copy_(today.action)
    transitions.reward[day].copy_(today.step.reward)
    transitions.terminated[day].copy_(today.step.terminated)
    if transitions.account is not None and today.account is not None:
        transitions.account[day].copy_(today.account)


def append_to_replay_(setup: ErlSetup, run: ErlState, transitions: Transitions, span: Span) -> None:
    """Append the transitions that a tile's members have played to the replay, day by day; call it in the tiles' order.

    Args:
        setup: configuration.
        run: state; its replay is written.
        transitions: transitions of the tile, padding included.
        span: members [low, high) of the tile.
    """
    replay = run.replay
    assert replay is not None  # noqa: S101  (a run with transitions has a replay)
    slices = setup.config.evaluation.train_slices
    # The member of each episode: episodes are ordered by member, then by slice.
    member = torch.arange(*span, device=setup.device).repeat_interleave(slices)
    # Without the padding, as copies of the last member would be learned from twice.
    episodes = len(member)
    for day in range(len(transitions.row)):
        append_(
            replay,
            row=transitions.row[day, :episodes],
            action=transitions.action[day, :episodes],
            reward=transitions.reward[day, :episodes],
            terminated=transitions.terminated[day, :episodes],
            member=member,
            account=None if transitions.account is None else transitions.account[day, :episodes],
        )


def lowest_mean(values: Float[Tensor, "P S"], setup: ErlSetup) -> Float[Tensor, "P"]:
    """Return the mean of each member's lowest values over its S slices, as many as `evaluation.lowest` says."""
    return values.topk(setup.config.evaluation.lowest, dim=1, largest=False).values.mean(1)


def trader_explorer(setup: ErlSetup, members: Members, rng: torch.Generator) -> Explore:
    """Return the function by which the algorithm's members act while they explore, with noise by `add_action_noise`.

    Args:
        setup: configuration and algorithm.
        members: the population, of which some algorithms read more than the actors.
        rng: generator of the noise; advanced by each day.
    """
    config, part_deviations = setup.config, noise_deviations(setup.config.exploration, setup.device)

    def add_noise(action: Float[Tensor, "P S K 2"], scale: float, rng: torch.Generator) -> Float[Tensor, "P S K 2"]:
        return add_action_noise(action, scale, part_deviations, config.exploration.day, rng)

    explore = setup.algorithm.explorer(config.learner, members, add_noise)
    return lambda actor, params, inputs: explore(actor, params, inputs, rng)


def noise_deviations(exploration: ExplorationConfig, device: torch.device) -> Float[Tensor, "2"]:
    """Return the deviations of the noise on a coefficient and on a sale target, in multiples of the noise's scale."""
    deviations = (exploration.coefficient, exploration.target)
    # Filled on the device, as torch.tensor would copy from the host, and wait.
    return torch.stack([torch.full((), deviation, device=device) for deviation in deviations])


def add_action_noise(
    action: Float[Tensor, "P S K 2"],
    scale: float,
    part_deviations: Float[Tensor, "2"],
    day_deviation: float,
    rng: torch.Generator,
) -> Float[Tensor, "P S K 2"]:
    """Return the actions with independent noise on every part, and noise that all coefficients of a day have in common.

    Independent noise on every instrument chooses among instruments, but once all coefficients are far from the
    threshold it cannot turn a day without a purchase into a day with a purchase, or back. So all coefficients of a day
    are also moved together.

    Args:
        action: actions of the members, in [-1, 1].
        scale: the algorithm's `noise`.
        part_deviations: deviations on a coefficient and on a sale target, in multiples of `scale`.
        day_deviation: deviation of the common noise, in multiples of `scale`.
        rng: generator; draws the day's noise, then that of the parts.
    """
    # Drawn before the noise of the parts: the order of the draws belongs to the seed.
    day_noise = torch.randn(*action.shape[:2], 1, generator=rng, device=action.device) * (day_deviation * scale)
    noisy_action = torch.stack([action[..., 0] + day_noise, action[..., 1]], dim=-1)
    return perturb(noisy_action, part_deviations * scale, rng)
