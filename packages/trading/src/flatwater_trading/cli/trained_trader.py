"""The trader that a command names by a run or an exported file, and the panel that it was trained on."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flatwater_trading.recipe.trader import Trader
    from flatwater_trading.recipe.weights.trader import WeightsTrader


def load_trader(run: str, use: str) -> "Trader | WeightsTrader":
    """Load the trader of a run or of a file.

    Args:
        run: folder of a run or exported file, as for `flatwater.load`.
        use: activity that the trader is loaded for, in the plural, such as `Backtests`: the subject of the message.

    Raises:
        FlatwaterError: the run cannot be used, or its policy is not a trader.
    """
    from flatwater.api import load
    from flatwater_trading.recipe.trader import Trader
    from flatwater_trading.recipe.weights.trader import WeightsTrader
    from flatwater_watch.errors import ConfigError

    trader = load(run)
    if not isinstance(trader, Trader | WeightsTrader):
        raise ConfigError(f"{run}: what it has trained buys nothing. {use} belong to `train erl` and `train weights`.")
    return trader


def trained_panel(run: str) -> str | None:
    """Return the panel that a run was trained on, as a value of `--panel`; None for the shipped panel.

    Raises:
        ConfigError: `run` is an exported file, which does not name a panel.
    """
    from flatwater.config.toml import read_toml
    from flatwater.rundir.layout import open_folder
    from flatwater_watch.errors import ConfigError

    if Path(run).is_file():
        raise ConfigError(f"{run}: an exported trader has no prices of its own. Give them with --prices.")
    panel = read_toml(open_folder(Path(run)).config).get("panel")
    return panel if isinstance(panel, str) else None
