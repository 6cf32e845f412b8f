"""`flatwater top` where the output is no terminal: every number once, as text that a log can hold."""

import json
import re
from pathlib import Path

import pytest
from synthetic_run import append_line, make_run

from flatwater.cli.main import main


@pytest.mark.parametrize("words", [[], ["--once"]])
def test_the_screen_is_printed_once(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", str(make_run(tmp_path / "run")), *words]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= 100
    for shown in (
        "run  finished  generation 60/60",
        "945 MiB resident, 70% of the budget of 1.32 GiB",
        "owned 511",
        "unaccounted 120 MiB",
        "learner.actor_adam",
        "1 process, 2 envs, 5 threads, 12 files",
        "leak  train.HALL grows by 3.00 MiB a round, and nothing ends it",
        "2 alarms  constant policy",
    ):
        assert shown in said
    evaluate = next(line for line in said.splitlines() if line.startswith("evaluate")).split()
    assert evaluate == ["evaluate", "1.1", "1.9k", "58", "MiB"]


def test_json_has_what_is_known_under_the_names_of_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    assert main(["top", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert {"round": found["done"]} | found["metrics"] == last
    assert (found["name"], found["state"], found["rounds"], found["left_seconds"]) == ("run", "finished", 60, None)
    assert [finding["owner"] for finding in found["findings"]][:1] == ["train.HALL"]
    assert found["alarms"] == 2


def test_parts_of_the_bar_are_told_apart_without_colours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["top", str(make_run(tmp_path / "run"))])
    bar = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("░░"))
    assert len(bar) == 100
    assert sorted(set(bar)) == sorted("░▒█▓#·")
    assert bar.count("█") == pytest.approx(100 * 511 / 1350, abs=1)
    assert bar.count("#") == pytest.approx(100 * 120 / 1350, abs=1)


def test_a_folder_without_a_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", str(tmp_path / "none")]) == 2
    assert re.search(r"none: .*not exist.*`flatwater runs`", " ".join(capsys.readouterr().err.split()))
    (tmp_path / "study" / "fold-1").mkdir(parents=True)
    (tmp_path / "study" / "fold-1" / "config.toml").touch()
    assert main(["top", str(tmp_path / "study")]) == 2
    assert f"such as {tmp_path / 'study' / 'fold-1'}" in " ".join(capsys.readouterr().err.split())


def test_a_damaged_ledger_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", 3)
    with (run / "ledger.jsonl").open("a") as file:
        file.write("damaged\n")
    append_line(run / "ledger.jsonl", {"round": 5})
    assert main(["top", str(run)]) == 2
    assert "ledger.jsonl" in capsys.readouterr().err
