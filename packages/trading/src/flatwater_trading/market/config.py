"""Settings of the trading environment: an episode's periods, trades, rewards, and the cash account with its costs."""

from dataclasses import field, fields
from typing import Annotated, ClassVar, Literal

from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Bounds, Count, Share, Weight
from flatwater_watch.options.declare import config

_BPS = 10_000  # basis points of a whole


@config(table="env.episode")
class EpisodeConfig:
    """The three periods of an episode: history that is only seen, days to trade, days in which positions only close."""

    context: Count = 20
    """Days in one observation: on day t the rows t - context + 1 .. t. Sets the size of the encoder's window."""
    trading_days: Count = 125
    """Days on which something can be bought, at the close."""
    settlement_days: Count = 20
    """Days after the trading period in which positions only close. Shorter than `trade.hold_days` cuts late trades."""
    # One at least: what is open on the last day is closed on it, so a purchase on that day could never be sold.

    @property
    def days(self) -> int:
        """Steps of an episode: trading and settlement."""
        return self.trading_days + self.settlement_days


@config(table="env.trade")
class TradeConfig:
    """When a trade opens and when it closes."""

    hold_days: Count = 20
    """Days until a position that has not met its target is sold at the close."""
    purchases_a_day: Annotated[int, Bounds(1, 1 << 10)] = 1
    """Most purchases at a close, each of another instrument: those with the largest coefficients. At most `hold_days`
    times as many positions are open at once."""
    coefficient_max: Annotated[float, Bounds(0, 1e6, above=True)] = 2.0
    """Upper bound of an action's coefficient, from 0. The middle of the range is the threshold, so that a policy that
    knows nothing yet buys on about every second day."""
    buy_threshold: Annotated[float, Bounds(0, 1e6, above=True)] = 1.0
    """The day's largest coefficients buy when they are at least this."""
    target_low: Annotated[float, Bounds(0, 1e6, above=True)] = 10.0
    """Smallest sale target, in percent above the purchase price."""
    target_high: Annotated[float, Bounds(0, 1e6, above=True)] = 50.0
    """Largest sale target, in percent above the purchase price."""

    def __post_init__(self) -> None:
        """Check that something can be bought, and that the targets' range is not empty.

        Raises:
            ConfigError: a value is out of the range that another value sets.
        """
        require(
            self.coefficient_max > self.buy_threshold,
            "env.trade.coefficient_max",
            self.coefficient_max,
            f"a number above buy_threshold ({self.buy_threshold}), or nothing is ever bought",
        )
        require(
            self.target_high >= self.target_low,
            "env.trade.target_high",
            self.target_high,
            f"at least target_low ({self.target_low})",
        )

    @property
    def most_positions(self) -> int:
        """Most positions that can be open at once: the purchases of the last `hold_days` days."""
        return self.hold_days * self.purchases_a_day


@config(table="env.reward")
class RewardConfig:
    """Changes to the reward of a closed trade, its gain in percent after costs, and the price of idleness."""

    loss_factor: Weight = 1.0
    """A losing trade's reward is multiplied by this; 10 makes a policy shy of losses."""
    inaction_penalty: Annotated[float, Bounds(0, 1e9)] = 5.0
    """Taken from the reward of each day of the trading period that ends without a position."""
    no_trade_penalty: Annotated[float, Bounds(0, 1e9)] = 10_000.0
    """Taken from the fitness (never from a step's reward) of an episode in which nothing was bought."""
    credit: Literal["exit", "entry"] = "exit"
    """The day on which a trade pays: when it closes, or when it is opened. `entry` tells the learner on the day of
    the purchase what the trade will have paid: exact credit, for training only. Observations and equity stay blind."""

    def __post_init__(self) -> None:
        require(self.credit in ("exit", "entry"), "env.reward.credit", self.credit, "'exit' or 'entry'")


@config
class CostConfig:
    """Costs of each side of a trade: in proportion to its value, by its shares, and by its part of the day's volume."""

    table: ClassVar[str]
    """Name of the settings' table, for messages."""
    cost_bps: Annotated[float, Bounds(0, _BPS / 10, below=True)] = 5.0
    """Commission on each side of a trade, in hundredths of a percent of its value."""
    slippage_bps: Annotated[float, Bounds(0, _BPS / 10, below=True)] = 5.0
    """Slippage of each side of a trade against the quoted price, in hundredths of a percent."""
    half_spread_bps: Annotated[float, Bounds(0, _BPS / 10, below=True)] = 0.0
    """Half of the spread between bid and ask, in hundredths of a percent of the price: a purchase pays it on top of the
    close, a sale gets less by it. It is added to `slippage_bps`."""
    per_share: Annotated[float, Bounds(0, 1e3)] = 0.0
    """Commission for each share, in money. Shares are counted as they were traded if the panel has both closes, else by
    the panel's prices."""
    least_commission: Annotated[float, Bounds(0, 1e6)] = 0.0
    """Least commission of an order, in money: `cost_bps` and `per_share` together cost no less."""
    impact: Annotated[float, Bounds(0, 100)] = 0.0
    """Impact of an order on its own price: this, times the instrument's deviation of a day, times the order's part of
    the money traded in a day to the power of `impact_power`. About 1 is what is measured for the root law, 0.142 for
    `impact_power = 0.6` (Almgren et al. 2005). It needs a panel with the feature `volume`, in shares."""
    impact_power: Annotated[float, Bounds(0, 1, above=True)] = 0.5
    """Power of the part of the volume: 0.5 is the root law, 1 a linear law."""

    @property
    def purchase_factor(self) -> float:
        """Money paid for each unit of quoted value bought, by the costs in proportion to the value."""
        return (1 + self.price_loss) * (1 + self.cost_bps / _BPS)

    @property
    def sale_factor(self) -> float:
        """Money received for each unit of quoted value sold, by the costs in proportion to the value."""
        return (1 - self.price_loss) * (1 - self.cost_bps / _BPS)

    @property
    def price_loss(self) -> float:
        """Part of the quoted price by which a trade's price is worse."""
        return (self.slippage_bps + self.half_spread_bps) / _BPS

    @property
    def mean_rate(self) -> float:
        """Proportional cost of a trade as a part of its value: the mean of that of a purchase and of a sale."""
        return (self.purchase_factor - self.sale_factor) / 2

    @property
    def is_proportional(self) -> bool:
        """Whether all costs are in proportion to the value of a trade."""
        return not (self.per_share or self.least_commission or self.impact)


@config(table="env.account")
class AccountConfig(CostConfig):
    """The cash account, besides the rewards: both count a trade's gain after these costs."""

    table: ClassVar = "env.account"
    cash: Annotated[float, Bounds(0, 1e12, above=True)] = 100_000.0
    """Money at the start of each episode."""
    position_share: Annotated[float, Bounds(0, 1, above=True)] | None = None
    """Share of equity put into each trade, whatever its coefficient. Left out: 1 / the most positions that can be open,
    so that holding them all is being fully invested."""

    def share(self, *, positions: int, instruments: int) -> float:
        """Return the share of equity that is put into a trade, if `positions` positions can be open at once."""
        return 1 / min(positions, instruments) if self.position_share is None else self.position_share

    def stake(self, *, positions: int, instruments: int) -> float:
        """Return the money that an account with its opening cash puts into a trade, by which rewards count costs."""
        return self.cash * self.share(positions=positions, instruments=instruments)


@config(table="account")
class PortfolioConfig(CostConfig):
    """The cash account of target weights, its costs, and when it trades."""

    table: ClassVar = "account"
    cash: Annotated[float, Bounds(0, 1e12, above=True)] = 100_000.0
    """Money at the start. Members learn the costs of an account of this size."""
    shorts: bool = False
    """Whether weights may be below 0: instruments are then sold short, and the proceeds are cash. Nothing is
    paid for borrowing them."""
    gross: Annotated[float, Bounds(0, 1, above=True)] = 1.0
    """Largest sum of all weights, those below 0 counted as they are above. Nothing is borrowed, so it is 1 at most."""
    largest: Annotated[float, Bounds(0, 1, above=True)] = 1.0
    """Largest weight of an instrument, either way; what is above it is cash."""
    turnover: Annotated[float, Bounds(0, 2, above=True)] = 2.0
    """Largest part of the equity that changes hands in a day: with 0.1 an account comes to its weights in steps. 2 is
    no limit. As `band`, it counts where the account is played."""
    band: Share = 0.0
    """Share of the equity that has to change hands before anything is traded: with 0.05 the account waits until its
    weights and the target differ by 5 % in all. 0 trades on every day. It counts where the account is played; what is
    learned are the weights of every day."""
    least_order: Share = 1e-5
    """Smallest order, as a part of the equity: what is less of an instrument is not traded on that day, unless its
    position is closed. 1e-5 is 1.00 of 100,000."""
    stop: Annotated[float, Bounds(0, 1, above=True, below=True)] | None = None
    """Fall from the highest equity, as a part of it, at which all is sold at the close: 0.2 stops an account that has
    lost a fifth. It holds cash for `stop_rows`, then it comes back, and falls count from its equity on that day. `band`
    and `turnover` do not hold it up. It counts where the account is played. Left out: no stop."""
    stop_rows: Count = 20
    """Rows of the prices (trading days, weeks, months) for which an account stays in cash after a stop."""

    @property
    def as_account(self) -> AccountConfig:
        """An account of whole positions with the same cash and costs."""
        return AccountConfig(cash=self.cash, **{each.name: getattr(self, each.name) for each in fields(CostConfig)})


@config
class TradingConfig:
    """The trading environment."""

    episode: EpisodeConfig = field(default_factory=EpisodeConfig)
    """Length of the periods."""
    trade: TradeConfig = field(default_factory=TradeConfig)
    """Purchases and exits."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Rewards and penalties."""
    account: AccountConfig = field(default_factory=AccountConfig)
    """Cash, costs and sizes."""
    account_observation: bool = False
    """Whether observations also show the open positions: held, days held, unrealised gain."""
