"""Memory plans of orders and backtests of a trader, measured on the meta device before they begin.

A trader that is used from Python plans every day, so the bytes that were measured for a size of panel are cached.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from flatwater.memory.planner import Plan
from flatwater.nets.stack import views
from flatwater.runs.phase_measurement import phase_bytes
from flatwater.runs.planning import META, plan_policy_use
from flatwater.state.tree import nbytes
from flatwater_trading.market.cost_rates import rate_bytes
from flatwater_trading.market.market import Market, outline_market
from flatwater_trading.panel.normalise import BLOCK_BYTES
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import Days, Splits
from flatwater_trading.policy.trader import ACCOUNT_PARTS, MarketObs
from flatwater_trading.recipe.occlusion import OcclusionDay
from flatwater_trading.recipe.plan import MARKET_OWNER, SCORE_PHASE
from flatwater_trading.recipe.purchase_rules import measure_choice_bytes
from flatwater_trading.recipe.score import PRICE_TABLES_PER_RULE, measure_score_bytes, score_extra_bytes
from flatwater_trading.training.config import ErlConfig
from flatwater_trading.training.setup import ErlSetup, build_setup
from flatwater_watch.meters.torch_ops import peak_bytes

CHOOSE, READ, DECIDE = "choose a rule", "read", "decide"
"""Phases of the plan: choosing the rule of purchases while a run is loaded, normalising prices, and making and
explaining orders."""
BLOCKS_IN_MEMORY = 4
"""Blocks of values in memory at a time while they are normalised: read, scaled and masked."""
CACHED_MEASUREMENTS = 16
"""Number of measurements that are cached, each of a trader with a size of panel."""


@dataclass(frozen=True)
class PanelSizes:
    """The sizes of a panel that a plan depends on."""

    columns: int
    days: int
    investable: int


def plan_use(
    settings: ErlConfig, panel: Panel, budget: str | None = None, *, days: Days | None = None, choice_bytes: int = 0
) -> Plan:
    """Plan the memory of `flatwater orders`, which decides on a panel's newest day, or of `flatwater backtest`.

    Args:
        settings: settings of the trader.
        panel: panel with the trader's columns; only its sizes are read.
        budget: memory that the command may take; None for 90 % of the tightest limit.
        days: rows that a backtest plays; None for orders.
        choice_bytes: bytes that choosing the rule of purchases takes before, by `measure_rule_choice`; 0 without a
            choice.

    Raises:
        ConfigError: the budget cannot be read as an amount of memory.
    """
    sizes = panel_sizes(panel)
    phases = _phases_of_orders(settings, sizes) if days is None else _phases_of_backtest(settings, sizes, days)
    _, market, _ = _trader_without_values(settings, sizes)
    return plan_policy_use(
        "orders" if days is None else "backtest",
        {f"{MARKET_OWNER}.{path}": size for path, size in nbytes(market).items()},
        {CHOOSE: choice_bytes, **phases},
        budget=budget,
        mapped=panel.mapped_bytes,
    )


@lru_cache(maxsize=CACHED_MEASUREMENTS)
def measure_rule_choice(settings: ErlConfig, sizes: PanelSizes, validation: Days) -> int:
    """Return the peak bytes of choosing a run's rule of purchases, measured on the meta device; 0 without candidates.

    The rule says how long a position is held, how many are bought at a close, and at which gain they are sold.

    Args:
        settings: settings of the training, with the candidates.
        sizes: sizes of the panel that was trained on.
        validation: the run's validation days.
    """
    setup, market, weights = _trader_without_values(settings, sizes)
    return measure_choice_bytes(replace(setup, splits=replace(setup.splits, validation=validation)), market, weights)


def panel_sizes(panel: Panel) -> PanelSizes:
    """Return the sizes of a panel."""
    return PanelSizes(len(panel.instruments), len(panel.dates), len(panel.investable))


@lru_cache(maxsize=CACHED_MEASUREMENTS)
def _phases_of_orders(settings: ErlConfig, sizes: PanelSizes) -> Mapping[str, int]:
    """Return the peak bytes of each phase of `flatwater orders`; those of tensors are measured on the meta device."""
    setup, market, weights = _trader_without_values(settings, sizes)
    account = None
    if settings.env.account_observation:
        account = torch.empty(1, 1, sizes.investable, ACCOUNT_PARTS, device=META)

    def decide() -> None:
        """Do everything that orders and their reasons do with tensors, on the meta device."""
        window = market.observations[:, -settings.env.episode.context :]
        setup.actor(views(weights, setup.actor.layout), MarketObs(window[None, None], account))
        occlusion = OcclusionDay(setup.actor, views(weights, setup.actor.layout), settings.env.trade, window, account)
        occlusion.all_coefficients()
        # Column 0 stands for any column, as only sizes count here.
        occlusion.without_own_features(0)
        # A generator computes only what is taken from it.
        for _ in occlusion.without_columns(range(len(window))):
            pass

    # Reading makes NumPy arrays alone: 0 bytes of tensors.
    return phase_bytes(lambda: {READ: 0, DECIDE: peak_bytes(decide)}, _read_bytes(market))


@lru_cache(maxsize=CACHED_MEASUREMENTS)
def _phases_of_backtest(settings: ErlConfig, sizes: PanelSizes, days: Days) -> Mapping[str, int]:
    """Return the peak bytes of each phase of `flatwater backtest`; those of tensors are measured on the meta device."""
    setup, market, weights = _trader_without_values(settings, sizes)
    outside_torch = _read_bytes(market) | {SCORE_PHASE: score_extra_bytes(market)}
    # Reading makes NumPy arrays alone: 0 bytes of tensors.
    return phase_bytes(lambda: {READ: 0, SCORE_PHASE: measure_score_bytes(setup, market, weights, days)}, outside_torch)


def _read_bytes(market: Market) -> dict[str, int]:
    """Return the peak bytes of NumPy arrays while prices are read and normalised, as the phase `READ` of a plan."""
    # As many tables of prices, in double precision, as a simple rule holds.
    price_bytes = PRICE_TABLES_PER_RULE * 8 * market.close.numel()
    # The tables of rates are empty if all costs are in proportion to the value.
    return {READ: BLOCKS_IN_MEMORY * BLOCK_BYTES + price_bytes + rate_bytes(market.share_rate.numel())}


def _trader_without_values(settings: ErlConfig, sizes: PanelSizes) -> tuple[ErlSetup, Market, Tensor]:
    """Return a trader's setup, market and weights on the meta device, with the sizes that they have on a CPU."""
    market = outline_market(
        columns=sizes.columns,
        days=sizes.days,
        features=len(settings.observation_features),
        investable=sizes.investable,
        device=META,
        costs=settings.env.account,
    )
    # Splits do not matter here, as using a trader neither trains nor validates.
    all_days = Days(0, sizes.days)
    splits = Splits(train=all_days, validation=all_days, holdout=all_days)
    setup = build_setup(settings, market, splits, META, device_type="cpu")
    return setup, market, torch.empty(1, setup.actor.layout.size, device=META)
