"""Costs of trades: one class, `Costs`, has all kinds, for simulator, orders, backtests, rules and learning.

An order of value v pays

    v f + max(commission by shares, least commission - commission by value) + v impact deviation (v / volume) ** power

more or less than its value: f has slippage, half a spread and commission in proportion to the value. The impact has the
form that Almgren, Thum, Hauptmann and Li (2005, "Direct estimation of equity market impact") fitted to the orders of a
bank, with the power 0.6 and the factor 0.142; the root law, with a factor of about 1, is that of Toth et al. (2011,
"Anomalous price impact and the critical nature of liquidity in financial markets"). Deviation and volume are means of
the last days, up to the day of the order.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater_trading.market.config import CostConfig

ITERATIONS = 20
"""Iterations for money after costs that are not in proportion: each multiplies the error by the cost of the last unit
of value, which is far below a half for any order that should be made."""
NEWTON_STEPS = 16
"""Steps of the search for the value of a purchase: a law without an end takes off half of what is too much in each, and
near the solution each step doubles the digits."""


@dataclass(frozen=True)
class CostRates:
    """Rates of the costs that are not in proportion to a trade's value, by instrument and day; float64 or float32."""

    share: Float[Tensor, "*N"]
    """Commission for each share, counted in the panel's prices."""
    impact: Float[Tensor, "*N"]
    """Impact of an order of value 1, as a part of this value."""

    def take(self, cell: Tensor) -> "CostRates":
        """Return the rates of cells, which are offsets in flat storage, as `torch.take` does."""
        return CostRates(torch.take(self.share, cell), torch.take(self.impact, cell))

    def row(self, day: int) -> "CostRates":
        """Return the rates of all instruments on a day."""
        return CostRates(self.share[day], self.impact[day])


@dataclass(frozen=True)
class Costs:
    """The costs of trades: the settings, and the rates on the day and for the instrument of each trade."""

    config: CostConfig
    rates: CostRates | None = None
    """Rates at the places of the trades; None if all costs are in proportion to the value."""

    def iterations(self, if_proportional: int) -> int:
        """Return how often to iterate between trades and their costs, which each depend on the other.

        Args:
            if_proportional: number of iterations that is enough if all costs are in proportion to the value.
        """
        return if_proportional if self.rates is None else ITERATIONS

    def extra_cost(self, change: Float[Tensor, "*N"], price: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """Return the costs of orders beyond those in proportion to their value.

        Args:
            change: value bought; below 0 for a sale.
            price: price of a share in the panel's prices, above 0.
        """
        if self.rates is None:
            return torch.zeros_like(change)
        config, value = self.config, change.abs()
        bought_value, sold_value = change.clamp(min=0), -change.clamp(max=0)
        # The commission in proportion to the value is charged on the price that is paid, not on the quoted price.
        commission_by_value = bought_value * (config.purchase_factor - 1 - config.price_loss)
        commission_by_value = commission_by_value + sold_value * (1 - config.price_loss - config.sale_factor)
        commission_by_shares = self.rates.share * value / price
        # The larger of both: together with the commission by value it is at least the least commission.
        commission = torch.maximum(commission_by_shares, config.least_commission - commission_by_value)
        impact = self.rates.impact * value ** (1 + config.impact_power)
        # Where nothing is traded no least commission is charged.
        return torch.where(value > 0, commission + impact, 0.0)

    def proceeds(self, value: Float[Tensor, "*N"], price: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """Return the money received for sales of this value; below 0 if their commission is above it."""
        received_money = value * self.config.sale_factor
        return received_money if self.rates is None else received_money - self.extra_cost(-value, price)

    def affordable_value(self, money: Float[Tensor, "*N"], price: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        """Return the largest value that each amount of money buys after costs; 0 if the commission exceeds it."""
        proportional = money / self.config.purchase_factor
        if self.rates is None:
            return proportional
        # Newton's method for the value at which the money paid is `money`, from above: the money paid is a convex,
        # rising function of the value, so each step is nearer.
        config, rates, value = self.config, self.rates, proportional.clamp(min=0)
        commission_rate = config.purchase_factor - 1 - config.price_loss
        for _ in range(NEWTON_STEPS):
            commission_by_shares = rates.share * value / price
            # The least commission less the commission by value: what is still to pay if the trade is small.
            shortfall = config.least_commission - commission_rate * value
            impact = rates.impact * value**config.impact_power
            paid_money = (config.purchase_factor + impact) * value + torch.maximum(commission_by_shares, shortfall)
            # Derivative of the commission: by the number of shares or, under the least commission, of the shortfall.
            slope = torch.where(commission_by_shares > shortfall, rates.share / price, -commission_rate)
            slope = slope + config.purchase_factor + (1 + config.impact_power) * impact
            value = (value - (paid_money - money) / slope).clamp(min=0)
        return value

    def cost_of_changes(self, change: Float[Tensor, "*N K"], price: Float[Tensor, "K"]) -> Float[Tensor, "*N"]:
        """Return the total costs of a day's orders, for each of N accounts.

        Args:
            change: value bought of each instrument; below 0 for a sale.
            price: price of a share; where it is 0, nothing may be traded.
        """
        bought_value, sold_value = change.clamp(min=0).sum(-1), -change.clamp(max=0).sum(-1)
        cost: Tensor = bought_value * (self.config.purchase_factor - 1) + sold_value * (1 - self.config.sale_factor)
        if self.rates is None:
            return cost
        return cost + self.extra_cost(change, price.where(price > 0, 1.0)).sum(-1)
