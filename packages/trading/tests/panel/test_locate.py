"""`--panel`: each way to name a panel leads to the same mapped file, made once."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flatwater_trading.panel.config import SyntheticConfig
from flatwater_trading.panel.importing import import_panel
from flatwater_trading.panel.locate import cache_folder, load_panel, shipped_panel_path
from flatwater_trading.panel.store import open_panel, save_panel
from flatwater_trading.panel.synthetic import synthetic_panel
from flatwater_watch.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "flatwater" / "panels"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_prices(tmp_path / "a.csv", 5.0)


def write_prices(path: Path, close: float) -> Path:
    frame = {"date": ["2020-01-01", "2020-01-02"]} | {
        f"A_{p}": [close, close] for p in ("open", "high", "low", "close")
    }
    pl.DataFrame(frame).write_csv(path)
    return path


def test_nothing_means_the_shipped_panel(cache: Path) -> None:
    assert load_panel(None).fingerprint == open_panel(shipped_panel_path()).fingerprint
    assert not cache.exists()


def test_a_stored_panel_is_opened_where_it_is(tmp_path: Path, cache: Path) -> None:
    panel = synthetic_panel(SyntheticConfig(instruments=2, days=50)).panel
    save_panel(panel, tmp_path / "stored.safetensors")
    assert load_panel(str(tmp_path / "stored.safetensors")).fingerprint == panel.fingerprint
    assert not cache.exists()


def test_a_price_file_is_imported_once_and_mapped_ever_after(source: Path, cache: Path) -> None:
    first = load_panel(str(source))
    kept = list(cache.iterdir())
    made = kept[0].stat().st_mtime_ns
    again = load_panel(str(source))

    assert first.fingerprint == again.fingerprint == import_panel(source).fingerprint
    assert isinstance(again.values, np.memmap)
    assert list(cache.iterdir()) == kept
    assert kept[0].stat().st_mtime_ns == made


def test_new_contents_under_an_old_name_are_imported_anew(source: Path) -> None:
    assert load_panel(str(source)).feature("close")[0, 0] == 5
    assert load_panel(str(write_prices(source, 6.0))).feature("close")[0, 0] == 6


def test_a_synthetic_panel_is_made_once_and_is_the_one_asked_for(cache: Path) -> None:
    spec = "synthetic:3x60:signal=0.4:seed=2"
    wanted = synthetic_panel(SyntheticConfig(instruments=3, days=60, signal=0.4, seed=2)).panel
    assert load_panel(spec).fingerprint == load_panel(spec).fingerprint == wanted.fingerprint
    load_panel("synthetic:3x60:signal=0.4:seed=3")
    assert len(list(cache.iterdir())) == 2


def test_a_damaged_copy_is_made_again(source: Path, cache: Path) -> None:
    wanted = load_panel(str(source)).fingerprint
    kept = next(cache.iterdir())
    kept.write_bytes(kept.read_bytes()[:-1])
    assert load_panel(str(source)).fingerprint == wanted
    assert open_panel(kept).fingerprint == wanted


def test_the_cache_is_in_the_home_folder_without_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "flatwater" / "panels"


def test_a_cache_that_cannot_be_made_says_what_to_do(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(source))
    with pytest.raises(DataError, match=r"Not a directory\..*XDG_CACHE_HOME"):
        load_panel(str(source))


def test_what_cannot_be_found_or_read_is_refused(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        load_panel(str(tmp_path / "none.csv"))
    with pytest.raises(DataError, match="No such file"):
        load_panel(str(tmp_path / "none.safetensors"))
    with pytest.raises(DataError, match="is a folder"):
        load_panel(str(tmp_path))
    with pytest.raises(ConfigError, match=r"'synthetic:big' .*no size"):
        load_panel("synthetic:big")
    assert not cache.exists()


def test_a_stored_panel_and_the_law_of_a_market_need_neither_polars_nor_talib() -> None:
    """They would stay resident for the whole run."""
    program = (
        "import sys; from flatwater_trading.panel.locate import load_panel, load_truth\n"
        "load_panel(None); assert load_truth('synthetic:4x260') is not None\n"
        "print(sorted({'polars', 'pandas', 'talib', 'torch'} & sys.modules.keys()))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
