"""What a champion's coefficients depend on, by occlusion (Zeiler & Fergus 2014).

A part of what it sees is replaced by its mean, and the coefficients are asked for again. Attention says where a network
looks; occlusion says what its decisions follow from.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.envs.trading.market import Market
from flatwater.nets.stack import views
from flatwater.nets.trader import ACCOUNT_PARTS, MarketObs
from flatwater.panel.splits import Days
from flatwater.replay.rows import windows
from flatwater.trainers.erl.play import to_orders
from flatwater.trainers.erl.setup import Setup

NOTHING = 1e-6
"""A normalised value that says nothing: the mean. Not 0, which stands for a missing day."""
DAYS_ASKED = 24
"""Days of the stretch, evenly spaced, on which every feature is replaced once."""


def feature_effects(
    setup: Setup, market: Market, actor: Float[Tensor, "1 n"], days: Days, features: Sequence[str]
) -> dict[str, float]:
    """Feature -> mean change, up or down, of a coefficient where the feature of all instruments says nothing.

    An account in the observation is empty: nothing is held.
    """
    rows = torch.linspace(days.first, days.stop - 1, min(DAYS_ASKED, len(days)), device=setup.device).long()
    seen, held = [windows(market.observations, row[None], setup.config.env.episode.context)[0] for row in rows], None
    if setup.config.env.account_observation:
        held = torch.zeros(1, 1, len(market.investable), ACCOUNT_PARTS, device=setup.device)

    def coefficients(window: Float[Tensor, "N C F"]) -> Float[Tensor, "K"]:
        action = setup.actor(views(actor, setup.actor.layout), MarketObs(window[None, None], held))
        return to_orders(setup.config.env.trade, action)[0, 0, :, 0]

    effects = dict.fromkeys(features, 0.0)
    with torch.no_grad():
        for window in seen:
            known, whole = (window != 0).any(-1), coefficients(window)
            for at, name in enumerate(features):
                without = window.clone()
                without[..., at] = NOTHING * known
                effects[name] += float((coefficients(without) - whole).abs().mean()) / len(seen)
    return effects
