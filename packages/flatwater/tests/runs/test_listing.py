"""A folder of runs is listed whatever one of them has become."""

import json
import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from flatwater.cli.main import main
from flatwater.cli.runs import Runs
from flatwater.rundir.listing import RunLine, list_runs, newest_run
from flatwater_watch.errors import RunError


def make(folder: Path, config: str = 'trainer = "erl"\nrounds = 3') -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.toml").write_text(config)
    return folder


def test_one_odd_run_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "sound[1]")
    (make(tmp_path / "locked by a folder") / ".lock").mkdir()
    os.mkfifo(make(tmp_path / "locked by a pipe") / ".lock")
    make(tmp_path / "text", "trainer = 'ppo'\nrounds = 'x'")
    make(tmp_path / "kind", "rounds = 3\ntrainer = [1]")
    make(tmp_path / "deep", "rounds = " + "[" * 5000)
    (make(tmp_path / "numbers") / "metrics.jsonl").write_text('{"round": 1, "fitness": "\\u001b[31m"}\n')
    (make(tmp_path / "bytes") / "config.toml").write_bytes(b"\xff")

    (make(tmp_path / "bare") / "metrics.jsonl").write_text('{"round": 1}\n')
    (tmp_path / "bare" / "checkpoints").rmdir()  # somebody made room

    states = {line.name: (line.state, bool(line.problem)) for line in list_runs(tmp_path)}
    assert states.pop("sound[1]") == states.pop("bare") == ("stopped", False)
    assert len(states) == 7
    assert set(states.values()) == {("unreadable", True)}

    assert main(["runs", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "sound[1]" in said
    assert "rounds = 'x': " in said
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
    with pytest.raises(RunError, match=r"training.*flatwater runs FOLDER"):
        newest_run(tmp_path, "training")
    with pytest.raises(RunError, match="stopped or finished"):
        newest_run(tmp_path / "nowhere", "stopped", "finished")


@pytest.mark.parametrize("command", ["resume", "top"])
def test_without_runs_the_commands_that_take_the_newest_say_so(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command]) == 2
    assert "flatwater runs FOLDER" in capsys.readouterr().err


def make_scored(folder: Path, score: float | None, *tags: str) -> Path:
    """A finished run that earned so much; one that has only begun where that is None."""
    run = make(folder, f"trainer = 'erl'\nrounds = 1\ntag = {json.dumps(tags)}")
    if score is not None:
        (run / "metrics.jsonl").write_text(json.dumps({"round": 1, "validation/champion": score}) + "\n")
        rows = {"champion": {"total_return": score / 100}, "buy and hold": {}}
        said = {"split": "validation", "first_day": "a", "last_day": "b", "days": 2, "note": ""}
        (run / "result.json").write_text(json.dumps(said | {"traders": rows}))
    return run


def listed_names(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The names in the order of the list, which is that of the JSON."""
    assert main(["runs", *words, "--json"]) == 0
    names = [run["name"] for run in json.loads(capsys.readouterr().out)["runs"]]
    assert main(["runs", *words]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows if row and row[0] in names] == names
    return names


def test_runs_are_sorted_by_a_number_and_chosen_by_a_tag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, score, tags in (("low", 1.0, ["x"]), ("new", None, ["x", "y"]), ("high", 3.0, []), ("mid", 2.0, ["y"])):
        make_scored(tmp_path / name, score, *tags)
    for metric in ("score", "validation/champion", "total_return"):
        assert listed_names(capsys, str(tmp_path), "--sort", metric) == ["high", "mid", "low", "new"]
    assert listed_names(capsys, str(tmp_path), "--sort", "score", "--tag", "x") == ["low", "new"]
    assert main(["runs", str(tmp_path), "--tag", "z"]) == 0
    assert "no runs with the tag z" in capsys.readouterr().out


def test_names_that_begin_alike_are_told_apart_in_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    names = ("erl-2026-11-24", "erl-2026-11-24-12", "a-name-that-a-person-chose-for-this-one-run-of-many")
    changed = f"{datetime.now().astimezone():%Y}-01-02 03:04"
    rest = {"rounds": 6, "measured": "return", "score": 0.231, "shown": "return +23.1%", "bytes": 5_410_000}
    Runs().show_runs([RunLine(name=n, trainer="erl", state="finished", done=6, changed=changed, **rest) for n in names])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.startswith("erl-")] == [*names[:2]]
    assert next(line for line in lines if line.startswith("erl-2026-11-24 ")).split()[-2:] == ["01-02", "03:04"]


def test_a_number_that_no_run_has_is_refused_with_those_that_are_like_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_scored(tmp_path / "run", 1.0)
    assert main(["runs", str(tmp_path), "--sort", "total_retrun"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--sort 'total_retrun': " in said
    assert "such as total_return" in said


def test_the_index_links_to_the_reports_that_are_there(tmp_path: Path) -> None:
    runs = tmp_path / "my runs"
    for name in ("with #1 <b>", "without"):
        make_scored(runs / name, 1.0, "a <i>")
    (runs / "with #1 <b>" / "report.html").write_text("")
    assert main(["runs", str(runs), "--page", str(tmp_path / "index.html")]) == 0
    page = (tmp_path / "index.html").read_text()
    assert re.findall(r'<td[^>]*><a href="([^"]+)">([^<]+)', page) == [
        ("my%20runs/with%20%231%20%3Cb%3E/report.html", "with #1 &lt;b&gt;")
    ]
    assert "a &lt;i&gt;" in page
    assert "1 run " in page
    assert f"flatwater report &#39;{runs}/without&#39;" in page
    assert "<script" not in page
    assert len(page) < 50_000, "nothing is carried along that draws no chart"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--page", "index.txt"], "--page index.txt: "),
        (["file:///nowhere", "--page", "index.html"], "a URL"),
    ],
)
def test_a_page_that_cannot_be_is_refused(
    words: list[str], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["runs", *words]) == 2
    assert part in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("tag", ["", " x", "a\x1b"])
def test_a_tag_is_a_word(tag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "erl", "--run", str(tmp_path / "run"), "--tag", tag]) == 2
    assert "tag = " in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_a_list_of_runs_needs_no_table_library(tmp_path: Path) -> None:
    make_scored(tmp_path / "run", 1.0)
    program = "import sys; from flatwater.cli.main import main; main(['runs', sys.argv[1]])"
    program += "; print({*sys.modules} & {'torch', 'polars'})"
    said = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[-1] == "set()"
