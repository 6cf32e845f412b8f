"""The sizes at which runs are measured, and a run without console, files or checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flatwater.replay.config import RowReplayConfig
from flatwater_trading.market.config import EpisodeConfig, TradingConfig
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.run import ErlRun, compose
from flatwater_trading.training.config import PopulationConfig

SIZES = {"S": (60, 1500, 100, 4), "M": (200, 2000, 252, 8), "FULL": (669, 3781, 504, 16)}
"""Name -> columns, days, context, members. All with 5 + 3 slices, and 48 updates of a batch of 32 days."""

INVESTABLE_OF_FULL = 108
"""Columns of the full size that can be bought, of 669; in the other sizes all can be."""


def config_of(size: str, *, seed: int = 0, rounds: int = 1) -> ErlRunConfig:
    """Return the configuration of a size, on a synthetic panel; the replay learns from the first generation on."""
    columns, days, context, members = SIZES[size]
    watched = f":context_instruments={columns - INVESTABLE_OF_FULL}" if size == "FULL" else ""
    return ErlRunConfig(
        rounds=rounds,
        seed=seed,
        panel=f"synthetic:{columns}x{days}:seed={seed}{watched}",
        threads=1,  # one core, so that CPU seconds compare between machines
        population=PopulationConfig(size=members),
        env=TradingConfig(episode=EpisodeConfig(context=context)),
        # A low minimum: every measured generation learns, also in the smallest size.
        replay=replace(RowReplayConfig(), warmup=1_000),
    )


@dataclass
class Silent:
    """A watcher that keeps the numbers of the rounds."""

    rounds: list[Mapping[str, float]] = field(default_factory=list)

    def on_step(self, phase: str, done: int, total: int) -> None:
        """Show nothing."""

    def on_round(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Keep the numbers."""
        self.rounds.append({"round": round_, **metrics})

    def should_stop(self) -> bool:
        """Never stop."""
        return False


def compose_size(size: str, **settings: int) -> ErlRun:
    """Allocate a run of a size."""
    return compose(config_of(size, **settings))
