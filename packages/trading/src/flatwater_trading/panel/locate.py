"""Panels by the value of `--panel`: none for the shipped panel, a stored file, a file to import, or a synthetic market.

Imports and synthetic panels are stored once under `$XDG_CACHE_HOME/flatwater/panels` (`~/.cache/...` without it), named
by the hash of everything that they depend on, the code of this package included; later every process maps this file.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from flatwater_trading.panel.config import SyntheticConfig
from flatwater_trading.panel.file_kinds import file_kind, is_table_name
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.specification import is_synthetic, parse_synthetic
from flatwater_trading.panel.store import open_panel, read_fingerprint, save_panel
from flatwater_trading.panel.synthetic import synthetic_panel, synthetic_truth
from flatwater_watch.errors import DataError
from flatwater_watch.files.directory import expand_home
from flatwater_watch.files.regular_files import open_regular

if TYPE_CHECKING:
    import numpy as np


def load_panel(path: str | None) -> Panel:
    """Open the panel of a `--panel` value, mapped from a file.

    Args:
        path: None for the shipped panel; a stored panel; a .parquet, .csv, .csv.gz or .xlsx file, imported now and kept
            in the cache; or `synthetic:60x1500:signal=0.6:seed=3` (`parse_synthetic`).

    Raises:
        DataError: the file cannot be used, or the cache cannot be written.
        ConfigError: the synthetic specification is wrong.
    """
    if path is None:
        return open_panel(shipped_panel_path())
    if is_synthetic(path):
        config = parse_synthetic(path)
        return _open_or_store(repr(config), lambda: _generate_panel(config))
    source = expand_home(path)
    if is_table_name(source):  # a packed file is refused, with the command that unpacks it
        return _open_or_store(_kind_and_hash(source), lambda: _import_file(source))
    return open_panel(source)


def shipped_panel_path() -> Path:
    """Return the path of the panel in the package: four US shares and one that is only watched, 2000 to 2013.

    Public domain, built by `scripts/build_shipped_panel.py`. AAPL, IBM and MSFT have all 3,270 days; GOOG begins with
    its listing in 2004, and FB (today META), which is only watched, in 2012: the panel has real missing data.
    """
    return Path(str(files("flatwater_trading.panel").joinpath("shipped", "us_shares_2000_2013.safetensors")))


def cache_folder(kind: str = "panels") -> Path:
    """Return the folder of imported and synthetic panels, or of files computed from panels. It may be deleted."""
    given_home = os.environ.get("XDG_CACHE_HOME")  # an empty one counts as none
    return (Path(given_home) if given_home else Path.home() / ".cache") / "flatwater" / kind


def name_in_cache(origin: str, *packages: str) -> str:
    """Return a name for a file that depends on `origin` and on the code of these packages: a hash of both."""
    digest = hashlib.sha256(origin.encode())
    for package in packages:
        # Sorted, as a folder's order differs between machines.
        for module in sorted(files(package).iterdir(), key=lambda entry: entry.name):
            if module.name.endswith(".py"):
                digest.update(module.read_bytes())
    return digest.hexdigest()[:32]  # 128 bits: no two names are equal by chance


def _open_or_store(origin: str, make: Callable[[], Panel]) -> Panel:
    """Open the stored panel that depends on `origin` and on this package's code; make and store it if it is missing.

    Raises:
        DataError: the cache cannot be written.
    """
    file = cache_folder() / f"{name_in_cache(origin, 'flatwater_trading.panel')}.safetensors"
    if file.is_file():
        try:
            return open_panel(file)
        except DataError:
            # A damaged copy is made again below, without a message.
            file.unlink(missing_ok=True)
    panel = make()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{file.parent}: the panel cache cannot be made: {error.strerror}. Set XDG_CACHE_HOME to a folder that "
            "can be written, or use flatwater panel import SOURCE --out FILE once and pass FILE."
        ) from error
    save_panel(panel, file)
    # Opened from the file as in every later process, so that the copy in this process's memory is freed.
    return open_panel(file)


def cached_panel(fingerprint: str) -> Panel | None:
    """Find the panel of this fingerprint in the cache; None if it is not there.

    The panel of a file that has since been replaced by a longer file is still in the cache.
    """
    for file in sorted(cache_folder().glob("*.safetensors")):
        with suppress(DataError):  # damaged, or not a panel
            if read_fingerprint(file) == fingerprint:
                return open_panel(file)
    return None


def _import_file(source: Path) -> Panel:
    """Import prices from a table or workbook."""
    # Imported here, as polars and TA-Lib (which imports pandas if it is installed) stay resident: 105 MB that a run on
    # a stored panel saves.
    from flatwater_trading.panel.importing import import_panel  # noqa: PLC0415  (see above)

    return import_panel(source)


def load_truth(spec: str | None) -> "np.ndarray | None":
    """Return the expected returns behind a synthetic market, [T, K] of investable columns; None for any other panel.

    They are generated each time, as the specification determines the market.
    """
    if spec is None or not is_synthetic(spec):
        return None
    return synthetic_truth(parse_synthetic(spec))


def _generate_panel(config: SyntheticConfig) -> Panel:
    return synthetic_panel(config).panel


def _kind_and_hash(source: Path) -> str:
    """Return the kind of a file and the sha256 (hex) of its contents, which name an imported panel in the cache.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with open_regular(source) as file:
            return file_kind(source) + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{source}: the file cannot be read: {error.strerror}. Check the path.") from error
