"""Steps of E networks in training (hosts) as one batch, the pool that `build_envs` allocates; they write in place.

A host has *slots*, places behind its layers in which a further module, a *seed*, can grow; a seed's *blueprint* is its
kind. A host is *impaired* if its 3 x 3 kernels are cut to their centre.

A step carries out one operation in each host, trains all hosts and their seeds, and validates them with all seeds and
without each of them. All episodes begin together, with `reset_`, and last `config.steps` steps. An env's numbers depend
on its seed and its actions alone, whatever other envs do. No step waits for the device.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.envs.growing.fitting import fit_hosts_, validate_hosts
from flatwater.envs.growing.lifecycle import OperationMasks, apply_operation_, possible_operations
from flatwater.envs.growing.measures import (
    has_good_loss,
    last_accuracy,
    record_gradients_,
    record_operation_,
    record_validation_,
)
from flatwater.envs.growing.observation import host_observation
from flatwater.envs.growing.pool import GrowingEnvs, pool_host
from flatwater.envs.growing.reward import seed_credit, step_reward, ungrown_accuracy
from flatwater.envs.growing.stages import SlotStage
from flatwater.envs.growing.stream import SEEDLING, WEIGHTS, draw_weights_, image_numbers, stream_key
from flatwater.envs.growing.weights import reset_moments_
from flatwater.nets.hosts import CENTRE_TAP, KERNEL_TAPS
from flatwater.nets.own_host import OwnHost
from flatwater.nets.slots import SlotGates
from flatwater.state.tree import leaves
from flatwater_watch.errors import ConfigError


@torch.no_grad()
def reset_(envs: GrowingEnvs, seeds: Int[Tensor, " E"]) -> None:
    """Begin an episode in every env, in the same storage, as if the envs had just been built.

    Args:
        envs: written in place.
        seeds: 0 or more; equal seeds make equal episodes.
    """
    # Every field of the episode begins at zero, except those that are written below.
    for branch in (envs.host, envs.seeds, envs.slots, envs.measures):
        for leaf in leaves(branch):
            if isinstance(leaf.value, Tensor):
                leaf.value.zero_()
    envs.measures.good_loss.fill_(torch.inf)
    envs.step.zero_()
    envs.drawn.zero_()
    envs.seed.copy_(seeds)
    net = pool_host(envs)
    key = stream_key(seeds, WEIGHTS)
    # Seeds are 0 or more: `seeds >= 0` is true for all hosts, `seeds < 0` for none.
    is_impaired = {"odd": seeds % 2 == 1, "all": seeds >= 0, "none": seeds < 0}[envs.config.host.impaired]
    is_centre = torch.arange(KERNEL_TAPS, device=seeds.device) == CENTRE_TAP
    # A mask of the 9 taps of a host's kernels: all of them, or for an impaired host the centre alone.
    envs.kernel.copy_(~(is_impaired & net.has_kernels)[:, None] | is_centre)
    if isinstance(net, OwnHost):
        net.draw_(envs.host.weights, key)
    else:
        draw_weights_(envs.host.weights, net.layout, key, torch.ones_like(seeds, dtype=torch.bool))
    # A rollback in the first step restores the initial weights.
    envs.host.good.copy_(envs.host.weights)


@torch.no_grad()
def step_(envs: GrowingEnvs, action: Int[Tensor, "E 5"]) -> Float[Tensor, " E"]:
    """Carry out an operation in each host, train all hosts, validate them, and return the rewards.

    Args:
        envs: written in place.
        action: operation, slot, blueprint, alpha target and tempo of each host. An impossible operation does nothing.

    Raises:
        ConfigError: the action has another shape.
    """
    expected_shape = (len(envs.seed), len(envs.tables.relevant[0]))
    if action.shape != expected_shape:
        raise ConfigError(
            f"action {tuple(action.shape)}: expected {expected_shape}, hosts by heads. Build the envs for this batch."
        )
    effect = apply_operation_(envs.slots, envs.tables, action)
    record_operation_(envs.measures, action[:, 0], effect)  # column 0 is the operation
    plant_seeds_(envs, is_germinated=effect.germinated, is_pruned=effect.pruned)
    train_hosts_(envs)
    accuracy, is_mixed = measure_hosts_(envs)
    # Before the reward, which counts steps from 1.
    envs.step.add_(1)
    measures, slots = envs.measures, envs.slots
    # Weights of each seed as a share of its host's: from [E, S, 3] the entry of the seed's blueprint -> [E, S].
    share = envs.seed_share.expand(len(slots.blueprint), -1, -1).gather(2, slots.blueprint[..., None])[..., 0]
    # A seed gets credit only for a gain beyond hosts in which nothing is grown.
    ungrown = ungrown_accuracy(envs.alone, is_impaired=impaired_hosts(envs), step=envs.step)
    credits_ = seed_credit(
        measures.contribution, accuracy=accuracy, initial_accuracy=measures.started_from, ungrown=ungrown
    )
    return step_reward(
        envs.config.reward,
        credits_=credits_ * is_mixed,  # a seed that is not mixed in contributes nothing now
        sizes=share * envs.tables.hosted[slots.stage],
        changes=(effect.germinated | effect.pruned).sum(1).float(),
        accuracy=accuracy,
        is_last=envs.step == envs.config.steps,
    )


def plant_seeds_(envs: GrowingEnvs, *, is_germinated: Bool[Tensor, "E S"], is_pruned: Bool[Tensor, "E S"]) -> None:
    """Draw the weights of new seeds, and zero those of pruned seeds; reset the optimizers of both.

    Args:
        envs: the seeds' weights, good weights and moments are written in place; its slots are already those after
            the operation.
        is_germinated: slots with a new seed.
        is_pruned: slots whose seed is removed.
    """
    layouts = pool_host(envs).seeds
    for slot, (part, layout) in enumerate(zip(envs.seeds, layouts, strict=True)):
        is_new, is_removed = is_germinated[:, slot], is_pruned[:, slot]
        # Each seed has random numbers of its own: of its env's seed, its slot, and its number in the slot.
        key = stream_key(envs.seed, SEEDLING, slot, envs.slots.germinations[:, slot])
        draw_weights_(part.weights, layout, key, is_new)
        part.weights.masked_fill_(is_removed[:, None], 0)
        # The good weights too: a rollback must not bring back a seed that was here before.
        part.good.copy_(torch.where((is_new | is_removed)[:, None], part.weights, part.good))
        reset_moments_(part, is_new | is_removed)


def host_gates(envs: GrowingEnvs) -> SlotGates:
    """Return what differs between hosts besides weights: kernel masks, and of each slot blueprint, alpha and training.

    Alpha is the share of the seed's output; a seed in training learns, but does not change the output.
    """
    slots = envs.slots
    is_training = slots.stage == SlotStage.TRAINING
    return SlotGates(kernel=envs.kernel, blueprint=slots.blueprint, alpha=slots.alpha, train=is_training.float())


def train_hosts_(envs: GrowingEnvs) -> None:
    """Take the step's optimizer updates, `config.updates` of them, of every host and of every seed that learns.

    The norms of the seeds' gradients in the last update are recorded.
    """
    config, stage = envs.config.fit, envs.slots.stage
    net = pool_host(envs)
    gates = host_gates(envs)
    # A seed does nothing in the stage in which it germinated.
    learns = envs.tables.hosted[stage] & (stage != SlotStage.GERMINATED)
    images = len(envs.task.train_labels)
    count = config.updates * config.batch_size
    # Images follow from an env's seed and the number of images drawn so far, so a checkpoint needs no generator.
    numbers = image_numbers(envs.seed, envs.drawn, count=count, images=images)
    envs.drawn.add_(count)
    for rows in torch.split(numbers, config.batch_size):
        fit_hosts_(envs.host, envs.seeds, net, gates, task=envs.task, rows=rows, learns=learns, config=config)
    norm = torch.stack([torch.linalg.vector_norm(part.grad, dim=1) for part in envs.seeds], 1)
    record_gradients_(envs.measures, norm, has_learned=learns)


def measure_hosts_(envs: GrowingEnvs) -> tuple[Float[Tensor, " E"], Bool[Tensor, "E S"]]:
    """Validate all hosts; keep the weights of good hosts, and roll the others back to their last good weights.

    Returns:
        Accuracy of each host, and a mask of the seeds that are mixed into their host's output.
    """
    validation = validate_hosts(envs.host, envs.seeds, pool_host(envs), host_gates(envs), envs.task)
    # Seeds that change their host's output: alpha is the share of a seed's output in its slot's.
    is_mixed = envs.tables.mixed_in[envs.slots.stage] & (envs.slots.alpha > 0)
    is_good = has_good_loss(envs.measures, validation, envs.config.fit.spike)
    # Seeds roll back with their host.
    for part in (envs.host, *envs.seeds):
        # No branch on `is_good`, which would wait for the device: good hosts get their own weights back.
        part.good.copy_(torch.where(is_good[:, None], part.weights, part.good))
        part.weights.copy_(part.good)
        reset_moments_(part, ~is_good)
    record_validation_(envs.measures, validation, is_good=is_good, is_mixed=is_mixed)
    return last_accuracy(envs.measures), is_mixed


def impaired_hosts(envs: GrowingEnvs) -> Bool[Tensor, " E"]:
    """Return a mask of the impaired hosts, whose kernels are cut to their centre."""
    return envs.kernel.sum(1) < KERNEL_TAPS


def observe(envs: GrowingEnvs) -> Float[Tensor, "E D"]:
    """Return the agent's observation of each host."""
    return host_observation(envs.step, envs.slots, envs.measures, envs.tables, envs.config)


def masks(envs: GrowingEnvs) -> OperationMasks:
    """Return masks of the operations and choices that are possible in each host now."""
    return possible_operations(envs.slots, envs.tables, envs.config.lifecycle)
