"""Small runs through the command line, in this process; tests that need a process of their own start one."""

import json
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from flatwater.cli.main import main
from flatwater.comparisons.side_by_side import MACHINE_METRICS

SIZE = [
    "--panel",
    "synthetic:6x260",
    "--threads",
    "1",
    "--population.size",
    "4",
    "--evaluation.train-slices",
    "2",
    "--evaluation.validation-slices",
    "2",
    "--env.episode.context",
    "20",
    "--env.episode.trading-days",
    "15",
    "--env.episode.settlement-days",
    "5",
    "--env.trade.hold-days",
    "5",
    "--splits.holdout-days",
    "40",
    "--splits.validation-days",
    "40",
    "--net.channels",
    "4",
    "--net.hidden",
    "8",
]


def tiny_of(algorithm: str) -> list[str]:
    """The options of a small run of an algorithm."""
    own = f"--learner.{algorithm}"
    learner = ["--learner.algorithm", algorithm, f"{own}.updates", "2", f"{own}.batch-size", "8"]
    replay = [] if algorithm == "hindsight" else ["--replay.generations", "2", "--replay.warmup", "50"]
    return [*SIZE, *learner, *replay]


TINY = tiny_of("hindsight")

TINY_GROW = [
    "--threads",
    "1",
    "--envs",
    "2",
    "--env.steps",
    "3",
    "--env.fit.updates",
    "1",
    "--env.fit.batch-size",
    "4",
    "--policy.hidden",
    "8",
    "--policy.memory",
    "8",
    "--learner.minibatches",
    "1",
    "--evaluation.episodes",
    "2",
    "--evaluation.every",
    "2",
]
FORAGES = find_spec("mettagrid") is not None
"""Its package has wheels for Python 3.11 and 3.12 alone."""
TINY_TEACH = [
    "--threads",
    "1",
    "--envs",
    "2",
    "--block",
    "4",
    "--world",
    "forage" if FORAGES else "gymnasium:BabyAI-GoToRedBallNoDists-v0",
    "--teacher",
    "search" if FORAGES else "babyai",
    "--wrapped.steps",
    "6",
    "--foraging.agents",
    "2",
    "--foraging.size",
    "9",
    "--foraging.walls",
    "4",
    "--foraging.steps",
    "6",
    "--foraging.tokens",
    "16",
    "--policy.rows",
    "64",
    "--policy.width",
    "8",
    "--policy.hidden",
    "8",
    "--policy.memory",
    "8",
    "--learner.unroll",
    "2",
    "--learner.minibatches",
    "2",
    "--evaluation.envs",
    "2",
    "--evaluation.every",
    "2",
]
TINY_PPO = ["--threads", "1", "--envs", "2", "--block", "8", "--evaluation.envs", "2", "--evaluation.every", "2"]
TINY_PPO += ["--learner.epochs", "2", "--learner.minibatches", "2"]
TINY_PPO += ["--wrapped.steps", "12"]  # else each result plays an environment's 500 steps, or 1,000
SMALL_PPO: dict[str, Any] = {
    "envs": 2,
    "block": 8,
    "learner": {"epochs": 1, "minibatches": 2},
    "threads": 1,
    "trackers": (),
    "wrapped": {"steps": 12},
    "quiet": True,
}
"""Settings of a run of a few milliseconds a round, from Python."""
OPTIONS = {"erl": TINY, "grow": TINY_GROW, "teach": TINY_TEACH, "ppo": TINY_PPO}
"""Options of a small run, by its kind."""

Records = list[dict[str, Any]]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the synthetic panel is kept, once for all tests of this folder."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_place(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return iter([None])


@pytest.fixture(autouse=True)
def _no_picture(unpainted: None) -> None:
    """Of hundreds of runs."""
    assert unpainted is None


@pytest.fixture
def tiny() -> list[str]:
    """The options of a small run."""
    return [*TINY]


@pytest.fixture
def replayed() -> list[str]:
    """The options of a small run that learns from a replay."""
    return tiny_of("ddpg")


_trained: dict[tuple[bool, tuple[str, ...]], Path] = {}


@pytest.fixture
def train(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """A small run, trained to its end: `train("name", "--rounds", "3", algorithm="td3")` gives its folder.

    Runs with the same options are the same (`test_resume.py`), so they are trained once and copied.
    """

    def train_once(name: str, *more: str, algorithm: str = "hindsight") -> Path:
        words = (*tiny_of(algorithm), *more)
        options = ("painted" in request.fixturenames, words)
        if options not in _trained:
            folder = tmp_path_factory.mktemp("trained") / "run"
            assert main(["train", "erl", *words, "--run", str(folder)]) == 0
            _trained[options] = folder
        shutil.copytree(_trained[options], tmp_path / name)
        return tmp_path / name

    return train_once


@pytest.fixture
def same() -> Callable[[Path, Path], None]:
    """Check that two runs are in the same state and tell the same story, but for times and memory."""
    return assert_same


def newest_leaves(run: Path) -> dict[str, str]:
    """Leaf -> hash, of the newest checkpoint, as the manifests have them."""
    newest = max((run / "checkpoints").glob("*.json"))
    return {leaf["path"]: leaf["sha256"] for leaf in json.loads(newest.read_text())["leaves"]}


def assert_same(first: Path, second: Path) -> None:
    leaves = newest_leaves(first)
    assert leaves == newest_leaves(second)
    assert len(leaves) > 25
    for name in ("metrics.jsonl", "lineage.jsonl", "episodes.jsonl", "lessons.jsonl", "alarms.jsonl"):
        assert records(first / name) == records(second / name), name
    results = {path.name for path in first.iterdir()} & {*RESULTS}
    assert "result.json" in results
    for name in results:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


RESULTS = ("trades.parquet", "equity.parquet", "lives.npz", "result.json")


def records(path: Path) -> Records:
    """The lines of a file of records, without what depends on the machine."""
    return [{k: v for k, v in line.items() if not k.startswith(MACHINE_METRICS)} for line in entries(path)]


def entries(path: Path) -> Records:
    """The lines of a file of records; none where it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
