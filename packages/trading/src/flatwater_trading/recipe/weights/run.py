"""Runs that learn target weights, from a configuration to a trainer: panel, signals, state, phases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from flatwater.memory.planner import Plan, require_fit
from flatwater.metrics.alarms import Alarm, learner_alarms
from flatwater.rundir.layout import RunFolder
from flatwater.runs.machine import find_device
from flatwater.runs.planning import allocate_planned_state
from flatwater.runs.run import Run
from flatwater_trading.panel.locate import load_truth
from flatwater_trading.panel.oddities import oddity_lines
from flatwater_trading.panel.panel import Panel
from flatwater_trading.recipe.benchmark import panel_benchmark
from flatwater_trading.recipe.fitting_lengths import MINIMUM_CONTEXT, shorten_splits, with_fitting_lengths
from flatwater_trading.recipe.panel_policy import Provenance
from flatwater_trading.recipe.result import split_note, write_holdout, write_result
from flatwater_trading.recipe.run_panel import (
    describe_costs,
    describe_days,
    describe_instruments,
    describe_splits,
    panel_facts,
    read_run_panel,
    with_absolute_panel,
)
from flatwater_trading.recipe.tables import TraderFolder, write_frame
from flatwater_trading.recipe.weights.config import WeightsRunConfig
from flatwater_trading.recipe.weights.market import signal_market
from flatwater_trading.recipe.weights.plan import READ, plan_weights
from flatwater_trading.recipe.weights.score import WeightsScore, as_json, score_weights
from flatwater_trading.recipe.weights.trader import WeightsTrader
from flatwater_trading.training.weights.config import USUAL_STRETCH, WeightsConfig
from flatwater_trading.training.weights.judge import HELD_SHARES
from flatwater_trading.training.weights.round import WeightsTrainer, build_trainer
from flatwater_trading.training.weights.state import WeightsSetup, build_setup, build_weights
from flatwater_watch.errors import ConfigError
from flatwater_watch.phrases import count_phrase


@dataclass(frozen=True)
class WeightsRun(Run):
    """Target weights on a panel, ready to be learned or restored."""

    config: WeightsRunConfig
    plan: Plan
    trainer: WeightsTrainer
    panel: Panel

    @property
    def setup(self) -> WeightsSetup:
        """Configuration, network and days."""
        return self.trainer.setup

    @property
    def location_settings(self) -> frozenset[str]:
        """Settings that are only a location: the panel's path."""
        return frozenset({"panel"})

    def describe(self) -> str:
        """Return a phrase that names members, instruments and days."""
        sizes = f"{describe_instruments(self.panel)} by {count_phrase(self.config.members.size, 'member')}"
        return f"target weights of {sizes}, {describe_days(self.panel)}"

    def about(self) -> Sequence[str]:
        """Return lines about the days of each split, odd prices, stretches shorter than usual, and costs of orders."""
        lines = [describe_splits(self.panel, self.setup.splits), *oddity_lines(self.panel)]
        days = self.setup.stretch_days
        # The user has left the length open, and the training days have shortened it.
        if self.config.learner.days is None and days < USUAL_STRETCH:
            lines.append(f"members learn from stretches of {days} {self.panel.calendar.units}, as no longer ones fit")
        account, count = self.config.account, len(self.panel.investable)
        # Without a band every instrument is traded at each close, so each pays the least commission every day.
        if account.least_commission and not account.band:
            yearly_share = account.least_commission * count * self.panel.calendar.a_year / account.cash
            lines.append(
                f"account.least_commission: an order in each of {count_phrase(count, 'instrument')} on every "
                f"{self.panel.calendar.unit} costs {yearly_share:.0%} of account.cash a year; account.band or "
                "account.least_order lets it trade less often"
            )
        return [*lines, *describe_costs(self.panel, account)]

    def data(self) -> dict[str, Any]:
        """Return facts about the contents of the panel."""
        return panel_facts(self.panel, self.config.account)

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:
        """Return the alarms of a round."""
        largest_weight = float(self.trainer.run.weights.abs().max())
        updates = self.config.learner.updates * self.config.members.size
        return learner_alarms(round_, "members", largest_weight, dict(metrics), updates)

    def record(self) -> Mapping[str, Any]:
        """Return the part of the learned weights that is held, and the name of the rest: `equal weight` or `cash`."""
        best = self.trainer.run.best
        return {"held": float(best.held), "rest": "equal weight" if float(best.invested) else "cash"}

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Play the held weights against the baselines, on validation or holdout days."""
        return self._play_split(holdout=holdout)[1]

    def write_result(self, folder: RunFolder) -> None:
        """Play the validation days; write result.json, and the tables of trades, weights, equity and daily numbers."""
        score, result = self._play_split(holdout=False)
        write_frame(score.weights, TraderFolder.from_folder(folder).weights)
        write_result(self.panel, score, result, folder)

    def write_holdout(self, folder: RunFolder) -> dict[str, Any]:
        """Play the holdout days; write holdout.json, its trades and equity, and return the result."""
        score, result = self._play_split(holdout=True)
        write_holdout(self.panel, score, result, folder)
        return result

    def _play_split(self, *, holdout: bool) -> tuple[WeightsScore, dict[str, Any]]:
        """Play the held weights and the baselines; return the score, and the result as plain values."""
        splits, trader, rounds = self.setup.splits, make_trader(self), self.trainer.progress.round
        days = splits.holdout if holdout else splits.validation
        learned_rows = range(splits.train.first, splits.train.stop)
        benchmark = panel_benchmark(self.config.benchmark, self.panel)
        true_returns = load_truth(self.config.panel)  # of a synthetic panel; None for real prices
        score = score_weights(trader.evaluation(self.panel, days, learned_rows, true_returns, benchmark))
        split = "holdout" if holdout else "validation"
        run_facts = {
            "rounds": rounds,
            # A try is a candidate for the champion: the weights of a round, held at one of the shares.
            "tries": rounds * len(HELD_SHARES),
            "tried": "parts held x rounds",
            "seed": self.config.seed,
            "threads": self.config.threads,
            "note": split_note(self.panel, days, split),
        }
        return score, self.with_round(as_json(self.panel, score, split) | trader.as_json() | run_facts)


def make_trader(run: WeightsRun, folder: RunFolder | None = None) -> WeightsTrader:
    """Make the policy of a restored run: the members of its best round, and the part of their weights that is held.

    Raises:
        ConfigError: no round has ended yet.
    """
    if reason := run.reason_against_scoring():
        raise ConfigError(f"the run has no weights yet: {reason}. Train on until the first round ends.")
    panel, setup, best = run.panel, run.setup, run.trainer.run.best
    return WeightsTrader(
        settings=WeightsConfig(**{field.name: getattr(run.config, field.name) for field in fields(WeightsConfig)}),
        provenance=Provenance.of_run(panel, setup.splits, run.trainer.progress.round),
        instruments=panel.instruments,
        investable=panel.investable_names,
        # A copy: the run may train on and write another champion into these rows.
        members=run.trainer.run.champion.double().cpu(),
        held=float(best.held),
        invested=bool(best.invested),
        folder=folder,
        # The run itself, and what reading its panel took for a while.
        loading_bytes=run.plan.total_bytes + run.plan.transients[READ],
    )


def prepare(config: WeightsRunConfig) -> WeightsRunConfig:
    """Make the panel's path absolute, so that the run can be resumed from any folder; fit the lengths to its rows."""
    return with_fitting_lengths(with_absolute_panel(config), shorten_weights)


def shorten_weights(config: WeightsRunConfig, panel: Panel, rows: int) -> WeightsRunConfig:
    """Return the configuration with shorter lengths in the place of defaults: splits that fit, a history of a year.

    Args:
        config: settings of a run.
        panel: panel, whose calendar says how many rows a year has.
        rows: number of rows that the run uses.
    """
    year = max(MINIMUM_CONTEXT, panel.calendar.a_year)
    # A history that the user has set stays.
    is_default = config.history == WeightsRunConfig().history
    history = min(config.history, year) if is_default else config.history
    return replace(config, splits=shorten_splits(config.splits, rows), history=history)


def compose(config: WeightsRunConfig) -> WeightsRun:
    """Read the panel and allocate the run whole.

    Raises:
        DataError: the panel cannot be used.
        ConfigError: the configuration does not fit the panel or the machine.
        MemoryLimitError: the run would hold more memory than there is; names its largest owners.
    """
    device, panel = find_device(config.device), read_run_panel(config)
    plan = plan_weights(config, panel, device)
    if not config.start_over_budget:
        require_fit(plan)  # raises if the plan does not fit
    market = signal_market(panel, device, config.account)
    setup = build_setup(config, market, device)
    run = allocate_planned_state(lambda: build_weights(setup, market), plan)
    return WeightsRun(config, plan, build_trainer(setup, run), panel)


def plan(config: WeightsRunConfig) -> Plan:
    """Plan the memory of a run."""
    return plan_weights(config, read_run_panel(config), find_device(config.device))
