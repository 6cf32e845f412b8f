"""A run is the same with every tracker, with none, and with one that raises or never answers."""

import importlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from rich.console import Console

from flatwater.cli.main import command_class, main
from flatwater.metrics.jsonl import read_metrics
from flatwater.metrics.sinks import Metrics
from flatwater.runs import trackers
from flatwater.runs.session import start_new_run
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_watch.errors import ConfigError
from flatwater_watch.events.background import BackgroundSink, Sink

REQUIRED = {
    "system/gpu_memory_allocated_MB",
    "system/rss_MB",
    "train/sps",
    "fitness/mean",
    "validation/champion",
    "buffer/fill",
    "buffer/missing",
    "memory/replay.action",
}


class Deaf:
    """Never answers."""

    def __init__(self, gate: Event) -> None:
        self.gate = gate

    def write(self, round: int, metrics: Metrics) -> None:  # noqa: ARG002
        self.gate.wait()

    def close(self) -> None:
        raise AssertionError("it never came to this")


@pytest.fixture
def gate() -> Iterator[Event]:
    """Opened at the end of the test, so that no thread outlives it."""
    gate = Event()
    yield gate
    gate.set()


def use(monkeypatch: pytest.MonkeyPatch, tracker: Callable[[], Sink]) -> None:
    """Let `tensorboard` be this tracker, and the end of a run wait a tenth of a second for it."""
    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", trackers.Tracker(lambda *_: tracker()))
    monkeypatch.setattr(trackers, "BackgroundSink", partial(BackgroundSink, grace=0.1))


def start_run(tiny: list[str], *options: str) -> tuple[Path, str]:
    """A run of two rounds, and what it says."""
    command = command_class(("train", "erl")).read("flatwater train erl", [*tiny, "--rounds", "2", *options])
    console = Console(file=io.StringIO(), width=200)
    outcome = start_new_run(command.settings(), Path("run"), console)
    assert outcome.exit_code == 0
    return outcome.folder.path, console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.long
def test_every_required_name_is_in_each_round(train: Callable[..., Path]) -> None:
    columns = read_metrics(train("run", "--rounds", "2", algorithm="ddpg") / "metrics.jsonl")
    assert set(columns) >= REQUIRED
    assert columns["system/rss_MB"] == [size / 1e6 for size in columns["memory/resident"]]
    assert columns["system/gpu_memory_allocated_MB"] == [0, 0]
    assert all(pace > 0 for pace in columns["train/sps"])


def test_a_tracker_that_raises_is_told_and_the_run_is_the_same(
    tiny: list[str],
    train: Callable[..., Path],
    same: Callable[[Path, Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses() -> Sink:
        raise OSError("no route to host")

    use(monkeypatch, refuses)
    run, said = start_run(tiny)
    assert "tensorboard: failed (OSError: no route to host); 2 rounds not sent" in said
    same(train("told", "--rounds", "2"), run)


@pytest.mark.long
def test_a_tracker_that_never_answers_is_left_alone_and_what_waits_has_an_owner(
    tiny: list[str],
    train: Callable[..., Path],
    same: Callable[[Path, Path], None],
    gate: Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use(monkeypatch, lambda: Deaf(gate))
    run, said = start_run(tiny)
    assert "tensorboard: did not end within 0 s and is left alone; 2 rounds not sent" in said
    same(train("told", "--rounds", "2"), run)
    lines = (run / "ledger.jsonl").read_text().splitlines()
    first, second = [json.loads(line)["owned"].get("trackers.tensorboard", 0) for line in lines]
    assert first == 0, "weighed before the round is in the queue"
    assert second == len((run / "metrics.jsonl").read_bytes().splitlines()[0])


@pytest.mark.long
def test_a_run_without_trackers_writes_none(tiny: list[str]) -> None:
    run, _ = start_run(tiny, "--trackers")
    assert not (run / "tensorboard").exists()


@pytest.mark.parametrize(("name", "installed"), [("wandb", "'flatwater[wandb]'"), ("tensorboard", "flatwater")])
def test_a_missing_package_is_told_before_the_run_with_what_brings_it(
    name: str, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"flatwater.metrics.{name}", raising=False)
    monkeypatch.delattr(importlib.import_module("flatwater.metrics"), name, raising=False)
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    config = ErlRunConfig(trackers=(name,))
    with pytest.raises(ConfigError, match=rf"trackers: .*{name}.*pip install {re.escape(installed)}, or"):
        trackers.check_trackers(config)


def test_a_tracker_is_named_once() -> None:
    with pytest.raises(ConfigError, match="trackers"):
        ErlRunConfig(trackers=("wandb", "wandb"))


@pytest.mark.slow
def test_a_killed_and_resumed_run_has_one_id_in_weights_and_biases(replayed: list[str]) -> None:
    wandb = pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    options = ["--trackers", "wandb", "tensorboard", "--wandb.mode", "offline"]
    run, _ = start_run(replayed, *options)
    assert main(["resume", str(run), "--rounds", "5"]) == 0
    wandb.teardown()  # the library's own process writes on after a run is closed
    files = sorted(run.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert {file.name for file in files} == {f"run-{(run / 'wandb' / 'run-id.txt').read_text()}.wandb"}
    assert all(name.encode() in files[0].read_bytes() for name in REQUIRED)
