"""Two checks of a champion's purchases: returns with other holding times, and whether it trades as at random.

The purchase rules can limit returns, so the champion's actions are replayed with earlier and later sales. A champion
that is invested and trades as much as traders that act at random on every day has not learned when to stay out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from flatwater.state.random import generator
from flatwater_trading.market.baselines import play_random_
from flatwater_trading.market.market import Market
from flatwater_trading.market.results import episode_summary
from flatwater_trading.market.simulator import reset_
from flatwater_trading.recipe.purchase_rules import final_return, make_simulator, play_planned_actions, with_rule
from flatwater_trading.training.play import PlannedActions
from flatwater_trading.training.setup import ErlSetup

HOLDING_TIMES = (5, 10, 20, 40)
"""Rows for which the champion's choices are held, besides its own holding time."""


@dataclass(frozen=True)
class HoldingTimes:
    """Total returns of the champion's choices by the rows for which each purchase is held."""

    played_rows: int
    """Holding time by which the days were played."""
    unit: str
    """Name of a row, such as `day`."""
    returns: Mapping[int, float]
    """Other holding time -> total return."""

    @property
    def sentence(self) -> str:
        """Sentence with the other holding times and their returns."""
        # "held for 5 days would have returned +1.0%, for 10 +2.0%": the first has the unit and the verb.
        (first_rows, first_return), *other_returns = self.returns.items()
        more_returns = "".join(f", for {rows} {value:+.1%}" for rows, value in other_returns)
        return (
            f"Its choices held for {first_rows} {self.unit}s would have returned {first_return:+.1%}{more_returns} "
            f"(they were held for {self.played_rows})."
        )


def play_holding_times(
    setup: ErlSetup,
    market: Market,
    planned_actions: PlannedActions,
    actor: Float[Tensor, "1 n"],
    *,
    first_row: Tensor,
    unit: str,
) -> HoldingTimes:
    """Play the champion's actions of some days again with each other holding time, and return their total returns.

    Args:
        setup: settings and networks.
        market: prices of the days.
        planned_actions: actions of the champion, as `play_slices_` gave them.
        actor: weights of the champion.
        first_row: first row that is played.
        unit: name of a row.
    """
    rule, returns = setup.config.env.trade, {}
    for rows in HOLDING_TIMES:
        if rows != rule.hold_days:
            setup_with_rule = with_rule(setup, replace(rule, hold_days=rows))
            returns[rows] = final_return(
                play_planned_actions(setup_with_rule, market, planned_actions, actor, first_row=first_row)
            )
    return HoldingTimes(rule.hold_days, unit, returns)


RANDOM_DAY_TRADERS = 10
"""Traders whose days of purchases are random too."""
DEVIATIONS, MINIMUM_DIFFERENCE = 2.0, 0.02
"""A champion trades like the random traders if its exposure and turnover are within this many of their deviations from
their means, or within 2 % of the means where random traders hardly differ."""


def trades_like_chance(
    setup: ErlSetup, market: Market, champion: Mapping[str, float], first_row: Tensor, days: int
) -> bool:
    """Return whether the champion's exposure and turnover are like those of traders that act at random on every day.

    They are if both are at most `DEVIATIONS` standard deviations from the random traders' mean, or at most
    `MINIMUM_DIFFERENCE` times this mean.

    Args:
        setup: settings.
        market: prices of the days.
        champion: exposure and turnover of the champion, by name.
        first_row: first row that is played.
        days: number of days that are played.
    """
    env = setup.config.env
    simulator = make_simulator(setup, market, batch=RANDOM_DAY_TRADERS, days=days)
    start = first_row.repeat(RANDOM_DAY_TRADERS)
    reset_(simulator, start=start, trading_end=start + days - env.episode.settlement_days, end=start + days)
    play_random_(simulator, market, env, days=days, rng=generator(setup.config.seed, "random days", setup.device))
    random_numbers = episode_summary(simulator, env)
    for name in ("exposure", "turnover"):
        mean, deviation = float(random_numbers[name].mean()), float(random_numbers[name].std())
        if abs(champion[name] - mean) > max(DEVIATIONS * deviation, MINIMUM_DIFFERENCE * mean):
            return False
    return True
