"""The plans of commands that use a trader: what orders and backtests hold, on the meta device, before they begin."""

from collections.abc import Callable

import torch
from torch import Tensor

from flatwater.envs.trading.market import Market, outline_market
from flatwater.memory.planner import Plan
from flatwater.memory.probes.torch_ops import peak_bytes
from flatwater.nets.stack import views
from flatwater.nets.trader import ACCOUNT_PARTS, MarketObs
from flatwater.panel.normalise import BLOCK_BYTES
from flatwater.panel.panel import Panel
from flatwater.panel.splits import Days, Splits
from flatwater.recipes.erl.occlusion import Look
from flatwater.recipes.erl.plan import MARKET, SCORE
from flatwater.recipes.erl.score import PRICES, score_bytes, score_extra_bytes
from flatwater.runs.planning import META, planned_use
from flatwater.state.tree import nbytes
from flatwater.trainers.erl.config import ErlConfig
from flatwater.trainers.erl.setup import Setup, build_setup

READ, DECIDE = "read", "decide"
"""The phases in which prices are normalised, and in which orders are made and explained."""
BLOCKS = 4
"""Of values that are normalised, as they are read, scaled and masked."""


def plan_orders(settings: ErlConfig, panel: Panel, budget: str | None = None) -> Plan:
    """What it takes to decide on the newest day of a panel, and to say why.

    Args:
        settings: of the trader.
        panel: with the trader's columns; only its sizes are read.
        budget: that the command may take; left out, 90 % of the tightest limit.

    Raises:
        ConfigError: the budget is no amount of memory.
    """
    setup, market, weights = _outline(settings, panel)
    account = None
    if settings.env.account_observation:
        account = torch.empty(1, 1, len(panel.investable), ACCOUNT_PARTS, device=META)

    def decide() -> None:
        window = market.observations[:, -settings.env.episode.context :]
        setup.actor(views(weights, setup.actor.layout), MarketObs(window[None, None], account))
        look = Look(setup.actor, views(weights, setup.actor.layout), settings.env.trade, window, account)
        look.whole()
        look.without_features_of(0)
        for _ in look.without_columns(range(len(window))):
            pass

    return _planned(("orders", DECIDE, budget), panel, market, lambda: peak_bytes(decide))


def plan_backtest(settings: ErlConfig, panel: Panel, days: Days, budget: str | None = None) -> Plan:
    """What it takes to play a stretch of days of a panel against the baselines; the rest as of `plan_orders`."""
    setup, market, weights = _outline(settings, panel)
    return _planned(("backtest", SCORE, budget), panel, market, lambda: score_bytes(setup, market, weights, days))


def _outline(settings: ErlConfig, panel: Panel) -> tuple[Setup, Market, Tensor]:
    """A trader's networks and market on the meta device, with the sizes that they have on a CPU."""
    market = outline_market(
        columns=len(panel.instruments),
        days=len(panel.dates),
        features=len(settings.observation_features),
        investable=len(panel.investable),
        device=META,
    )
    whole = Days(0, len(panel.dates))
    setup = build_setup(settings, market, Splits(whole, whole, whole), META, kind="cpu")
    return setup, market, torch.empty(1, setup.actor.layout.size, device=META)


def _planned(of: tuple[str, str, str | None], panel: Panel, market: Market, tried: Callable[[], int]) -> Plan:
    """The plan of a command, by its name, that of its phase, and its budget."""
    what, phase, budget = of
    return planned_use(
        what,
        {f"{MARKET}.{path}": size for path, size in nbytes(market).items()},
        lambda: {READ: 0, phase: tried()},
        budget=budget,
        mapped={"panel.values": panel.values.nbytes, "panel.valid": panel.valid.nbytes},
        beside={READ: BLOCKS * BLOCK_BYTES + PRICES * 8 * market.close.numel(), SCORE: score_extra_bytes(market)},
    )
