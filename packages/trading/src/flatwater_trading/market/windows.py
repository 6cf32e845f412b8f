"""Windows: the rows of the panel that each episode covers, which are given, completed from given rows, or drawn."""

from dataclasses import dataclass

import numpy as np

from flatwater_trading.market.config import EpisodeConfig
from flatwater_trading.panel.splits import Days
from flatwater_watch.errors import ConfigError, require

WINDOW_OPTIONS = ("start_idx", "end_idx", "trading_end_idx")
"""Options of an environment's `reset`: rows of the panel."""


@dataclass(frozen=True, slots=True)
class Window:
    """An episode's rows: trading on [start, trading_end), settlement on [trading_end, end)."""

    start: int
    """Row of the first trading day."""
    trading_end: int
    """Row after the last trading day."""
    end: int
    """Row after the last day of settlement."""


def check_days(episode: EpisodeConfig, days: Days, rows: int) -> None:
    """Check that `days` are within a panel of `rows` rows and long enough for an episode with its context.

    Raises:
        ConfigError: `days` are outside of the panel, or are too few, or have too few days before them.
    """
    require(0 <= days.first < days.stop <= rows, "days", days, f"days within the {rows} rows of the panel")
    require(
        days.first >= episode.context - 1,
        "days.first",
        days.first,
        f"at least {episode.context - 1}: an observation shows env.episode.context ({episode.context}) days, its own "
        "and those before it. Begin later or lower the context",
    )
    if len(days) < episode.days:
        raise ConfigError(
            f"{len(days)} tradable days for episodes of {episode.days}: nothing fits. Lower env.episode.trading_days "
            f"({episode.trading_days}) or env.episode.settlement_days ({episode.settlement_days}), or give more days."
        )


def complete_window(
    episode: EpisodeConfig,
    days: Days,
    rng: np.random.Generator,
    *,
    start_idx: int | None = None,
    end_idx: int | None = None,
    trading_end_idx: int | None = None,
) -> Window:
    """Complete a window: missing rows are computed from the lengths in the configuration.

    Args:
        episode: lengths of the periods.
        days: rows on which an episode may trade and settle.
        rng: generator that draws the start if no row is given.
        start_idx: first trading row.
        end_idx: row after the last day of settlement.
        trading_end_idx: row after the last trading day.

    Raises:
        ConfigError: a row of the window is not within `days`, or the rows are not in order.
    """
    start, end, trading_end = start_idx, end_idx, trading_end_idx
    # The start is counted back from a given end; the two ends are then counted from the start or from each other.
    if start is None:
        if end is not None:
            start = end - episode.days
        elif trading_end is not None:
            start = trading_end - episode.trading_days
        else:
            # Drawn only here, so a given window does not advance the generator. All possible rows are equally likely;
            # the upper end is excluded, and the last start leaves exactly one episode.
            start = int(rng.integers(days.first, days.stop - episode.days + 1))
    if end is None:
        end = start + episode.days if trading_end is None else trading_end + episode.settlement_days
    if trading_end is None:
        trading_end = end - episode.settlement_days
    range_text = f"a row within the tradable rows {days.first} .. {days.stop}"
    require(days.first <= start < days.stop, "reset start_idx", start, f"{range_text}, the last one excluded")
    require(start < end <= days.stop, "reset end_idx", end, f"{range_text} and after start_idx ({start})")
    require(
        start < trading_end < end,
        "reset trading_end_idx",
        trading_end,
        f"a row after start_idx ({start}) and before end_idx ({end}), so that there are days to trade and to settle",
    )
    return Window(start, trading_end, end)
