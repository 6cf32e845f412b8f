"""A call leaves no environment open, and no process of one, however it ends; a failing `close()` costs nothing."""

import gc
import logging
from collections.abc import Callable, Iterator
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
from brought import Boat

import flatwater as fw
from flatwater.runs.callbacks import Round
from flatwater_watch.errors import MemoryLimitError

SMALL: dict[str, Any] = {"rounds": 2, "threads": 1, "trackers": (), "envs": 2, "block": 8}
SMALL |= {"evaluation": {"envs": 2, "every": 1}, "learner": {"minibatches": 1, "epochs": 1}, "policy": {"layers": [8]}}
SMALL |= {"wrapped": {"steps": 20}}
opened: list["Counted"] = []
"""Environments of this process that are open."""


class Counted(Boat):
    """Counts itself while it is open."""

    def __init__(self) -> None:
        super().__init__()
        opened.append(self)

    def close(self) -> None:
        opened.remove(self)  # an error where it is closed twice


class Stuck(Boat):
    """It cannot be closed."""

    def close(self) -> None:
        raise OSError("the anchor holds")


@pytest.fixture(autouse=True)
def _no_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep Python's collector from closing anything: it may come by at any time, or not at all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    gc.disable()
    yield
    gc.enable()
    opened.clear()


def train(env: Any, workers: int, **settings: Any) -> fw.TrainedRun:
    return fw.train("ppo", env=env, env_workers=workers, run="run", quiet=True, **SMALL | settings)


def fail(_: Round) -> None:
    raise ValueError("the harbour is closed")


def refuse(env: Any, workers: int) -> None:
    with pytest.raises(MemoryLimitError):
        train(env, workers, budget="1MiB")


def fail_amid_training(env: Any, workers: int) -> None:
    with pytest.raises(ValueError, match="the harbour is closed"):
        train(env, workers, on_round=fail)


def use(env: Any, workers: int) -> None:
    halves = train(env, workers, on_round=lambda round_: round_.stop())
    assert not halves.finished
    assert halves.resume().finished
    assert set(halves.evaluate()["players"]) == {"policy", "random"}
    assert fw.load(halves).act(Boat().reset(seed=0)[0]).shape == ()
    assert fw.fork(halves, run="fork", rounds=3, quiet=True).finished


CALLS: dict[str, Callable[[Any, int], object]] = {
    "planned": lambda env, workers: fw.plan("ppo", env=env, env_workers=workers, budget="1MiB", **SMALL),
    "refused": refuse,
    "failed": fail_amid_training,
    "stopped, resumed, evaluated, loaded and forked": use,
}


@pytest.mark.parametrize("call", CALLS)
def test_no_environment_stays_open(call: str) -> None:
    CALLS[call](lambda: Counted(), 0)  # noqa: PLW0108  (a class of this module has a name, and would need a permit)
    assert not opened


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_no_process_stays(call: str) -> None:
    CALLS[call](lambda: Boat(), 2)  # noqa: PLW0108  (same)
    assert not active_children()


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_an_environment_that_cannot_be_closed_costs_no_result(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        run = train(lambda: Stuck(), workers)  # noqa: PLW0108  (same)
    assert run.finished
    assert run.result is not None
    assert "close() raised OSError: the anchor holds" in caplog.text
    assert not active_children()
