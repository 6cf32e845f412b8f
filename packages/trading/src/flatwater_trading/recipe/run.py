"""Runs of traders, from a configuration to a trainer: panel, market, networks, state, phases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flatwater.memory.nodes import refuse_nodes
from flatwater.memory.planner import Plan, require_fit
from flatwater.metrics.alarms import Alarm, array_alarms, metric_alarms, skipped_step_alarms
from flatwater.rundir.layout import RunFolder
from flatwater.runs.machine import find_device
from flatwater.runs.planning import allocate_planned_state
from flatwater.runs.run import WorkersRun
from flatwater_trading.market.simulator import count_live_simulators
from flatwater_trading.panel.locate import load_truth
from flatwater_trading.panel.normalise import scale_kind
from flatwater_trading.panel.oddities import oddity_lines
from flatwater_trading.panel.panel import Panel
from flatwater_trading.recipe.alarms import (
    constant_policy_alarms,
    no_trade_alarms,
    panel_alarms,
    population_alarms,
    refused_order_alarms,
    values_by_agent,
)
from flatwater_trading.recipe.benchmark import panel_benchmark
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.fitting_lengths import shorten_traders, with_fitting_lengths
from flatwater_trading.recipe.market import build_run_market
from flatwater_trading.recipe.plan import plan_erl
from flatwater_trading.recipe.purchase_rules import RuleChoice, candidate_count, choose_rule, with_rule
from flatwater_trading.recipe.result import as_json, prices_frame, write_holdout, write_result
from flatwater_trading.recipe.run_panel import (
    describe_costs,
    describe_days,
    describe_instruments,
    describe_splits,
    panel_facts,
    read_run_panel,
    with_absolute_panel,
)
from flatwater_trading.recipe.score import ChampionEvaluation, ChampionScore, score_champion
from flatwater_trading.recipe.successor import take_over_
from flatwater_trading.recipe.tables import TraderFolder, write_frame
from flatwater_trading.recipe.workers import TraderWorkers
from flatwater_trading.training.executor import LocalTileExecutor
from flatwater_trading.training.lessons import purchase_rows
from flatwater_trading.training.round import ErlTrainer, build_trainer, lineage_record
from flatwater_trading.training.setup import ErlSetup, build_setup
from flatwater_trading.training.state import build_erl, has_champion
from flatwater_watch.phrases import count_phrase


def find_alarms(trainer: ErlTrainer, round_: int, metrics: Mapping[str, float]) -> list[Alarm]:
    """Return the alarms of a round: damaged numbers, skipped steps, and policies that are constant or do not trade.

    Args:
        trainer: trainer with the state after the round; reading it waits for the device once for each kind of alarm.
        round_: number of the round, from 1.
        metrics: the round's numbers by name.
    """
    run, config = trainer.run, trainer.setup.config
    learner = run.learner
    # The largest weight of each member, for each network.
    weights = {f"weights/{name}": rows.abs().amax(1).tolist() for name, (rows, _) in learner.trained.items()}
    # The market never changes, so it is checked once.
    column_sums = run.market.observations.sum((1, 2)).tolist() if round_ == 1 else []
    skipped_counts = {
        f"member {n}": int(count) for n, count in enumerate(learner.tally.skipped_total.tolist()) if count
    }
    # Agent (`member 0`, ..., `champion`) -> number, summed or averaged over the agent's validation slices.
    trades = values_by_agent(run.scores.judged["trades"].sum(1).tolist())
    refused_shares = values_by_agent(run.scores.judged["refused"].mean(1).tolist())
    activity = values_by_agent(run.scores.activity.tolist())
    return [
        *panel_alarms(round_, column_sums),
        *array_alarms(round_, weights),
        *metric_alarms(round_, dict(metrics)),
        *skipped_step_alarms(round_, skipped_counts, config.learner.own.updates * len(learner.trained)),
        *population_alarms(constant_policy_alarms(round_, activity), config.population.size),
        *population_alarms(no_trade_alarms(round_, trades), config.population.size),
        *population_alarms(refused_order_alarms(round_, refused_shares), config.population.size),
    ]


@dataclass(frozen=True)
class ErlRun(WorkersRun):
    """A population of traders on its panel, ready to train or to be restored."""

    config: ErlRunConfig
    plan: Plan
    trainer: ErlTrainer
    panel: Panel
    private_reason: str
    """Reason why the market is not a mapped file; empty if it is mapped."""

    @property
    def setup(self) -> ErlSetup:
        """Configuration, networks and days."""
        return self.trainer.setup

    @property
    def location_settings(self) -> frozenset[str]:
        """Settings that are only a location: the panel's path."""
        return frozenset({"panel"})

    def describe(self) -> str:
        """Return a phrase that names traders, instruments and days."""
        workers = f", {count_phrase(len(self.plan.workers), 'worker')}" if self.plan.workers else ""
        traders = count_phrase(self.config.population.size, "trader")
        return f"{traders} on {describe_instruments(self.panel)}, {describe_days(self.panel)}{workers}"

    def about(self) -> Sequence[str]:
        """Return lines for the start of the run: features, days of each split, odd prices, costs, rules of purchases.

        A line about the market is added if it cannot be kept in a file that all processes map.
        """
        features = f"features: {', '.join(self.config.observation_features)}"
        costs = describe_costs(self.panel, self.config.env.account)
        lines = [features, describe_splits(self.panel, self.setup.splits), *oddity_lines(self.panel), *costs]
        if rules := candidate_count(self.config, len(self.panel.investable)):
            other = "another rule" if rules == 1 else f"one of {rules} other rules"
            lines.append(f"purchases: by env.trade, or by {other} if it surely earns more on the validation days")
        if self.private_reason and self.device.type == "cpu":
            lines.append(
                f"market: in the memory of each process, as it cannot be kept in a file: {self.private_reason}"
            )
        return lines

    def data(self) -> dict[str, Any]:
        """Return facts about the contents of the panel."""
        scales = scale_kind(self.panel)
        return ({} if scales is None else {"scales": scales}) | panel_facts(self.panel, self.config.env.account)

    def begin_(self) -> None:
        """Take over the members of the run `from_run`, if it is set."""
        if self.config.from_run is not None:
            take_over_(self.trainer.run.learner, self, Path(self.config.from_run))

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:
        """Return the alarms of a generation."""
        return find_alarms(self.trainer, round_, metrics)

    def record(self) -> Mapping[str, Any]:
        """Return the lineage of each slot."""
        return lineage_record(self.trainer.run)

    def live_envs(self) -> int:
        """Count the simulators that are alive in this process."""
        return count_live_simulators()

    def reason_against_scoring(self) -> str:
        """Return the reason why there is no champion yet; empty once a generation has been validated."""
        return "" if has_champion(self.trainer.run) else "no generation has been validated yet, so there is no champion"

    def choose_rule(self) -> RuleChoice:
        """Choose the rule of purchases by which the champion trades, on the validation days."""
        run = self.trainer.run
        # The last row of the weights is the champion's.
        return choose_rule(self.setup, run.market, run.learner.actor[-1:], unit=self.panel.calendar.unit)

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Play the champion against the baselines, on validation or holdout days."""
        return self._play_split(holdout=holdout)[1]

    def write_result(self, folder: RunFolder) -> None:
        """Play the validation days; write result.json, and the tables of prices, trades, equity and daily numbers."""
        score, result = self._play_split(holdout=False)
        write_frame(prices_frame(self.panel, score), TraderFolder.from_folder(folder).prices)
        write_result(self.panel, score, result, folder)

    def write_holdout(self, folder: RunFolder) -> dict[str, Any]:
        """Play the holdout days; write holdout.json, its trades and equity, and return the result."""
        score, result = self._play_split(holdout=True)
        write_holdout(self.panel, score, result, folder)
        return result

    def _play_split(self, *, holdout: bool) -> tuple[ChampionScore, dict[str, Any]]:
        """Play champion and baselines on holdout or validation days; return the score and the result as JSON values."""
        # The rule says how long positions are held, how many are bought at a close, and at which gain they are sold.
        choice, run = self.choose_rule(), self.trainer.run
        setup = with_rule(self.setup, choice.chosen)
        evaluation = ChampionEvaluation(
            setup=setup,
            panel=self.panel,
            market=run.market,
            actor=run.learner.actor[-1:],  # the last row is the champion's
            days=setup.splits.holdout if holdout else setup.splits.validation,
            # Training days whose purchases are sold within the training.
            learned_rows=purchase_rows(setup.splits.train, choice.chosen.hold_days),
            truth=load_truth(self.config.panel),
            benchmark=panel_benchmark(self.config.benchmark, self.panel),
            replaced_settings_rule=choice.replaced_settings_rule,
        )
        score = score_champion(evaluation)
        split = "holdout" if holdout else "validation"
        result = as_json(self.panel, self.trainer, score, choice, split, threads=self.config.threads)
        return score, self.with_round(result)


def compose(config: ErlRunConfig) -> ErlRun:
    """Read the panel and allocate the run whole.

    Raises:
        DataError: the panel cannot be used.
        ConfigError: the configuration does not fit the panel or the machine.
        MemoryLimitError: the run would hold more memory than there is; names its largest owners.
    """
    device = find_device(config.device)
    panel = read_run_panel(config)
    plan = plan_erl(config, panel, device)
    # Refused before anything large is built; and again below, if the market could not be mapped as planned.
    # With `start_over_budget` a run that does not fit may start, unless its workers fit on no machine.
    if config.start_over_budget:
        refuse_nodes(plan.nodes)
    else:
        require_fit(plan)
    market, private_reason = build_run_market(config, panel, device)
    is_private = bool(private_reason)
    is_planned_private = not plan.mapped
    if is_private != is_planned_private:
        plan = plan_erl(config, panel, device, private=is_private)
        if not config.start_over_budget:
            require_fit(plan)
    setup = build_setup(config, market, config.split(len(panel.dates)), device)
    run = allocate_planned_state(lambda: build_erl(setup, market), plan)
    workers = TraderWorkers(config, setup, run, panel.fingerprint, plan) if plan.workers else None
    # Without workers this process computes all members.
    trainer = build_trainer(setup, run, workers or LocalTileExecutor(setup, run))
    return ErlRun(config, plan, trainer, panel, private_reason, workers=workers)


def prepare(config: ErlRunConfig) -> ErlRunConfig:
    """Make the panel's path absolute, so that the run can be resumed from any folder; fit the lengths to its rows."""
    return with_fitting_lengths(with_absolute_panel(config), shorten_traders)


def plan(config: ErlRunConfig) -> Plan:
    """Plan the memory of a run."""
    return plan_erl(config, read_run_panel(config), find_device(config.device))
