"""Optimizer updates of all hosts at once, and their results on the validation images."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from flatwater.envs.growing.config import FitConfig
from flatwater.envs.growing.task import Task
from flatwater.envs.growing.weights import StackedWeights, autograd_leaves, step_optimizer_, write_gradients_
from flatwater.nets.hosts import Host
from flatwater.nets.slots import SlotGates
from flatwater.nets.stack import views


class ValidationResult(NamedTuple):
    """Results of a validation."""

    loss: Float[Tensor, " E"]
    accuracy: Float[Tensor, " E"]
    contribution: Float[Tensor, "E S"]
    """Accuracy with each slot's seed minus accuracy without it."""


def fit_hosts_(
    host: StackedWeights,
    seeds: Sequence[StackedWeights],
    net: Host,
    gates: SlotGates,
    *,
    task: Task,
    rows: Int[Tensor, "B E"],
    learns: Bool[Tensor, "E S"],
    config: FitConfig,
) -> None:
    """Do one optimizer update of every host, and of every seed that learns.

    The sum of the hosts' losses is differentiated. As no weight of one host is in another's loss, each host gets its
    own gradient, and a loss that is NaN spoils its own host alone.

    Axes: E hosts, S slots, B images of each host.

    Args:
        host: the hosts' own weights, updated in place with their gradients and moments.
        seeds: the weights of each slot's seeds, updated in the same way.
        net: function that computes logits with these weights.
        gates: present masks and gates of hosts and seeds.
        task: the task whose training images are used.
        rows: positions of each host's images among the training images.
        learns: seeds that are updated; hosts always are.
        config: learning rates of hosts and of seeds.
    """
    parts, layouts = (host, *seeds), (net.layout, *net.seeds)
    # A step of the environments runs under `no_grad`; gradients are needed here alone.
    with torch.enable_grad():
        weights = [autograd_leaves(part, layout) for part, layout in zip(parts, layouts, strict=True)]
        host_weights, *seed_weights = weights
        logits = net.logits(host_weights, seed_weights, gates, task.train_images[rows])
        loss = host_losses(logits, task.train_labels[rows]).sum()
    write_gradients_(parts, layouts, weights, loss)
    step_optimizer_(host, lr=config.lr, learns=torch.ones_like(learns[:, 0]))  # hosts always learn
    for slot, seed in enumerate(seeds):
        step_optimizer_(seed, lr=config.seed_lr, learns=learns[:, slot])


def host_losses(logits: Float[Tensor, "B E K"], labels: Int[Tensor, "B E"]) -> Float[Tensor, " E"]:
    """Return each host's mean cross-entropy over its images."""
    losses = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return losses.view(labels.shape).mean(0)


def validate_hosts(
    host: StackedWeights, seeds: Sequence[StackedWeights], net: Host, gates: SlotGates, task: Task
) -> ValidationResult:
    """Return loss and accuracy of every host on all validation images, and the contribution of each of its seeds.

    The images run through each host with all its seeds, and once more without each of them.

    Args:
        host: the hosts' own weights, which are only read.
        seeds: the weights of each slot's seeds, which are only read.
        net: function that computes logits with these weights.
        gates: present masks and gates of hosts and seeds.
        task: the task whose validation images are used.
    """
    seed_weights = [views(seed.weights, layout) for seed, layout in zip(seeds, net.seeds, strict=True)]
    # [1 + S, V, E, K]: with all seeds first, then without the seed of each slot.
    logits = net.ablations(views(host.weights, net.layout), seed_weights, gates, task.valid_images)
    # Expanded, not copied: all hosts are validated on the same labels.
    labels = task.valid_labels[:, None].expand(logits.shape[1:3])
    accuracy = (logits.argmax(-1) == labels).float().mean(1)
    return ValidationResult(
        loss=host_losses(logits[0], labels), accuracy=accuracy[0], contribution=(accuracy[0] - accuracy[1:]).T
    )
