"""`make_recipe`: builds a recipe from functions that build its state and return its phases, numbers and score."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from flatwater.envs.split_seeds import FIRST_SEEDS
from flatwater.memory.planner import Plan
from flatwater.metrics.table_layout import Column, TableLayout
from flatwater.recipe import RETURN_NUMBERS, Headline, Recipe
from flatwater.runs.config import RunConfig
from flatwater.runs.machine import find_device
from flatwater.runs.planning import META, Knob, allocate_planned_state, plan_one_process, refuse_unfit, smaller_settings
from flatwater.runs.run import Run
from flatwater.runs.scores import episode_result, return_rows
from flatwater.trainers.loop import Phase, RootState, Trainer
from flatwater_watch.meters.torch_ops import peak_bytes
from flatwater_watch.units import format_bytes

C = TypeVar("C", bound=RunConfig)
S = TypeVar("S", bound=RootState)
Score = Callable[[Any, Any, int], Mapping[str, Sequence[float]]]
"""Function that plays held-out episodes. Returns the episodes' returns by player, from the settings, the state, and the
seed of the first episode."""


@dataclass(frozen=True)
class BuiltRun(Run):
    """A run of a recipe made by `make_recipe`."""

    returns: Score

    def describe(self) -> str:
        """Return the recipe and its size in one line."""
        return f"{self.config.trainer}: a state of {format_bytes(self.plan.total_bytes)}"

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Play held-out episodes, or those of the holdout, with all players. Returns the result with their returns."""
        split = "holdout" if holdout else "held-out"
        returns = self.returns(self.config, self.trainer.run, FIRST_SEEDS[split])
        rows = return_rows({name: np.asarray(values, np.float64) for name, values in returns.items()})
        # The most of any player, as players may have played different numbers of episodes.
        facts = {"episodes": max(map(len, returns.values())), "first_seed": FIRST_SEEDS[split]}
        return episode_result(self.config, split, rows, facts)


@dataclass(frozen=True)
class _RecipeFunctions(Generic[C, S]):
    """The arguments of `make_recipe` by their names there; its methods are the recipe's `plan` and `compose`."""

    build: Callable[[C, torch.device], S]
    phases: Callable[[C, S], Sequence[Phase]]
    numbers: Callable[[C, S], Mapping[str, float]]
    score: Score
    knobs: Mapping[str, str]
    tried: Collection[str]

    def plan(self, config: C) -> Plan:
        """Return the memory plan of a run, from its state and phases on the meta device."""
        knobs = [Knob(setting=setting, owner=owner) for setting, owner in self.knobs.items()]
        smaller = smaller_settings(config, knobs)
        device = find_device(config.device)
        # Such a run has no constants besides its settings.
        return plan_one_process(
            config, device, lambda settings: (settings, self.build(settings, META)), self._measure_peaks, smaller
        )

    def _measure_peaks(self, config: C, run: S) -> dict[str, int]:
        """Return the peak temporary bytes of the first step of each phase in `tried`, run on the meta device."""
        steps = {phase.name: phase.step_ for phase in self.phases(config, run) if phase.name in self.tried}
        # 0: the number of the first step, which each step function takes.
        return {name: peak_bytes(partial(step_, 0)) for name, step_ in steps.items()}

    def compose(self, config: C) -> BuiltRun:
        """Allocate the whole state of a new run, and return the run; refuse it before if its plan does not fit."""
        plan = self.plan(config)
        refuse_unfit(plan, config)
        run = allocate_planned_state(lambda: self.build(config, find_device(config.device)), plan)
        trainer = Trainer(config, run, self.phases(config, run), settle_=lambda: self.numbers(config, run))
        return BuiltRun(config, plan, trainer, self.score)


def make_recipe(
    config: type[C],
    *,
    build: Callable[[C, torch.device], S],
    phases: Callable[[C, S], Sequence[Phase]],
    numbers: Callable[[C, S], Mapping[str, float]],
    score: Callable[[C, S, int], Mapping[str, Sequence[float]]],
    players: tuple[str, str],
    curves: Mapping[str, str],
    knobs: Mapping[str, str] | None = None,
    tried: Collection[str] = (),
    **further_fields: Any,  # noqa: ANN401  (fields of a Recipe)
) -> Recipe:
    """Return a recipe from the functions that build its state and train it.

    Args:
        config: class of the recipe's settings; the first sentences of its docstring are the recipe's help.
        build: returns the whole state on a device, with `progress` for the loop; the plan builds it on the meta device.
        phases: returns the phases of a round; their steps write into the state and keep nothing elsewhere.
        numbers: returns the metrics of a complete round.
        score: plays held-out episodes, and returns the returns by player; see `Score`.
        players: names of the trained player, and of the baseline that it is compared with.
        curves: names of metrics by title; a run is judged by the last.
        knobs: settings to halve where a run does not fit, each with the field of the state that becomes smaller.
        tried: names of phases that compute on tensors alone: the plan runs their first steps on the meta device.
        further_fields: further fields of the `Recipe`, such as `sections`.
    """
    functions = _RecipeFunctions(build, phases, numbers, score, knobs or {}, tried)
    trained_player, baseline = players
    fields: dict[str, Any] = {
        "guide": config.__doc__ or "",
        "layout": TableLayout(
            round="round", short_title="round", columns=_curve_columns(curves), dispensable=frozenset()
        ),
        "journal": "journal",
        "title": "{episodes} {split} {episodes:episode}",  # such as `8 held-out episodes`
        "headline": _return_headline(baseline),
        "numbers": RETURN_NUMBERS,
        "context_fields": ("episodes", "split", "first_seed", "note"),
        "trained_on": lambda settings: str(settings.get("env", settings.get("trainer"))),
    }
    return Recipe(
        config=config,
        plan=functions.plan,
        compose=functions.compose,
        curves=curves,
        players="players",
        trained=trained_player,
        **(fields | further_fields),
    )


def _return_headline(baseline: str) -> Headline:
    """Return the return as the number that a run is judged by, against that of the player `baseline`."""
    return Headline(title="return", key="return", form="{:.2f}", against=baseline, comparison_form=f"{baseline} {{}}")


def _curve_columns(curves: Mapping[str, str]) -> tuple[Column, ...]:
    """Return a column of the run's table for each metric in `curves`, by title."""
    # As wide as its title and the space on its left, and with room for a number.
    return tuple(
        Column(group="", title=title, width=max(8, len(title) + 1), name=name) for title, name in curves.items()
    )
