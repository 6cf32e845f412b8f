"""The settings of a trial follow from the seed, its number and the trials before it, and from nothing else."""

import shutil
import sqlite3
from collections.abc import Iterator
from math import log10
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="the extra `sweep` is not installed")

from sqlalchemy import Engine, event

from flatwater.sweeps.space import Choices, Range, Space
from flatwater.sweeps.study import Study, open_study

SPACE: Space = {
    "learner.ddpg.noise": Range(low=1e-3, high=1.0, log=True, whole=False),
    "population.size": Range(low=2, high=10, step=4, whole=True),
    "observation_features": Choices((["close"], ["close", "rsi"])),
    "replay.prioritised": Choices((True, False)),
}
MODELLED = 10
"""Trials after which settings are drawn from a model of those before."""


@pytest.fixture(autouse=True)
def _unsafe_disk() -> Iterator[None]:
    """SQLite does not wait for the disk: a test does not lose its power."""

    def hurry(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")

    event.listen(Engine, "connect", hurry)
    yield
    event.remove(Engine, "connect", hurry)


def open_small_study(name: str, seed: int = 0) -> Study:
    return open_study(Path(name), SPACE, seed=seed, prune=False, rounds=4)


def play(study: Study, trials: int) -> None:
    """Trials that are better with less noise."""
    for _ in range(trials):
        trial = study.begin_trial_()
        study.judge_(trial, {}, 1, -log10(study.settings(trial)["learner.ddpg.noise"]))
        study.finish_(trial)


def test_a_study_in_parts_draws_what_one_in_one_piece_draws() -> None:
    whole = open_small_study("whole.db")
    play(whole, MODELLED)
    shutil.copy("whole.db", "parts.db")
    play(whole, 2)
    for _ in range(2):
        play(open_small_study("parts.db"), 1)
    lines = open_small_study("parts.db").lines()
    assert len(lines) == MODELLED + 2
    assert lines == whole.lines()
    settings = [line.settings for line in lines]
    assert all(1e-3 <= drawn["learner.ddpg.noise"] <= 1 for drawn in settings)
    assert {drawn["population.size"] for drawn in settings} == {2, 6, 10}
    assert {tuple(drawn["observation_features"]) for drawn in settings} == {("close",), ("close", "rsi")}
    assert {drawn["replay.prioritised"] for drawn in settings} == {True, False}


def test_another_seed_draws_others() -> None:
    first, other = open_small_study("a.db"), open_small_study("b.db", seed=1)
    play(first, 1)
    play(other, 1)
    assert first.lines()[0].settings != other.lines()[0].settings


def test_a_trial_that_was_killed_while_its_settings_were_drawn_gets_the_same() -> None:
    whole = open_small_study("whole.db")
    settings = whole.settings(whole.begin_trial_())
    cut = open_small_study("cut.db")
    drawn = open_study(
        Path("cut.db"), {"learner.ddpg.noise": SPACE["learner.ddpg.noise"]}, seed=0, prune=False, rounds=4
    )
    drawn.begin_trial_()
    (trial,) = cut.reopen_interrupted_trials_()
    assert cut.settings(trial) == settings
    assert len(cut.lines()) == 1


@pytest.mark.long
def test_a_round_that_is_done_again_is_kept_once_and_one_without_a_number_not_at_all() -> None:
    study = open_small_study("a.db")
    trial = study.begin_trial_()
    known = study.values(trial)
    for round_, value in ((1, 3.0), (2, float("nan")), (3, 2.0), (3, 9.0)):
        study.judge_(trial, known, round_, value)
    assert study.values(trial) == known == {1: 3.0, 3: 2.0}
    study.finish_(trial)
    assert [(line.value, line.round, line.state) for line in study.lines()] == [(2.0, 3, "finished")]


def test_a_trial_without_any_number_has_failed() -> None:
    study = open_small_study("a.db")
    study.finish_(study.begin_trial_())
    (line,) = study.lines()
    assert line.state == "failed"
    assert "no finite number" in str(line.reason)
