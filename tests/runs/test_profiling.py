"""Rounds recorded with torch's profiler: a trace that viewers read, and a run whose numbers do not change."""

import gzip
import json
from bisect import bisect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY_PPO

from flatwater.cli.main import main
from flatwater.errors import ConfigError
from flatwater.runs.profiling import check_profiled, profiled_rounds

Train = Callable[..., Path]
Same = Callable[[Path, Path], None]


def steps(trace: Path) -> list[dict[str, Any]]:
    """The steps of a recorded round in their order, each with the number of its operations."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    found = [event for event in events if event.get("cat") == "user_annotation"]
    operations = sorted(event["ts"] for event in events if event.get("cat") == "cpu_op")
    for step in found:
        step["operations"] = bisect(operations, step["ts"] + step["dur"]) - bisect(operations, step["ts"])
    return sorted(found, key=lambda step: step["ts"])


def test_a_recorded_round_has_a_trace_and_the_same_numbers(
    tiny: list[str], train: Train, same: Same, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "erl", *tiny, "--rounds", "2", "--run", "run", "--profile", "rounds=2"]) == 0
    said = capfd.readouterr()
    assert "a trace of round 2 is in profile/round-000002.json.gz" in said.out
    assert said.err == ""
    assert [path.name for path in Path("run/profile").iterdir()] == ["round-000002.json.gz"]
    found = steps(Path("run/profile/round-000002.json.gz"))
    assert [step["name"] for step in found] == ["learn 1", "learn 2", "evaluate 1", "validate 1", "evolve 1", "settle"]
    assert all(step["operations"] > 0 for step in found[:-1])
    same(train("whole", "--rounds", "2"), Path("run"))


@pytest.mark.slow
def test_phases_without_steps_are_left_out() -> None:
    """The baselines of a run of PPO play in its first round alone, and its policy is looked at in every second."""
    words = ["train", "ppo", *TINY_PPO, "--rounds", "2", "--run", "run", "--quiet", "--profile", "rounds=1-2"]
    assert main(words) == 0
    names = [{step["name"].split()[0] for step in steps(path)} for path in sorted(Path("run/profile").iterdir())]
    assert names[0] == {"baselines", "collect", "update", "settle"}
    assert names[1] == {"collect", "update", "evaluate", "settle"}


def test_a_resumed_run_is_recorded_as_well(train: Train) -> None:
    run = train("run", "--rounds", "1")
    assert main(["resume", str(run), "--rounds", "2", "--quiet", "--profile", "rounds=2-2"]) == 0
    assert steps(run / "profile" / "round-000002.json.gz")


def test_a_trace_that_cannot_be_written_costs_the_trace_alone(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run", "--rounds", "1")
    (run / "profile").write_text("a file is in the way")
    assert main(["resume", str(run), "--rounds", "2", "--profile", "rounds=2"]) == 0
    assert "the trace of round 2 cannot be written" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("wanted", ["", "3", "rounds=", "rounds=0", "rounds=5-2", "rounds=1-200", "rounds=-1"])
def test_what_is_no_range_of_rounds_is_refused(wanted: str) -> None:
    with pytest.raises(ConfigError, match=r"--profile .*must be"):
        profiled_rounds(wanted)


def test_rounds_that_do_not_come_are_refused() -> None:
    assert profiled_rounds("rounds=3-5") == range(3, 6)
    check_profiled(range(3, 6), 2, 5)
    with pytest.raises(ConfigError, match="--profile rounds=3-5: must be within 4 to 5"):
        check_profiled(range(3, 6), 3, 5)
    with pytest.raises(ConfigError, match="--profile rounds=6: must be within 4 to 5"):
        check_profiled(range(6, 7), 3, 5)
    with pytest.raises(ConfigError, match="no rounds to come"):
        check_profiled(range(6, 7), 5, 5)


def test_nothing_is_made_where_the_rounds_do_not_come(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "erl", *tiny, "--rounds", "1", "--run", "run", "--profile", "rounds=2"]) == 2
    assert "must be within 1 to 1" in capsys.readouterr().err
    assert not Path("run").exists()
