"""A process that runs under a watch, which a second command asks for the findings so far."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from running import MAIN, environment

from flatwater_watch.agent.runner_protocol import FOLDER
from flatwater_watch.agent.spool import unwatched_summary
from flatwater_watch.faces import running_watch
from flatwater_watch.faces.running_watch import read_running_watch

LEAK = """
import os, time
KEPT = []
print(os.getpid(), flush=True)
while not os.path.exists("stop"):
    KEPT.append(bytes(300_000))
    time.sleep(0.02)
"""

WAITING = "echo $$; read line"


@contextmanager
def start(command: str, name: str, value: str) -> Iterator[tuple[int, int]]:
    """Start a shell's command with one variable; yield the process ID that it prints, and that of the shell."""
    line = ["sh", "-c", command, "train"]
    kept = {key: held for key, held in os.environ.items() if key != FOLDER}
    with subprocess.Popen(line, env=kept | {name: value}, stdin=-1, stdout=-1, text=True) as shell:
        assert shell.stdout is not None
        # It has begun and executes nothing more: while a process begins, the kernel shows no variables of it.
        yield int(shell.stdout.readline()), shell.pid


def ask(folder: Path, pid: int) -> tuple[dict[str, Any], str]:
    """The JSON of the answer, and what was said, in a place without gdb."""
    line = [sys.executable, "-c", MAIN, "run", "--attach", str(pid), "--seconds", "0.1", "--json", "answer.json"]
    asked = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, check=True, env=environment(PATH="/nowhere"), timeout=120
    )
    return json.loads((folder / "answer.json").read_text()), asked.stderr


def test_a_watch_that_runs_is_asked_for_its_findings_by_either_number(tmp_path: Path) -> None:
    """`--attach` said of totals alone that something grows, and to start it again under a watch."""
    (tmp_path / "serve.py").write_text(LEAK)
    line = [sys.executable, "-c", MAIN, "run", "--", sys.executable, "serve.py"]
    with subprocess.Popen(line, cwd=tmp_path, env=environment(), stdout=-1, stderr=-1, text=True) as runner:
        try:
            assert runner.stdout is not None
            program = int(runner.stdout.readline())
            ends = time.monotonic() + 120
            while not (answer := read_running_watch(program) or {}).get("findings") and time.monotonic() < ends:
                time.sleep(0.5)
            assert [finding["owner"] for finding in answer["findings"]] == ["serve.KEPT"]
            for pid in (program, runner.pid):
                asked, said = ask(tmp_path, pid)
                assert [finding["owner"] for finding in asked["findings"]] == ["serve.KEPT"]
                assert "serve.py" in asked["program"]
                assert "exit_code" not in asked
                assert "since" in asked["unseen"][-1]
                assert "serve.KEPT grows at serve.py:6" in said
        finally:
            (tmp_path / "stop").touch()
            runner.communicate()
    assert runner.returncode == 0


def test_a_watch_is_asked_where_the_kernel_lists_no_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the program that ends as its notes have been read has no other answer than these."""
    summary = unwatched_summary("", "a part") | {"readings": 7, "ended_at": 0.0}

    def refuse(path: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(running_watch, "read_text", refuse)
    monkeypatch.setattr(running_watch, "read_summaries", lambda _: [summary])
    with start(WAITING, FOLDER, str(tmp_path / "gone")) as (pid, _):
        answer = read_running_watch(pid)
    assert answer is not None
    assert answer["readings"] == 7


@pytest.mark.parametrize("folder", [None, "gone", "empty"])
def test_a_process_without_a_watch_has_none_to_ask(tmp_path: Path, folder: str | None) -> None:
    """A runner that was killed leaves its name in the program's environment."""
    (tmp_path / "empty").mkdir()
    name = "OTHER" if folder is None else FOLDER
    with start(WAITING, name, str(tmp_path / str(folder))) as (pid, _):
        assert read_running_watch(pid) is None
    assert read_running_watch(pid) is None, "it has ended"


@pytest.mark.parametrize("folder", ["", "."])
def test_the_folder_of_the_asker_is_not_that_of_a_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """A variable that is empty names no folder, but `Path` takes it for the one that the command was called in."""
    summary = unwatched_summary("", "a part") | {"readings": 7}
    (tmp_path / "1.json").write_text(json.dumps(summary))
    monkeypatch.chdir(tmp_path)
    with start(WAITING, FOLDER, folder) as (pid, _):
        assert read_running_watch(pid) is None


def test_a_process_within_the_command_is_answered_with_the_command(tmp_path: Path) -> None:
    """The findings are of all its processes."""
    (tmp_path / "1.json").write_text(json.dumps(unwatched_summary("", "a part")))
    with start(f"sh -c '{WAITING}'; :", FOLDER, str(tmp_path)) as (inner, outer):
        answers = [read_running_watch(pid) or {} for pid in (inner, outer)]
    assert inner != outer
    assert [answer["program"] for answer in answers] == [f"-c sh -c '{WAITING}'; : train"] * 2
