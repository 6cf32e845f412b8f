"""Schedules and the early end of updates: their values, and that a run which is stopped anywhere goes on with them."""

import math
from pathlib import Path
from typing import Any

import pytest
from trees import differing, leaf_copies, restore_
from watchers import Silent

import flatwater as fw
from flatwater.algorithms.on_policy_config import PPOConfig
from flatwater.algorithms.schedules import SHAPES, find_schedule, scheduled_numbers
from flatwater.api import resolve_config
from flatwater.recipe import recipe_of_config
from flatwater.recipes.ppo.run import compose
from flatwater.runs.settings_checks import check_settings
from flatwater.state.tree import nbytes
from flatwater.trainers.loop import train_
from flatwater_watch.errors import ConfigError

SMALL: dict[str, Any] = {"envs": 2, "block": 8, "rounds": 4, "threads": 1, "wrapped": {"steps": 9}}
SMALL |= {"evaluation": {"envs": 2, "every": 4}}
LEARNER: dict[str, Any] = {"minibatches": 4, "epochs": 2, "entropy_weight": 0.01}
ALL: dict[str, Any] = {"lr_schedule": "cosine", "clip_schedule": f"{__name__}:shrink", "entropy_schedule": "linear"}


def shrink(progress: float) -> float:
    return 1 - progress / 2


def below_zero(progress: float) -> float:
    return progress - 1


def begin_run(**learner: Any) -> Any:
    config = resolve_config("ppo", None, SMALL | {"learner": LEARNER | learner})
    run = compose(recipe_of_config(config).prepare(config))
    run.begin_()
    return run


def test_shapes_begin_with_the_whole_value_and_fall() -> None:
    assert {name: value(0) for name, value in SHAPES.items()} == dict.fromkeys(SHAPES, 1.0)
    assert [SHAPES["linear"](share) for share in (0.25, 1)] == [0.75, 0]
    assert [SHAPES["cosine"](share) for share in (0.5, 1)] == pytest.approx([0.5, 0])
    config = PPOConfig(lr=0.5, lr_schedule="linear", clip_schedule="cosine").for_rounds(4)
    found = [scheduled_numbers(config, round_) for round_ in (0, 1, 4, 9)]
    assert [numbers["train/lr"] for numbers in found] == [0.5, 0.375, 0, 0]
    assert found[1]["train/clip"] == pytest.approx(0.2 * (1 + math.cos(math.pi / 4)) / 2)
    assert set(found[0]) == {"train/lr", "train/clip"}
    assert config.for_rounds(100) == config, "a run that goes on keeps the end of its schedules"
    assert PPOConfig().for_rounds(4) == PPOConfig()


def test_a_schedule_changes_nothing_where_it_begins_and_the_weights_after() -> None:
    """In the first round each factor is 1; where the learning rate has come to 0 weights stay as they are."""
    runs = [begin_run(), begin_run(lr_schedule="linear", schedule_rounds=1)]
    for run in runs:
        train_(run.trainer, 1, Silent())
    blocks = [run.trainer.run.learner.block for run in runs]
    assert blocks[0].equal(blocks[1])
    before = blocks[1].clone()
    for run in runs:
        train_(run.trainer, 2, Silent())
    assert blocks[1].equal(before)
    assert not blocks[0].equal(before)


@pytest.mark.parametrize("stop", [9, 29, 34, 37, 55])
def test_a_run_that_is_stopped_anywhere_goes_on_with_them(stop: int) -> None:
    whole, first, second = (begin_run(**ALL, target_kl=2e-4) for _ in range(3))
    assert nbytes(whole.trainer.run) == whole.plan.owners
    told, again = Silent(), Silent()
    train_(whole.trainer, 4, told)
    assert not train_(first.trainer, 4, Silent(stop))
    restore_(second.trainer.run, leaf_copies(first.trainer.run))
    second.rebuild_()
    train_(second.trainer, 4, again)
    assert differing(leaf_copies(second.trainer.run), leaf_copies(whole.trainer.run)) == []
    assert again.rounds == told.rounds[-len(again.rounds) :]
    assert {"train/lr", "train/clip", "train/entropy_weight"} <= set(told.rounds[0])


def test_updates_end_where_the_policy_has_moved_on_far_enough() -> None:
    """Nothing is learned from the minibatch that shows it; a target that is never met changes nothing."""
    told = {target: Silent() for target in (0.0, 1e-9, 1e5)}
    runs = {target: begin_run(target_kl=target) for target in told}
    for target, run in runs.items():
        train_(run.trainer, 3, told[target])
    assert [numbers["train/updates"] for numbers in told[1e-9].rounds] == [1, 1, 1]
    assert [numbers["train/early_stops"] for numbers in told[1e-9].rounds] == [1, 2, 3]
    assert [numbers["train/updates"] for numbers in told[1e5].rounds] == [8, 8, 8]
    assert told[1e5].rounds[-1]["train/early_stops"] == 0
    assert "train/updates" not in told[0.0].rounds[0]
    assert runs[1e5].trainer.run.learner.block.equal(runs[0.0].trainer.run.learner.block)


@pytest.mark.long
def test_a_resumed_run_keeps_the_end_of_its_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = SMALL | {"rounds": 2, "trackers": (), "quiet": True, "learner": LEARNER | ALL}
    run = fw.train("ppo", run="run", **settings)
    assert "schedule_rounds = 2" in (tmp_path / "run" / "config.toml").read_text()
    assert run.resume(3, quiet=True).metrics["train/clip"] == pytest.approx([0.2, 0.15, 0.1])
    forked = fw.fork("run", run="fork", rounds=4, quiet=True, learner={"lr_schedule": "constant"})
    assert forked.finished


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("ppo", {"learner": {"lr_schedule": "liner"}}, 'lr_schedule = .liner.: expected constant, .* mean "linear"'),
        ("dqn", {"learner": {"lr_schedule": "liner"}}, 'lr_schedule = .liner.: expected constant, .* mean "linear"'),
        (
            "ppo",
            {"learner": {"clip_schedule": f"{__name__}:nobody"}},
            "learner.clip_schedule = .*: it cannot",
        ),
        ("grow", {"learner": {"lr_schedule": "linear"}}, "learner.cooling = 60: expected 0 with learner.lr_schedule"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_plan(recipe: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fw.plan(recipe, **settings)
    with pytest.raises(ConfigError, match=r"at 0.5 of the run: expected a factor of 0 or more, got -0.5"):
        find_schedule(f"{__name__}:below_zero", "learner.lr_schedule")(0.5)


@pytest.mark.long
def test_networks_that_grow_have_them_too() -> None:
    small: dict[str, Any] = {"envs": 2, "env": {"steps": 3}, "threads": 1, "rounds": 2, "evaluation": {"episodes": 2}}
    learner = {"minibatches": 1, "cooling": 0, "lr_schedule": "cosine", "target_kl": 1e-9}
    config = resolve_config("grow", None, small | {"learner": learner})
    run = recipe_of_config(config).compose(check_settings(config).config)
    assert nbytes(run.trainer.run) == run.plan.owners
    told = Silent()
    train_(run.trainer, 2, told)
    run.close()
    assert [numbers["train/lr"] for numbers in told.rounds] == pytest.approx([2e-3, 1e-3])
    assert [numbers["train/updates"] for numbers in told.rounds] == [1, 1]
