"""The market that a run's traders play on, mapped from one file by the run's process and every worker."""

import os
from shutil import disk_usage

import numpy as np
import torch

from flatwater_trading.market.market import Market, make_market, market_tensors, normalised_market
from flatwater_trading.panel.locate import cache_folder, name_in_cache
from flatwater_trading.panel.mapped_tensors import map_tensors
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.traded_closes import traded_fingerprint
from flatwater_trading.recipe.config import ErlRunConfig

MARKETS = "markets"
"""The cache's folder of the files that normalised markets are mapped from."""


def build_run_market(config: ErlRunConfig, panel: Panel, device: torch.device) -> tuple[Market, str]:
    """Build prices and observations, mapped from a file if possible. Training days alone determine the scales.

    Returns:
        The market, and the reason why it is in the memory of this process alone; empty if all processes map the same
        file.
    """
    train_stop, features = config.split(len(panel.dates)).train.stop, config.observation_features

    def compute_market() -> Market:
        """Normalise the panel; called if there is no file to map yet, so a machine computes this only once."""
        return normalised_market(panel, features, train_stop, device, config.env.account)

    if device.type != "cpu":
        return compute_market(), "it lies on the device"
    # The file's name is a hash of all that the market is computed from, with the code of the two packages that compute
    # it. Another version or instruction set may round observations differently, so it has another file.
    machine = (np.__version__, torch.__version__, torch.backends.cpu.get_cpu_capability())
    origin = repr((panel.fingerprint, features, train_stop, *machine, *_cost_rates_origin(config, panel)))
    file = cache_folder(MARKETS) / name_in_cache(origin, "flatwater_trading.panel", "flatwater_trading.market")
    tensors, private_reason = map_tensors(file, lambda: market_tensors(compute_market()))
    return make_market(tensors), private_reason


def _cost_rates_origin(config: ErlRunConfig, panel: Panel) -> tuple[object, ...]:
    """Return the settings and the hash that the rates of costs depend on; empty if all costs are proportional."""
    account = config.env.account
    if account.is_proportional:
        return ()
    return account.per_share, account.impact, account.impact_power, traded_fingerprint(panel)


def can_be_mapped(device: torch.device, size: int) -> bool:
    """Return whether a market of `size` bytes will be mapped: on a CPU, if the cache can be written and has room."""
    folder = cache_folder(MARKETS)
    # The folder may not exist yet: its nearest parent shows whether it can be made.
    existing = next(ancestor for ancestor in (folder, *folder.parents) if os.access(ancestor, os.F_OK))
    return device.type == "cpu" and os.access(existing, os.W_OK | os.X_OK) and disk_usage(existing).free > size
