"""What an agent is compared with: never growing, growing at random, and a rule of thumb."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from flatwater.envs.growing.lifecycle import Masks
from flatwater.envs.growing.measures import accuracy_of
from flatwater.envs.growing.simulator import GrowingEnvs
from flatwater.envs.growing.spaces import BLUEPRINT, HEADS, OPERATION, SLOT, TEMPO, Operation
from flatwater.envs.growing.stages import Stage

Baseline = Callable[[GrowingEnvs, Masks, torch.Generator], Int[Tensor, "E 5"]]

STARTS_AT, LEARNS_FOR, WEAK = 2, 2, 0.6
"""The heuristic: the step of the first seed, steps of a seed's training, accuracy below which a host needs more."""


def wait(envs: GrowingEnvs, masks: Masks, rng: torch.Generator) -> Int[Tensor, "E 5"]:  # noqa: ARG001
    """Train the hosts as they are."""
    return torch.zeros(len(envs.seed), len(HEADS), dtype=torch.int64, device=envs.seed.device)


def random(envs: GrowingEnvs, masks: Masks, rng: torch.Generator) -> Int[Tensor, "E 5"]:
    """Any possible operation, each as likely as the others, and any of the choices that it leaves."""
    hosts = torch.arange(len(envs.seed), device=envs.seed.device)
    operation = _draw(masks.operation, rng)
    others = [_draw(masks.given[head][hosts, operation], rng) for head in HEADS[SLOT:]]
    return torch.stack((operation, *others), 1)


def heuristic(envs: GrowingEnvs, masks: Masks, rng: torch.Generator) -> Int[Tensor, "E 5"]:  # noqa: ARG001
    """In weak hosts grow a full seed in each slot, one after another: train it, blend it in, keep it if it helps.

    Of the slots whose seed is ready for something, the first is served; a seed that holds and does not help is pruned.
    """
    slots, measures, stage = envs.slots, envs.measures, envs.slots.stage
    is_weak = (accuracy_of(measures) < WEAK) & (envs.step >= STARTS_AT)
    helps = (measures.contributions > 0) & (measures.contribution > 0)
    ready = {
        Operation.ADVANCE: (stage == Stage.GERMINATED) | ((stage == Stage.TRAINING) & (slots.in_stage >= LEARNS_FOR)),
        Operation.FOSSILISE: (stage == Stage.HOLDING) & helps,
        Operation.PRUNE: (stage == Stage.HOLDING) & ~helps & (measures.contributions > 0),
        Operation.GERMINATE: (stage == Stage.DORMANT) & is_weak[:, None],
    }
    action = torch.zeros(len(stage), len(HEADS), dtype=torch.int64, device=stage.device)
    action[:, BLUEPRINT] = 0
    for operation, possible in reversed(ready.items()):
        chosen = possible.any(1)
        action[:, OPERATION] = torch.where(chosen, int(operation), action[:, OPERATION])
        action[:, SLOT] = torch.where(chosen, possible.int().argmax(1), action[:, SLOT])
    # A ramp of middle length: alpha 1 at once would hand the host a layer that it has not met.
    is_advance = action[:, OPERATION] == Operation.ADVANCE
    action[:, TEMPO] = is_advance * min(1, len(envs.tables.paces) - 1)
    return action


BASELINES: dict[str, Baseline] = {"wait": wait, "random": random, "heuristic": heuristic}


def _draw(possible: Bool[Tensor, "E choices"], rng: torch.Generator) -> Int[Tensor, " E"]:
    """One of the possible choices of each row, all alike."""
    return torch.multinomial(possible.float(), 1, generator=rng)[:, 0]
