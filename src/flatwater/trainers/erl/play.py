"""Members play slices of the panel: all members and slices are one batch of episodes in lock-step.

The market does not react to the traders, so what a member sees on each day of a slice is known before the first step:
the encoder passes over each slice once, and the days then only run the heads, the noise and the simulator.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.envs.trading.market import Market
from flatwater.envs.trading.observation import account_block
from flatwater.envs.trading.simulator import Simulator, TimeStep, reset_, step_
from flatwater.nets.stack import Params, views
from flatwater.nets.trader import ACTION_PARTS, TraderActor
from flatwater.panel.splits import Days
from flatwater.trainers.erl.setup import Setup


@dataclass(frozen=True)
class Moment:
    """One day of B episodes, after its step: what a replay stores."""

    row: Int[Tensor, "B"]
    action: Float[Tensor, "B K 2"]
    """In [-1, 1], with the noise that was added."""
    account: Float[Tensor, "B K 3"] | None
    step: TimeStep


@dataclass(frozen=True)
class Outlook:
    """What the members make of all days of the slices before the first step."""

    planned: Float[Tensor, "P S D K H"]
    """The actions; where they are made day by day, the actor's hidden layer up to where the account enters."""
    missing: Bool[Tensor, "S D K"]
    """Instruments without data."""
    attention: Float[Tensor, "P N"]
    """Mean over slices, days and heads."""

    by_day: bool
    """Whether actions are made day by day, from the hidden layer."""

    def of_day(self, day: int, account: Float[Tensor, "B K 3"] | None) -> "Seen":
        """What all members see on one day of all slices."""
        planned = self.planned[:, :, day]
        missing = self.missing[:, day].expand(len(planned), -1, -1)
        return Seen(planned, missing, None if account is None else account.view(*planned.shape[:3], -1))


@dataclass(frozen=True)
class Seen:
    """One day of an outlook."""

    planned: Float[Tensor, "P S K H"]
    missing: Bool[Tensor, "P S K"]
    account: Float[Tensor, "P S K 3"] | None


@dataclass(frozen=True)
class DayActor:
    """The actor on days whose market is encoded already: what an algorithm explores with."""

    actor: TraderActor
    by_day: bool

    def __call__(self, params: Params, seen: Seen) -> Float[Tensor, "P S K 2"]:
        """The action of each member on each slice."""
        if not self.by_day:
            return seen.planned
        return self.actor.head(params, seen.planned, seen.missing, seen.account)

    def gaussian(self, params: Params, seen: Seen) -> tuple[Float[Tensor, "P S K 2"], Float[Tensor, "P S K 2"]]:
        """What its actions are drawn from, where they are made day by day."""
        return self.actor.gaussian_head(params, seen.planned, seen.missing, seen.account)


Explore = Callable[[DayActor, Params, Seen], Float[Tensor, "P S K 2"]]
Remember = Callable[[Moment], None]


def draw_slices(setup: Setup, days: Days, count: int, rng: torch.Generator) -> Int[Tensor, "S"]:
    """First trading rows of `count` random slices that fit into `days` whole."""
    steps = setup.config.env.episode.days
    return torch.randint(days.first, days.stop - steps + 1, (count,), generator=rng, device=setup.device)


def play_(
    setup: Setup,
    market: Market,
    env: Simulator,
    *,
    actors: Float[Tensor, "P n"],
    starts: Int[Tensor, "S"],
    days: int,
    explore: Explore | None = None,
    remember: Remember | None = None,
) -> Outlook:
    """Play each slice with each member in `env`, whose batch is P x S, the member varying slowest.

    Args:
        setup: configuration and networks.
        market: prices and observations.
        env: moved to the slices and played to their ends, in place.
        actors: one row of weights for each member.
        starts: first trading row of each slice.
        days: steps of each slice; the last `settlement_days` of them only close positions.
        explore: what is played instead of the members' own actions; None plays those.
        remember: called after each day.

    Returns:
        What the members saw and would have done on every day, without noise.
    """
    params = views(actors, setup.actor.layout)
    first = starts.repeat(len(actors))
    trading_end = first + days - setup.config.env.episode.settlement_days
    reset_(env, start=first, trading_end=trading_end, end=first + days)
    outlook = look_ahead(setup, market, params, starts, days, explored=explore is not None)
    actor = DayActor(setup.actor, outlook.by_day)
    for day in range(days):
        account = account_block(env, market) if setup.config.env.account_observation else None
        seen = outlook.of_day(day, account)
        action = (actor(params, seen) if explore is None else explore(actor, params, seen)).flatten(0, 1)
        step = step_(env, market, setup.config.env, to_orders(setup, action))
        if remember is not None:
            remember(Moment(first + day, action, account, step))
    return outlook


def to_orders(setup: Setup, action: Float[Tensor, "B K 2"]) -> Float[Tensor, "B K 2"]:
    """From [-1, 1] to coefficients and percent, linearly, within the environment's bounds."""
    trade = setup.config.env.trade
    low = action.new_tensor([0.0, trade.target_low])
    high = action.new_tensor([trade.coefficient_max, trade.target_high])
    return low + (action + 1) / 2 * (high - low)


def look_ahead(
    setup: Setup, market: Market, params: Params, starts: Int[Tensor, "S"], days: int, *, explored: bool = False
) -> Outlook:
    """Encode every day of every slice, all members at once and one slice at a time.

    Args:
        setup: configuration and networks.
        market: observations.
        params: the members' weights.
        starts: first row of each slice.
        days: of each slice.
        explored: whether actions will be explored around; an algorithm may need more than the action for that.
    """
    context, by_day = setup.config.env.episode.context, setup.config.env.account_observation
    by_day |= explored and setup.algorithm.gaussian
    rows = starts[:, None] + torch.arange(1 - context, days, device=starts.device)
    members, last = len(params["action.bias"]), setup.config.net.hidden if by_day else ACTION_PARTS
    planned = torch.empty((members, len(starts), days, len(market.investable), last), device=setup.device)
    missing = torch.empty((len(starts), days, len(market.investable)), dtype=torch.bool, device=setup.device)
    attention = torch.zeros((members, len(market.observations)), device=setup.device)
    with torch.no_grad():
        for s in range(len(starts)):
            seen = setup.actor.trunk.of_days(params, market.observations.index_select(1, rows[s])[None, None])
            hidden = setup.actor.hidden(params, seen)
            planned[:, s] = hidden if by_day else setup.actor.head(params, hidden, seen.missing, None)
            missing[s] = seen.missing[0]
            attention += seen.attention.mean((1, 2))
    return Outlook(planned, missing, attention / len(starts), by_day)
