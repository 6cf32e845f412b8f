"""E hosts in training as one arena: everything is allocated by `build_envs` and written in place, without a host sync.

A step carries out one operation in each host, trains all hosts and their seeds, and validates them with every seed and
without each. All episodes begin together, with `reset_`, and last `config.steps` steps. What happens in env e depends
on its seed and its actions alone: no env's numbers enter another's, whatever the others do.
"""

from dataclasses import fields, is_dataclass, replace
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.envs.growing.config import GrowingConfig, HostConfig
from flatwater.envs.growing.fitting import fit_hosts_, validate_hosts
from flatwater.envs.growing.lifecycle import (
    LifecycleTables,
    OperationMasks,
    Slots,
    apply_operation_,
    build_slots,
    build_tables,
    possible_operations,
)
from flatwater.envs.growing.measures import (
    Measures,
    build_measures,
    is_good,
    last_accuracy,
    note_gradients_,
    note_operation_,
    note_worth_,
)
from flatwater.envs.growing.observation import host_observation
from flatwater.envs.growing.reward import UngrownAccuracy, accuracy_alone, build_alone, seed_credit, step_reward
from flatwater.envs.growing.stages import SlotStage
from flatwater.envs.growing.stream import SEEDLING, WEIGHTS, draw_weights_, image_numbers, stream_key
from flatwater.envs.growing.task import Task
from flatwater.envs.growing.weights import StackedWeights, build_part, reset_moments_
from flatwater.nets.host_mlp import MLPHost
from flatwater.nets.hosts import CENTRE_TAP, KERNEL_TAPS, ConvHost, Host, Images
from flatwater.nets.own_host import OwnHost
from flatwater.nets.slots import SlotGates
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, leaves, state
from flatwater_watch.errors import ConfigError


@state
class GrowingEnvs:
    """The pool: E hosts with their slots, optimizers, streams and measures."""

    host: StackedWeights
    seeds: list[StackedWeights]
    """The seeds of each slot."""
    slots: Slots
    measures: Measures
    seed: Int[Tensor, " E"]
    """Seed of each env's weights and images."""
    step: Int[Tensor, " E"]
    """Steps of the episode taken."""
    drawn: Int[Tensor, " E"]
    """Images drawn since the reset."""
    kernel: Float[Tensor, "E 9"]
    """Taps of each host's kernels that exist."""
    alone: UngrownAccuracy
    """Accuracy of hosts in which nothing is grown. The same for all episodes: a reset leaves it."""
    constants: dict[str, Tensor] = derived_field()
    """Tensors besides weights that a host of the user's computes with."""
    seed_share: Float[Tensor, "S 3"] = derived_field()
    """Weights of a seed as a share of the host's own, by slot and blueprint."""
    tables: LifecycleTables = derived_field()
    task: Task = derived_field()
    config: GrowingConfig = derived_field()


@cache
def build_host(config: HostConfig, images: Images) -> Host:
    """Return the shipped host for such images, which computes with the hosts' weights."""
    if config.kind == "conv":
        return ConvHost(images, config.channels)
    return MLPHost(images, config.hidden, config.rank)


def pool_host(envs: GrowingEnvs) -> Host:
    """Return the host that computes with the weights of the pool."""
    return _host_by_pool[envs]


def build_envs(
    config: GrowingConfig, *, count: int, data: Task, device: torch.device, net: Host | None = None
) -> GrowingEnvs:
    """Return envs that wait for `reset_`.

    Args:
        config: settings of all envs.
        count: number of envs, E.
        data: images, on the same device.
        device: `meta` makes a plan.
        net: hosts of the user's, for such images; None for those of `config.host`.
    """
    net = net or build_host(config.host, data.images)
    adam = config.fit.optimizer == "adam"
    slots = len(net.seeds)
    integers = partial(filled_tensor, 0, count, dtype=torch.int64, device=device)
    # Divided where there is memory: on the meta device that would import torch's compiler.
    share = torch.tensor(net.seed_sizes(), dtype=torch.float32) / net.layout.size
    pool = GrowingEnvs(
        host=build_part(count, net.layout, adam=adam, device=device),
        seeds=[build_part(count, layout, adam=adam, device=device) for layout in net.seeds],
        slots=build_slots(count, slots, device),
        measures=build_measures(count, slots, history=config.history, chance=1 / data.images.classes, device=device),
        seed=integers(),
        step=integers(),
        drawn=integers(),
        kernel=filled_tensor(0, count, KERNEL_TAPS, device=device),
        alone=build_alone(config.steps, device),
        constants=dict(net.constants),
        seed_share=share.to(device),
        tables=build_tables(config.lifecycle, device),
        task=data,
        config=config,
    )
    _host_by_pool[pool] = net
    _living_pools.add(pool)
    return pool


_living_pools: WeakSet[GrowingEnvs] = WeakSet()
"""Every pool that something still holds."""
_host_by_pool: WeakKeyDictionary[GrowingEnvs, Host] = WeakKeyDictionary()
"""Host of each pool, or of a part of one: its functions, which no state can hold."""
OF_EACH = ("host", "seeds", "slots", "measures", "seed", "step", "drawn", "kernel")
"""Fields of a pool that have a row for each of its hosts."""


def sub_pool(envs: GrowingEnvs, low: int, high: int) -> GrowingEnvs:
    """Return hosts [low, high) of a pool as a pool of their own, in the same storage."""

    def rows(branch: Any) -> Any:  # noqa: ANN401  (whatever a state holds)
        """Return rows `low` to `high` of every tensor below `branch`, as views; all else is shared as it is."""
        if isinstance(branch, Tensor):
            return branch[low:high]
        if isinstance(branch, list):
            return [rows(item) for item in branch]
        if is_dataclass(branch) and not isinstance(branch, type):
            return replace(branch, **{f.name: rows(getattr(branch, f.name)) for f in fields(branch)})
        return branch

    part = replace(envs, **{name: rows(getattr(envs, name)) for name in OF_EACH})
    _host_by_pool[part] = _host_by_pool[envs]
    return part


def live_pools() -> int:
    """Return the number of pools that something still holds: a training run has one, and no more after any round."""
    return len(_living_pools)


@torch.no_grad()
def reset_(envs: GrowingEnvs, seeds: Int[Tensor, " E"]) -> None:
    """Begin an episode in every env, in the same storage, as if it had just been built.

    Args:
        envs: written in place.
        seeds: 0 or more; equal seeds make equal episodes.
    """
    # Zero is the new state of all but the fields that are written below.
    for branch in (envs.host, envs.seeds, envs.slots, envs.measures):
        for leaf in leaves(branch):
            if isinstance(leaf.value, Tensor):
                leaf.value.zero_()
    envs.measures.good_loss.fill_(torch.inf)
    envs.step.zero_()
    envs.drawn.zero_()
    envs.seed.copy_(seeds)
    net = pool_host(envs)
    start = stream_key(seeds, WEIGHTS)
    is_impaired = {"odd": seeds % 2 == 1, "all": seeds >= 0, "none": seeds < 0}[envs.config.host.impaired]
    is_centre = torch.arange(KERNEL_TAPS, device=seeds.device) == CENTRE_TAP
    envs.kernel.copy_(~(is_impaired & net.has_kernels)[:, None] | is_centre)
    if isinstance(net, OwnHost):
        net.draw_(envs.host.weights, start)
    else:
        draw_weights_(envs.host.weights, net.layout, start, torch.ones_like(seeds, dtype=torch.bool))
    # A rollback in the first step goes back to these.
    envs.host.good.copy_(envs.host.weights)


@torch.no_grad()
def step_(envs: GrowingEnvs, action: Int[Tensor, "E 5"]) -> Float[Tensor, " E"]:
    """Carry out one operation in each host, some updates and one validation; return the rewards.

    Args:
        envs: written in place.
        action: columns as in `HEADS`. An impossible operation is a WAIT without success.

    Raises:
        ConfigError: the action has another shape.
    """
    expected_shape = (len(envs.seed), len(envs.tables.relevant[0]))
    if action.shape != expected_shape:
        raise ConfigError(
            f"action {tuple(action.shape)}: expected {expected_shape}, hosts by heads. Build the envs for this batch."
        )
    effect = apply_operation_(envs.slots, envs.tables, action)
    note_operation_(envs.measures, action[:, 0], effect)
    plant_seeds_(envs, germinated=effect.germinated, pruned=effect.pruned)
    train_hosts_(envs)
    accuracy, mixed_in = measure_hosts_(envs)
    # Before the reward, which counts steps from 1.
    envs.step.add_(1)
    measures, slots = envs.measures, envs.slots
    # [E, S, 3], picked by each seed's blueprint -> [E, S].
    share = envs.seed_share.expand(len(slots.blueprint), -1, -1).gather(2, slots.blueprint[..., None])[..., 0]
    alone = accuracy_alone(envs.alone, impaired=impaired_hosts(envs), step=envs.step)
    credits_ = seed_credit(measures.contribution, accuracy=accuracy, started_from=measures.started_from, alone=alone)
    return step_reward(
        envs.config.reward,
        credits_=credits_ * mixed_in,
        weights=share * envs.tables.hosted[slots.stage],
        changes=(effect.germinated | effect.pruned).sum(1).float(),
        accuracy=accuracy,
        last=envs.step == envs.config.steps,
    )


def plant_seeds_(envs: GrowingEnvs, *, germinated: Bool[Tensor, "E S"], pruned: Bool[Tensor, "E S"]) -> None:
    """Draw new seeds, and remove pruned seeds with their optimizers.

    Args:
        envs: the seeds' weights, good weights and moments are written in place; its slots are those after the
            operation.
        germinated: slots with a new seed.
        pruned: slots whose seed is removed: its weights become 0.
    """
    layouts = pool_host(envs).seeds
    for slot, (part, layout) in enumerate(zip(envs.seeds, layouts, strict=True)):
        new, removed = germinated[:, slot], pruned[:, slot]
        start = stream_key(envs.seed, SEEDLING, slot, envs.slots.germinations[:, slot])
        draw_weights_(part.weights, layout, start, new)
        part.weights.masked_fill_(removed[:, None], 0)
        # A rollback must bring back neither the seed that was here nor the time before this seed.
        part.good.copy_(torch.where((new | removed)[:, None], part.weights, part.good))
        reset_moments_(part, new | removed)


def host_gates(envs: GrowingEnvs) -> SlotGates:
    """Return the masks and gates that tell the hosts apart now."""
    slots = envs.slots
    return SlotGates(envs.kernel, slots.blueprint, slots.alpha, (slots.stage == SlotStage.TRAINING).float())


def train_hosts_(envs: GrowingEnvs) -> None:
    """Run the step's updates of every host and of its live seeds."""
    config, stage = envs.config.fit, envs.slots.stage
    net = pool_host(envs)
    gates = host_gates(envs)
    learns = envs.tables.hosted[stage] & (stage != SlotStage.GERMINATED)
    images = len(envs.task.train_labels)
    count = config.updates * config.batch_size
    # Images follow from the seed and this count alone: a checkpoint holds no generator.
    numbers = image_numbers(envs.seed, envs.drawn, count=count, images=images)
    envs.drawn.add_(count)
    for rows in torch.split(numbers, config.batch_size):
        fit_hosts_(envs.host, envs.seeds, net, gates, task=envs.task, rows=rows, learns=learns, config=config)
    norm = torch.stack([torch.linalg.vector_norm(part.grad, dim=1) for part in envs.seeds], 1)
    note_gradients_(envs.measures, norm, has_learned=learns)


def measure_hosts_(envs: GrowingEnvs) -> tuple[Float[Tensor, " E"], Bool[Tensor, "E S"]]:
    """Validate; keep the weights of good hosts, and roll the others back to their last good weights.

    Returns:
        Accuracies, and which seeds can change them.
    """
    validation = validate_hosts(envs.host, envs.seeds, pool_host(envs), host_gates(envs), envs.task)
    mixed_in = envs.tables.mixed_in[envs.slots.stage] & (envs.slots.alpha > 0)
    is_usable = is_good(envs.measures, validation, envs.config.fit.spike)
    for part in (envs.host, *envs.seeds):
        # No branch on `good`, which would wait for the device: good hosts get their own weights back.
        part.good.copy_(torch.where(is_usable[:, None], part.weights, part.good))
        part.weights.copy_(part.good)
        reset_moments_(part, ~is_usable)
    note_worth_(envs.measures, validation, good=is_usable, measured=mixed_in)
    return last_accuracy(envs.measures), mixed_in


def impaired_hosts(envs: GrowingEnvs) -> Bool[Tensor, " E"]:
    """Return a mask of the hosts whose kernels lack taps."""
    return envs.kernel.sum(1) < KERNEL_TAPS


def observe(envs: GrowingEnvs) -> Float[Tensor, "E D"]:
    """Return the agent's observation of each host."""
    return host_observation(envs.step, envs.slots, envs.measures, envs.tables, envs.config)


def masks(envs: GrowingEnvs) -> OperationMasks:
    """Return masks of the choices that are possible in each host now."""
    return possible_operations(envs.slots, envs.tables, envs.config.lifecycle)
