"""Policies that an agent is compared with: never growing, growing at random, and a rule of thumb.

A random policy gets its random numbers as an argument, a row for each host, so that they do not depend on which hosts
are computed together.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.envs.growing.lifecycle import OperationMasks
from flatwater.envs.growing.measures import last_accuracy
from flatwater.envs.growing.pool import GrowingEnvs
from flatwater.envs.growing.spaces import HEADS, OPERATION, SLOT, TEMPO, Operation
from flatwater.envs.growing.stages import SlotStage

Baseline = Callable[[GrowingEnvs, OperationMasks, Tensor | None], Int[Tensor, "E 5"]]
"""Returns the action of each host; the last argument is the result of `draw_noise`."""

FIRST_SEED_STEP, TRAINING_STEPS, WEAK_ACCURACY = 2, 2, 0.6
"""Of the heuristic: the step of the first seed, steps of a seed's training, accuracy below which a host gets seeds."""


def wait_policy(envs: GrowingEnvs, masks: OperationMasks, noise: Float[Tensor, "E N"] | None) -> Int[Tensor, "E 5"]:  # noqa: ARG001  (the signature of every policy)
    """Return WAIT for every host, so that hosts are trained as they are: 0 for the operation, and for each argument."""
    return torch.zeros(len(envs.seed), len(HEADS), dtype=torch.int64, device=envs.seed.device)


def random_policy(envs: GrowingEnvs, masks: OperationMasks, noise: Float[Tensor, "E N"] | None) -> Int[Tensor, "E 5"]:
    """Return a random possible operation for each host, and a random possible choice of each other head."""
    assert noise is not None  # noqa: S101  (it is one of `DRAWS`)
    hosts = torch.arange(len(envs.seed), device=envs.seed.device)
    # For each head (a part of the action), an exponential random number for each of its choices.
    clocks = torch.split(noise, [masks.choice_masks[head].shape[-1] for head in HEADS], dim=1)
    operation = _draw_choice(masks.operation, clocks[0])
    # The other heads, from the slot on, with what is possible for the drawn operation.
    arguments = [
        _draw_choice(masks.choice_masks[head][hosts, operation], clock)
        for head, clock in zip(HEADS[SLOT:], clocks[1:], strict=True)
    ]
    return torch.stack((operation, *arguments), 1)


def heuristic_policy(
    envs: GrowingEnvs,
    masks: OperationMasks,  # noqa: ARG001  (the signature of every policy)
    noise: Float[Tensor, "E N"] | None,  # noqa: ARG001  (the signature of every policy)
) -> Int[Tensor, "E 5"]:
    """Grow a seed of the first blueprint in each slot of weak hosts: train it, blend it in, keep it or prune it.

    It is kept (FOSSILISE) if its contribution to the host's accuracy is above 0. A host gets one operation in a step:
    of several that are wanted, ADVANCE goes first, then FOSSILISE, PRUNE and GERMINATE; of several slots, the first.
    """
    slots, measures, stage = envs.slots, envs.measures, envs.slots.stage
    is_weak = (last_accuracy(measures) < WEAK_ACCURACY) & (envs.step >= FIRST_SEED_STEP)
    # `contributions` counts measurements: a seed is kept or pruned only once its contribution was measured.
    helps = (measures.contributions > 0) & (measures.contribution > 0)
    # Slots in which the rule wants each operation; of two operations, a host gets the upper one.
    wanted_slots = {
        Operation.ADVANCE: (stage == SlotStage.GERMINATED)
        | ((stage == SlotStage.TRAINING) & (slots.in_stage >= TRAINING_STEPS)),
        Operation.FOSSILISE: (stage == SlotStage.HOLDING) & helps,
        Operation.PRUNE: (stage == SlotStage.HOLDING) & ~helps & (measures.contributions > 0),
        Operation.GERMINATE: (stage == SlotStage.DORMANT) & is_weak[:, None],
    }
    # Zeros are WAIT, and blueprint 0.
    action = torch.zeros(len(stage), len(HEADS), dtype=torch.int64, device=stage.device)
    # Reversed, as later operations overwrite earlier ones.
    for operation, slot_mask in reversed(wanted_slots.items()):
        is_wanted = slot_mask.any(1)
        action[:, OPERATION] = torch.where(is_wanted, int(operation), action[:, OPERATION])
        # `argmax` of flags is the position of the first that is 1.
        action[:, SLOT] = torch.where(is_wanted, slot_mask.int().argmax(1), action[:, SLOT])
    # Choice 1 of the tempos, a ramp of middle length, or 0 if there is no other: at alpha 1 at once, the host would get
    # a layer that it was never trained with.
    tempo = min(1, len(envs.tables.paces) - 1)
    is_advance = action[:, OPERATION] == Operation.ADVANCE
    action[:, TEMPO] = is_advance * tempo
    return action


BASELINES: dict[str, Baseline] = {"wait": wait_policy, "random": random_policy, "heuristic": heuristic_policy}


DRAWS = frozenset(("random",))
"""Baselines that need random numbers."""


def draw_noise(hosts: int, sizes: Sequence[int], rng: torch.Generator, device: torch.device) -> Float[Tensor, "E N"]:
    """Return exponential random numbers: in each host's row, one for each choice of every list of choices.

    Args:
        hosts: number of hosts, E.
        sizes: number of choices in each list, N in all; the columns of the lists follow one another.
        rng: a generator of `device`, which is advanced.
        device: device on which the numbers will lie.
    """
    columns = [torch.empty(hosts, choices, device=device).exponential_(generator=rng) for choices in sizes]
    return torch.cat(columns, dim=1)


def _draw_choice(possible: Bool[Tensor, "E choices"], clock: Float[Tensor, "E choices"]) -> Int[Tensor, " E"]:
    """Return a random possible choice of each row, by its exponential numbers; all possible ones are equally likely."""
    # The possible choice whose exponential clock rings first, as in torch.multinomial.
    return (possible.float() / clock).argmax(-1)
