"""The panel that comes with the package: five US shares, 2000 to 2013, public domain.

Built by `scripts/build_shipped_panel.py`. AAPL, IBM and MSFT have all 3,270 days; GOOG begins with its listing in 2004
and FB in 2012, so the panel has real missing data.
"""

from importlib.resources import files
from pathlib import Path


def shipped_panel_path() -> Path:
    """Return the path of the shipped panel in the installed package."""
    return Path(str(files("flatwater_trading.panel").joinpath("shipped", "us_shares_2000_2013.safetensors")))
