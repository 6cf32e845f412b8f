"""The pool of E networks in training (hosts), as one batch: `build_envs` allocates it whole, `sub_pool` gives a part.

A pool is a state of arrays alone. The host that it was built with, a function of weights and images, is registered
here: `pool_host` finds it.
"""

from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.envs.growing.config import GrowingConfig, HostConfig
from flatwater.envs.growing.lifecycle import LifecycleTables, Slots, build_slots, build_tables
from flatwater.envs.growing.measures import Measures, build_measures
from flatwater.envs.growing.reward import UngrownAccuracy, build_ungrown_accuracy
from flatwater.envs.growing.task import Task
from flatwater.envs.growing.weights import StackedWeights, build_weights
from flatwater.nets.host_mlp import MLPHost
from flatwater.nets.hosts import KERNEL_TAPS, ConvHost, Host, ImageShape
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state


@state
class GrowingEnvs:
    """A pool of E envs: hosts with their seeds, slots, optimizers, positions in the image streams, and measures."""

    host: StackedWeights
    seeds: list[StackedWeights]
    """The seeds of each slot."""
    slots: Slots
    measures: Measures
    seed: Int[Tensor, " E"]
    """Seed of each env's weights and images."""
    step: Int[Tensor, " E"]
    """Number of steps that the episode has taken."""
    drawn: Int[Tensor, " E"]
    """Number of images drawn since the reset."""
    kernel: Float[Tensor, "E 9"]
    """Mask of the taps of each host's 3 x 3 kernels: an impaired host has the centre alone."""
    alone: UngrownAccuracy
    """Accuracy of hosts in which nothing is grown, over all episodes: a reset leaves it as it is."""
    constants: dict[str, Tensor] = derived_field()
    """Tensors besides weights that a host of the user's needs."""
    seed_share: Float[Tensor, "S 3"] = derived_field()
    """Weights of a seed as a share of the host's own, by slot and blueprint."""
    tables: LifecycleTables = derived_field()
    task: Task = derived_field()
    config: GrowingConfig = derived_field()


@cache
def build_host(config: HostConfig, image_shape: ImageShape) -> Host:
    """Return the shipped host, convolutional or of dense layers as the settings say, for images of this size."""
    if config.kind == "conv":
        return ConvHost(image_shape, config.channels)
    return MLPHost(image_shape, config.hidden, config.rank)


def pool_host(envs: GrowingEnvs) -> Host:
    """Return the host, the function of weights and images, with which the pool was built."""
    return _host_by_pool[envs]


def build_envs(
    config: GrowingConfig, *, count: int, data: Task, device: torch.device, net: Host | None = None
) -> GrowingEnvs:
    """Allocate a pool of envs, in which `reset_` begins the first episodes.

    Args:
        config: settings of all envs.
        count: number of envs, E.
        data: images and classes, on the same device.
        device: device of all tensors; `meta` makes a plan.
        net: host of the user's, for such images; None for the host of `config.host`.
    """
    if net is None:
        net = build_host(config.host, data.image_shape)
    has_adam = config.fit.optimizer == "adam"
    slots = len(net.seeds)
    zero_integers = partial(filled_tensor, 0, count, dtype=torch.int64, device=device)
    # Weights of a seed as a share of the host's own, by slot and blueprint. Divided on the CPU, as a division on the
    # meta device would import torch's compiler.
    seed_share = torch.tensor(net.seed_sizes(), dtype=torch.float32) / net.layout.size
    pool = GrowingEnvs(
        host=build_weights(count, net.layout, has_adam=has_adam, device=device),
        seeds=[build_weights(count, layout, has_adam=has_adam, device=device) for layout in net.seeds],
        slots=build_slots(count, slots, device),
        measures=build_measures(
            count, slots, history=config.history, chance=1 / data.image_shape.classes, device=device
        ),
        seed=zero_integers(),
        step=zero_integers(),
        drawn=zero_integers(),  # images drawn so far
        kernel=filled_tensor(0, count, KERNEL_TAPS, device=device),
        alone=build_ungrown_accuracy(config.steps, device),  # of hosts in which nothing is grown
        constants=dict(net.constants),
        seed_share=seed_share.to(device),
        tables=build_tables(config.lifecycle, device),
        task=data,
        config=config,
    )
    _host_by_pool[pool] = net
    _living_pools.add(pool)
    return pool


_living_pools: WeakSet[GrowingEnvs] = WeakSet()
"""Every pool that is still referenced."""
_host_by_pool: WeakKeyDictionary[GrowingEnvs, Host] = WeakKeyDictionary()
"""Host of each pool, and of each part of a pool; a state, which has arrays alone, cannot have its functions."""
PER_HOST_FIELDS = ("host", "seeds", "slots", "measures", "seed", "step", "drawn", "kernel")
"""Fields of a pool that have a row for each of its hosts."""


def sub_pool(envs: GrowingEnvs, low: int, high: int) -> GrowingEnvs:
    """Return hosts low ... high - 1 of a pool as a pool of their own, whose tensors are views of the pool's rows."""

    def rows(branch: Any) -> Any:  # noqa: ANN401  (whatever a state holds)
        """Return `branch` with views of rows [low, high) in place of its tensors; other values are shared."""
        if isinstance(branch, Tensor):
            return branch[low:high]
        if isinstance(branch, list):
            return [rows(item) for item in branch]
        if is_dataclass(branch) and not isinstance(branch, type):
            return replace(branch, **{f.name: rows(getattr(branch, f.name)) for f in fields(branch)})
        return branch

    pool = replace(envs, **{name: rows(getattr(envs, name)) for name in PER_HOST_FIELDS})
    _host_by_pool[pool] = _host_by_pool[envs]
    return pool


def live_pools() -> int:
    """Return the number of pools that are still referenced: a training run must have one, however long it runs."""
    return len(_living_pools)
