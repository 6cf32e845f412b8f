"""Sizes of what is computed at once: tiles of members, groups of a micro-batch, and stretches of days.

They follow from the configuration, the market's shape and the type of the device alone, so that numbers are the same
whatever else runs on the machine.
"""

from flatwater_trading.market.market import Market
from flatwater_trading.training.config import ErlConfig

CACHE_BYTES = 64 << 20
"""Bytes of observations that are gathered at a time on a CPU, to stay within its cache. Members learn in groups, so
that no more is in memory whatever the panel."""
GROUP_SIZE_FACTOR = {"cpu": 1, "cuda": 64}
"""Multiple of a CPU's amount that is gathered at a time, by type of device. A GPU is not limited by such a cache,
and waits for the host between short calls: 16 members of the largest panel are one group of 3.4 GB there, not 16.
It depends on the type alone, not on the free memory: numbers must not depend on other programs."""
READ_ROWS_PER_DAY = 20
"""Rows of the panel that may be read for each day learned from, if `learner.hindsight.stretches` is left out."""
LARGE_TILE, SMALL_TILE = 16, 4
"""Members of a tile where one is little work, or on a GPU; and elsewhere."""
LITTLE_WORK_BYTES = 1 << 20
"""Bytes of a member's micro-batch below which calls are so short that tiles of 4 took 1.23 CPU seconds to learn where
tiles of 16 took 0.70."""


def stretch_count(config: ErlConfig) -> int:
    """Return the number of stretches of consecutive days in a batch: the setting or, left out, by the context's length.

    Each stretch reads the whole context of its first day, so a long context allows fewer stretches.
    """
    configured_count: int | None = config.learner.own.stretches
    if configured_count is not None:
        return configured_count
    size: int = config.learner.own.batch_size
    # s stretches read s (context - 1) + size rows for size days: at most READ_ROWS_PER_DAY each, solved for s.
    most_stretches = (READ_ROWS_PER_DAY - 1) * size // max(1, config.env.episode.context - 1)
    most_stretches = max(1, min(most_stretches, size))
    # The largest divisor of the batch, as all stretches are equally long.
    return max(count for count in range(1, most_stretches + 1) if size % count == 0)


def usual_tile(config: ErlConfig, market: Market, device_type: str) -> int:
    """Return the number of members that are computed at once (a tile), if the setting `population.tile` is 0.

    Small tiles spread over many workers, which a GPU does not have; large tiles are faster if a member is little work.
    """
    uses_large_tile = device_type != "cpu" or window_bytes(config, market) < LITTLE_WORK_BYTES
    return LARGE_TILE if uses_large_tile else SMALL_TILE


def window_bytes(config: ErlConfig, market: Market) -> int:
    """Return the bytes of the observations in one micro-batch of one member."""
    columns, _, features = market.observations.shape
    batch_size: int = config.learner.own.batch_size
    context = config.env.episode.context
    # A stretch has the context of its first day and a row for each further day; a transition has its whole window.
    rows = batch_size * context
    if config.learns_from_outcomes:
        rows = stretch_count(config) * (context - 1) + batch_size
    return 4 * rows * columns * features  # float32
