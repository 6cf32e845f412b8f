"""The champion against the baselines, on consecutive days that are played once, without noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.state.random import generator
from flatwater_trading.market.baselines import buy_and_hold, equal_weight, play_random_
from flatwater_trading.market.config import TradeConfig, TradingConfig
from flatwater_trading.market.market import Market
from flatwater_trading.market.results import episode_summary, purchases_by_day, trade_columns, traded_by_day
from flatwater_trading.market.score_rules import RETURN_ROWS, oracle_scores, play_rule_, ridge_bytes, score_rules
from flatwater_trading.market.simulator import Simulator, reset_, step_
from flatwater_trading.panel.splits import Days
from flatwater_trading.policy.trader import ACTION_PARTS
from flatwater_trading.recipe.comparison import (
    RANDOM_TRADERS,
    DaysToPlay,
    PlayedDays,
    compare_champion,
    measure_curve,
    oracle_sentence,
)
from flatwater_trading.recipe.occlusion import find_effects
from flatwater_trading.recipe.purchase_checks import (
    HOLDING_TIMES,
    RANDOM_DAY_TRADERS,
    HoldingTimes,
    play_holding_times,
    trades_like_chance,
)
from flatwater_trading.recipe.purchase_rules import (
    final_return,
    largest_rule,
    make_simulator,
    play_planned_actions,
    with_rule,
)
from flatwater_trading.recipe.score_analysis import analyse_scores
from flatwater_trading.recipe.trader_names import BUY_AND_HOLD, CHAMPION, CHANCE, EQUAL_WEIGHT, ORACLE
from flatwater_trading.training.play import META_DAYS, DayTransitions, PlannedActions, play_slices_
from flatwater_trading.training.setup import ErlSetup
from flatwater_watch.meters.torch_ops import peak_bytes
from flatwater_watch.phrases import list_phrase

SIMULATED_RULES = 4
"""Number of simple rules, with the oracle; each has its own simulator."""
PRICE_TABLES_PER_RULE = 6
"""Tables of all prices in double precision that a rule holds at a time."""


@dataclass(frozen=True, kw_only=True)
class ChampionEvaluation(DaysToPlay):
    """Days for a champion of traders to play, with market, actor and settings; the last settlement days only close."""

    setup: ErlSetup
    market: Market
    """Market of the panel."""
    actor: Float[Tensor, "1 n"]
    """The champion's weights."""
    replaced_settings_rule: TradeConfig | None = None
    """The rule of the settings, if the chosen rule replaced it: the champion's choices are played by it as well."""

    @property
    def first(self) -> Tensor:
        """First row that is played, on the simulator's device."""
        return torch.tensor([self.days.first], device=self.setup.device)

    def simulator(self, batch: int) -> Simulator:
        """Build a simulator of `batch` episodes that are as long as the days."""
        return make_simulator(self.setup, self.market, batch=batch, days=len(self.days))


@dataclass(frozen=True)
class ChampionScore(PlayedDays):
    """The result of consecutive days, with what the champion's decisions follow from, and checks of its purchases."""

    effects: dict[str, float]
    """Feature -> mean change of the coefficients without it: see `occlusion.find_effects`."""
    column_effects: dict[str, float]
    """Column -> mean change of the coefficients without it."""
    holding_times: HoldingTimes
    """Returns of the champion's choices if they were held for longer or shorter."""
    settings_rule_return: float | None
    """Return of the champion's choices by the evaluation's `replaced_settings_rule`; None without such a rule."""
    rules_without_scores: tuple[str, ...]
    """Simple rules that made no trade, as they had no score of any instrument on these days."""
    trades_like_chance: bool
    """Whether the champion is invested and trades as much as traders that act at random on every day."""

    @property
    def verdict(self) -> str:
        """Sentences on the comparison, the holding times and the oracle, and a warning if it trades like chance."""
        return self.describe(with_holding_times=True)

    def describe(self, *, with_holding_times: bool) -> str:
        """Return the verdict, without the holding times if another sentence compares them."""
        holding_times = self.holding_times.sentence if with_holding_times else ""
        sentences = [
            self.comparison.sentence,
            rules_sentence(self.rules_without_scores),
            holding_times,
            oracle_sentence(self.returns),
        ]
        if self.trades_like_chance:
            sentences.append(
                "Warning: it is invested and trades as much as traders that act at random on every day, so it has not "
                "learned when to stay out."
            )
        return " ".join(filter(None, sentences))


def rules_sentence(rules_without_scores: Sequence[str]) -> str:
    """Return a sentence with the rules that could make no trade, and why; empty if there are none."""
    if not rules_without_scores:
        return ""
    return (
        f"{list_phrase(rules_without_scores)} made no trade: the prices do not reach back as far as "
        f"{'it needs' if len(rules_without_scores) == 1 else 'they need'} (ridge learns from returns over up to "
        f"{RETURN_ROWS[-1]} rows)."
    )


def score_champion(evaluation: ChampionEvaluation) -> ChampionScore:
    """Play the champion, random traders and simple rules on the evaluation's days, and measure each of them.

    If the expected returns are known (`truth`, of a synthetic market), the oracle, which trades by them, plays too.
    """
    setup, market, panel, days = evaluation.setup, evaluation.market, evaluation.panel, evaluation.days
    env_config, a_year = setup.config.env, panel.calendar.a_year
    champion, random_traders = evaluation.simulator(1), evaluation.simulator(RANDOM_TRADERS)
    actions, scores = _play_champion_(evaluation, champion)
    # With the champion's number of purchases on each day, random traders differ from it only in the instruments.
    _play_random_traders_(evaluation, random_traders, purchases=purchases_by_day(champion)[0])
    random = episode_summary(random_traders, env_config, a_year)
    median = int(random["total_return"].argsort()[(RANDOM_TRADERS - 1) // 2])  # the trader that torch.median takes
    rule_envs, rules_without_scores = _play_rules(evaluation)
    # Trader -> equity at the start and after each day.
    curves = {
        CHAMPION: champion.logs.equity[0],
        BUY_AND_HOLD: buy_and_hold(market, days.first, days.stop, env_config.account),
        EQUAL_WEIGHT: equal_weight(market, days.first, days.stop, env_config.account),
        **_benchmark_equity(evaluation),
        **{name: env.logs.equity[0] for name, env in rule_envs.items()},
        CHANCE: random_traders.logs.equity[median],
    }
    rows = _measure_traders(evaluation, curves, {CHAMPION: champion, **rule_envs}, random)
    feature_effects, column_effects = find_effects(setup, market, evaluation.actor, days)
    unit, first_row = panel.calendar.unit, evaluation.first
    return ChampionScore(
        days=days,
        comparison=compare_champion(curves, random["total_return"], a_year=a_year),
        rows=rows,
        equity=curves,
        chance=random["total_return"],
        benchmark=evaluation.benchmark_trader,
        **_daily_numbers(evaluation, champion, scores),
        trades=pl.DataFrame(
            trade_columns(champion, market, env_config, instruments=panel.instruments, dates=panel.dates)
        ),
        effects=dict(zip(setup.config.observation_features, feature_effects.tolist(), strict=True)),
        column_effects=dict(zip(panel.instruments, column_effects.tolist(), strict=True)),
        holding_times=play_holding_times(setup, market, actions, evaluation.actor, first_row=first_row, unit=unit),
        settings_rule_return=_settings_rule_return(evaluation, actions),
        rules_without_scores=rules_without_scores,
        trades_like_chance=trades_like_chance(setup, market, rows[CHAMPION], first_row, len(days)),
    )


def _measure_traders(
    evaluation: ChampionEvaluation,
    curves: Mapping[str, Float[Tensor, "D1"]],
    envs: Mapping[str, Simulator],
    random: Mapping[str, Float[Tensor, " R"]],
) -> dict[str, dict[str, float]]:
    """Return the measures of each trader by name: those of its equity curve, and those of its trades.

    Args:
        evaluation: days that were played.
        curves: equity of each trader.
        envs: simulators of the traders that make trades, besides the random traders.
        random: measures of all R random traders; the median of each is taken.
    """
    config, a_year = evaluation.setup.config.env, evaluation.panel.calendar.a_year
    measures_of_trades = {name: _measure_env(env, config, a_year) for name, env in envs.items()}
    measures_of_trades[CHANCE] = {name: float(value.median()) for name, value in random.items()}
    market_curve = curves[evaluation.benchmark_trader]
    # Rules that buy and hold have no trades to measure, and are always invested whole.
    return {
        name: measure_curve(curve, market_curve, a_year) | measures_of_trades.get(name, {"exposure": 1.0})
        for name, curve in curves.items()
    }


def _play_champion_(evaluation: ChampionEvaluation, champion: Simulator) -> tuple[PlannedActions, Float[Tensor, "D K"]]:
    """Play the champion on the days in its simulator; return its actions, and its scores [D, K] on each day.

    The actions of all days are planned before the first day, so other rules can play them again. Scores are the
    coefficients.
    """
    setup, market, days = evaluation.setup, evaluation.market, len(evaluation.days)
    scores = torch.empty(days, len(market.investable), device=setup.device)
    planned_actions = play_slices_(
        setup,
        market,
        champion,
        actors=evaluation.actor,
        starts=evaluation.first,
        days=days,
        remember=lambda day: copy_scores_(scores, day),
    )
    return planned_actions, scores


def _settings_rule_return(evaluation: ChampionEvaluation, actions: PlannedActions) -> float | None:
    """Return the total return of the champion's actions by the rule of purchases in the settings.

    None if the champion was played by that rule already, as no other rule was chosen.
    """
    if evaluation.replaced_settings_rule is None:
        return None
    setup = with_rule(evaluation.setup, evaluation.replaced_settings_rule)
    return final_return(
        play_planned_actions(setup, evaluation.market, actions, evaluation.actor, first_row=evaluation.first)
    )


def copy_scores_(scores: Float[Tensor, "D K"], day: DayTransitions) -> None:
    """Copy the champion's coefficients of one day into that day's row of `scores`."""
    # An action is [episodes, instruments, parts]: the only episode is the champion's, the coefficient the first part.
    scores[day.day] = day.action[0, :, 0]


def _benchmark_equity(evaluation: ChampionEvaluation) -> dict[str, Float[Tensor, "D1"]]:
    """Return the benchmark's equity curve under the benchmark's name; empty without a benchmark."""
    setup, benchmark = evaluation.setup, evaluation.benchmark
    curves = {} if benchmark is None else benchmark.equity(evaluation.days, setup.config.env.account)
    return {name: curve.to(setup.device) for name, curve in curves.items()}


def _daily_numbers(evaluation: ChampionEvaluation, champion: Simulator, scores: Float[Tensor, "D K"]) -> dict[str, Any]:
    """Return the champion's exposure and turnover on each day, and an analysis of its scores.

    Scores are the policy's coefficients; the analysis says how well they rank the instruments' later returns.
    """
    days, market = evaluation.days, evaluation.market
    # The champion is episode 0, the only one of its simulator. The first value of a log is of the opening, before the
    # first day.
    rows, equity = slice(days.first, days.stop), champion.logs.equity[0, 1:]
    return {
        "exposure": (champion.logs.invested[0, 1:] / equity).double().cpu().numpy(),
        "turnover": (traded_by_day(champion)[0] / equity).double().cpu().numpy(),
        "scores": analyse_scores(
            scores.double().cpu().numpy(),
            market.last_close[rows].double().cpu().numpy(),
            (market.close[rows] > 0).cpu().numpy(),  # a close of 0 stands for none on that day
        ),
    }


def _play_random_traders_(evaluation: ChampionEvaluation, env: Simulator, *, purchases: Tensor) -> None:
    """Play the random traders in `env`; each buys as many instruments on each day as `purchases` says."""
    setup, days = evaluation.setup, len(evaluation.days)
    _begin_episodes_(evaluation, env, RANDOM_TRADERS)
    rng = generator(setup.config.seed, "random traders", setup.device)
    play_random_(env, evaluation.market, setup.config.env, days=days, rng=rng, buys=purchases)


def _play_rules(evaluation: ChampionEvaluation) -> tuple[dict[str, Simulator], tuple[str, ...]]:
    """Play the simple rules and the oracle; return their simulators by name, and the rules without any score."""
    setup, market, true_returns = evaluation.setup, evaluation.market, evaluation.truth
    simulators, without_scores = {}, []
    # Name -> function that computes the rule's scores.
    rules = score_rules(market, setup.config.env, evaluation.learned_rows, evaluation.panel.calendar)
    if true_returns is not None:
        rules[ORACLE] = lambda: oracle_scores(true_returns, setup.config.env)
    for name, scores in rules.items():
        env = evaluation.simulator(1)
        _begin_episodes_(evaluation, env, 1)
        # Computed here, so that one rule's scores are in memory at a time: a table of all days and instruments.
        rule_scores = torch.from_numpy(scores()).to(setup.device)
        if not rule_scores[evaluation.days.first : evaluation.days.stop].isfinite().any():
            without_scores.append(name)
        play_rule_(env, market, setup.config.env, rule_scores, start=evaluation.days.first, days=len(evaluation.days))
        simulators[name] = env
    return simulators, tuple(without_scores)


def _begin_episodes_(evaluation: ChampionEvaluation, env: Simulator, batch: int) -> None:
    """Begin `batch` episodes on the evaluation's days; on the last `settlement_days` of them nothing is bought."""
    start = evaluation.first.repeat(batch)
    end = start + len(evaluation.days)
    reset_(env, start=start, trading_end=end - evaluation.setup.config.env.episode.settlement_days, end=end)


def _measure_env(env: Simulator, config: TradingConfig, a_year: int) -> dict[str, float]:
    """Return the measures of the only episode in `env`, by name."""
    return {name: float(value[0]) for name, value in episode_summary(env, config, a_year).items()}


def score_extra_bytes(market: Market) -> int:
    """Return the bytes that `score_champion` takes besides tensors: those of the rules' NumPy arrays."""
    return ridge_bytes(market) + PRICE_TABLES_PER_RULE * 8 * market.close.numel()


def measure_score_bytes(setup: ErlSetup, market: Market, actor: Float[Tensor, "1 n"], days: Days) -> int:
    """Return the peak bytes of the tensors that `score_champion` makes, measured on the meta device.

    Args:
        setup: setup on the meta device.
        market: market on the meta device, of the size that will be played.
        actor: weights of the champion, on the meta device.
        days: days, as many as will be played.
    """

    def score_on_meta() -> None:
        """Do everything that `score_champion` does with tensors, on the meta device."""
        # Validation may choose any rule of purchases, so the rule that takes most memory is measured.
        count = len(market.investable)
        rule = largest_rule(setup.config, count)
        largest_setup = with_rule(setup, rule)
        longest_hold_setup = with_rule(setup, replace(rule, hold_days=max(HOLDING_TIMES)))
        config = largest_setup.config.env
        # The simulators of the champion (one episode), the random traders, and all simple rules (one episode each) are
        # in memory at the same time.
        batches = (1, RANDOM_TRADERS, *(1,) * SIMULATED_RULES)
        envs = [make_simulator(largest_setup, market, batch=batch, days=len(days)) for batch in batches]
        # Simulators of other holding times and of traders of random days are not kept: one as large as any of them.
        make_simulator(longest_hold_setup, market, batch=RANDOM_DAY_TRADERS, days=len(days))
        champion, random_traders, simple_rule = envs[:3]
        one_start = torch.empty(1, dtype=torch.int64, device=setup.device)  # only the shape counts on the meta device
        play_slices_(largest_setup, market, champion, actors=actor, starts=one_start, days=len(days))
        # One simple rule is enough: the others take the same steps.
        for env in (random_traders, simple_rule):
            starts = one_start.expand(len(env.day))
            reset_(env, start=starts, trading_end=starts, end=starts)
            step_(env, market, config, torch.empty(len(env.day), count, ACTION_PARTS, device=setup.device))
        # A few days are enough: `find_effects` takes one day after the other, and keeps nothing of a day but sums.
        find_effects(setup, market, actor, Days(days.first, min(days.stop, days.first + META_DAYS)))

    return peak_bytes(score_on_meta)
