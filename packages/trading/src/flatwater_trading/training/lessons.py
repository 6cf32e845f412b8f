"""Lessons of hindsight: the gain of every possible purchase on the training days, drawn in stretches of days.

Gains are resolved once: for each day, instrument and sale target, the exit of a purchase is found in the later prices.
A stretch is a number of consecutive days. A lesson is a batch of random stretches, with the observations of their days
and the gains of the purchases on them.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state
from flatwater_trading.market.exits import trade_gains
from flatwater_trading.market.market import Market
from flatwater_trading.panel.splits import Days
from flatwater_trading.training.batch_sizes import stretch_count
from flatwater_trading.training.hindsight import HindsightBatch
from flatwater_trading.training.row_replay import gather_windows
from flatwater_trading.training.setup import ErlSetup
from flatwater_watch.errors import ConfigError

RESOLVED_TARGETS = 5
"""Sale targets that are resolved, evenly spaced over their range; between them the gain is interpolated linearly."""
MAXIMUM_GAIN = 0.5
"""Gains are clipped to +-50 %, so that a single takeover or default does not outweigh a year."""


@state
class PurchaseOutcomes:
    """Gains of every purchase on the training days."""

    gain: Float[Tensor, "D K G"] = derived_field()
    """Gain by day, instrument and sale target, in deviations of all gains; 0 if nothing could be bought."""
    seen: Float[Tensor, "R N L F"] = derived_field()
    """Buffer in which the stretches of a group of members are gathered: each draw writes over the draw before."""


def purchase_rows(train: Days, hold_days: int) -> range:
    """Return the training days on which purchases are learned: every possible exit lies within the training days.

    A purchase on one of the last `hold_days` training days would be sold at a validation price, and the champion is
    chosen by validation prices.
    """
    return range(train.first, max(train.first, train.stop - hold_days))


def lesson_days(setup: ErlSetup) -> range:
    """Return the rows of the training days on which purchases are learned, and check that there are enough.

    Raises:
        ConfigError: learning in hindsight has fewer rows than a stretch of days; or another algorithm has none.
    """
    train, hold = setup.splits.train, setup.config.env.trade.hold_days
    stretch = stretch_days(setup) if setup.config.learns_from_outcomes else 1
    days = purchase_rows(train, hold)
    if len(days) < stretch:
        raise ConfigError(
            f"there are {len(train)} training days, but hindsight needs {stretch + hold} or more: {stretch} for one "
            f"stretch (learner.hindsight.batch_size / stretches) and {hold} (env.trade.hold_days) for the last of its "
            "trades to end. Use a longer panel, or lower learner.hindsight.batch_size."
        )
    return days


def stretch_days(setup: ErlSetup) -> int:
    """Return the number of days of a stretch, without the context before its first day."""
    size: int = setup.config.learner.own.batch_size
    return size // stretch_count(setup.config)


def build_outcomes(setup: ErlSetup, market: Market) -> PurchaseOutcomes:
    """Compute the gain of every possible purchase, and allocate the buffer that stretches are gathered into.

    A gain is that of a purchase on a training day, of an instrument, with a sale target. On the meta device, for a
    plan, nothing is computed.
    """
    config, days = setup.config, lesson_days(setup)
    columns, _, features = market.observations.shape
    stretches = setup.members_at_once(market) * stretch_count(config)
    length = config.env.episode.context - 1 + stretch_days(setup)
    buffer = filled_tensor(0, stretches, columns, length, features, device=setup.device)
    if setup.device.type == "meta":
        return PurchaseOutcomes(
            gain=torch.empty((len(days), len(market.investable), RESOLVED_TARGETS), device="meta"), seen=buffer
        )
    trade = config.env.trade
    gain = trade_gains(
        market,
        rows=days,
        targets=torch.linspace(trade.target_low, trade.target_high, RESOLVED_TARGETS, device=setup.device),
        trade=trade,
        account=config.env.account,
    )
    # Clipped before the deviation is taken, as a single takeover must not determine it either. clamp_ keeps NaN.
    gain.clamp_(-MAXIMUM_GAIN, MAXIMUM_GAIN)
    is_finite = gain.isfinite()
    deviation = gain[is_finite].double().std() if bool(is_finite.any()) else torch.ones(())
    # At least 1e-6, as prices that never move would be divided by 0.
    gain.div_(deviation.clamp(min=1e-6).to(gain)).nan_to_num_(nan=0.0)
    return PurchaseOutcomes(gain=gain, seen=buffer)


def draw_lessons(
    setup: ErlSetup, market: Market, outcomes: PurchaseOutcomes, rng: torch.Generator
) -> Sequence[Callable[[int, int], HindsightBatch]]:
    """Draw the stretches of an update's micro-batches; return a function for each that gathers its lessons.

    Every member has its own stretches. Every process draws those of all members, so that a draw does not depend on the
    number of workers, and uses those of the members that it computes.

    Args:
        setup: configuration, days, and the share of members that are computed here.
        market: market with observations [N, T, F].
        outcomes: gains, and a buffer that each gather writes over.
        rng: generator of this update.

    Returns:
        Functions of two member numbers, first and last + 1, which gather the stretches of these members into one
        buffer: a batch is valid until the next is gathered.
    """
    config = setup.config
    days = lesson_days(setup)
    length = stretch_days(setup)
    shape = (config.learner.micro_batches, config.population.size, stretch_count(config))
    starts_of_all = torch.randint(len(days) - length + 1, shape, generator=rng, device=setup.device)

    # A function of its own, so that each gather keeps its `starts`.
    def make_gather(starts: Int[Tensor, "P S"]) -> Callable[[int, int], HindsightBatch]:
        """Return a function that gathers each member's S stretches, which begin at its rows of `starts`."""

        def gather(low: int, high: int) -> HindsightBatch:
            """Gather the stretches of members low ... high - 1 into the buffer."""
            # Row r of the gains is row days.start + r of the panel; a window is named by its last row.
            first_rows = starts[low:high]
            window = gather_windows(
                market.observations,
                days.start + first_rows + (length - 1),
                # The first day of a stretch needs the context - 1 rows before it.
                config.env.episode.context - 1 + length,
                out=outcomes.seen,
            )
            rows = first_rows[..., None] + torch.arange(length, device=first_rows.device)
            return HindsightBatch(window, outcomes.gain[rows.flatten(1)])

        return gather

    return [make_gather(starts) for starts in starts_of_all[:, slice(*setup.share)]]
