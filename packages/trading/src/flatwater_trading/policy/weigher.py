"""The network behind target weights: a score of each instrument and of cash, and the weights that follow from these.

An instrument's score is a linear function of its signals, whose coefficients are themselves linear in the signals that
all instruments share (momentum may pay in one market and reversal in another), and a small network beside it. Cash is
scored from the shared signals alone: timing the market is a weight like any other. The weights are the softmax of the
scores, so they sum to 1 with cash and nothing is borrowed.

All scores begin at 0: half of the money is cash, and the other half in equal parts of everything.

Axes: P members, D days, K instruments, F signals of an instrument, G shared signals, H hidden units.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.nets.stack import Layout, Params, Weight, apply_linear, linear

MISSING = -1e9
"""Score of what cannot be bought. Finite, so that a day on which nothing can leaves cash and no NaN."""


def build_weigher(own_signals: int, shared_signals: int, hidden: int) -> Layout:
    """Return the named weights of one member: F, G and H numbers wide."""
    unlearned = Weight((hidden, 1), 0)
    return Layout(
        {
            "slope": Weight((1, own_signals), 0),
            "slope.shared": Weight((shared_signals, own_signals), 0),
            "own": Weight((own_signals, hidden), own_signals + shared_signals),
            **linear("shared", shared_signals, hidden),
            **linear("hidden", hidden, hidden),
            "score": unlearned,
            "cash.slope": Weight((shared_signals, 1), 0),
            "cash.bias": Weight((1, 1), 0),
            **linear("timing", shared_signals, hidden),
            "cash.score": unlearned,
        }
    )


LEAST_GAIN = -0.95
"""Part of the money below which a day's loss is not counted."""


@dataclass(frozen=True)
class Seen:
    """What members see on some days."""

    own: Float[Tensor, "P D K F"]
    shared: Float[Tensor, "P D G"]
    tradable: Bool[Tensor, "P D K"]


@dataclass(frozen=True)
class Limits:
    """Limits of the weights of a day."""

    gross: float = 1.0
    """Largest sum of all weights, signs left out."""
    largest: float = 1.0
    """Largest weight of an instrument, sign left out."""
    shorts: bool = False
    """Whether weights may be below 0."""


def weigh(params: Params, seen: Seen, limits: Limits) -> Float[Tensor, "P D K"]:
    """Return the part of its money that each member wants in each instrument; the rest is cash.

    Long only, it is the softmax of the scores. With shorts an instrument's score is taken beside that of cash and has a
    sign, and w = gross s / (1 + |s| + ...): all cash where no score differs from that of cash.
    """
    members, days, instruments, _ = seen.own.shape
    coefficients = torch.baddbmm(params["slope"], seen.shared, params["slope.shared"])
    scores = torch.matmul(seen.own, coefficients.unsqueeze(-1)).squeeze(-1)
    hidden = torch.bmm(seen.own.flatten(1, 2), params["own"]).view(members, days, instruments, -1)
    hidden = (hidden + apply_linear(params, "shared", seen.shared).unsqueeze(2)).relu().flatten(1, 2)
    hidden = apply_linear(params, "hidden", hidden).relu()
    scores = scores + torch.bmm(hidden, params["score"]).view(members, days, instruments)
    cash = torch.baddbmm(params["cash.bias"], seen.shared, params["cash.slope"])
    cash = cash + torch.bmm(apply_linear(params, "timing", seen.shared).relu(), params["cash.score"])
    if limits.shorts:
        signed = (scores - cash).where(seen.tradable, 0.0)
        weights = signed / (1 + signed.abs().sum(-1, keepdim=True))
        return (limits.gross * weights).clamp(-limits.largest, limits.largest)
    # As much as all instruments together, at first: from there as much is learned of each day, whatever their number.
    cash = cash + seen.tradable.sum(-1, keepdim=True).clamp(min=1).log()
    scores = scores.masked_fill(~seen.tradable, MISSING)
    weights = torch.softmax(torch.cat([scores, cash], dim=-1), dim=-1)[..., :-1]
    return (limits.gross * weights).clamp(max=limits.largest)


def log_growth(
    weights: Float[Tensor, "*B D K"], following: Float[Tensor, "*B D K"], cost: float
) -> Float[Tensor, "*B D"]:
    """Return the log of what the money grows by from each day's close to the next, after the cost of getting there.

    Prices do not answer, so the account is a function of the weights alone, and can be differentiated (Moody & Saffell
    2001; Jiang, Xu & Liang 2017): log(1 + w . r) + log(1 - c |w - w~|), with w~ the weights of the day before as the
    prices have moved them. Before the first day all is cash.

    Args:
        weights: weights that are held from each day's close on; consecutive days.
        following: returns up to the next close.
        cost: part of the traded value that a trade costs.
    """
    # What is sold short can lose more than all; the logarithm of what is left then has no value.
    gain = (weights * following).sum(-1).clamp(min=LEAST_GAIN)
    moved = weights * (1 + following) / (1 + gain).unsqueeze(-1)
    before = torch.cat([torch.zeros_like(moved[..., :1, :]), moved[..., :-1, :]], dim=-2)
    turnover = (weights - before).abs().sum(-1)
    return torch.log1p(gain) + torch.log1p(-cost * turnover)
