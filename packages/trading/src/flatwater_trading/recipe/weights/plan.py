"""Memory plans of runs that learn target weights, and of their backtests and orders: all on the meta device."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from flatwater.algorithms.adam import bind_step
from flatwater.memory.planner import Plan
from flatwater.runs.phase_measurement import phase_bytes
from flatwater.runs.planning import META, Alternative, make_plan, plan_policy_use, with_advice
from flatwater.state.tree import nbytes
from flatwater_trading.market.config import PortfolioConfig
from flatwater_trading.market.cost_rates import rate_bytes
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.signals import MEAN_SPANS
from flatwater_trading.recipe.comparison import RANDOM_TRADERS
from flatwater_trading.recipe.weights.config import WeightsRunConfig
from flatwater_trading.recipe.weights.market import outline_market
from flatwater_trading.training.weights.config import WeightsConfig
from flatwater_trading.training.weights.judge import judge_
from flatwater_trading.training.weights.round import learn_
from flatwater_trading.training.weights.state import WeightsSetup, WeightsState, build_setup, build_weights
from flatwater_watch.meters.torch_ops import peak_bytes

READ, SCORE = "read", "score"
"""Phases of the plan: computing the signals, and playing the weights against the rules."""
TABLES = 12
"""Tables of all days and instruments in double precision that signals, or a rule, hold at a time."""


def plan_weights(config: WeightsRunConfig, panel: Panel, device: torch.device) -> Plan:
    """Plan the memory of a run with this configuration on this panel."""
    setup, run = build_on_meta(config, panel)
    owners = nbytes(run)

    def owner_bytes(smaller_config: WeightsRunConfig) -> dict[str, int]:
        """Return the bytes of a smaller run by the paths of its tensors."""
        _, smaller_run = build_on_meta(smaller_config, panel)
        return nbytes(smaller_run)

    plan = make_plan(
        owners,
        lambda: measure_phase_peaks_(setup, run),
        config=config,
        device=device,
        mapped=panel.mapped_bytes,
        extra_bytes={READ: signal_bytes(panel), SCORE: score_bytes(panel, config.account)},
    )
    return with_advice(plan, _alternatives(config), owners, owner_bytes)


def build_on_meta(config: WeightsConfig, panel: Panel) -> tuple[WeightsSetup, WeightsState]:
    """Build a run on the meta device, with the sizes that it has elsewhere."""
    market = outline_market(panel, config.account)
    setup = build_setup(config, market, META)
    return setup, build_weights(setup, market)


def measure_phase_peaks_(setup: WeightsSetup, run: WeightsState) -> dict[str, int]:
    """Run each phase once on the meta device, and return the peak bytes of its temporary tensors by phase.

    `run` is changed, so it must be a state that is thrown away.
    """
    learner = setup.config.learner
    step_ = bind_step(run.weights, run.adam, lr=learner.lr, weight_decay=learner.weight_decay, clip=learner.grad_clip)
    return {
        "learn": peak_bytes(partial(learn_, setup, run, step_)),
        "judge": peak_bytes(partial(judge_, setup, run)),
        # These two are not run here: `extra_bytes` has all their bytes.
        READ: 0,
        SCORE: 0,
    }


def signal_bytes(panel: Panel) -> int:
    """Return the most bytes that NumPy takes to compute the signals of a panel."""
    days, instruments = len(panel.dates), len(panel.investable)
    # Tables in double precision (8 bytes) and, for each span of the exponential means, two more in single precision (4
    # bytes): the moves, and the moves less their mean over the instruments.
    return 8 * TABLES * days * instruments + 2 * 4 * len(MEAN_SPANS) * days * instruments


def score_bytes(panel: Panel, account: PortfolioConfig) -> int:
    """Return the most bytes of NumPy and torch to play all days of the panel, though fewer may be played."""
    days, instruments = len(panel.dates), len(panel.investable)
    # Random traders are played one day at a time, in `TABLES` tables.
    played_bytes = 8 * TABLES * RANDOM_TRADERS * instruments
    # The samples of ridge, with a margin: it reads all signals of an instrument.
    sample_bytes = 8 * len(MEAN_SPANS) * 2 * days * instruments
    # The signals are computed once more for the days that are played.
    computed_bytes = sum(nbytes(outline_market(panel)).values())
    cost_bytes = 0 if account.is_proportional else rate_bytes(days * instruments)
    # A covariance, its diagonal, and their two sums.
    covariance_bytes = 8 * 4 * instruments**2
    rule_bytes = 8 * TABLES * days * instruments
    return computed_bytes + played_bytes + sample_bytes + cost_bytes + rule_bytes + covariance_bytes


def plan_use(account: PortfolioConfig, panel: Panel, budget: str | None, *, plays: bool) -> Plan:
    """Plan the memory of using trained weights on a panel.

    Args:
        account: costs of trades.
        panel: panel with the columns of training; only its sizes are read.
        budget: memory that may be taken; None for 90 % of the tightest limit.
        plays: whether days are played, by a backtest; False for orders, which decide on the newest day alone.

    Raises:
        ConfigError: the budget cannot be read as an amount of memory.
    """
    extra_bytes = {READ: signal_bytes(panel)} | ({SCORE: score_bytes(panel, account)} if plays else {})
    # Twice, as putting the signals together copies them.
    owners = {f"market.{path}": 2 * size for path, size in nbytes(outline_market(panel)).items()}
    # No phase is measured on the meta device: all its bytes are in `extra_bytes`.
    phases = phase_bytes(lambda: dict.fromkeys(extra_bytes, 0), extra_bytes)
    command = "backtest" if plays else "orders"
    return plan_policy_use(command, owners, phases, budget=budget, mapped=panel.mapped_bytes)


def _alternatives(config: WeightsRunConfig) -> Iterator[Alternative[WeightsRunConfig]]:
    """Yield changes that make the largest owners smaller, with the owner and the changed configuration."""
    members = config.members
    if members.hidden > 1:
        half_width = members.hidden // 2
        yield f"members.hidden = {half_width}", "weights", replace(config, members=replace(members, hidden=half_width))
    if members.size >= 4:  # noqa: PLR2004  (two are the least)
        half_size = members.size // 2
        yield f"members.size = {half_size}", "weights", replace(config, members=replace(members, size=half_size))
