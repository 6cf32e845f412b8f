"""Policies that an agent is compared with: never growing, growing at random, and a rule of thumb.

A policy that draws is given its numbers, a row for each host: they do not depend on which hosts are computed together.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.envs.growing.lifecycle import OperationMasks
from flatwater.envs.growing.measures import last_accuracy
from flatwater.envs.growing.simulator import GrowingEnvs
from flatwater.envs.growing.spaces import BLUEPRINT, HEADS, OPERATION, SLOT, TEMPO, Operation
from flatwater.envs.growing.stages import SlotStage

Baseline = Callable[[GrowingEnvs, OperationMasks, Tensor | None], Int[Tensor, "E 5"]]
"""Returns the action of each host; the last argument is the result of `draw_noise`."""

STARTS_AT, LEARNS_FOR, WEAK = 2, 2, 0.6
"""The heuristic: the step of the first seed, steps of a seed's training, accuracy below which a host needs more."""


def wait_policy(envs: GrowingEnvs, masks: OperationMasks, noise: Float[Tensor, "E N"] | None) -> Int[Tensor, "E 5"]:  # noqa: ARG001  (the signature of every policy)
    """Return the action that trains the hosts as they are."""
    return torch.zeros(len(envs.seed), len(HEADS), dtype=torch.int64, device=envs.seed.device)


def random_policy(envs: GrowingEnvs, masks: OperationMasks, noise: Float[Tensor, "E N"] | None) -> Int[Tensor, "E 5"]:
    """Return any possible operation, each as likely as the others, and any of the choices that it leaves."""
    assert noise is not None  # noqa: S101  (it is one of `DRAWS`)
    hosts = torch.arange(len(envs.seed), device=envs.seed.device)
    clocks = torch.split(noise, [masks.choice_masks[head].shape[-1] for head in HEADS], dim=1)
    operation = _draw_choice(masks.operation, clocks[0])
    others = [
        _draw_choice(masks.choice_masks[h][hosts, operation], clock)
        for h, clock in zip(HEADS[SLOT:], clocks[1:], strict=True)
    ]
    return torch.stack((operation, *others), 1)


def heuristic_policy(
    envs: GrowingEnvs,
    masks: OperationMasks,  # noqa: ARG001  (the signature of every policy)
    noise: Float[Tensor, "E N"] | None,  # noqa: ARG001  (the signature of every policy)
) -> Int[Tensor, "E 5"]:
    """Grow a full seed in each slot of weak hosts, one after another: train it, blend it in, keep it if it helps.

    Of the slots whose seed is ready for something, the first is served; a seed that holds and does not help is pruned.
    """
    slots, measures, stage = envs.slots, envs.measures, envs.slots.stage
    is_weak = (last_accuracy(measures) < WEAK) & (envs.step >= STARTS_AT)
    helps = (measures.contributions > 0) & (measures.contribution > 0)
    ready = {
        Operation.ADVANCE: (stage == SlotStage.GERMINATED)
        | ((stage == SlotStage.TRAINING) & (slots.in_stage >= LEARNS_FOR)),
        Operation.FOSSILISE: (stage == SlotStage.HOLDING) & helps,
        Operation.PRUNE: (stage == SlotStage.HOLDING) & ~helps & (measures.contributions > 0),
        Operation.GERMINATE: (stage == SlotStage.DORMANT) & is_weak[:, None],
    }
    action = torch.zeros(len(stage), len(HEADS), dtype=torch.int64, device=stage.device)
    action[:, BLUEPRINT] = 0
    # Reversed, as the last written action counts: an ADVANCE goes before all else.
    for operation, possible in reversed(ready.items()):
        is_ready = possible.any(1)
        action[:, OPERATION] = torch.where(is_ready, int(operation), action[:, OPERATION])
        action[:, SLOT] = torch.where(is_ready, possible.int().argmax(1), action[:, SLOT])
    # A ramp of middle length: alpha 1 at once would hand the host a layer that it has not met.
    is_advance = action[:, OPERATION] == Operation.ADVANCE
    action[:, TEMPO] = is_advance * min(1, len(envs.tables.paces) - 1)
    return action


BASELINES: dict[str, Baseline] = {"wait": wait_policy, "random": random_policy, "heuristic": heuristic_policy}


DRAWS = frozenset(("random",))
"""Baselines that need random numbers."""


def draw_noise(hosts: int, sizes: Sequence[int], rng: torch.Generator, device: torch.device) -> Float[Tensor, "E N"]:
    """Return exponential numbers for a draw from each list of choices, of all hosts.

    Args:
        hosts: number of hosts, E.
        sizes: number of choices in each list, N in all. The lists' columns follow one another in this order.
        rng: a generator of `device`, which moves on.
        device: device on which the numbers will lie.
    """
    clocks = [torch.empty(hosts, choices, device=device).exponential_(generator=rng) for choices in sizes]
    return torch.cat(clocks, dim=1)


def _draw_choice(possible: Bool[Tensor, "E choices"], clock: Float[Tensor, "E choices"]) -> Int[Tensor, " E"]:
    """Return a possible choice of each row, all alike: a race of exponential clocks, as in torch.multinomial."""
    return (possible.float() / clock).argmax(-1)
