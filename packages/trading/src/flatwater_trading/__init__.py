"""Populations of traders on a stock panel: prices, markets, training, studies, orders, backtests."""

from flatwater_watch.lazy import offer_names

__version__ = "0.1.0"
__getattr__, __dir__ = offer_names(__name__)
