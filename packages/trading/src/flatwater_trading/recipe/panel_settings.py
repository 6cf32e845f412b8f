"""The protocol of the settings that every run on a panel has, whatever it trains."""

from typing import Protocol

from flatwater_trading.panel.config import SplitConfig
from flatwater_trading.panel.splits import Splits


class PanelSettings(Protocol):
    """Settings of a run on a panel, whatever it trains."""

    @property
    def trainer(self) -> str:
        """Name of the recipe."""

    @property
    def seed(self) -> int:
        """Seed of all random numbers."""

    @property
    def panel(self) -> str | None:
        """Value of `--panel`: the place that the panel is read from."""

    @property
    def splits(self) -> SplitConfig:
        """Numbers of days of the splits."""

    @property
    def benchmark(self) -> str | None:
        """Instrument that results are compared with."""

    def split(self, rows: int) -> Splits:
        """Split the first `rows` rows of a panel.

        Raises:
            ConfigError: a split is too short for the recipe.
        """
