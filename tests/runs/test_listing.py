"""A folder of runs is listed whatever one of them has become."""

import os
from pathlib import Path

import pytest

from flatwater.cli.main import main
from flatwater.errors import RunError
from flatwater.runs.listing import list_runs, newest_run


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


def test_the_newest_run_in_the_most_wanted_state_is_found(tmp_path: Path) -> None:
    for age, (name, rounds) in enumerate([("new", 1), ("old", 1), ("done", 3), ("oldest", 0)]):
        run = make(tmp_path / name)
        (run / "metrics.jsonl").write_text("".join(f'{{"round": {n + 1}}}\n' for n in range(rounds)))
        for path in (*run.iterdir(), run):
            os.utime(path, (1e9 - age, 1e9 - age))
    (tmp_path / "done" / "result.json").write_text("{}")
    os.utime(tmp_path / "done" / "result.json", (1e9 - 2, 1e9 - 2))
    states = {line.name: line.state for line in list_runs(tmp_path)}
    assert states == {"new": "stopped", "old": "stopped", "done": "finished", "oldest": "stopped"}

    assert newest_run(tmp_path, "stopped") == tmp_path / "new"
    assert newest_run(tmp_path, "training", "finished", "stopped") == tmp_path / "done"
    with pytest.raises(RunError, match=r"there is no run here that is training\. Give a run's folder"):
        newest_run(tmp_path, "training")
    with pytest.raises(RunError, match="no run here that is stopped or finished"):
        newest_run(tmp_path / "nowhere", "stopped", "finished")


@pytest.mark.parametrize("command", ["resume", "top"])
def test_without_runs_the_commands_that_take_the_newest_say_so(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command]) == 2
    assert "runs: there is no run here that is" in capsys.readouterr().err
