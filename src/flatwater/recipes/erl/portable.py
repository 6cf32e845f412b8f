"""A trader without its run: the network with its scales and its bounds, as one module."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from flatwater.config.toml import to_mapping
from flatwater.envs.trading.config import TradeConfig
from flatwater.nets.stack import views
from flatwater.nets.trader import ACCOUNT_PARTS, MarketObs, TraderActor
from flatwater.panel.normalise import OBSERVATION_LIMIT, Statistics
from flatwater.runs.portable import Portable
from flatwater.trainers.erl.play import to_orders

if TYPE_CHECKING:
    from flatwater.recipes.erl.trader import Trader

MEAN, DEVIATION = "features.mean", "features.deviation"
"""Names of the scales beside the weights."""


class TraderModule(nn.Module):
    """Features as they follow from prices in, float64; coefficients and targets out."""

    weights: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, actor: TraderActor, weights: Tensor, scales: Statistics, trade: TradeConfig) -> None:
        """Keep weights and scales as buffers."""
        super().__init__()
        self._actor, self._trade = actor, trade
        self.register_buffer("weights", weights)
        for name in ("mean", "deviation"):
            self.register_buffer(name, torch.from_numpy(getattr(scales, name))[:, None])

    def forward(
        self, features: Float[Tensor, "B N C F"], account: Float[Tensor, "B K 3"] | None = None
    ) -> Float[Tensor, "B K 2"]:
        """Of each day the coefficient and the sale target in percent, by instrument."""
        scaled = (features - self.mean) / self.deviation
        scaled = torch.nan_to_num(scaled, nan=0.0, posinf=0.0, neginf=0.0)
        windows = scaled.clamp(-OBSERVATION_LIMIT, OBSERVATION_LIMIT).to(self.weights.dtype)
        held = None if account is None else account[None]
        action = self._actor(views(self.weights, self._actor.layout), MarketObs(windows[None], held))
        return to_orders(self._trade, action[0])


def portable_trader(trader: "Trader") -> Portable:
    """The trader as what every form of export is made from."""
    sees_account = trader.config.account_observation
    inputs = {"features": "float64 [days, instruments, context, features], unscaled, NaN where missing"}
    account = {"account": "float32 [days, investable, 3]: held or not, share of the holding time passed, gain"}
    return Portable(
        recipe="erl",
        module=trader.module,
        example=lambda days: _example(trader, days),
        axes=(0, 0) if sees_account else (0,),
        inputs=inputs | (account if sees_account else {}),
        outputs={"action": "float32 [days, investable, 2]: coefficient, sale target in percent"},
        meaning={
            "context": trader.config.episode.context,
            "instruments": list(trader.instruments),
            "investable": list(trader.investable),
            "features": list(trader.features),
            "rules": to_mapping(trader.config),
        },
        header={
            "settings": to_mapping(trader.settings),
            "past": asdict(trader.past),
            "instruments": list(trader.instruments),
            "investable": list(trader.investable),
        },
        tensors={name: weight[0] for name, weight in views(trader.weights, trader.actor.layout).items()}
        | {MEAN: torch.from_numpy(trader.statistics.mean), DEVIATION: torch.from_numpy(trader.statistics.deviation)},
    )


def _example(trader: "Trader", days: int) -> tuple[Tensor, ...]:
    rng = torch.Generator().manual_seed(0)
    shape = (days, len(trader.instruments), trader.config.episode.context, len(trader.features))
    scales = trader.statistics
    mean, deviation = (torch.from_numpy(each)[:, None] for each in (scales.mean, scales.deviation))
    drawn = torch.randn(shape, generator=rng) * torch.nan_to_num(deviation, posinf=1.0) + mean
    if not trader.config.account_observation:
        return (drawn,)
    return drawn, torch.rand(days, len(trader.investable), ACCOUNT_PARTS, generator=rng)
