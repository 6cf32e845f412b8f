"""Settings of PPO that a user may leave out, and the functions that decide their values when a run begins.

A value follows from the environment and the other settings, and never from a measured time. It is kept with the
settings, so that a resumed run goes on with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from flatwater.algorithms.compilation import has_compiler
from flatwater.algorithms.on_policy_config import BlockLearnerConfig
from flatwater.envs.world import Spaces
from flatwater.presets.lookup import preset_note
from flatwater.recipes.ppo.config import BlocksRunConfig
from flatwater.runs.config import PresetSettings
from flatwater.runs.machine import find_device
from flatwater.runs.planning import META
from flatwater.trainers.blocks.state import build_actor_critic

C = TypeVar("C", bound=BlocksRunConfig)

PASSES, IMAGE_PASSES = 8, 4
"""Epochs, and minibatches in each. With eight of eight a policy of images that had learned MiniGrid was lost again;
with four of four, which are usual for images and take half of the passes, it was not (`docs/flatwater/networks.md`)."""
COMPILED_UPDATES, STEPS_OF_UPDATE = 25_000, 8
"""Updates from which a run is compiled by default; `STEPS_OF_UPDATE` steps of the policy count as one update.

Compiling takes 20 seconds of the CPU, or 5 where torch has the code in its cache. Each update then takes 1.5
milliseconds less, and each step 0.2 (`docs/adr/0021-one-ppo-for-worlds.md`): it gains up to twice what it pays."""
COMPILED_NOTE = "the policy is compiled: about 20 CPU seconds at first (train and fork take --learner.no-compile)"


def decide_settings(config: C, spaces: Spaces) -> C:
    """Return the settings of a new run, with a value for each setting in `LEFT_OUT` that the user left out.

    Args:
        config: settings as the user gave them.
        spaces: spaces of the training world.
    """
    for name, (omitted_value, decide) in _open_decisions(config.learner).items():
        if getattr(config.learner, name) == omitted_value:
            # Replaced one by one: the decision about compiling reads the numbers decided before.
            config = replace(config, learner=replace(config.learner, **{name: decide(config, spaces)}))
    return config


def decision_notes(config: BlocksRunConfig, spaces: Spaces) -> Iterator[str]:
    """Yield the lines, at the start and in the plan, about settings that were decided for the user."""
    learner = config.learner
    if isinstance(config, PresetSettings):
        yield from preset_note(config)
    if _sees_images(spaces) and "epochs" in _open_decisions(learner):
        passes = f"{learner.own.epochs} epochs of {learner.own.minibatches} minibatches"
        options = "--learner.epochs and --learner.minibatches of `train` and `fork`"
        yield f"images are seen: {passes} for each block (changed by {options})"
    if learner.compile:
        yield COMPILED_NOTE


def _open_decisions(
    learner: BlockLearnerConfig,
) -> Mapping[str, tuple[object, Callable[[BlocksRunConfig, Spaces], Any]]]:
    """Return the rows of `LEFT_OUT` whose setting the learner has: a user's algorithm sets its own number of passes."""
    names = {f.name for f in fields(learner)}
    return {name: row for name, row in LEFT_OUT.items() if name in names}


def _kinds(spaces: Spaces) -> Sequence[Spaces]:
    """Return the spaces of each kind of agents."""
    return [kind.spaces for kind in spaces.kinds] or [spaces]


def _sees_images(spaces: Spaces) -> bool:
    """Return whether any kind of agents observes images."""
    return any(own.form == "image" for own in _kinds(spaces))


def _pass_count(_config: BlocksRunConfig, spaces: Spaces) -> int:
    """Return the number of epochs, and of minibatches in each, for these observations."""
    return IMAGE_PASSES if _sees_images(spaces) else PASSES


def _gains_by_compiling(config: BlocksRunConfig, spaces: Spaces) -> bool:
    """Return whether a run has enough updates for compiling to pay, and its policy can be compiled."""
    learner = config.learner
    # Updates of the run; steps of the policy are counted as parts of one.
    updates = config.rounds * (config.block / STEPS_OF_UPDATE + learner.own.epochs * learner.own.minibatches)
    if not learner.is_shipped:  # an algorithm of the user's may do what cannot be traced
        return False
    if updates < COMPILED_UPDATES or find_device(config.device).type != "cpu" or not has_compiler():
        return False
    networks = [build_actor_critic(own, config.policy, META) for own in _kinds(spaces)]
    # A policy with a module as its encoder, or with an LSTM, is not compiled by default.
    return all(network.encoder is None and not network.policy.cells for network in networks)


LEFT_OUT: Mapping[str, tuple[object, Callable[[BlocksRunConfig, Spaces], Any]]] = {
    "epochs": (0, _pass_count),
    "minibatches": (0, _pass_count),
    "compile": (None, _gains_by_compiling),  # last, as it counts the passes
}
"""Settings of the learner: the value of a setting that was left out, and the function that decides its value."""
