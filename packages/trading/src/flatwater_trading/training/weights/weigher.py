"""The network of target weights: a score of each instrument and of cash, and the weights computed from these scores.

An instrument's score is a linear function of its signals, whose coefficients are linear in the signals that all
instruments share (momentum may pay in one market and reversal in another), plus a small network. Cash is scored from
the shared signals alone, which times the market. The weights are the softmax of the scores, so their sum with cash is 1
and nothing is borrowed.

All scores begin at 0: half of the money is cash, and the other half in equal parts of everything.

Axes: P members, D days, K instruments, F signals of an instrument, G shared signals, H hidden units.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.nets.stack import Layout, Params, Weight, apply_linear, linear
from flatwater_trading.market.config import PortfolioConfig

MISSING = -1e9
"""Score of an instrument that cannot be bought. Finite: if nothing can be bought the weights are cash and not NaN."""


def build_weigher(own_signals: int, shared_signals: int, hidden: int) -> Layout:
    """Return the named weights of a member, for F own signals, G shared signals and H hidden units."""
    # A `fan_in` of 0 initialises a weight to 0, so all scores begin at 0.
    score = Weight((hidden, 1), fan_in=0)
    return Layout(
        {
            # The linear part of an instrument's score.
            "slope": Weight((1, own_signals), fan_in=0),
            "slope.shared": Weight((shared_signals, own_signals), fan_in=0),
            # The network's part of that score.
            "own": Weight((own_signals, hidden), fan_in=own_signals + shared_signals),
            **linear("shared", shared_signals, hidden),
            **linear("hidden", hidden, hidden),
            "score": score,
            # The score of cash: its linear part, and its network.
            "cash.slope": Weight((shared_signals, 1), fan_in=0),
            "cash.bias": Weight((1, 1), fan_in=0),
            **linear("timing", shared_signals, hidden),
            "cash.score": score,
        }
    )


@dataclass(frozen=True)
class DaySignals:
    """Signals that members see on some days, and the mask of the instruments that are traded."""

    own: Float[Tensor, "P D K F"]
    shared: Float[Tensor, "P D G"]
    tradable: Bool[Tensor, "P D K"]


def weigh(params: Params, signals: DaySignals, account: PortfolioConfig) -> Float[Tensor, "P D K"]:
    """Return the part of its money that each member wants in each instrument, within the account's limits.

    The rest is cash.

    Long only, the weights are the softmax of the scores. With shorts, s is an instrument's score less the score of
    cash, and its weight is gross s / (1 + |s1| + |s2| + ...): all cash if no score differs from that of cash.
    """
    members, days, instruments, _ = signals.own.shape
    # The linear part of the scores: its coefficients follow from the shared signals.
    coefficients = torch.baddbmm(params["slope"], signals.shared, params["slope.shared"])
    scores = torch.matmul(signals.own, coefficients.unsqueeze(-1)).squeeze(-1)
    # The part of the network: a layer of own and shared signals, then another.
    hidden_features = torch.bmm(signals.own.flatten(1, 2), params["own"]).view(members, days, instruments, -1)
    hidden_features = (
        (hidden_features + apply_linear(params, "shared", signals.shared).unsqueeze(2)).relu().flatten(1, 2)
    )
    hidden_features = apply_linear(params, "hidden", hidden_features).relu()
    scores = scores + torch.bmm(hidden_features, params["score"]).view(members, days, instruments)
    # Cash: a linear part and a network, of the shared signals alone.
    cash_score = torch.baddbmm(params["cash.bias"], signals.shared, params["cash.slope"])
    cash_score = cash_score + torch.bmm(apply_linear(params, "timing", signals.shared).relu(), params["cash.score"])
    if account.shorts:
        # A score like that of cash gives no weight to what cannot be traded.
        signed_scores = (scores - cash_score).where(signals.tradable, 0.0)
        weights = signed_scores / (1 + signed_scores.abs().sum(-1, keepdim=True))
        return (account.gross * weights).clamp(-account.largest, account.largest)
    # At first cash weighs as much as all instruments together, so learning starts alike for any number of instruments.
    cash_score = cash_score + signals.tradable.sum(-1, keepdim=True).clamp(min=1).log()
    scores = scores.masked_fill(~signals.tradable, MISSING)
    weights = torch.softmax(torch.cat([scores, cash_score], dim=-1), dim=-1)[..., :-1]  # without cash, the last
    return (account.gross * weights).clamp(max=account.largest)
