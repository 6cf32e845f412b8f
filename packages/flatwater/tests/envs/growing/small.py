"""Small growing envs and ways to play them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from flatwater.envs.growing.baselines import draw_noise, random_policy
from flatwater.envs.growing.config import FitConfig, GrowingConfig, HostConfig, LifecycleConfig
from flatwater.envs.growing.lifecycle import OperationMasks
from flatwater.envs.growing.pool import GrowingEnvs, build_envs
from flatwater.envs.growing.simulator import masks, observe, reset_, step_
from flatwater.envs.growing.spaces import HEADS, Operation
from flatwater.envs.growing.task import Task, load_task

CPU = torch.device("cpu")


@cache
def task() -> Task:
    """Read once: nothing writes to it. Few images to validate on, because most of a small host's time goes there."""
    whole = load_task("digits", CPU)
    return replace(whole, valid_images=whole.valid_images[:24], valid_labels=whole.valid_labels[:24])


def config(kind: str = "conv", optimizer: str = "adam", *, steps: int = 8, **fit: float) -> GrowingConfig:
    """Short episodes of small hosts, with an embargo short enough to germinate again."""
    return GrowingConfig(
        steps=steps,
        history=3,
        host=HostConfig(kind=kind, channels=(2, 4, 4), hidden=(6, 6, 6), rank=2),
        fit=FitConfig(optimizer=optimizer, updates=1, batch_size=4, **fit),
        lifecycle=LifecycleConfig(tempos=(1, 2), embargo=1),
    )


def envs_of(config: GrowingConfig, count: int = 3) -> GrowingEnvs:
    return build_envs(config, count=count, data=task(), device=CPU)


def begun(config: GrowingConfig, seeds: Tensor) -> GrowingEnvs:
    envs = envs_of(config, len(seeds))
    reset_(envs, seeds)
    return envs


def do(envs: GrowingEnvs, **heads: int) -> Tensor:
    """One step with the same action in every host."""
    action = torch.tensor([int(heads.get(head, 0)) for head in HEADS])
    return step_(envs, action.expand(len(envs.seed), -1))


def at_random(envs: GrowingEnvs, possible: OperationMasks, rng: torch.Generator) -> Tensor:
    """Any possible action of each host."""
    sizes = [possible.choice_masks[head].shape[-1] for head in HEADS]
    return random_policy(envs, possible, draw_noise(len(envs.seed), sizes, rng, CPU))


def play(envs: GrowingEnvs, rng: torch.Generator, steps: int) -> Iterator[tuple[str, Tensor]]:
    """Random operations; what is seen and paid on the way."""
    for _ in range(steps):
        possible = masks(envs)
        yield "observation", observe(envs)
        yield "masks", possible.operation
        yield "reward", step_(envs, at_random(envs, possible, rng))
        yield "loss", envs.measures.loss[:, 0].clone()
    yield "observation", observe(envs)


def grow(envs: GrowingEnvs, slot: int, blueprint: int = 0) -> None:
    """Three steps: germinate, train, blend."""
    do(envs, operation=Operation.GERMINATE, slot=slot, blueprint=blueprint)
    do(envs, operation=Operation.ADVANCE, slot=slot)
    do(envs, operation=Operation.ADVANCE, slot=slot)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
