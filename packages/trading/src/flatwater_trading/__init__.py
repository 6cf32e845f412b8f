"""Populations of traders on a stock panel: prices, markets, training, studies, orders, backtests."""

from importlib import import_module

__version__ = "0.1.0"

_LAZY = {
    "EpisodeConfig": "flatwater_trading.market.config",
    "ErlRunConfig": "flatwater_trading.recipe.config",
    "LearnerConfig": "flatwater_trading.training.learner",
    "SplitConfig": "flatwater_trading.panel.config",
    "TradeConfig": "flatwater_trading.market.config",
    "TradingConfig": "flatwater_trading.market.config",
    "TradingVectorEnv": "flatwater_trading.market.vector_env",
    "find_folds": "flatwater_trading.study.folds",
    "import_panel": "flatwater_trading.panel.importing",
    "make_trading_env": "flatwater_trading.market.gym_env",
    "parse_synthetic": "flatwater_trading.panel.specification",
    "split_days": "flatwater_trading.panel.splits",
    "synthetic_panel": "flatwater_trading.panel.synthetic",
}
"""Names that programs use, and where they are: importing this imports nothing else. `__init__.pyi` has types."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = vars(import_module(_LAZY[name]))[name]
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*_LAZY, "__version__"]
