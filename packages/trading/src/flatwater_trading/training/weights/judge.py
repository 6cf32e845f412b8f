"""The judgement of learned weights, by days that they were not learned from.

Each member leaves out a block of the training days, so its weights on that block are those of a policy that has not
seen it. All blocks, and the validation days with the mean of the members, make one account of unseen days. Its lead
over an account that needs no learning (equal weights if these grew on the same days, else cash) is random, so it is
lowered by `judgement.caution` deviations of its mean before it counts. Of several shares of the learned weights, the
share with the largest lowered lead is held: nothing if none of these leads is above 0.

Days are summed in blocks of `BLOCK` before the deviation is taken, as neighbouring days are not independent.
"""

from collections.abc import Iterator
from dataclasses import fields

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.nets.stack import Layout, Params, views
from flatwater_trading.market.config import PortfolioConfig
from flatwater_trading.market.costs import Costs
from flatwater_trading.market.portfolio import log_growth
from flatwater_trading.panel.splits import Days
from flatwater_trading.training.weights.config import WeightsConfig
from flatwater_trading.training.weights.state import (
    Judgement,
    SignalMarket,
    WeightsSetup,
    WeightsState,
    find_days_per_call,
)
from flatwater_trading.training.weights.weigher import DaySignals, weigh

HELD_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the learned weights that may be held; the rest is equal weights or cash."""
BLOCK = 20
"""Days whose growth is summed before its deviation is taken."""


def weigh_days(
    config: WeightsConfig, layout: Layout, market: SignalMarket, weights: Float[Tensor, "P n"], days: Days
) -> Float[Tensor, "D K"]:
    """Return the instruments' weights on consecutive days, averaged over members, in the precision of `weights`.

    Args:
        config: settings of the account and the members.
        layout: names of the members' parameters.
        market: signals that members see.
        weights: members' parameters, a row for each member.
        days: rows of the market.
    """
    params, instruments = views(weights, layout), market.tradable.shape[1]
    day_weights = weights.new_empty(len(days), instruments)
    # Some days at a time, to bound the memory of the hidden units; the result does not depend on their number.
    days_per_call = find_days_per_call(config, instruments)
    for first in range(0, len(days), days_per_call):
        rows = slice(days.first + first, min(days.stop, days.first + first + days_per_call))
        signals = DaySignals(market.own[rows], market.shared[rows], market.tradable[rows])
        day_weights[first : first + days_per_call] = mean_weights(params, signals, config.account)
    return day_weights


def mean_weights(params: Params, signals: DaySignals, account: PortfolioConfig) -> Float[Tensor, "D K"]:
    """Return the instruments' weights on each day, averaged over members, in the precision of their parameters.

    Args:
        params: parameters of the members by name.
        signals: signals that all members see, without an axis of members.
        account: settings with the limits of the weights of a day.
    """
    # Any parameter shows the number of members and the precision.
    members, dtype = len(params["slope"]), params["slope"].dtype
    # With an axis of members, here of one.
    member_signals = DaySignals(signals.own[None].to(dtype), signals.shared[None].to(dtype), signals.tradable[None])
    mean = torch.zeros_like(signals.tradable, dtype=dtype)
    # One member at a time, so that the hidden units of several are never in memory together.
    for member in range(members):
        member_params = {name: weight[member : member + 1] for name, weight in params.items()}
        mean = mean + weigh(member_params, member_signals, account)[0] / members
    return mean


def resting_weights(tradable: Bool[Tensor, "D K"], account: PortfolioConfig) -> Float[Tensor, "D K"]:
    """Return equal weights of the instruments that are traded on a day, within the account's limits.

    They are held for the part of the money that does not follow the learned weights.
    """
    equal_weights = tradable / tradable.sum(-1, keepdim=True).clamp(min=1)
    return (account.gross * equal_weights).clamp(max=account.largest)


def judge_(setup: WeightsSetup, run: WeightsState) -> None:
    """Judge the members on days that they have not learned from; they become the champion if they grew most so far.

    Args:
        setup: blocks, splits and costs.
        run: state; its unseen weights, its newest and best judgement, and its champion are written.
    """
    judged_days, market = setup.judged_days, run.market
    with torch.no_grad():
        _weigh_unseen_days_(run, setup)
        # The last judged day's return belongs to the holdout.
        rows = slice(judged_days.first, judged_days.stop - 1)
        costs = market.costs(setup.config.account, rows)
        judgement = make_judgement(setup, run.unseen[:-1], market.following[rows], market.tradable[rows], costs)
        # Copied in place and chosen by `where`, so that nothing waits for the device.
        for newest_number, new_number in _field_pairs(run.newest, judgement):
            newest_number.copy_(new_number)
        run.crowned.copy_(run.newest.growth > run.best.growth)
        for best_number, new_number in _field_pairs(run.best, run.newest):
            best_number.copy_(torch.where(run.crowned, new_number, best_number))
        run.champion.copy_(torch.where(run.crowned, run.weights, run.champion))


def _weigh_unseen_days_(run: WeightsState, setup: WeightsSetup) -> None:
    """Write `run.unseen`: weights on the training and validation days, from members that did not learn from the day.

    On each block of training days it is the member that left this block out; on the validation days the mean of all.
    """
    weights_of_days = [(run.weights[member : member + 1], block) for member, block in enumerate(setup.blocks)]
    weights_of_days.append((run.weights, setup.splits.validation))
    first_judged = setup.judged_days.first  # row 0 of `unseen`
    for weights, days in weights_of_days:
        rows = slice(days.first - first_judged, days.stop - first_judged)
        run.unseen[rows] = weigh_days(setup.config, setup.layout, run.market, weights, days)


def make_judgement(
    setup: WeightsSetup,
    learned_weights: Float[Tensor, "D K"],
    following: Float[Tensor, "D K"],
    tradable: Bool[Tensor, "D K"],
    costs: Costs,
) -> Judgement:
    """Choose the share of the learned weights that is held, by days that they were not learned from.

    The rest of the money is in weights that need no learning: equal weights, or cash. Each share of `HELD_SHARES` has a
    mean daily lead over holding the rest alone. The share is held whose lead, less `caution` times the deviation of
    this mean, is largest.

    Args:
        setup: caution, limits and the money of the account.
        learned_weights: learned weights on consecutive days.
        following: returns up to the next close.
        tradable: mask of the instruments that have a close on the day.
        costs: costs of trades on these days, by value.
    """
    caution, account = setup.config.judgement.caution, setup.config.account

    def growth(weights: Tensor) -> Tensor:
        """Return the log growth [D] of an account that holds these weights, by day."""
        return log_growth(weights, following, costs, account.cash).double()

    equal_weights_within_limits = resting_weights(tradable, account)
    # The part that is not learned is equal weights if these have grown on the same days, else cash.
    rest_is_invested = (growth(equal_weights_within_limits).sum() > 0).double()
    rest_weights = equal_weights_within_limits * rest_is_invested.float()
    resting_growth = growth(rest_weights)
    leads, deviations = [], []  # of each share: the mean daily lead over the rest alone, and this mean's deviation
    for learned_share in HELD_SHARES:
        daily_lead = growth(learned_share * learned_weights + (1 - learned_share) * rest_weights) - resting_growth
        # The last days, if they do not fill a block, are left out of the deviation.
        block_means = daily_lead[: len(daily_lead) // BLOCK * BLOCK].view(-1, BLOCK).mean(1)
        leads.append(daily_lead.mean())
        deviations.append(block_means.std() / len(block_means) ** 0.5)
    lead, deviation = torch.stack(leads), torch.stack(deviations)
    # With fewer than two blocks every deviation is NaN: then all shares give -inf, and the first share, 0, is held.
    best_number = (lead - caution * deviation).nan_to_num(nan=-torch.inf).argmax()
    return Judgement(
        growth=growth(learned_weights).mean(),
        resting=resting_growth.mean(),
        lead=lead[-1],
        deviation=deviation[-1],
        held=best_number.double() / (len(HELD_SHARES) - 1),  # the shares are evenly spaced
        invested=rest_is_invested,
    )


def held_weights(
    learned_weights: Float[Tensor, "D K"],
    tradable: Bool[Tensor, "D K"],
    account: PortfolioConfig,
    *,
    learned_share: float,
    rest_is_invested: bool,
) -> Float[Tensor, "D K"]:
    """Return `learned_share` of the learned weights, and for the rest equal weights if it is invested, else cash."""
    rest_weights = resting_weights(tradable, account) if rest_is_invested else torch.zeros_like(learned_weights)
    return learned_share * learned_weights + (1 - learned_share) * rest_weights


def _field_pairs(first: Judgement, second: Judgement) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each number of a judgement together with the same number of another."""
    for field in fields(Judgement):
        yield getattr(first, field.name), getattr(second, field.name)
