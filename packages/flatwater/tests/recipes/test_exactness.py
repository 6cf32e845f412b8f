"""Environments with a state of their own: two rounds and two more are four, or it is said before training."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stateful
from trees import differing, leaf_copies, restore_
from watchers import Silent

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import command_class, main
from flatwater.recipes.evolve.run import compose as compose_evolve
from flatwater.recipes.ppo.run import compose as compose_ppo
from flatwater.recipes.teach.run import compose as compose_teach
from flatwater.rundir.inexact_reasons import read_inexact_reasons
from flatwater.rundir.layout import RunFolder
from flatwater.runs.world_run import WorldRun
from flatwater.state.tree import nbytes
from flatwater.trainers.loop import train_

COMMON = ("--threads", "1", "--trackers", "--rounds", "4", "--wrapped.steps", "9")
BLOCKS = ("--envs", "2", "--block", "8", "--learner.minibatches", "2", "--learner.epochs", "1")
BLOCKS += ("--evaluation.envs", "2", "--evaluation.every", "2")
SMALL = ("--population.size", "2", "--population.envs", "1", "--steps", "12", "--net.hidden", "8")
SMALL += ("--replay.warmup", "12", "--replay.capacity", "200", "--evaluation.episodes", "2")
RECIPES: dict[str, tuple[tuple[str, ...], Callable[[Any], WorldRun]]] = {
    "ppo": ((*COMMON, *BLOCKS, "--learner.unroll", "8", "--env"), compose_ppo),
    "evolve": ((*COMMON, *SMALL, "--env"), compose_evolve),
    "teach": (
        (*COMMON, *BLOCKS, "--learner.unroll", "4", "--policy.memory", "4", "--teacher", "random", "--world"),
        compose_teach,
    ),
}
QUICK = {("ppo", "Line"), ("ppo", "Frames"), ("ppo", "Inner"), ("ppo", "Counts"), ("teach", "NormalTurns")}
QUICK |= {("evolve", "Recorded"), ("evolve", "SavesSums"), ("evolve", "OfNumpy")}
CASES = [(recipe, kind) for recipe in ("ppo", "evolve") for kind in (*stateful.EXACT, *stateful.SAVED, *stateful.KINDS)]
CASES = [(recipe, kind) for recipe, kind in CASES if (recipe, kind) != ("evolve", "Turns")]
CASES += [("teach", kind) for kind in ("Turns", "NormalTurns", "CountsTurns")]
STOPS = (3, 29, 55)
"""Within a block, an evaluation, another block."""


def compose_kind(recipe: str, kind: str, *more: str) -> WorldRun:
    options, compose = RECIPES[recipe]
    command = ("train", recipe)
    return compose(command_class(command).read(" ".join(command), [*options, f"stateful:{kind}", *more]).settings())


def begin_run(recipe: str, kind: str) -> WorldRun:
    run = compose_kind(recipe, kind)
    run.begin_()
    return run


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("recipe", "kind"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES],
)
def test_resumed_at_any_step_it_is_as_in_one_go_or_it_was_said(recipe: str, kind: str) -> None:
    whole = begin_run(recipe, kind)
    assert nbytes(whole.trainer.run) == whole.plan.owners
    told = stateful.KINDS.get(kind, "after another episode" if kind == "CountsTurns" else "")
    assert bool(whole.doubts) == bool(told)
    assert told in "".join(whole.doubts)
    train_(whole.trainer, 4, Silent())
    whole.gather_()
    for stop in STOPS:
        first, second = begin_run(recipe, kind), compose_kind(recipe, kind)
        assert not train_(first.trainer, 4, Silent(stop))
        first.gather_()
        second.doubts.extend(first.doubts)
        restore_(second.trainer.run, leaf_copies(first.trainer.run))
        second.rebuild_()
        assert second.doubts == first.doubts
        train_(second.trainer, 4, Silent())
        second.gather_()
        if not told:
            assert differing(leaf_copies(second.trainer.run), leaf_copies(whole.trainer.run)) == [], (
                f"stopped after {stop} steps"
            )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with an environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def train(run: str, kind: str, rounds: int) -> int:
    options, _ = RECIPES["ppo"]
    return main(["train", "ppo", *options, f"stateful:{kind}", "--rounds", str(rounds), "--run", run])


@pytest.mark.long
def test_a_run_that_is_not_exact_says_so_before_training_in_its_folder_and_at_each_resume(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("run", "Counts", 1) == 0
    said = capsys.readouterr().out
    sentence = f"not exact: stateful:Counts: {stateful.KINDS['Counts']}"
    assert said.index(sentence) < said.index("block")
    assert json.loads((folder / "run" / "not_exact.json").read_text())["exact"] is False
    assert main(["runs", "."]) == 0
    assert "finished*" in (listed := capsys.readouterr().out)
    assert f"* run: {sentence}" in listed
    assert main(["report", "run"]) == 0
    assert stateful.KINDS["Counts"] in (folder / "run" / "report.html").read_text()
    capsys.readouterr()
    for rounds in ("2", "3"):
        assert main(["resume", "run", "--rounds", rounds]) == 0
        assert sentence in capsys.readouterr().out


@pytest.mark.long
def test_what_turns_out_not_to_be_exact_goes_on_with_new_episodes(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class was edited: its observations are the same, its rewards are others."""
    assert train("run", "Line", 1) == 0
    assert read_inexact_reasons(RunFolder(folder / "run")) == []
    step = stateful.Line.step
    monkeypatch.setattr(stateful.Line, "step", lambda self, action: (step(self, action)[0], -5.0, False, False, {}))
    capsys.readouterr()
    assert main(["resume", "run", "--rounds", "2"]) == 0
    (doubt,) = read_inexact_reasons(RunFolder(folder / "run"))
    assert doubt.startswith("stateful:Line: rewards ")
    assert "round 2" in doubt
    assert "not exact: stateful:Line: rewards " in capsys.readouterr().out
    assert main(["resume", "run", "--rounds", "3"]) == 0
    assert "not exact" in capsys.readouterr().out


@pytest.mark.few(1)
@pytest.mark.parametrize("recipe", ["ppo", "evolve", "teach"])
def test_what_shows_only_after_the_test_at_the_beginning_is_told_of_episodes_that_are_played_again(recipe: str) -> None:
    run = begin_run(recipe, "LateTurns" if recipe == "teach" else "Late")
    run.listen_(None)
    assert run.doubts == []
    for rounds in range(3, 31, 3):  # a checkpoint after each three rounds
        train_(run.trainer, rounds, Silent())
        run.gather_()
    (doubt,) = run.doubts
    assert "returns of an episode differ when it is played again in a new environment: at step " in doubt


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("recipe", "kind"),
    [
        pytest.param(recipe, kind, marks=() if (recipe, kind) in QUICK else pytest.mark.slow)
        for recipe, kind in CASES
        if kind in {*stateful.EXACT, *stateful.SAVED, "NormalTurns"}
    ],
)
def test_episodes_that_are_played_again_change_no_number_and_raise_no_doubt(recipe: str, kind: str) -> None:
    alone, beside = begin_run(recipe, kind), begin_run(recipe, kind)
    beside.listen_(None)
    for rounds in (2, 4):
        for run in (alone, beside):
            train_(run.trainer, rounds, Silent())
            run.gather_()
    assert beside.doubts == []
    assert differing(leaf_copies(beside.trainer.run), leaf_copies(alone.trainer.run)) == []


@pytest.mark.long
def test_a_state_that_outgrows_its_room_is_told_and_the_run_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("run", "Grows", 4) == 0
    assert "not exact: stateful:Grows: " in capsys.readouterr().out
    assert len(read_inexact_reasons(RunFolder(folder / "run"))) == 1
    assert main(["resume", "run", "--rounds", "5"]) == 0


def test_an_exact_run_has_the_leaves_of_before(folder: Path) -> None:
    """What is kept has leaves only where something is: a checkpoint of an exact run is as it was."""
    assert train("exact", "Line", 1) == 0
    assert train("kept", "Twice", 1) == 0
    paths = [
        {leaf.path for leaf in list_checkpoints(folder / run / "checkpoints")[-1].leaves} for run in ("exact", "kept")
    ]
    assert {*paths[1]} - {*paths[0]} == {"episodes.kept.world", "held_out.episodes.kept.world"}
