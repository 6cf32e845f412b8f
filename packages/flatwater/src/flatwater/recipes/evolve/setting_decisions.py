"""The value of `learner.compile` if the user leaves it out: whether members' updates are compiled.

It follows from the settings, the environment's spaces and the machine's compiler, and never from a measured time. It is
made when a run begins and kept with the settings, so that a resumed run goes on with it.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from flatwater.algorithms.compilation import has_compiler
from flatwater.algorithms.config import custom_algorithm_place
from flatwater.envs.world import Spaces
from flatwater.presets.lookup import preset_note
from flatwater.recipes.evolve.config import MembersRunConfig
from flatwater.runs.config import PresetSettings
from flatwater.runs.machine import find_device

C = TypeVar("C", bound=MembersRunConfig)

COMPILED_UPDATES = 16_000
"""Updates from which a run compiles them by default. Compiling takes 4 to 12 seconds of the CPU, and each update then
takes 4.3 ms (sac), 2.7 (td3), 1.2 (ddpg) or 0.7 (dqn) less, of 15.0, 10.0, 8.6 and 3.5 with each recipe's
defaults: a run of this number of updates gains about as much as it has paid, or up to ten times as much."""
COMPILED_NOTE = "updates are compiled: about 10 CPU seconds at first (train and fork take --learner.no-compile)"


def decide_settings(config: C, spaces: Spaces) -> C:
    """Return the settings of a new run, with a decision about compiling if the user left it out.

    Args:
        config: settings as the user gave them.
        spaces: spaces of the training world.
    """
    if config.learner.compile is not None:
        return config
    return replace(config, learner=replace(config.learner, compile=_gains_by_compiling(config, spaces)))


def decision_notes(config: MembersRunConfig) -> Iterator[str]:
    """Yield the lines, at the start and in the plan, about settings that were decided for the user."""
    if isinstance(config, PresetSettings):
        yield from preset_note(config)
    if config.learner.compile:
        yield COMPILED_NOTE


def _gains_by_compiling(config: MembersRunConfig, spaces: Spaces) -> bool:
    """Return whether a run has enough updates for compiling to pay, and its updates can be compiled.

    By default, updates with images, with autocast, of the user's algorithm, or outside of the CPU are not compiled.
    """
    learner = config.learner
    return (
        config.total_updates >= COMPILED_UPDATES
        and spaces.form != "image"
        and learner.autocast == "off"
        and not custom_algorithm_place(learner.algorithm)  # an algorithm of the user's may do what cannot be traced
        and find_device(config.device).type == "cpu"
        and has_compiler()
    )
