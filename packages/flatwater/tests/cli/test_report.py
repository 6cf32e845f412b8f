"""`flatwater report`: where the page goes, and what is told when it cannot be made."""

import os
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from synthetic_run import append_line, make_run, metrics

from flatwater.cli.main import main
from flatwater.rundir.layout import hold_lock, open_folder


def test_the_page_is_written_into_the_run_or_where_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", 3)
    assert main(["report", str(run)]) == 0
    name, size, unit = capsys.readouterr().out.rsplit(maxsplit=2)
    assert name == str(run / "report.html")
    assert float(size) == pytest.approx((run / "report.html").stat().st_size / 2**20, abs=0.01)
    assert unit == "MiB"
    before = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    assert main(["report", str(run), "--out", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert {path: path.stat().st_mtime_ns for path in run.iterdir()} == before


def test_the_page_of_a_run_that_trains_is_drawn_again_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, slept = make_run(tmp_path / "run", 3, wanted=9), list[float]()
    training = ExitStack()
    training.enter_context(hold_lock(open_folder(run)))

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        append_line(run / "metrics.jsonl", metrics(3 + len(slept))[-1])
        if len(slept) == 2:
            training.close()

    monkeypatch.setattr("flatwater.cli.report.time.sleep", sleep)
    assert main(["report", str(run), "--every", "2m"]) == 0
    assert slept == [120, 120]
    assert capsys.readouterr().out.count("report.html") == 3
    assert "5 of 9" in (run / "report.html").read_text()
    assert main(["report", str(run), "--every", "soon"]) == 2
    assert "--every 'soon': " in " ".join(capsys.readouterr().err.split())
    assert main(["report", str(tmp_path), "--every", "1m"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert re.search(rf"--every: .*folder of a run, got {re.escape(str(tmp_path))}\.", message)


def test_a_folder_without_a_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert re.search(rf"{re.escape(str(tmp_path))}: .*config\.toml", " ".join(capsys.readouterr().err.split()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("out", [[], ["--out", "nowhere/page.html"]])
@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("nowhere", "nowhere: .*not exist"),
        ("folder", "folder: .*config.toml"),
        ("pipe", "pipe: .*not a folder"),
        ("watch.json", "watch.json"),
    ],
)
def test_what_is_no_run_is_told_before_the_place_of_the_page(
    run: str,
    said: str,
    out: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("watch.json").write_text("3")
    assert main(["report", run, *out]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert re.search(said, message)
    assert "--out" not in message


def test_a_place_that_nobody_named_is_told_with_the_option_that_names_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", 2)
    (run / "report.html").mkdir()
    assert main(["report", str(run)]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert f"without --out, {run / 'report.html'}: " in message
    assert "folder" in message.partition("report.html")[2]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", 2)
    (tmp_path / "file").touch()
    assert main(["report", str(run), "--out", str(tmp_path / "file" / "a.html")]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert re.search(rf"--out {re.escape(str(tmp_path / 'file' / 'a.html'))}: ", message)


def test_results_of_a_watch_are_compared_by_another_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("monday.json", "tuesday.json"):
        Path(name).write_text("{}")
    assert main(["compare", "monday.json", "tuesday.json"]) == 2
    assert "`flatwater watch --against FILE FILE`" in " ".join(capsys.readouterr().err.split())
