"""A warm start takes networks and the statistics of their inputs from another run, and nothing else."""

from pathlib import Path

import pytest
from small_runs import TINY_GROW, TINY_PPO, newest_leaves

import flatwater as fw
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import main
from flatwater.reports.page import run_page
from flatwater.reports.records import read_run
from flatwater.rundir.listing import list_runs
from flatwater_watch.errors import ConfigError

TINY_EVOLVE = [
    *("--threads", "1", "--env", "gymnasium:Pendulum-v1", "--population.size", "2", "--steps", "4", "--wrapped.steps"),
    *(
        "8",
        "--evaluation.episodes",
        "1",
        "--replay.capacity",
        "64",
        "--replay.warmup",
        "8",
        "--learner.td3.batch-size",
        "4",
    ),
]
RECIPES = {
    "ppo": (TINY_PPO, "learner.block"),
    "evolve": (TINY_EVOLVE, "learner.actor"),
    "grow": (TINY_GROW, "learner.block"),
}


def begun_leaves(run: Path | str) -> dict[str, str]:
    """Leaf -> hash, of the checkpoint before the first round."""
    first = next(m for m in list_checkpoints(Path(run, "checkpoints")) if m.round == m.step == 0)
    return {leaf.path: leaf.sha256 for leaf in first.leaves}


def train(recipe: str, run: str, *more: str) -> int:
    options = ["--rounds", "1", "--checkpoints.keep", "9", "--trackers", "--quiet", *more]
    return main(["train", recipe, *RECIPES[recipe][0], *options, "--run", run])


@pytest.mark.few(1)
@pytest.mark.parametrize("recipe", ["ppo", "evolve", pytest.param("grow", marks=pytest.mark.slow)])
def test_the_weights_are_the_other_s_and_all_else_is_that_of_a_new_run(recipe: str) -> None:
    for run, more in (("first", ()), ("fresh", ("--seed", "1")), ("warm", ("--seed", "1", "--from-run", "first"))):
        assert train(recipe, run, *more) == 0
    trained, fresh, warm = newest_leaves(Path("first")), begun_leaves("fresh"), begun_leaves("warm")
    taken = {path for path in fresh if warm[path] != fresh[path]}
    assert RECIPES[recipe][1] in taken
    assert all(warm[path] == trained[path] for path in taken)
    assert not [path for path in taken if "adam" in path or not path.startswith("learner.")]


@pytest.mark.long
def test_it_is_recorded_and_is_resumed_like_any_run(tmp_path: Path) -> None:
    assert train("ppo", "first") == 0
    first = tmp_path / "first"
    warm = fw.train("ppo", config=first / "config.toml", from_run="first", run="warm", envs=4, rounds=1, quiet=True)
    said = f"began with the weights of {first}"
    assert [line.origin for line in list_runs(tmp_path)] == ["", said]
    assert said in run_page(read_run(warm.path))
    first.rename("moved")  # its weights are in the new run by now
    assert warm.resume(2, quiet=True).finished
    assert fw.fork(warm, run="forked", rounds=3, quiet=True).finished


def test_weights_that_do_not_fit_are_refused_by_their_leaves(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("ppo", "first") == 0
    assert train("ppo", "warm", "--from-run", "first", "--policy.memory", "8") == 2
    said = capsys.readouterr().err
    assert "learner.block: tensor float32" in said
    assert "from_run = " in said
    assert not Path("warm").exists()


@pytest.mark.long
@pytest.mark.parametrize(("other", "names"), [("none", "none"), ("evolve", "learner.block: absent in the checkpoint")])
def test_a_run_that_has_no_such_weights_is_refused(other: str, names: str, capsys: pytest.CaptureFixture[str]) -> None:
    if other == "evolve":
        assert train("evolve", "evolve") == 0
    assert train("ppo", "warm", "--from-run", other) == 2
    assert names in capsys.readouterr().err


def test_a_fork_has_its_weights_already() -> None:
    assert train("ppo", "first") == 0
    with pytest.raises(ConfigError, match="--from-run: a fork"):
        fw.fork("first", rounds=2, from_run="first", quiet=True)


@pytest.mark.long
def test_a_mirror_is_as_good_as_the_folder(tmp_path: Path) -> None:
    assert train("ppo", "first", "--mirror", (tmp_path / "bucket").as_uri()) == 0
    assert train("ppo", "warm", "--from-run", f"{(tmp_path / 'bucket').as_uri()}/first", "--seed", "1") == 0
    assert begun_leaves("warm")["learner.block"] == newest_leaves(Path("first"))["learner.block"]
