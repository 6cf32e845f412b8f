"""An agent's observation of each host: [E, D] numbers of the order of 1.

A number that may not have been measured yet has a channel next to it that says so: 1 measured, 0 not.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from flatwater.envs.growing.config import GrowingConfig
from flatwater.envs.growing.lifecycle import LifecycleTables, Slots
from flatwater.envs.growing.measures import Measures
from flatwater.envs.growing.spaces import BLUEPRINTS, Operation
from flatwater.envs.growing.stages import SlotStage

_HOST_NUMBERS = ("progress", "success", "rolled back")
_VALIDATION_NUMBERS = ("loss", "accuracy", "measured")
_SLOT_NUMBERS = ("alpha", "target", "contribution", "measured", "velocity", "measured", "age", "gradient", "measured")
"""Numbers of a slot besides stage and blueprint; `measured` says whether the number before it is known."""


def observation_size(config: GrowingConfig, slots: int) -> int:
    """Return D, the size of an observation, for hosts with `slots` slots."""
    host = len(_HOST_NUMBERS) + len(_VALIDATION_NUMBERS) * config.history + len(SlotStage) + len(Operation)
    return host + slots * (len(SlotStage) + BLUEPRINTS + len(_SLOT_NUMBERS))


def host_observation(
    step: Int[Tensor, " E"], slots: Slots, measures: Measures, tables: LifecycleTables, config: GrowingConfig
) -> Float[Tensor, "E D"]:
    """Return the observation of each host: the numbers of `host_columns`, then those of `slot_columns`, slot by slot.

    Args:
        step: steps of the episode that each host has taken.
        slots: the slots of the hosts.
        measures: the measurements of the hosts.
        tables: constants.
        config: settings, of which `steps` and `history` are used.
    """
    host = host_columns(step, slots, measures, config)
    seeds = slot_columns(slots, measures, tables, config)
    return torch.cat((host, seeds.flatten(1)), 1)


def host_columns(step: Int[Tensor, " E"], slots: Slots, measures: Measures, config: GrowingConfig) -> Tensor:
    """Return the columns of the host itself, [E, 3 + 3 H + 9 + 6], in this order.

    Share of the episode that is over, success of the last operation, whether the last step ended in a rollback. Then
    for the last H validations, the newest first: H losses (log1p), H accuracies, H flags that are 1 if there was such a
    validation. Then the share of slots in each of the 9 stages, and the last of the 6 operations as one-hot.
    """
    age = torch.arange(config.history, device=step.device)
    is_known = (age < measures.validations[:, None]).float()
    by_stage = one_hot(slots.stage, len(SlotStage)).float().mean(1)
    # All zero before the first step: there was no operation, not even WAIT.
    operation = one_hot(measures.operation, len(Operation)) * (step > 0)[:, None]
    flags = torch.stack((step / config.steps, measures.success.float(), measures.rolled_back.float()), 1)
    # log1p keeps even a loss of 10^4 at the order of 10.
    return torch.cat((flags, measures.loss.log1p(), measures.accuracy, is_known, by_stage, operation), 1)


def slot_columns(
    slots: Slots, measures: Measures, tables: LifecycleTables, config: GrowingConfig
) -> Float[Tensor, "E S C"]:
    """Return the C columns of each slot: stage and blueprint as one-hot, then nine numbers in this order.

    Alpha, its target, contribution, whether it was measured, its change since the previous measurement, whether there
    was one, age as a share of the episode, norm of the gradient (log1p), whether it is known.
    """
    has_seed = tables.hosted[slots.stage]
    # All zero without a seed: an empty slot has the blueprint 0, which is also a blueprint of seeds.
    blueprint = one_hot(slots.blueprint, BLUEPRINTS) * has_seed[..., None]
    has_change = measures.contributions > 1
    columns = (
        slots.alpha,
        slots.alpha_target * has_seed,
        measures.contribution,
        (measures.contributions > 0).float(),
        (measures.contribution - measures.before) * has_change,
        has_change.float(),
        slots.age / config.steps,
        measures.grad_norm.log1p(),
        measures.graded.float(),
    )
    return torch.cat((one_hot(slots.stage, len(SlotStage)).float(), blueprint.float(), torch.stack(columns, -1)), -1)
