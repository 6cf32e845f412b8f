"""Closed, full and readerless streams: the exit code is right, work is done, what is wrong is said where one can."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from flatwater.cli.main import main

FLATWATER = Path(sys.executable).with_name("flatwater")
CLOSED = [" ".join(chosen) for chosen in product(["", "<&-"], ["", ">&-"], ["", "2>&-"])]


def shell(line: str, place: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f"flatwater() {{ '{FLATWATER}' \"$@\"; }}; {line}"]
    return subprocess.run(
        command, cwd=place, capture_output=True, text=True, check=False, env={**os.environ, **environment}, timeout=300
    )


@pytest.mark.few(3)
@pytest.mark.parametrize("closed", CLOSED)
def test_a_mistake_is_told_on_what_is_open(tmp_path: Path, closed: str) -> None:
    ran = shell(f"flatwater runs nope {closed}", tmp_path)
    assert ran.returncode == 2
    expected = "" if ">&- 2>&-" in closed else "error: nope: "
    assert (ran.stdout if "2>&-" in closed else ran.stderr).startswith(expected)
    assert not (ran.stderr if "2>&-" in closed else ran.stdout)


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_program_is_watched_whatever_is_closed(tmp_path: Path, closed: str) -> None:
    """The code is the program's, and none of its files is in the way of a print."""
    program = "import sys; file = open('told', 'w'); print('said', flush=True); file.write('kept'); sys.exit(3)"
    Path(tmp_path, "program.py").write_text(program)
    assert shell(f"flatwater watch --json seen.json -- program.py {closed}", tmp_path).returncode == 3
    assert Path(tmp_path, "told").read_text() == "kept"
    assert json.loads(Path(tmp_path, "seen.json").read_text())["findings"] == []


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["--help", "runs --help", "panel show --json"])
def test_what_cannot_be_printed_is_a_failure(tmp_path: Path, command: str) -> None:
    full = shell(f"flatwater {command} >/dev/full", tmp_path)
    assert (full.returncode, full.stderr.count("\n")) == (2, 1)
    assert full.stderr.startswith("error: stdout: No space left on device")
    piped = shell(f"flatwater {command} | true; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert (piped.returncode, piped.stderr) in {(141, ""), (0, "")}  # 0: all of it went into the pipe


def test_letters_that_an_encoding_lacks_are_codes(tmp_path: Path) -> None:
    ran = shell("flatwater --help", tmp_path, PYTHONIOENCODING="ascii")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert r"\xb7" in ran.stdout


@pytest.mark.parametrize("columns", ["0", "1", "2", "nonsense"])
def test_help_ends_in_a_terminal_of_any_width(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit) as ended:
        main(["runs", "--help"])
    assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_a_run_is_trained_with_whatever_is_closed(tmp_path: Path, closed: str) -> None:
    """No line of the table is in a checkpoint: it is whole."""
    train = "flatwater train ppo --envs 2 --rounds 1 --env gymnasium:CartPole-v1 --run run"
    assert shell(f"{train} {closed}", tmp_path).returncode == 0
    checked = shell("flatwater checkpoints run --json", tmp_path)
    assert checked.returncode == 0
    assert "damaged" not in checked.stdout
