"""Rounds recorded with torch's profiler: traces that viewers read, of a bounded size, and a run as it was without."""

import gzip
import json
import re
from bisect import bisect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import TINY_PPO

from flatwater.cli.main import main
from flatwater.rundir.events import RunEvents
from flatwater.runs.profiling import OPERATION_MARK, TRACE_BYTES, Profiler, check_profiled_rounds, profiled_rounds
from flatwater.trainers.loop import Phase, Progress, train_
from flatwater_watch.errors import ConfigError
from flatwater_watch.terminal import lasting_terminal
from flatwater_watch.units import format_bytes

Train = Callable[..., Path]
Same = Callable[[Path, Path], None]


def steps(trace: Path) -> list[dict[str, Any]]:
    """The steps of a trace in their order, each with the number of its operations."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    found = [event for event in events if event.get("cat") == "user_annotation"]
    operations = sorted(event["ts"] for event in events if event.get("cat") == "cpu_op")
    for step in found:
        step["operations"] = bisect(operations, step["ts"] + step["dur"]) - bisect(operations, step["ts"])
    return sorted(found, key=lambda step: step["ts"])


def traces(run: str) -> dict[str, list[str]]:
    """The names of the steps in each trace of a run."""
    return {path.name: [step["name"] for step in steps(path)] for path in sorted(Path(run, "profile").iterdir())}


@pytest.mark.long
def test_a_recorded_round_has_traces_and_the_same_numbers(
    tiny: list[str], train: Train, same: Same, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "erl", *tiny, "--rounds", "2", "--run", "run", "--profile", "rounds=2"]) == 0
    said = capfd.readouterr()
    assert "profile/round-000002-learn-1.json.gz" in said.out
    assert said.err == ""
    names = ["learn 1", "learn 2", "evaluate 1", "validate 1", "evolve 1"]
    files = {f"round-000002-{name.replace(' ', '-')}.json.gz": [name] for name in names}
    assert traces("run") == files
    assert all(step["operations"] > 0 for path in Path("run/profile").iterdir() for step in steps(path))
    same(train("whole", "--rounds", "2"), Path("run"))


PHASES = {"collect": 40, "none": 0, "update": 3}
"""Steps of each phase of a round."""


class Matrices:
    """A trainer whose steps are products of matrices; a part of it is not there in each round."""

    def __init__(self, products: Callable[[int], int]) -> None:
        self.run, self.progress = object(), Progress()
        self.phases = [
            Phase(name, lambda count=count: count, lambda step: self.multiply(products(step)))  # type: ignore[misc]
            for name, count in PHASES.items()
        ]

    def multiply(self, products: int) -> None:
        for _ in range(products):
            torch.ones(2, 2) @ torch.ones(2, 2)

    def settle_(self) -> dict[str, float]:
        return {}


@dataclass
class Follower:
    """What the loop reports to."""

    profiler: Profiler

    def on_step(self, phase: str, done: int, total: int) -> None:  # noqa: ARG002
        self.profiler.after_step_()

    def on_round(self, round_: int, metrics: Mapping[str, float]) -> None:  # noqa: ARG002
        self.profiler.after_round_(round_)

    def should_stop(self) -> bool:
        return False


@pytest.mark.parametrize("products", [1, 4, 20])
@pytest.mark.parametrize("most", [10, 100, 1000])
def test_no_trace_has_more_operations_than_are_planned_but_for_a_single_step(
    products: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flatwater.runs.profiling.MAXIMUM_OPERATIONS", most)
    monkeypatch.setattr("flatwater.runs.profiling.RECORDED_BYTES", 1 << 20)  # the heap has nothing to say of so few
    trainer = Matrices(lambda _: products)
    profiler = Profiler(range(2, 4), tmp_path / "profile", torch.device("cpu"), trainer, RunEvents(lasting_terminal()))
    profiler.begin_(1)
    assert train_(trainer, 4, Follower(profiler))
    profiler.close()
    found = {path.name: steps(path) for path in sorted((tmp_path / "profile").iterdir())}
    first = gzip.decompress((tmp_path / "profile/round-000002-collect-1.json.gz").read_bytes())
    one = first.count(OPERATION_MARK)
    for round_, phase in product((2, 3), PHASES):
        recorded = [each for name, each in found.items() if name.startswith(f"round-{round_:06}-{phase}-")]
        whole = 0 if one > most and round_ > 2 else min(PHASES[phase], 1 + most // one)
        names = [step["name"] for each in recorded for step in each]
        assert sorted(names) == sorted(f"{phase} {n}" for n in range(1, whole + 1))
        assert len(recorded) <= 2
    for each in found.values():
        assert len(each) == 1 or sum(step["operations"] for step in each) <= most
    said = " ".join(capsys.readouterr().out.split())
    assert ("a step of collect has more operations" in said) == (one > most)
    assert ("other steps of collect in round 3" in said) == (one <= most and 1 + most // one < 40)


def test_steps_that_have_more_operations_than_the_first_end_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    most = 20_000
    monkeypatch.setattr("flatwater.runs.profiling.MAXIMUM_OPERATIONS", most)
    trainer = Matrices(lambda step: 1 if step < 3 else 500)
    profiler = Profiler(range(1, 2), tmp_path / "profile", torch.device("cpu"), trainer, RunEvents(lasting_terminal()))
    profiler.begin_(1)
    assert train_(trainer, 1, Follower(profiler))
    (path,) = (path for path in (tmp_path / "profile").iterdir() if "collect-2" in path.name)
    found = [step["operations"] for step in steps(path)]
    assert most / 2 < sum(found) <= most + max(found)
    assert "other steps of collect in round 1" in " ".join(capsys.readouterr().out.split())


@pytest.mark.long
def test_memory_for_traces_is_planned_and_refused(
    tiny: list[str], train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = json.loads((train("plain", "--rounds", "1") / "plan.json").read_text())
    command = ["train", "erl", *tiny, "--rounds", "1", "--profile", "rounds=1"]
    assert main([*command, "--run", "recorded"]) == 0
    said = capsys.readouterr().out
    assert "records round 1" in said
    size = format_bytes(TRACE_BYTES)
    assert f"up to {size}, to profile/" in " ".join(said.split())
    planned = json.loads(Path("recorded/plan.json").read_text())
    assert planned["owners"] == plain["owners"] | {"profile.trace": TRACE_BYTES}
    assert main(["plan", "erl", *tiny, "--json"]) == 0  # anew: this process has more resident than at its first run
    budget = str(json.loads(capsys.readouterr().out)["needed_bytes"] + TRACE_BYTES // 2)
    assert main([*command, "--run", "small", "--budget", budget]) == 3
    assert f"without --profile: {size} less" in capsys.readouterr().err
    assert not Path("small").exists()
    assert main([*command, "--run", "small", "--budget", budget, "--start-over-budget"]) in {0, 4}


@pytest.mark.slow
def test_phases_without_steps_are_left_out() -> None:
    """The baselines of a run of PPO play in its first round alone, and its policy is looked at in every second."""
    words = ["train", "ppo", *TINY_PPO, "--rounds", "2", "--run", "run", "--quiet", "--profile", "rounds=1-2"]
    assert main(words) == 0
    of = [
        {name.split()[0] for path, found in traces("run").items() if f"round-00000{n}" in path for name in found}
        for n in (1, 2)
    ]
    assert of == [{"baselines", "collect", "update"}, {"collect", "update", "evaluate"}]


@pytest.mark.slow
def test_a_resumed_run_is_recorded_as_well(train: Train) -> None:
    run = train("run", "--rounds", "1")
    assert main(["resume", str(run), "--rounds", "2", "--quiet", "--profile", "rounds=2-2"]) == 0
    assert steps(run / "profile" / "round-000002-learn-1.json.gz")


@pytest.mark.long
def test_a_trace_that_cannot_be_written_costs_the_traces_alone(
    train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train("run", "--rounds", "1")
    (run / "profile").write_text("a file is in the way")
    assert main(["resume", str(run), "--rounds", "2", "--profile", "rounds=2"]) == 0
    assert " ".join(capsys.readouterr().out.split()).count("trace of round 2 cannot be written") == 1


@pytest.mark.parametrize("wanted", ["", "3", "rounds=", "rounds=0", "rounds=5-2", "rounds=1-200", "rounds=-1"])
def test_what_is_no_range_of_rounds_is_refused(wanted: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"--profile '{wanted}': ")):
        profiled_rounds(wanted)


def test_rounds_that_do_not_come_are_refused() -> None:
    assert profiled_rounds("rounds=3-5") == range(3, 6)
    check_profiled_rounds(range(3, 6), 2, 5)
    with pytest.raises(ConfigError, match=r"--profile rounds=3-5: .*4 to 5"):
        check_profiled_rounds(range(3, 6), 3, 5)
    with pytest.raises(ConfigError, match=r"--profile rounds=6: .*4 to 5"):
        check_profiled_rounds(range(6, 7), 3, 5)
    with pytest.raises(ConfigError, match=r"--profile .*--rounds N"):
        check_profiled_rounds(range(6, 7), 5, 5)


def test_nothing_is_made_where_the_rounds_do_not_come(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "erl", *tiny, "--rounds", "1", "--run", "run", "--profile", "rounds=2"]) == 2
    assert "1 to 1" in capsys.readouterr().err
    assert not Path("run").exists()
