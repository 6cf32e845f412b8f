"""The picture of a run: drawn from its folder alone, whole or not at all, also where little happened."""

import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import matplotlib as mpl
import polars as pl
import pytest

from flatwater.errors import RunError
from flatwater.recipes.erl.picture import COLOURS, draw_trading

Folder = Callable[[int, int], Path]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A run folder with so many generations and trades."""

    def make(rounds: int, trades: int) -> Path:
        run = tmp_path / f"{rounds}-{trades}"
        run.mkdir()
        days = [date(2020, 1, 1) + timedelta(days=n) for n in range(30)]
        curves = {name: [100.0 + n * at for n in range(30)] for at, name in enumerate(COLOURS)}
        pl.DataFrame({"date": days} | curves).write_parquet(run / "equity.parquet")
        log = {"entry_date": days[:trades], "gain": [float((-1) ** n * n) for n in range(trades)]}
        schema = {"entry_date": pl.Date, "gain": pl.Float64}
        pl.DataFrame(log, schema=schema).write_parquet(run / "trades.parquet")
        names = ("fitness/mean", "fitness/min", "fitness/max", "validation/champion", "champion/crowned")
        lines = [json.dumps({"round": n + 1} | dict.fromkeys(names, -10_000.0 * n)) for n in range(rounds)]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        importance = {f"instrument {n}": n / 190 for n in range(20)}
        (run / "result.json").write_text(json.dumps({"split": "walk-forward", "importance": importance}))
        return run

    return make


@pytest.mark.parametrize(("rounds", "trades"), [(1, 0), (1, 1), (12, 9)])
def test_any_run_can_be_drawn(rounds: int, trades: int, folder: Folder) -> None:
    run = folder(rounds, trades)
    draw_trading(run, run / "result.png")
    assert (run / "result.png").read_bytes().startswith(b"\x89PNG")
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


def test_drawing_changes_no_setting_and_keeps_no_figure(folder: Folder) -> None:
    before = dict(mpl.rcParams)
    run = folder(2, 2)
    draw_trading(run, run / "first.png")
    draw_trading(run, run / "second.png")
    assert dict(mpl.rcParams) == before
    assert (run / "first.png").read_bytes() == (run / "second.png").read_bytes()


def test_a_place_that_cannot_be_written_is_told(folder: Folder) -> None:
    run = folder(1, 1)
    (run / "file").touch()
    with pytest.raises(RunError, match="cannot be written"):
        draw_trading(run, run / "file" / "result.png")
