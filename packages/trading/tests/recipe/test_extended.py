"""A run goes on, and is judged, on a panel that has gained days: as if it had not. Any other panel is refused."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_traders import SMALL_PURCHASES

import flatwater as fw
from flatwater.cli.main import main
from flatwater.config.mappings import from_mapping
from flatwater.rundir.layout import open_folder
from flatwater.runs.session import read_config, restore_run
from flatwater_trading.panel.extension import find_difference
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.normalise import SEPARATE_SCALES
from flatwater_trading.panel.panel import FEATURES, Panel, build_panel, first_days
from flatwater_trading.panel.store import save_panel
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.run import compose, prepare
from flatwater_trading.recipe.run_panel import with_first_days
from flatwater_watch.errors import CheckpointError, ConfigError, DataError, FlatwaterError

DAYS = 240
SETTINGS: dict[str, Any] = {name: value for name, value in SMALL_PURCHASES.items() if name != "rounds"} | {
    "population": {"size": 2},
    "env": SMALL_PURCHASES["env"] | {"episode": {"context": 6, "trading_days": 15, "settlement_days": 5}},
    "splits": {"holdout_days": 40, "validation_days": 40},
    "learner": {"hindsight": {"updates": 4, "batch_size": 8}},
}


def market() -> Panel:
    return load_panel("synthetic:4x300:signal=0.7")


def change_value(panel: Panel, day: int, instrument: str, feature: str, value: float) -> Panel:
    values = np.array(panel.values)
    values[day, panel.instruments.index(instrument), FEATURES.index(feature)] = value
    return build_panel(values=values, dates=panel.dates, instruments=panel.instruments)


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the first days of a market, and that market with more days beside it."""
    folder = tmp_path_factory.mktemp("extended")
    save_panel(first_days(market(), DAYS), folder / "own.safetensors")
    save_panel(market(), folder / "longer.safetensors")
    fw.train("erl", panel=folder / "own.safetensors", rounds=1, run=folder / "run", quiet=True, **SETTINGS)
    return folder


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    """A copy of both in the test's own folder."""
    shutil.copytree(trained_run, tmp_path, dirs_exist_ok=True)
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(trained_run), str(tmp_path)))
    return tmp_path / "run"


@pytest.mark.long
def test_newer_days_change_nothing_of_what_a_run_is_worth(run: Path, tmp_path: Path) -> None:
    known, longer = fw.evaluate(run, holdout=True), tmp_path / "longer.safetensors"
    assert fw.evaluate(run, holdout=True, panel=longer) == known


@pytest.mark.slow
def test_a_run_goes_on_as_if_there_were_no_newer_days(run: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer.safetensors"
    resumed = fw.resume(run, 2, panel=longer, quiet=True)
    whole = fw.train("erl", panel=tmp_path / "own.safetensors", rounds=2, run=tmp_path / "w", quiet=True, **SETTINGS)
    assert resumed.result == whole.result
    assert fw.resume(run, 3, quiet=True).finished, "the longer panel is the run's own from then on"


@pytest.mark.long
def test_a_panel_that_grew_in_its_place_is_the_run_s(run: Path, tmp_path: Path) -> None:
    known = fw.evaluate(run)
    save_panel(market(), tmp_path / "own.safetensors")
    assert fw.evaluate(run) == known
    assert fw.load(run).orders(tmp_path / "own.safetensors").date == str(market().dates[-1])


@pytest.mark.long
def test_a_panel_that_differs_is_refused_by_day_instrument_and_values(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, other = market(), tmp_path / "other.safetensors"
    save_panel(change_value(own, 7, "S2", "close", 12.5), other)
    was = own.values[7, 2, FEATURES.index("close")]
    assert main(["evaluate", str(run), "--panel", str(other)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(rf"{own.dates[7]} .*close of S2 .*12\.5 .*{re.escape(f'{was:.9g}')}", said)
    with pytest.raises(DataError, match=r"S2 .*12\.5 "):
        fw.resume(run, 2, panel=other, quiet=True)
    save_panel(change_value(own, DAYS + 3, "S2", "close", 12.5), other)
    assert fw.evaluate(run, panel=other)["days"] == 40, "what is newer may be anything"


def test_a_panel_is_compared_with_the_run_s_own_where_that_is_still_there(run: Path, tmp_path: Path) -> None:
    save_panel(change_value(market(), 7, "S2", "close", 12.5), tmp_path / "own.safetensors")
    with pytest.raises(CheckpointError, match=r"data\.fingerprint"):
        fw.evaluate(run)
    first = tmp_path / "short.safetensors"
    save_panel(first_days(market(), DAYS), tmp_path / "own.safetensors")
    save_panel(first_days(market(), 200), first)
    with pytest.raises(DataError, match="ends on"):
        fw.evaluate(run, panel=first)


@pytest.mark.long
def test_an_imported_file_that_was_replaced_is_found_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file, days = tmp_path / "prices.csv", market().dates[:DAYS]
    rng = np.random.default_rng(0)
    close = 100 * np.exp(rng.normal(0, 0.01, (DAYS + 5, 2)).cumsum(0))
    all_days = [*days, *(days[-1] + np.arange(1, 6))]

    def write(last: int, spoiled: float = 1.0) -> None:
        rows = [
            f"{all_days[t]},{name},{close[t, n] * (spoiled if t == 9 else 1):.4f}"
            for t in range(last)
            for n, name in enumerate("AB")
        ]
        file.write_text("date,symbol,close\n" + "\n".join(rows) + "\n")

    write(DAYS)
    run = fw.train("erl", panel=file, rounds=1, run=tmp_path / "run", quiet=True, **SETTINGS).path
    known = fw.evaluate(run)
    write(DAYS + 5)
    assert fw.evaluate(run) == known
    write(DAYS + 5, spoiled=1.01)
    with pytest.raises(DataError, match=rf"{days[9]} the \w+ of A "):
        fw.evaluate(run)


@pytest.mark.long
def test_a_recipe_without_a_panel_says_so(tmp_path: Path) -> None:
    run = fw.train("ppo", run=tmp_path / "ppo", rounds=1, envs=2, block=16, evaluation={"envs": 2}, quiet=True)
    with pytest.raises(ConfigError, match=r"--panel: .*`flatwater train ppo`"):
        fw.evaluate(run.path, panel="x")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda panel: panel, ""),
        (lambda panel: first_days(panel, 30), "ends on"),
        (lambda panel: _cut_panel(panel, instruments=("S1", "S0", "S2", "S3")), "another order: S1"),
        (lambda panel: _cut_panel(panel, instruments=("S0", "S1", "S2", "X")), "lacks the instrument S3"),
        (lambda panel: _cut_panel(panel, investable=["S0", "S1", "S2"]), "lacks the investable instrument S3"),
        (lambda panel: _cut_panel(panel, days=[n for n in range(300) if n != 11]), "lacks the day 2000-01-18"),
        (lambda panel: change_value(panel, 299, "S0", "open", np.nan), "open of S0 is missing"),
        (
            lambda panel: change_value(change_value(panel, 9, "S1", "open", 1), 9, "S1", "close", 2),
            "close of S1 is 2 ",
        ),
    ],
)
def test_what_differs_is_told(change: Any, said: str) -> None:
    found = find_difference(market(), change(market()))
    assert said in found
    assert bool(said) == bool(found)


def _cut_panel(panel: Panel, *, days: Any = slice(None), **given: Any) -> Panel:
    names = {"instruments": panel.instruments} | given
    return build_panel(values=np.array(panel.values[days]), dates=np.array(panel.dates[days]), **names)


@pytest.mark.long
def test_a_run_on_newer_days_begins_with_the_traders_of_another(run: Path) -> None:
    settings = SETTINGS | {"population": {"size": 3}, "panel": str(run.parent / "longer.safetensors")}
    config = prepare(from_mapping(ErlRunConfig, settings | {"from_run": str(run), "rounds": 1}, "test"))
    begun = compose(config)
    random = begun.trainer.run.learner.actor[2].clone()
    begun.begin_()
    old, _ = restore_run(read_config(open_folder(run)), open_folder(run), print)
    members, elders = begun.trainer.run.learner.actor, old.trainer.run.learner.actor
    assert torch.equal(members[0], elders[-1]), "the champion"
    assert torch.equal(members[1], elders[1])
    assert torch.equal(members[2], random), "the other had two members alone"

    successor = fw.train("erl", run=run.parent / "next", quiet=True, **settings | {"from_run": run, "rounds": 1})
    shutil.rmtree(run)
    assert fw.resume(successor.path, rounds=2, quiet=True).result is not None, "the other is not asked for again"


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"net": {"channels": 4, "hidden": 9}}, r"\bnet: "),
        ({"observation_features": ["rsi"]}, "observation_features: "),
        (
            {"learner": {"algorithm": "ddpg"}, "replay": {"warmup": 50}},
            r"learner\.algorithm: hindsight; .*ddpg",
        ),
        ({"panel": "synthetic:5x300"}, "instruments: "),
        (
            {"panel": "own.safetensors", "splits": {"holdout_days": 40, "validation_days": 50}},
            "learned from",
        ),
        (
            {"panel": "own.safetensors", "splits": {"holdout_days": 50, "validation_days": 25}},
            "were chosen",
        ),
        ({"from_run": "elsewhere"}, "elsewhere: .*folder"),
    ],
)
def test_traders_that_cannot_be_taken_over_are_refused_before_anything_is_written(
    changes: dict[str, Any], said: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    settings = SETTINGS | {"panel": "longer.safetensors", "rounds": 1, "from_run": str(run)} | changes
    with pytest.raises(FlatwaterError, match=said):
        fw.train("erl", run="next", quiet=True, **settings)
    assert not Path("next").exists()


def test_a_run_that_scaled_its_context_columns_with_the_shares_is_refused() -> None:
    """Its networks would see other numbers than they learned from. Panels without such columns are as they were."""
    mixed = from_mapping(ErlRunConfig, {"panel": "synthetic:4x300:context_instruments=1"}, "")
    panel = load_panel(mixed.panel)
    older = {"fingerprint": panel.fingerprint, "days": len(panel.dates)}
    with pytest.raises(DataError, match=r"context columns .* train again"):
        with_first_days(mixed, mixed, older)
    assert with_first_days(mixed, mixed, older | {"scales": SEPARATE_SCALES}) == mixed
    plain = from_mapping(ErlRunConfig, {"panel": "synthetic:4x300"}, "")
    panel = load_panel(plain.panel)
    assert with_first_days(plain, plain, {"fingerprint": panel.fingerprint, "days": len(panel.dates)}) == plain
