"""The choice of a champion's rule of purchases: its scores of the validation days are played again by other rules.

A rule says how long a position is held, how many are bought at a close, and at which gain they are sold. It can limit
returns more than the scores do. No rule enters an observation, so nothing is trained for it. The choice reads
validation days alone, as that of the champion does, and each rule besides that of the settings is a try.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import inf, isfinite
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.metrics.short_numbers import finite_or_none
from flatwater_trading.market import equity_measures
from flatwater_trading.market.config import TradeConfig
from flatwater_trading.market.market import Market
from flatwater_trading.market.simulator import Simulator, build_simulator
from flatwater_trading.recipe.return_difference import INTERVAL_COVERAGE, estimate_difference, period_returns
from flatwater_trading.recipe.threads import one_thread
from flatwater_trading.training.config import ErlConfig
from flatwater_trading.training.play import PlannedActions, SlicePlay, play_slices_
from flatwater_trading.training.setup import ErlSetup
from flatwater_watch.meters.torch_ops import peak_bytes
from flatwater_watch.phrases import count_phrase

USUAL_HOLD_DAYS, USUAL_PURCHASES = (5, 10, 40), (3,)
"""Other holding times and numbers of purchases a day that are tried where the settings leave them open."""


@dataclass(frozen=True)
class RuleChoice:
    """The rule by which a champion trades, and what each rule earned on the validation days."""

    chosen: TradeConfig
    """The rule that surely earned most; that of the settings if none was tried or none surely earned more."""
    tried: Mapping[TradeConfig, float]
    """Total return by rule, that of the settings first; empty if there was no other."""
    unit: str
    """Name of a row, such as `day`."""

    @property
    def tries(self) -> int:
        """Number of rules that were tried besides that of the settings."""
        return max(0, len(self.tried) - 1)

    @property
    def replaced_settings_rule(self) -> TradeConfig | None:
        """Rule of the settings that the chosen rule replaced; None if the settings' own rule was kept."""
        if not self.tried:
            return None
        settings_rule = next(iter(self.tried))  # the first that was tried
        return None if settings_rule == self.chosen else settings_rule

    def describe(self, settings_rule_return: float | None) -> str:
        """Return sentences on the choice of the rule of purchases; empty if no rule was tried.

        They name the chosen rule and the number of rules, the return by the rule of the settings if another one was
        chosen, and a rule that earned more and was not chosen.

        Args:
            settings_rule_return: return of the same scores by `replaced_settings_rule` on the days that were played;
                None without such a rule.
        """
        if not self.tried:
            return ""
        chosen_words = describe_rule(rule_numbers(self.chosen), self.unit)
        if self.replaced_settings_rule is None:
            comparison = ", the rule of the settings"
        else:
            settings_words = describe_rule(rule_numbers(self.replaced_settings_rule), self.unit)
            comparison = (
                f". The rule of the settings ({settings_words}) would have returned {settings_rule_return:+.1%}"
            )
        choice = f"Its rule was chosen on the validation days among {len(self.tried)}: {chosen_words}{comparison}."
        return f"{choice} {self._better_rule_sentence()}".rstrip()

    def _better_rule_sentence(self) -> str:
        """Return a sentence with the rule that earned most, and why it was not chosen; empty if none earned more."""
        own_return = self.tried[self.chosen]
        # A return that is NaN or infinite ranks last.
        best_rule = max(self.tried, key=lambda rule: self.tried[rule] if isfinite(self.tried[rule]) else -inf)
        if not self.tried[best_rule] > own_return:  # true for NaN as well
            return ""
        return (
            f"On those days {describe_rule(rule_numbers(best_rule), self.unit)} returned more "
            f"({self.tried[best_rule]:+.1%}, the chosen rule {own_return:+.1%}), but not surely: a rule replaces the "
            f"one before it only if the {INTERVAL_COVERAGE:.0%} interval of its lead lies above 0."
        )

    def to_json(self, settings_rule_return: float | None) -> dict[str, Any]:
        """Return plain values for result.json: the chosen rule, and each rule that was tried with its return.

        Args:
            settings_rule_return: return by the rule of the settings on the played days; None if that was chosen.
        """
        tried_rules = [rule_numbers(rule) | {"return": finite_or_none(value)} for rule, value in self.tried.items()]
        settings_return = None if settings_rule_return is None else finite_or_none(settings_rule_return)
        return {"chosen": rule_numbers(self.chosen), "tried": tried_rules, "unchosen_return": settings_return}


def rule_numbers(rule: TradeConfig) -> dict[str, Any]:
    """Return the numbers of a rule that can be chosen; `target` is None if the trader's actions set the targets."""
    target = rule.target_high if rule.target_low == rule.target_high else None
    return {"hold_days": rule.hold_days, "purchases_a_day": rule.purchases_a_day, "target": target}


def describe_rule(numbers: Mapping[str, Any], unit: str) -> str:
    """Describe a rule in words, from the numbers of `rule_numbers`."""
    hold, count, target = numbers["hold_days"], numbers["purchases_a_day"], numbers["target"]
    sale = "" if target is None else f", sold at +{target:g}%"
    return f"held for {count_phrase(hold, unit)}, {count_phrase(count, 'purchase')} a {unit}{sale}"


def candidate_changes(config: ErlConfig, instruments: int) -> list[list[dict[str, Any]]]:
    """Return the changes to the rule of the settings that are tried: three lists, which are tried one after the other.

    They are of the holding times, the purchases a day, and the sale targets. A change is a mapping of field to value,
    such as `{"hold_days": 5}`. The result is empty if `choice.by_validation` is off.

    Args:
        config: settings; what the user has changed in `env.trade` is not chosen, unless `choice` has values for it.
        instruments: number of instruments that can be bought, the most purchases of a day.
    """
    rule, choice, usual_rule = config.env.trade, config.choice, TradeConfig()
    if not choice.by_validation:
        return []
    hold_days, purchases = choice.hold_days, choice.purchases_a_day
    # Without values in `choice`, the usual ones are tried, but none for a number that the user has set.
    if hold_days is None:
        hold_days = USUAL_HOLD_DAYS if rule.hold_days == usual_rule.hold_days else ()
    if purchases is None:
        purchases = USUAL_PURCHASES if rule.purchases_a_day == usual_rule.purchases_a_day else ()
        purchases = tuple(count for count in purchases if count <= instruments)
    changes: list[list[dict[str, Any]]] = [
        [{"hold_days": rows} for rows in hold_days],
        [{"purchases_a_day": count} for count in purchases],
        [{"target_low": target, "target_high": target} for target in choice.targets],
    ]
    # Without the values that the rule has already.
    return [[change for change in alternatives if replace(rule, **change) != rule] for alternatives in changes]


def candidate_count(config: ErlConfig, instruments: int) -> int:
    """Return the number of rules that are tried besides that of the settings."""
    return sum(map(len, candidate_changes(config, instruments)))


def largest_rule(config: ErlConfig, instruments: int) -> TradeConfig:
    """Return a rule with the longest holding time and the most purchases of all rules that may be chosen.

    No other candidate takes more memory, so plans measure this one, though it may not be a candidate itself.
    """
    rule = config.env.trade
    changes = chain.from_iterable(candidate_changes(config, instruments))
    rules = [rule, *(replace(rule, **change) for change in changes)]
    longest_hold = max(candidate.hold_days for candidate in rules)
    most_purchases = max(candidate.purchases_a_day for candidate in rules)
    return replace(rule, hold_days=longest_hold, purchases_a_day=most_purchases)


def with_rule(setup: ErlSetup, rule: TradeConfig) -> ErlSetup:
    """Return the setup with another rule of purchases."""
    config = setup.config
    return replace(setup, config=replace(config, env=replace(config.env, trade=rule)))


def make_simulator(setup: ErlSetup, market: Market, *, batch: int, days: int) -> Simulator:
    """Build a simulator of `batch` episodes of `days` days, by the rules of the setup."""
    return build_simulator(
        setup.config.env, batch=batch, max_days=days, instruments=len(market.investable), device=setup.device
    )


def choose_rule(setup: ErlSetup, market: Market, actor: Float[Tensor, "1 n"], *, unit: str) -> RuleChoice:
    """Choose a champion's rule of purchases by what it earns on the validation days.

    The holding time is chosen first, then the purchases a day, then the sale target. A rule replaces the rule before it
    only if the 90 % interval of the difference of their returns lies above 0: on real prices a year of validation often
    prefers another rule by luck, and a rule that trades more often costs more.

    Args:
        setup: settings and networks.
        market: prices, of which those of the validation days and of the context before them are read.
        actor: weights of the champion.
        unit: name of a row.
    """
    rule, validation = setup.config.env.trade, setup.splits.validation
    changes = candidate_changes(setup.config, len(market.investable))
    if not any(changes):
        return RuleChoice(rule, {}, unit)
    first_row = torch.tensor([validation.first], device=setup.device)
    # On one thread, whatever the command uses: another order of sums must not choose another rule.
    with one_thread():
        simulator = make_simulator(setup, market, batch=1, days=len(validation))
        # Played by the rule of the settings; the candidates play the same actions again.
        planned_actions = play_slices_(setup, market, simulator, actors=actor, starts=first_row, days=len(validation))
        returns = {rule: final_return(simulator)}
        returns_by_period = {rule: period_returns(simulator.logs.equity[0])}
        # One kind of change after the other, each made to the best rule so far: far fewer plays and tries than all
        # combinations.
        for alternatives in changes:
            candidates = [replace(rule, **change) for change in alternatives]
            for candidate in candidates:
                played_simulator = play_planned_actions(
                    with_rule(setup, candidate), market, planned_actions, actor, first_row=first_row
                )
                returns[candidate] = final_return(played_simulator)
                returns_by_period[candidate] = period_returns(played_simulator.logs.equity[0])
            better_rules = [
                candidate
                for candidate in candidates
                if earns_more(returns_by_period[candidate], returns_by_period[rule])
            ]
            rule = max((rule, *better_rules), key=returns.__getitem__)
    return RuleChoice(rule, returns, unit)


def earns_more(returns: np.ndarray, other_returns: np.ndarray) -> bool:
    """Return whether returns of each period are surely the higher ones: the interval of their lead lies above 0."""
    return estimate_difference(returns, other_returns, a_year=1).low > 0


def measure_choice_bytes(setup: ErlSetup, market: Market, actor: Float[Tensor, "1 n"]) -> int:
    """Return the peak bytes of the tensors that `choose_rule` makes, 0 without a candidate.

    All arguments are on the meta device, where tensors have sizes and no values.
    """
    validation, instruments = setup.splits.validation, len(market.investable)
    setup_with_rule = with_rule(setup, largest_rule(setup.config, instruments))

    def choose_largest_rule() -> None:
        """Take the steps of `choose_rule`, with the largest rule as the only candidate."""
        first_row = torch.empty(1, dtype=torch.int64, device=setup.device)
        simulator = make_simulator(setup, market, batch=1, days=len(validation))
        planned_actions = play_slices_(setup, market, simulator, actors=actor, starts=first_row, days=len(validation))
        play_planned_actions(setup_with_rule, market, planned_actions, actor, first_row=first_row)

    return peak_bytes(choose_largest_rule) if candidate_count(setup.config, instruments) else 0


def final_return(simulator: Simulator) -> float:
    """Return the total return of the first episode."""
    return float(equity_measures.total_return(simulator.logs.equity)[0])


def play_planned_actions(
    setup: ErlSetup, market: Market, planned_actions: PlannedActions, actor: Float[Tensor, "1 n"], *, first_row: Tensor
) -> Simulator:
    """Play the planned actions of an actor again, by the setup's rule of purchases; return the simulator at the end.

    Args:
        setup: settings, with the rule, and networks.
        market: prices of the days.
        planned_actions: actions as `play_slices_` gave them.
        actor: weights of the actor.
        first_row: first row that is played.
    """
    days = planned_actions.actions_or_hidden.shape[2]
    simulator = make_simulator(setup, market, batch=1, days=days)
    slice_play = SlicePlay(setup, market, simulator, planned_actions, actor)
    # Without `plan_`: the actions are planned already.
    slice_play.begin_(first_row)
    slice_play.play_()
    return simulator
