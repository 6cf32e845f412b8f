"""`flatwater panel import` and `show`, as a user runs them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from flatwater.cli.main import main
from flatwater_trading.panel.store import open_panel

HEAD = "symbol,date,open,high,low,close\n"
ROWS = "AA,2020-01-01,1,2,1,2\nAA,2020-01-02,1,2,1,1\nBB,2020-01-02,3,4,3,4\n"


@pytest.fixture(autouse=True)
def _quiet_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")


def test_import_stores_what_the_file_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.csv").write_text(HEAD + ROWS)
    out = tmp_path / "p.safetensors"
    assert main(["panel", "import", str(tmp_path / "p.csv"), "--out", str(out), "--investable", "BB"]) == 0
    panel = open_panel(out)
    assert panel.instruments == ("AA", "BB")
    assert panel.investable.tolist() == [1]
    said = capsys.readouterr().out
    assert "2 days x 2 instruments, 1 investable" in said
    assert panel.fingerprint in said


def test_bad_input_exits_2_naming_the_row_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.csv").write_text(HEAD + ROWS.replace("3,4,3,4", "3,4,3,-4"))
    assert main(["panel", "import", str(tmp_path / "p.csv"), "--out", str(tmp_path / "out")]) == 2
    assert "row 4, BB on 2020-01-02: close = -4" in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.csv"]


def test_show_tells_about_the_shipped_panel_in_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["panel", "show"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    for fact in (
        "3,270, 2000-03-01 to 2013-03-01",
        "4 investable, 1 only watched",
        "GOOG",
        "2004-08-19",
        "sma20_distance",
        "holdout",
    ):
        assert fact in said


def test_show_as_json_says_the_same_as_the_panel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["panel", "show", "synthetic:3x1200:seed=4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    panel = open_panel(Path(told["file"]))
    assert told["fingerprint"] == panel.fingerprint
    assert told["file_bytes"] == Path(told["file"]).stat().st_size
    assert told["missing"] == pytest.approx(1 - panel.valid.mean())
    for n, one in enumerate(told["instruments"]):
        days = panel.dates[panel.valid[:, n]]
        assert (one["first"], one["last"]) == (str(days[0]), str(days[-1]))
        inside = (panel.dates >= days[0]) & (panel.dates <= days[-1])
        assert one["gaps"] == int((~panel.valid[inside, n]).sum())
    assert [split["days"] for split in told["splits"]] == [1200 - 19 - 252 - 251, 252, 251]


def test_a_panel_too_short_for_the_splits_is_shown_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["panel", "show", "synthetic:2x100"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert all(fact in said for fact in ("100 rows", "523 or more")), said
    assert "`flatwater train erl` says" in said


def test_names_of_a_file_and_a_map_are_read(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("wer,date,wert\nAA,2020-01-01,1\nAB,2020-01-01,2\nVIX,2020-01-01,-3\n")
    (tmp_path / "traded.txt").write_text("AA\nAB\n")
    out = tmp_path / "p.safetensors"
    command = ["panel", "import", str(tmp_path / "p.csv"), "--out", str(out), "--map", "symbol=wer", "close=wert"]
    assert main([*command, "--investable", str(tmp_path / "traded.txt")]) == 0
    assert open_panel(out).investable.tolist() == [0, 1]
    assert main([*command, "--investable", "A*"]) == 0
    assert open_panel(out).investable.tolist() == [0, 1]


def test_a_map_without_a_column_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.csv").write_text(HEAD + ROWS)
    assert main(["panel", "import", str(tmp_path / "p.csv"), "--out", str(tmp_path / "out"), "--map", "close"]) == 2
    assert re.search(r"--map close: .*--map close=COLUMN", capsys.readouterr().err)


def test_an_import_is_summed_up_in_80_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a file with a gap, a split that is not adjusted, and a column that is no price."""
    days = [day for day in range(1200) if day not in (500, 501)]
    start = np.datetime64("2020-01-01")
    closes = [
        f"{start + np.timedelta64(day, 'D')},{(100 if day < 700 else 50) + day % 3},{10 if day != 502 else ''},x"
        for day in days
    ]
    (tmp_path / "p.csv").write_text("\n".join(["Datum,AA_close,BB_close,remark", *closes]))
    assert main(["panel", "import", str(tmp_path / "p.csv"), "--out", str(tmp_path / "out")]) == 0
    told = [
        line
        for line in capsys.readouterr().out.splitlines()
        if str(tmp_path) not in line and not line.startswith("fingerprint")
    ]
    assert max(map(len, told)) <= 80
    said = " ".join(" ".join(told).split())
    for fact in (
        "columns date = Datum, 2 of prices",
        "--map date=COLUMN",
        "not used remark",
        "days 1,198, 2020-01-01 to 2023-04-14; longest pause 3 days, after 2021-05-14",
        "gaps BB 1 day ",
        "like splits AA -49.0% on 2021-12-01 (2:1). Use prices that are adjusted for splits",
        "tradable days train 676, validation 252, holdout 251",
    ):
        assert fact in said


def test_an_import_names_late_and_early_instruments_and_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share that left the market stood as one without a gap, and no line said how to go on."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"2024-01-{day:02d},{100 + day},{50 + day if day > 4 else ''},{70 + day if day < 9 else ''}"
        for day in range(1, 13)
    ]
    Path("p.csv").write_text("\n".join(["date,AA,LATE,GONE", *rows]))
    assert main(["panel", "import", "p.csv", "--out", "my panel"]) == 0
    said = capsys.readouterr().out
    assert "begin later LATE 2024-01-05 end earlier GONE 2024-01-08 gaps - " in " ".join(said.split())
    assert said.splitlines()[-1] == "next        flatwater train erl --panel 'my panel'", "too short for a study"


@pytest.mark.parametrize(("days", "studies"), [(1200, 1), (550, 0)])
def test_an_import_names_a_study_only_where_the_panel_is_long_enough(
    days: int, studies: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{np.datetime64('2016-01-01') + day},{100 + day % 7},{50 + day % 5}" for day in range(days)]
    Path("p.csv").write_text("\n".join(["date,AA,BB", *rows]))
    assert main(["panel", "import", "p.csv", "--out", "p.panel"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    commands = [line for line in lines if line.startswith(("next", "flatwater "))]
    assert commands[0] == "next        flatwater train erl --panel p.panel"
    assert commands[1:] == ["flatwater study p.panel"] * studies
    assert (main(["study", "p.panel", "--plan"]) == 0) == (studies > 0)
    assert ("as the panel has too few rows for 5" in capsys.readouterr().out) == (studies > 0)


def test_splits_that_hold_no_episode_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["panel", "show", "synthetic:2x600"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "train" in said
    assert re.search(r"training split .*78 rows.* 145\b", said)


def test_months_too_few_for_the_defaults_are_trained_with_other_lengths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    months = np.arange("2004-01", "2024-01", dtype="datetime64[M]").astype("datetime64[D]")
    rows = [f"{month},{100 + number % 7}" for number, month in enumerate(months)]
    (tmp_path / "p.csv").write_text("\n".join(["date,AA_close", *rows]))
    for words in (["import", str(tmp_path / "p.csv"), "--out", str(tmp_path / "out")], ["show", str(tmp_path / "out")]):
        assert main(["panel", *words]) == 0
        assert "`flatwater train erl` chooses" in " ".join(capsys.readouterr().out.split())
