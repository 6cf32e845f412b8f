"""Members play slices of the panel (episodes): all members and slices are one batch of episodes in lock-step.

The market does not react to the traders, so a member's observations of a slice are known before the first step: the
encoder passes over each slice once, and the days then only run the heads, the noise and the simulator.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.nets.stack import Params, views
from flatwater.state.allocation import filled_tensor
from flatwater.state.random import stream
from flatwater.state.tree import derived_field, state
from flatwater_trading.market.config import TradeConfig
from flatwater_trading.market.market import Market
from flatwater_trading.market.observation import account_block
from flatwater_trading.market.simulator import Simulator, TimeStep, reset_, step_
from flatwater_trading.panel.splits import Days
from flatwater_trading.policy.trader import ACTION_PARTS, TraderActor
from flatwater_trading.training.setup import ErlSetup
from flatwater_watch.progress import count_steps

META_DAYS = 2
"""Days that are played on the meta device."""


@dataclass(frozen=True)
class DayTransitions:
    """A day of B episodes, after its step, as a replay stores it."""

    day: int
    """Number of the day in the episode, from 0."""
    row: Int[Tensor, "B"]
    """Row of the panel on which each episode acted."""
    action: Float[Tensor, "B K 2"]
    """Action in [-1, 1], with the noise that was added."""
    account: Float[Tensor, "B K 3"] | None
    """Open positions before the step; None if they are not observed."""
    step: TimeStep


@state
class PlayBuffers:
    """Buffers for the planned actions of a tile of members, filled slice by slice; the next tile writes over them."""

    planned: Float[Tensor, "n"] = derived_field()
    """Buffer of `PlannedActions.actions_or_hidden`, flat."""
    missing: Bool[Tensor, "m"] = derived_field()
    """Buffer of `PlannedActions.missing`, flat."""
    attention: Float[Tensor, "a"] = derived_field()
    """Buffer of `PlannedActions.attention`, flat."""


@dataclass(frozen=True)
class PlannedActions:
    """Actions of the members for all days of their slices, computed before the first step: views of `PlayBuffers`."""

    actions_or_hidden: Float[Tensor, "P S D K H"]
    """Actions; if `acts_by_day`, the actor's hidden layer that they are computed from together with the account."""
    missing: Bool[Tensor, "S D K"]
    """Mask of the instruments without data."""
    attention: Float[Tensor, "P N"]
    """Attention of each member to each column: sum over the slices of the mean over days and heads."""

    acts_by_day: bool
    """True if actions are computed day by day, from the hidden layer."""

    def day_input(self, day: int, account: Float[Tensor, "B K 3"] | None) -> "DayInput":
        """Return what all P members act on, on one day of all S slices.

        Args:
            day: number of the day in a slice, from 0.
            account: open positions of the B = P x S episodes, the member varying slowest; None if not observed.
        """
        actions_or_hidden = self.actions_or_hidden[:, :, day]
        # All members miss the same data, and their accounts come as one batch of episodes.
        missing = self.missing[:, day].expand(len(actions_or_hidden), -1, -1)
        day_account = None if account is None else account.view(*actions_or_hidden.shape[:3], -1)
        return DayInput(actions_or_hidden, missing, day_account)


@dataclass(frozen=True)
class DayInput:
    """The input of one day of `PlannedActions`."""

    actions_or_hidden: Float[Tensor, "P S K H"]
    """Actions (H = 2), or the hidden layer that they are computed from."""
    missing: Bool[Tensor, "P S K"]
    """Mask of the instruments without data."""
    account: Float[Tensor, "P S K 3"] | None
    """Open positions; None if they are not observed."""


@dataclass(frozen=True)
class DayActor:
    """The actor on days with an encoded market, for an algorithm to explore with."""

    actor: TraderActor
    acts_by_day: bool
    """True if actions are computed day by day, from the hidden layer."""

    def __call__(self, params: Params, inputs: DayInput) -> Float[Tensor, "P S K 2"]:
        """Return the action of each member on each slice."""
        if not self.acts_by_day:
            return inputs.actions_or_hidden
        return self.actor.head(params, inputs.actions_or_hidden, inputs.missing, inputs.account)

    def gaussian(self, params: Params, inputs: DayInput) -> tuple[Float[Tensor, "P S K 2"], Float[Tensor, "P S K 2"]]:
        """Return the parameters of the distribution that actions are drawn from; needs `acts_by_day`."""
        return self.actor.gaussian_head(params, inputs.actions_or_hidden, inputs.missing, inputs.account)


Explore = Callable[[DayActor, Params, DayInput], Float[Tensor, "P S K 2"]]
"""Function that gives the actions to play on a day."""
Remember = Callable[[DayTransitions], None]
"""Function that is called with the transitions of each day."""


def draw_slices(setup: ErlSetup, days: Days, count: int, stream_name: str, round_: int) -> Int[Tensor, "S"]:
    """Draw the first trading rows of a generation's `count` random slices that lie within `days`.

    Args:
        setup: configuration, with the length of a slice.
        days: rows of the panel.
        count: number S of slices.
        stream_name: name of the stream that draws the slices.
        round_: number of the generation.
    """
    rng = stream(setup.config.seed, stream_name, round_, device=setup.device)
    steps = setup.config.env.episode.days
    # The upper end is excluded: the last start leaves exactly one episode.
    return torch.randint(days.first, days.stop - steps + 1, (count,), generator=rng, device=setup.device)


def to_orders(trade: TradeConfig, action: Float[Tensor, "B K 2"]) -> Float[Tensor, "B K 2"]:
    """Scale actions from [-1, 1] to coefficients and percent, linearly, within the environment's bounds."""
    # A fresh tensor, scaled in place: the replay keeps the action itself.
    orders = (action + 1) / 2
    orders[..., 0].mul_(trade.coefficient_max)
    orders[..., 1].mul_(trade.target_high - trade.target_low).add_(trade.target_low)
    return orders


Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Shapes of the planned actions, of the missing-data mask and of the attention sums."""


def plan_shapes(
    setup: ErlSetup, market: Market, members: int, slices: int, *, explored: bool = False, days: int | None = None
) -> Shapes:
    """Return the shapes of the planned actions, of the mask of missing data, and of the attention sums.

    Args:
        setup: configuration.
        market: market, of which only sizes are read.
        members: number P of members.
        slices: number S of slices that each member plays.
        explored: whether exploration will change the actions.
        days: number D of days of a slice; None for those of an episode.
    """
    length, instruments = days or setup.config.env.episode.days, len(market.investable)
    # Of each instrument, its action or the hidden layer that it is computed from.
    last_size = setup.config.net.hidden if acts_by_day(setup, explored=explored) else ACTION_PARTS
    planned = (members, slices, length, instruments, last_size)
    return planned, (slices, length, instruments), (members, len(market.observations))


def acts_by_day(setup: ErlSetup, *, explored: bool) -> bool:
    """Return whether actions are computed day by day: they depend on the account or are drawn from a distribution."""
    return setup.config.env.account_observation or (explored and setup.algorithm.gaussian)


def build_play_buffers(setup: ErlSetup, *plans: Shapes) -> PlayBuffers:
    """Allocate flat buffers that are large enough for each of several plans, which use them one after the other.

    Args:
        setup: device of the buffers.
        plans: for each plan, the shapes of its three tensors, by `plan_shapes`.
    """
    planned_shapes, missing_shapes, attention_shapes = zip(*plans, strict=True)
    return PlayBuffers(
        planned=filled_tensor(0, max(prod(shape) for shape in planned_shapes), device=setup.device),
        missing=filled_tensor(0, max(prod(shape) for shape in missing_shapes), dtype=torch.bool, device=setup.device),
        attention=filled_tensor(0, max(prod(shape) for shape in attention_shapes), device=setup.device),
    )


@dataclass(frozen=True)
class SlicePlay:
    """The play of S slices by P members in `env`, whose batch is P x S with the member varying slowest.

    Call `plan_`, then `play_`, which steps all days. Where actions are planned already, `begin_` takes its place.
    """

    setup: ErlSetup
    market: Market
    env: Simulator
    planned_actions: PlannedActions
    actors: Float[Tensor, "P n"]
    """Weights, a row for each member."""

    def __len__(self) -> int:
        """Number of slices that each member plays."""
        return self.planned_actions.actions_or_hidden.shape[1]

    def begin_(self, starts: Int[Tensor, "S"]) -> None:
        """Move `env` to slices with these first trading rows; their last `settlement_days` only close positions."""
        first_rows = starts.repeat(len(self.actors))
        days = self.planned_actions.actions_or_hidden.shape[2]
        trading_end = first_rows + days - self.setup.config.env.episode.settlement_days
        reset_(self.env, start=first_rows, trading_end=trading_end, end=first_rows + days)

    def plan_(self, starts: Int[Tensor, "S"]) -> None:
        """Move `env` to slices with these first trading rows, and write the planned actions of all their days."""
        self.begin_(starts)
        self.planned_actions.attention.zero_()
        for number, start in enumerate(starts):
            self._encode_(number, start)

    def _encode_(self, number: int, start: Int[Tensor, ""]) -> None:
        """Encode every day of a slice from its first trading row, for all members, and write their planned actions."""
        setup, planned_actions = self.setup, self.planned_actions
        params = views(self.actors, setup.actor.layout)
        context, days = setup.config.env.episode.context, planned_actions.actions_or_hidden.shape[2]
        # Rows of the panel from the context of the first day to the slice's last day: no day sees a row after it.
        rows = start + torch.arange(1 - context, days, device=start.device)
        with torch.no_grad():
            # [1, 1, N, rows, F]: one slice for all members, so that the panel's rows are not copied for each of them.
            embedding = setup.actor.trunk.embed_days(params, self.market.observations.index_select(1, rows)[None, None])
            hidden = setup.actor.hidden_features(params, embedding)
            # If actions are computed day by day, the hidden layer is kept for that; else the actions are ready.
            planned = (
                hidden if planned_actions.acts_by_day else setup.actor.head(params, hidden, embedding.missing, None)
            )
            planned_actions.actions_or_hidden[:, number] = planned
            planned_actions.missing[number] = embedding.missing[0]
            # The mean over days and heads, summed over the slices; it is divided by their number later.
            planned_actions.attention.add_(embedding.attention.mean((1, 2)))

    def play_(self, explore: Explore | None = None, remember: Remember | None = None) -> None:
        """Play the days of all slices, whose actions must be planned; moves `env` day by day.

        Args:
            explore: function that gives the actions to play; None for the members' actions without noise.
            remember: function that is called with the transitions of each day.
        """
        setup, env, params = self.setup, self.env, views(self.actors, self.setup.actor.layout)
        actor = DayActor(setup.actor, self.planned_actions.acts_by_day)
        first_rows = env.start.clone()
        days = self.planned_actions.actions_or_hidden.shape[2]
        # On the meta device only sizes count: each later day allocates what the second does.
        steps = min(days, META_DAYS) if self.actors.is_meta else days
        for day in count_steps("days", range(steps)):
            # Read before the step: the action may depend on these positions.
            account = account_block(env, self.market) if setup.config.env.account_observation else None
            inputs = self.planned_actions.day_input(day, account)
            member_action = actor(params, inputs) if explore is None else explore(actor, params, inputs)
            # Members and slices [P, S] are one batch of episodes.
            action = member_action.flatten(0, 1)
            step = step_(env, self.market, setup.config.env, to_orders(setup.config.env.trade, action))
            if remember is not None:
                remember(DayTransitions(day, row=first_rows + day, action=action, account=account, step=step))


def make_slice_play(
    buffers: PlayBuffers,
    setup: ErlSetup,
    market: Market,
    env: Simulator,
    *,
    actors: Float[Tensor, "P n"],
    explored: bool = False,
    days: int | None = None,
) -> SlicePlay:
    """Return the play of as many slices as `env` has room for, with its planned actions in `buffers`.

    Args:
        buffers: buffers, at least as large as is needed.
        setup: configuration and networks.
        market: prices and observations.
        env: simulator; written in place.
        actors: weights, a row for each member.
        explored: whether exploration will change the actions; an algorithm may then need the hidden layer.
        days: number of days of each slice; None for those of an episode.
    """
    slices = len(env.start) // len(actors)  # every member plays every slice
    planned_shape, missing_shape, attention_shape = plan_shapes(
        setup, market, len(actors), slices, explored=explored, days=days
    )
    # Views of the buffers' beginnings: plans of different sizes use the same memory, one after the other.
    planned_actions = PlannedActions(
        buffers.planned[: prod(planned_shape)].view(planned_shape),
        buffers.missing[: prod(missing_shape)].view(missing_shape),
        buffers.attention[: prod(attention_shape)].view(attention_shape),
        acts_by_day=acts_by_day(setup, explored=explored),
    )
    return SlicePlay(setup, market, env, planned_actions, actors)


def play_slices_(
    setup: ErlSetup,
    market: Market,
    env: Simulator,
    *,
    actors: Float[Tensor, "P n"],
    starts: Int[Tensor, "S"],
    days: int,
    remember: Remember | None = None,
) -> PlannedActions:
    """Play each slice with each member in `env` to its end, without noise, in newly allocated buffers.

    Args:
        setup: configuration and networks.
        market: prices and observations.
        env: simulator of P x S episodes, the member varying slowest; written in place.
        actors: weights, a row for each of P members.
        starts: first trading rows of the slices.
        days: number of days of each slice.
        remember: function that is called with the transitions of each day.

    Returns:
        The planned actions of the members on every day, with missing data and attention.
    """
    buffers = build_play_buffers(setup, plan_shapes(setup, market, len(actors), len(starts), days=days))
    slices = make_slice_play(buffers, setup, market, env, actors=actors, days=days)
    slices.plan_(starts)
    slices.play_(remember=remember)
    return slices.planned_actions
