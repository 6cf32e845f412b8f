"""Own features: kept from any form of file, computed by a function, observed by name, and kept by the store."""

import datetime as dt
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flatwater.cli.main import main
from flatwater_trading.panel.features import find_features
from flatwater_trading.panel.importing import import_panel
from flatwater_trading.panel.normalise import normalise_panel, training_statistics
from flatwater_trading.panel.panel import FEATURES, Panel, choose_instruments, first_days
from flatwater_trading.panel.store import open_panel, save_panel
from flatwater_watch.errors import DataError

DAYS = 60
SIGNALS = """
import polars as pl

def momentum(frame):
    return frame.select("symbol", "date", momentum=pl.col("close") / pl.col("close").shift(5).over("symbol") - 1)

def ahead(frame):
    return frame.select("symbol", "date", ahead=pl.col("close").shift(-1).over("symbol"))

def scaled(frame):
    return frame.select("symbol", "date", scaled=pl.col("close") - pl.col("close").mean())

def words(frame):
    return frame.select("symbol", "date", words=pl.col("symbol"))

def number(frame):
    return 7

def infinite(frame):
    return frame.select("symbol", "date", infinite=pl.col("close") / 0)
"""


def table() -> pl.DataFrame:
    """Two instruments; the signal of a row is unlike any other's."""
    rows = [
        (name, dt.date(2024, 1, 1) + dt.timedelta(days=day), level + day % 7, 1000.0 * n + day, 30.0 + day % 40)
        for n, (name, level) in enumerate((("A", 10.0), ("B", 20.0)))
        for day in range(DAYS)
    ]
    return pl.DataFrame(rows, schema=["symbol", "date", "close", "signal", "rsi"], orient="row")


@pytest.fixture(autouse=True)
def _with_signals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "signals_of_mine.py").write_text(SIGNALS)
    monkeypatch.syspath_prepend(tmp_path)


def import_table(folder: Path, *features: str) -> Panel:
    table().write_csv(folder / "p.csv")
    return import_panel(folder / "p.csv", features=features)


def test_columns_are_kept_in_their_places(tmp_path: Path) -> None:
    panel = import_table(tmp_path, "signal", "rsi")
    assert panel.features == (*FEATURES, "signal")
    assert panel.origins == {"signal": "column signal", "rsi": "column rsi"}
    for name in ("signal", "rsi"):
        wanted = table().pivot("symbol", index="date", values=name).select("A", "B").to_numpy()
        np.testing.assert_array_equal(panel.feature(name), wanted)
    np.testing.assert_array_equal(panel.feature("macd"), import_table(tmp_path).feature("macd"))


def test_wide_files_and_lists_keep_the_same(tmp_path: Path) -> None:
    long, parts = import_table(tmp_path, "signal"), []
    for name in ("A", "B"):
        rows = table().filter(pl.col("symbol") == name)
        parts.append(
            rows.select("date", pl.col("close").alias(f"{name}_close"), pl.col("signal").alias(f"{name}_signal"))
        )
    parts[0].join(parts[1], on="date").write_csv(tmp_path / "wide.csv")
    assert import_panel(tmp_path / "wide.csv", features=["signal"]).fingerprint == long.fingerprint
    named_volume = pl.read_csv(tmp_path / "wide.csv").rename(lambda name: name.replace("signal", "volume"))
    named_volume.write_csv(tmp_path / "volume.csv")
    np.testing.assert_array_equal(
        import_panel(tmp_path / "volume.csv", features=["volume"]).feature("volume"), long.feature("signal")
    )
    assert import_panel(tmp_path / "volume.csv").features == FEATURES

    nine = pl.concat_list("close", "close", "close", "close", "rsi", *[pl.lit(0.0)] * 4)
    table().select("date", nine.alias("A")).filter(table()["symbol"] == "A").write_parquet(tmp_path / "l.parquet")
    lists = import_panel(tmp_path / "l.parquet", features=["rsi"])
    np.testing.assert_array_equal(lists.feature("rsi")[:, 0], table()["rsi"][:DAYS].to_numpy())


def test_a_panel_without_own_features_is_what_it_was(tmp_path: Path) -> None:
    plain = import_table(tmp_path)
    assert plain.features == FEATURES
    assert not plain.origins
    assert plain.fingerprint != import_table(tmp_path, "signal").fingerprint


def test_a_function_computes_and_its_version_is_kept(tmp_path: Path) -> None:
    panel = import_table(tmp_path, "signals_of_mine:momentum", "signal")
    close = panel.feature("close").astype(float)
    np.testing.assert_allclose(panel.feature("momentum")[5:], close[5:] / close[:-5] - 1, rtol=1e-5)
    assert np.isnan(panel.feature("momentum")[:5]).all()
    where, version = panel.origins["momentum"].split()
    assert where == "signals_of_mine:momentum"
    assert len(version) == 12
    assert panel.features[9:] == ("signal", "momentum")


def test_the_store_a_prefix_and_a_choice_keep_them(tmp_path: Path) -> None:
    panel = import_table(tmp_path, "signal")
    save_panel(panel, tmp_path / "p.safetensors")
    stored = open_panel(tmp_path / "p.safetensors")
    assert (stored.features, stored.origins, stored.fingerprint) == (panel.features, panel.origins, panel.fingerprint)
    turned = choose_instruments(stored, ("B", "A"), ["B"])
    np.testing.assert_array_equal(turned.feature("signal")[:, 0], panel.feature("signal")[:, 1])
    assert first_days(stored, 30).feature("signal").shape == (30, 2)
    assert first_days(stored, 30).fingerprint == first_days(panel, 30).fingerprint


def test_they_are_observed_by_name(tmp_path: Path) -> None:
    panel = import_table(tmp_path, "signal")
    out = normalise_panel(panel, ("signal", "rsi"), training_statistics(panel, ("signal", "rsi"), DAYS))
    signal = table()["signal"][:DAYS].to_numpy()
    np.testing.assert_allclose(out[0, :, 0], (signal - signal.mean()) / signal.std(), rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match="feature 'signal' to observe"):
        find_features(["signal"], import_table(tmp_path).features)


@pytest.mark.parametrize(
    ("feature", "said"),
    [
        ("volume", r"--features volume: .*: symbol, date, close, signal, rsi\)"),
        ("return", "--features return: .*taken"),
        ("close", "--features close: .*taken"),
        ("signals_of_mine:ahead", r"ahead of A on 2024-01-30 is None .*looks ahead"),
        ("signals_of_mine:scaled", "scaled of A on 2024-01-01 .*looks ahead"),
        ("signals_of_mine:words", "words .*String.*one number"),
        ("signals_of_mine:number", "no frame .*symbol, date"),
        ("signals_of_mine:infinite", "feature infinite: A on 2024-01-01 .*infinite"),
        ("signals_of_mine:nothing", r"'nothing'.*MODULE:FUNCTION"),
        ("no_such_module:alpha", "No module named 'no_such_module'"),
    ],
)
def test_what_cannot_be_a_feature_is_refused(feature: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        import_table(tmp_path, feature)


def test_the_command_keeps_them_and_show_names_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table().write_csv(tmp_path / "p.csv")
    out = str(tmp_path / "p.safetensors")
    command = ["panel", "import", str(tmp_path / "p.csv"), "--out", out]
    assert main([*command, "--features", "signal", "signals_of_mine:momentum"]) == 0
    assert "own features signal (column signal), momentum (signals_of_mine:momentum" in " ".join(
        capsys.readouterr().out.split()
    )
    assert main(["panel", "show", out]) == 0
    assert "column signal" in capsys.readouterr().out
