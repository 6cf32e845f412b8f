"""The choice of a champion's rule of purchases: its scores of the validation days are played again by other rules.

A rule says how long a position is held, how many are bought at a close, and at which gain they are sold. It can limit
returns more than the scores do. No rule enters an observation, so nothing is trained for it. The choice reads
validation days alone, as that of the champion does, and each rule besides that of the settings is a try.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.metrics.figures import finite_or_none
from flatwater_trading.market import account
from flatwater_trading.market.config import TradeConfig
from flatwater_trading.market.market import Market
from flatwater_trading.market.simulator import Simulator, build_simulator
from flatwater_trading.recipe.threads import one_thread
from flatwater_trading.training.config import ErlConfig
from flatwater_trading.training.play import PlannedActions, SlicePlay, play_slices_
from flatwater_trading.training.setup import ErlSetup
from flatwater_watch.forms import count_phrase
from flatwater_watch.meters.torch_ops import peak_bytes


@dataclass(frozen=True)
class RuleChoice:
    """The rule by which a champion trades, and what each rule earned on the validation days."""

    chosen: TradeConfig
    """The rule that earned most; that of the settings if none was tried or none earned more."""
    tried: Mapping[TradeConfig, float]
    """Total return by rule, that of the settings first; empty if there was no other."""
    unit: str
    """Name of a row, such as `day`."""

    @property
    def tries(self) -> int:
        """Number of rules that were tried besides that of the settings."""
        return max(0, len(self.tried) - 1)

    @property
    def sentence(self) -> str:
        """Sentence with the chosen rule and the number of tries; empty if nothing was tried."""
        if not self.tried:
            return ""
        words = describe_rule(rule_numbers(self.chosen), self.unit)
        return f"Its rule was chosen on the validation days among {len(self.tried)}: {words}."

    def to_json(self) -> dict[str, Any]:
        """Return plain values: the chosen rule, and each that was tried with its return."""
        tried = [rule_numbers(rule) | {"return": finite_or_none(value)} for rule, value in self.tried.items()]
        return {"chosen": rule_numbers(self.chosen), "tried": tried}


def rule_numbers(rule: TradeConfig) -> dict[str, Any]:
    """Return the numbers of a rule that can be chosen; `target` is None if the trader's actions set the targets."""
    target = rule.target_high if rule.target_low == rule.target_high else None
    return {"hold_days": rule.hold_days, "purchases_a_day": rule.purchases_a_day, "target": target}


def describe_rule(numbers: Mapping[str, Any], unit: str) -> str:
    """Describe a rule in words, from the numbers of `rule_numbers`."""
    hold, count, target = numbers["hold_days"], numbers["purchases_a_day"], numbers["target"]
    sale = "" if target is None else f", sold at +{target:g}%"
    return f"held for {count_phrase(hold, unit)}, {count_phrase(count, 'purchase')} a {unit}{sale}"


def candidate_rules(config: ErlConfig) -> tuple[TradeConfig, ...]:
    """Return the rules among which the champion's is chosen, each once; the rule of the settings is the first."""
    rule, choice = config.env.trade, config.choice
    rules = [rule]
    # A target of None keeps the range in which the trader's own actions set the targets.
    for hold, count, target in product(
        (rule.hold_days, *choice.hold_days), (rule.purchases_a_day, *choice.purchases_a_day), (None, *choice.targets)
    ):
        fixed_target = {} if target is None else {"target_low": target, "target_high": target}
        rules.append(replace(rule, hold_days=hold, purchases_a_day=count, **fixed_target))
    return tuple(dict.fromkeys(rules))


def largest_rule(config: ErlConfig) -> TradeConfig:
    """Return a rule with the longest holding time and the most purchases of all that may be chosen, for plans."""
    rules = candidate_rules(config)
    hold, count = max(rule.hold_days for rule in rules), max(rule.purchases_a_day for rule in rules)
    return replace(config.env.trade, hold_days=hold, purchases_a_day=count)


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
    """Choose the rule by which the champion earns most on the validation days; of equal rules the first.

    Args:
        setup: settings and networks.
        market: prices, of which those of the validation days and of the context before them are read.
        actor: weights of the champion.
        unit: name of a row.
    """
    rules, validation = candidate_rules(setup.config), setup.splits.validation
    if len(rules) == 1:
        return RuleChoice(rules[0], {}, unit)
    first_row = torch.tensor([validation.first], device=setup.device)
    # On one thread, whatever the command uses: another order of sums must not choose another rule.
    with one_thread():
        simulator = make_simulator(setup, market, batch=1, days=len(validation))
        planned = play_slices_(setup, market, simulator, actors=actor, starts=first_row, days=len(validation))
        returns = [final_return(simulator)]
        returns += [
            final_return(play_planned(with_rule(setup, rule), market, planned, actor, first_row=first_row))
            for rule in rules[1:]
        ]
    best_index = max(range(len(rules)), key=returns.__getitem__)
    return RuleChoice(rules[best_index], dict(zip(rules, returns, strict=True)), unit)


def measure_choice_bytes(setup: ErlSetup, market: Market, actor: Float[Tensor, "1 n"]) -> int:
    """Return the peak bytes of the tensors that `choose_rule` makes; all arguments are on the meta device."""
    validation, largest = setup.splits.validation, with_rule(setup, largest_rule(setup.config))

    def play() -> None:
        """Take the steps of `choose_rule`, of the rules the largest alone."""
        first = torch.empty(1, dtype=torch.int64, device=setup.device)
        simulator = make_simulator(setup, market, batch=1, days=len(validation))
        planned = play_slices_(setup, market, simulator, actors=actor, starts=first, days=len(validation))
        play_planned(largest, market, planned, actor, first_row=first)

    return 0 if len(candidate_rules(setup.config)) == 1 else peak_bytes(play)


def final_return(simulator: Simulator) -> float:
    """Return the total return of the first episode."""
    return float(account.total_return(simulator.logs.equity)[0])


def play_planned(
    setup: ErlSetup, market: Market, planned: PlannedActions, actor: Float[Tensor, "1 n"], *, first_row: Tensor
) -> Simulator:
    """Play the planned actions of an actor again, by the setup's rule of purchases; return the simulator at the end.

    Args:
        setup: settings, with the rule, and networks.
        market: prices of the days.
        planned: actions as `play_slices_` gave them.
        actor: weights of the actor.
        first_row: first row that is played.
    """
    simulator = make_simulator(setup, market, batch=1, days=planned.actions_or_hidden.shape[2])
    play = SlicePlay(setup, market, simulator, planned, actor)
    play.begin_(first_row)
    play.play_()
    return simulator
