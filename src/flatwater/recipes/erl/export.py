"""A trader as one file that torch alone can run: the network, its scales and its bounds, by torch.export."""

import io
import json
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from flatwater.config.toml import to_mapping
from flatwater.nets.stack import views
from flatwater.nets.trader import ACCOUNT_PARTS, MarketObs
from flatwater.panel.normalise import OBSERVATION_LIMIT
from flatwater.recipes.erl.trader import Trader
from flatwater.storage.directory import write_object
from flatwater.trainers.erl.play import to_orders

ABOUT = "trader.json"
"""What the numbers mean, inside of the file."""
MOST = 4096
"""Days that can be asked for in one call."""


class TraderModule(nn.Module):
    """Features as they follow from prices in, float64; coefficients and targets out."""

    weights: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, trader: Trader) -> None:
        """Keep its weights and scales as buffers."""
        super().__init__()
        self._actor, self._trade = trader.actor, trader.config.trade
        self.register_buffer("weights", trader.weights)
        for name in ("mean", "deviation"):
            self.register_buffer(name, torch.from_numpy(getattr(trader.statistics, name))[:, None])

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


def export_trader(trader: Trader, file: Path) -> float:
    """Write the trader as a .pt2 file, whole or not at all, and run what was written.

    Returns:
        The largest difference between both, over random days.

    Raises:
        RunError: the file cannot be written.
    """
    module = TraderModule(trader).eval()
    days = torch.export.Dim("days", min=1, max=MOST)
    given = _example(trader, 3)
    with torch.no_grad():
        program = torch.export.export(module, given, dynamic_shapes=tuple({0: days} for _ in given))
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={ABOUT: json.dumps(describe(trader), indent=1)})
    write_object(file, content.getvalue())
    loaded, asked = torch.export.load(file).module(), _example(trader, 7)
    with torch.no_grad():
        return float((loaded(*asked) - module(*asked)).abs().max())


def describe(trader: Trader) -> dict[str, Any]:
    """What goes in and comes out, and the rules that it was trained by."""
    return {
        "input": "float64 [days, instruments, context, features], unscaled, NaN where missing, the newest day last",
        "account": "float32 [days, investable, 3]: held or not, share of the holding time passed, gain as a fraction"
        if trader.config.account_observation
        else None,
        "output": "[days, investable, 2]: coefficient, sale target in percent",
        "context": trader.config.episode.context,
        "instruments": list(trader.instruments),
        "investable": list(trader.investable),
        "features": list(trader.features),
        "rules": to_mapping(trader.config),
    }


def _example(trader: Trader, days: int) -> tuple[Tensor, ...]:
    rng = torch.Generator().manual_seed(0)
    shape = (days, len(trader.instruments), trader.config.episode.context, len(trader.features))
    mean, deviation = (torch.from_numpy(getattr(trader.statistics, name))[:, None] for name in ("mean", "deviation"))
    drawn = torch.randn(shape, generator=rng) * torch.nan_to_num(deviation, posinf=1.0) + mean
    if not trader.config.account_observation:
        return (drawn,)
    return drawn, torch.rand(days, len(trader.investable), ACCOUNT_PARTS, generator=rng)
