"""What a run tells: run.log with times, a JSON object a line, and a command of the user's that cannot harm the run."""

import io
import json
import re
import resource
import signal
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console
from signalled import signal_amid

from flatwater.cli.main import main
from flatwater.rundir.events import JsonLines, RunEvents, RunLog
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.events import command as event_command
from flatwater_watch.events.command import EventCommand, check_command
from flatwater_watch.events.event import Event

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (\w+) +(.+)")


def kinds(log: Path) -> list[str]:
    """The kind of event of each line; every line has a time, a kind and a text."""
    found = [STAMP.fullmatch(line) for line in log.read_text().splitlines()]
    assert all(found), log.read_text()
    return [line[1] for line in found if line]


def printed_events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.long
def test_a_run_writes_a_log_and_appends_to_it_when_it_is_resumed(tiny: list[str]) -> None:
    assert main(["train", "erl", *tiny, "--rounds", "1", "--run", "run", "--quiet"]) == 0
    log = Path("run/run.log")
    assert kinds(log) == ["start", "saved", "round", "saved", "end"]
    first = log.read_text()
    assert main(["resume", "run", "--rounds", "2", "--quiet"]) == 0
    assert log.read_text().startswith(first)
    assert kinds(log)[5:] == ["start", "round", "saved", "end"]
    assert "resumed at 1 of 2 generations" in log.read_text()
    assert "generation 2/2: fitness mean" in log.read_text()


@pytest.mark.long
def test_quiet_prints_nothing(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "erl", *tiny, "--rounds", "1", "--run", "run", "--quiet"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


@pytest.mark.long
def test_json_is_one_object_a_line_with_all_numbers(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "erl", *tiny, "--rounds", "1", "--run", "run", "--json", "--tag", "first"]) == 0
    said = printed_events(capsys)
    told = [line for line in said if line["event"] not in {"alarm", "finding"}]
    assert [line["event"] for line in told] == ["start", "saved", "round", "saved", "end"]
    start, _, round_, _, end = told
    assert (start["name"], start["trainer"], start["tag"], start["resumed"]) == ("run", "erl", ["first"], False)
    metrics = json.loads(Path("run/metrics.jsonl").read_text())
    assert {"round": round_["round"]} | dict(round_["metrics"]) == metrics  # type: ignore[call-overload]
    assert end["result"] == json.loads(Path("run/result.json").read_text())


@pytest.mark.long
def test_a_signal_stands_in_the_log_and_in_json(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    run = Path("run").absolute()
    long = ("--learner.hindsight.updates", "200", "--rounds", "2")
    sender = signal_amid("learn_", run / "checkpoints" / "000001.000000.json", signal.SIGTERM)
    assert main(["train", "erl", *tiny, *long, "--run", str(run), "--json"]) == 143
    sender.join()
    said = printed_events(capsys)
    assert [line["event"] for line in said][-3:] == ["signal", "saved", "end"]
    assert (said[-3]["signal"], said[-1]["finished"], said[-1]["exit_code"]) == ("SIGTERM", False, 143)
    assert f"flatwater resume {run}" in str(said[-1]["line"])
    assert kinds(run / "run.log")[-3:] == ["signal", "saved", "end"]


def test_what_ends_a_run_is_told_before_the_run_ends() -> None:
    heard = io.StringIO()
    voice = RunEvents(Console(quiet=True), [JsonLines(heard)])
    with pytest.raises(RunError), voice.report_ending():
        raise RunError("the disk is full")
    told = json.loads(heard.getvalue())
    assert (told["event"], told["error"], told["exit_code"], told["line"]) == (
        "failure",
        "RunError",
        2,
        "the disk is full",
    )


def test_numbers_that_are_not_finite_are_null() -> None:
    assert Event("round", "", {"metrics": {"a": float("nan"), "b": 1.0}}).to_json()["metrics"] == {"a": None, "b": 1.0}


def test_a_line_of_the_log_is_one_line_whatever_was_said(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run.log")
    log.on_event(Event("note", "two\nlines, \x1b[31m and an order", {}))
    log.close()
    assert kinds(tmp_path / "run.log") == ["note"]
    assert "two lines, \\x1b[31m and an order" in (tmp_path / "run.log").read_text()


def test_a_line_that_was_torn_is_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("2026-01-01T00:00:00Z round   gener")
    log = RunLog(path)
    log.on_event(Event("start", "again", {}))
    log.close()
    assert path.read_text().splitlines()[1].endswith(" start   again")


def test_a_full_disk_costs_lines_of_the_log_and_says_how_many(tmp_path: Path) -> None:
    """The limit on file sizes stands for a full disk: the write is refused, or done in part."""
    path = tmp_path / "run.log"
    log = RunLog(path)
    log.on_event(Event("start", "begins", {}))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
        for number in range(3):
            log.on_event(Event("round", f"lost {number}", {}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    log.on_event(Event("end", "ends", {}))
    log.close()
    lines = path.read_text().splitlines()
    assert lines[0].endswith("begins")
    assert [line.split("Z ")[1] for line in lines[2:]] == ["note    3 lines are missing here", "end     ends"]


def test_a_log_that_cannot_be_opened_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.log").mkdir()
    log = RunLog(tmp_path / "run.log")
    log.on_event(Event("start", "begins", {}))
    log.close()
    assert not [*(tmp_path / "run.log").iterdir()]


def told_to(command: str, *events: Event) -> list[str]:
    """What is said when the command is told of these events."""
    said: list[str] = []
    listener = EventCommand(command, said.append)
    for event in events:
        listener.on_event(event)
    listener.close()
    return said


END = Event("end", "finished", {"exit_code": 0})


@pytest.mark.long
def test_a_command_gets_one_object_on_stdin(tiny: list[str]) -> None:
    command = "sh -c 'cat >> told; exit 0'"
    assert main(["train", "erl", *tiny, "--rounds", "1", "--run", "run", "--quiet", "--on-event", command]) == 0
    told = [json.loads(line) for line in Path("told").read_text().splitlines()]
    assert told[-1]["event"] == "end"
    assert told[-1]["finished"] is True
    assert {line["event"] for line in told} <= event_command.COMMAND_KINDS
    assert "on_event = " in Path("run/config.toml").read_text()
    assert main(["resume", "run", "--rounds", "2", "--quiet", "--on-event", ""]) == 0
    assert len(Path("told").read_text().splitlines()) == len(told), "it was taken away"


@pytest.mark.long
def test_a_command_that_a_url_names_is_not_run_on_another_machine(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--on-event", "sh -c 'cat >> told'", "--mirror", (tmp_path / "bucket").as_uri()]
    assert main(["train", "erl", *tiny, "--rounds", "1", "--run", "run", "--quiet", *words]) == 0
    told = Path("told").read_text()
    assert told
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    again = ["resume", f"{(tmp_path / 'bucket').as_uri()}/run", "--into", "brought", "--rounds", "2"]
    assert main(again) == 2
    assert "on_event = \"sh -c 'cat >> told'\"" in " ".join(capsys.readouterr().err.split())
    assert main(["resume", "brought", "--rounds", "2", "--on-event", ""]) == 0
    assert Path("told").read_text() == told
    assert '\non_event = ""\n' in Path("brought/config.toml").read_text()
    assert "run.log" in {path.name for path in Path("brought").iterdir()}, "the log is mirrored"


def test_a_command_that_fails_is_told_once_and_counted() -> None:
    said = told_to("sh -c 'cat > /dev/null; echo no such channel >&2; exit 3'", END, END, END)
    assert said == [
        "--on-event: the command ended with 3 (no such channel); further failures are counted",
        "--on-event: failed 3 times in all",
    ]


def test_a_command_that_does_not_read_is_no_fault() -> None:
    assert told_to("true", END, Event("alarm", "x" * 100_000, {})) == []


def alive(pid: int) -> bool:
    """Whether the process is there and has not ended; one that nobody has waited for is dead too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_command_that_hangs_is_ended_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_command, "LIMIT_SECONDS", 0.3)
    pid = tmp_path / "pid"
    said = told_to(f"sh -c 'sleep 600 & echo $! > {pid}; wait'", END)
    assert said == ["--on-event: the command took more than 0.3 s and was ended; further failures are counted"]
    started = int(pid.read_text())
    for _ in range(3000):  # a killed process is gone when the system comes to it
        if not alive(started):
            break
        time.sleep(0.01)
    assert not alive(started)


def test_rounds_are_not_told_to_a_command(tmp_path: Path) -> None:
    told_to(f'{sys.executable} -c \'open("{tmp_path}/told", "w")\'', Event("round", "1", {}), Event("saved", "1", {}))
    assert not (tmp_path / "told").exists()


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("nowhere-at-all --x", "'nowhere-at-all'"),
        ("sh -c 'echo", "quotes"),
        ("# ", "'#'"),
        ("cat > got.json", "`>` is for a shell"),
        ("cat | mail me", "`|` is for a shell"),
        ("cat 2>&1", "for a shell"),
        ("cat ;ls", "for a shell"),
        ("cat; ls", "`;` is for a shell"),
        ("cat &", "`&` is for a shell"),
    ],
)
def test_a_command_that_cannot_be_started_is_refused_before_the_run(command: str, part: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(part)) as refused:
        check_command(command)
    assert str(refused.value).startswith("on_event = ")


@pytest.mark.parametrize(
    "command", ["cat '>' x", "sh -c 'cat > x'", 'cat a="b > c"', "cat http://a?b=1&c=2", "cat a&b"]
)
def test_a_command_with_quoted_operators_needs_no_shell(command: str) -> None:
    check_command(command)
