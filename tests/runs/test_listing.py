"""A folder of runs is listed whatever one of them has become."""

import os
from pathlib import Path

import pytest

from flatwater.cli.main import main
from flatwater.runs.listing import list_runs


def make(folder: Path, config: str = "rounds = 3") -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.toml").write_text(config)
    return folder


def test_one_odd_run_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "sound[1]")
    (make(tmp_path / "locked by a folder") / ".lock").mkdir()
    os.mkfifo(make(tmp_path / "locked by a pipe") / ".lock")
    make(tmp_path / "text", "rounds = 'x'")
    make(tmp_path / "kind", "rounds = 3\ntrainer = [1]")
    make(tmp_path / "deep", "rounds = " + "[" * 5000)
    (make(tmp_path / "numbers") / "metrics.jsonl").write_text('{"round": 1, "fitness": "\\u001b[31m"}\n')
    (make(tmp_path / "bytes") / "config.toml").write_bytes(b"\xff")

    states = {line.name: (line.state, bool(line.problem)) for line in list_runs(tmp_path)}
    assert states.pop("sound[1]") == ("stopped", False)
    assert len(states) == 7
    assert set(states.values()) == {("unreadable", True)}

    assert main(["runs", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "sound[1]" in said
    assert "rounds = 'x': must be a whole number" in said
    assert main(["runs", str(tmp_path), "--json"]) == 0


def test_a_run_whose_name_is_markup_is_reported_under_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make(tmp_path / "a[1] [bold]b[x]")
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.startswith(f"{run}/report.html")
    assert (run / "report.html").is_file()
    assert main(["top", str(run), "--once"]) == 0
    assert "a[1] [bold]b[x]" in capsys.readouterr().out
