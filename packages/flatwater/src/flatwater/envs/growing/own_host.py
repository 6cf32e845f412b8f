"""Hosts of the user's: the class is found, and tried out before the run, so that no run fails because of it."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from flatwater.envs.growing.config import HostConfig
from flatwater.envs.growing.pool import build_host
from flatwater.named_imports import find_object
from flatwater.nets.grafts import ConvGraft, DenseGraft, Graft
from flatwater.nets.hosts import KERNEL_TAPS, Host, ImageShape
from flatwater.nets.own_host import OwnHost, make_network
from flatwater.nets.slots import SlotGates
from flatwater.nets.stack import init_, views
from flatwater.user_code import user_code_line
from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr

EXPECTED_HOST = (
    "a class of torch.nn.Module, made from (channels, height, width, classes), whose forward takes images [N, C, H, W] "
    "and returns logits [N, classes], and whose `slots` name the submodules that seeds grow behind"
)
TRIAL_IMAGES = 4
"""Number of images that a class is tried out with."""
TRIAL_SEEDS = (1, 2)
"""Seeds of the two networks that are tried out."""
RELATIVE_TOLERANCE = 1e-3
"""Largest difference between a network's logits stacked and alone, as a share of the largest logit.

float32 sums in another order differ by less.
"""
CONV_DIMENSIONS, DENSE_DIMENSIONS = 4, 2
"""Number of dimensions of a slot's output, [N, C, H, W] or [N, F]."""


class ForwardTrace(NamedTuple):
    """Record of a forward of one network."""

    logits: Tensor
    outputs: Mapping[str, list[Any]]
    """Outputs of each slot, one for each call."""


def find_host(name: str | None, config: HostConfig, image_shape: ImageShape, device: torch.device) -> Host:
    """Return the host, the function of weights and images, that the settings name; a class of the user's is tried out.

    Args:
        name: `package.module:Class` of the user's, or None for the hosts of `config`.
        config: settings of the shipped hosts; its `rank` is used for dense seeds of the user's host, too.
        image_shape: size of the images, and number of classes.
        device: device of the constants; `meta` makes a plan.

    Raises:
        ConfigError: `name` names no class, or the class cannot be stacked; the message names fault and remedy.
    """
    if name is None:
        return build_host(config, image_shape)
    subject = f"host = {short_repr(name)}"
    if ":" not in name:
        raise ConfigError(f"{subject}: expected package.module:Class. Choose a host of Flatwater with env.host.kind")
    build = find_object(name, setting=f"{subject}: it", expected="package.module:Class of a torch.nn.Module")
    try:
        return _try_host(build, image_shape, config.rank, device)
    except ConfigError as error:
        raise ConfigError(f"{subject}: {error}") from error


def _try_host(build: Any, image_shape: ImageShape, rank: int, device: torch.device) -> OwnHost:  # noqa: ANN401  (whatever it is)
    """Return the host made of the user's class, after a trial of three networks of it, alone and stacked.

    Args:
        build: object that the user has named, perhaps no class.
        image_shape: size of the images, and number of classes.
        rank: largest rank of low-rank dense seeds; it is also at most the width of their slot's output.
        device: device of the constants of the result; the trial itself is on the CPU.

    Raises:
        ConfigError: `build` is no such class, or cannot be stacked.
    """
    slots = _check_class(build, image_shape)
    # Two networks of one seed, which must have the same weights, and one of another seed.
    first_seed, other_seed = TRIAL_SEEDS
    first = make_network(build, image_shape, first_seed)
    repeated_network = make_network(build, image_shape, first_seed)
    other = make_network(build, image_shape, other_seed)
    _check_weights(first, repeated_network)
    rng = torch.Generator().manual_seed(0)
    sample_images = torch.rand(TRIAL_IMAGES, image_shape.channels, image_shape.height, image_shape.width, generator=rng)
    # Copied before the forward, as buffers that a forward changes are refused.
    buffers = {name: buffer.clone() for name, buffer in first.named_buffers()}
    traces = [_trace_forward(network, slots, sample_images) for network in (first, other)]
    _check_constants(buffers, first, other)
    _check_logits(traces[0].logits, image_shape)
    grafts = {slot: _make_graft(slot, outputs, rank) for slot, outputs in traces[0].outputs.items()}
    constants = {name: buffer.to(device) for name, buffer in buffers.items()}
    # The host is tried on the CPU, and gets its constants on the device afterwards. It is made from `repeated_network`:
    # the slots of the other two have hooks, which record outputs.
    host = OwnHost(build, image_shape, repeated_network.to("meta"), grafts, buffers)
    try:
        _check_stacked_networks(host, [trace.logits for trace in traces], sample_images)
    except RuntimeError as error:
        raise ConfigError(
            f"many hosts at once, stacked by torch.func.vmap, cannot run its forward: {torch_error_text(error)}. Leave "
            "dropout and other random numbers, branches on values and .item() out of its forward"
        ) from error
    return replace(host, constants=constants)


def torch_error_text(error: Exception) -> str:
    """Return the first sentence of torch's message without its full stop, and the line of the user's code if known."""
    message = str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".!")
    source_line = user_code_line(error)
    return message if source_line is None else f"{message} ({source_line.file}, line {source_line.line})"


def _check_class(build: Any, image_shape: ImageShape) -> tuple[str, ...]:  # noqa: ANN401  (whatever it is)
    """Return the class's `slots`: names of the submodules behind which seeds, further modules, can grow.

    Raises:
        ConfigError: `build` is no such class, or its `slots` are no names.
    """
    if not isinstance(build, type) or not issubclass(build, nn.Module):
        raise ConfigError(f"expected {EXPECTED_HOST}, got a {type(build).__name__}")
    # Read statically, which runs no code of the class.
    slots = inspect.getattr_static(build, "slots", None)
    if not isinstance(slots, tuple | list) or not slots or not all(isinstance(slot, str) for slot in slots):
        raise ConfigError(
            f'`slots`: expected names of submodules, such as slots = ("conv1", "conv2"), got {short_repr(slots)}'
        )
    if len({*slots}) < len(slots):
        raise ConfigError(f"`slots` = {short_repr(tuple(slots))}: a submodule is there twice. Name each submodule once")
    try:
        inspect.signature(build).bind(image_shape.channels, image_shape.height, image_shape.width, image_shape.classes)
    except TypeError as error:
        raise ConfigError(f"the class cannot be called with (channels, height, width, classes): {error}") from error
    return tuple(slots)


def _check_weights(network: nn.Module, twin: nn.Module) -> None:
    """Refuse parameters that are not trained as float32, or that differ from `twin`, a network of the same seed.

    Raises:
        ConfigError: a parameter cannot be trained, or does not follow from the seed.
    """
    parameters = dict(network.named_parameters())
    if not parameters:
        raise ConfigError("the module has no parameters: it cannot learn")
    twin_parameters = dict(twin.named_parameters())
    for name, value in parameters.items():
        if value.dtype != torch.float32 or not value.requires_grad:
            kind = str(value.dtype).removeprefix("torch.") if value.requires_grad else "frozen"
            raise ConfigError(
                f"parameter {name} is {kind}: expected a trainable float32 parameter. Use register_buffer for constants"
            )
        if not torch.equal(value, twin_parameters[name]):
            raise ConfigError(
                f"parameter {name} has other initial numbers each time, though torch.manual_seed was the same. "
                "Draw them from torch's own generator in __init__, so that an episode follows from its seed"
            )


def _trace_forward(network: nn.Module, slots: tuple[str, ...], images: Tensor) -> ForwardTrace:
    """Run one network on some images, and record the outputs of its slots.

    Args:
        network: the user's module; its slots keep the hooks that record.
        slots: names of submodules.
        images: [TRIAL_IMAGES, C, H, W].

    Raises:
        ConfigError: a slot is not a submodule.
    """
    submodules = dict(network.named_modules())
    outputs = {slot: list[Any]() for slot in slots}
    for slot, slot_outputs in outputs.items():
        if not slot or slot not in submodules:
            names = ", ".join(name for name in submodules if name)
            raise ConfigError(f"slot {short_repr(slot)} is no submodule: expected one of {names}")
        # The list is bound as a default: a closure would append all outputs to the last slot's list.
        submodules[slot].register_forward_hook(lambda _, __, output, kept=slot_outputs: kept.append(output))
    with torch.no_grad():
        logits = network(images)  # fills `outputs`
    return ForwardTrace(logits, outputs)


def _check_constants(
    initial_buffers: Mapping[str, Tensor], first_network: nn.Module, second_network: nn.Module
) -> None:
    """Refuse buffers that a forward of `first_network` has changed, or that differ in a second network.

    Raises:
        ConfigError: a buffer changes in a forward, or differs between hosts.
    """
    final_buffers, other_buffers = dict(first_network.named_buffers()), dict(second_network.named_buffers())
    for name, buffer in initial_buffers.items():
        if not torch.equal(buffer, final_buffers[name]):
            raise ConfigError(
                f"buffer {name} changes in a forward, as BatchNorm's statistics do. A reset and a rollback restore "
                "weights, not buffers. Use GroupNorm or LayerNorm, or BatchNorm with track_running_stats=False"
            )
        if not torch.equal(buffer, other_buffers[name]):
            raise ConfigError(f"buffer {name} differs from host to host. Make it a parameter, or equal in all hosts")


def _check_logits(logits: Any, image_shape: ImageShape) -> None:  # noqa: ANN401  (whatever it returns)
    """Refuse anything but float32 logits [TRIAL_IMAGES, classes].

    Raises:
        ConfigError: the result of the forward is something else.
    """
    expected_shape = (TRIAL_IMAGES, image_shape.classes)
    if not isinstance(logits, Tensor) or logits.shape != expected_shape or logits.dtype != torch.float32:
        actual = f"{logits.dtype} {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        batch_shape = (TRIAL_IMAGES, image_shape.channels, image_shape.height, image_shape.width)
        raise ConfigError(f"forward: expected logits, float32 {expected_shape}, of images {batch_shape}, got {actual}")


def _make_graft(slot: str, outputs: list[Any], rank: int) -> Graft:
    """Return the graft that adds a seed behind a slot, by the form of the slot's output.

    Args:
        slot: name of the slot, for messages.
        outputs: outputs of the slot in one forward of `TRIAL_IMAGES` images, [N, C, H, W] or [N, F].
        rank: largest rank of low-rank dense seeds; it is also at most the number of features.

    Raises:
        ConfigError: the slot was not called exactly once, or its output has another shape.
    """
    if len(outputs) != 1:
        raise ConfigError(f"slot {slot}: expected one call in a forward, got {len(outputs)}")
    (features,) = outputs
    # 0 dimensions stand for what is no tensor with a row for each image: it is refused below.
    dimensions = features.ndim if isinstance(features, Tensor) and len(features) == TRIAL_IMAGES else 0
    if dimensions == CONV_DIMENSIONS:
        return ConvGraft(features.shape[1])
    if dimensions == DENSE_DIMENSIONS:
        return DenseGraft(features.shape[1], min(rank, features.shape[1]))
    actual = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
    raise ConfigError(f"slot {slot}: expected features [N, C, H, W] or [N, F] of {TRIAL_IMAGES} images, got {actual}")


def _check_stacked_networks(host: OwnHost, logits_alone: list[Tensor], images: Tensor) -> None:
    """Check that stacked networks have the logits of each network alone, and that all weights get gradients.

    Args:
        host: the host that is tried, on the CPU; it draws the weights of `TRIAL_SEEDS` again.
        logits_alone: logits [TRIAL_IMAGES, classes] of each network of `TRIAL_SEEDS`, computed alone.
        images: the images of these logits, [TRIAL_IMAGES, C, H, W].

    Raises:
        ConfigError: logits differ by more than `RELATIVE_TOLERANCE`, or do not depend on a parameter.
        RuntimeError: torch cannot run the forward stacked, or cannot differentiate it.
    """
    hosts = len(logits_alone)
    flat = images.flatten(1)
    host_weights, seeds, gates = _build_trial_hosts(host, hosts)
    # All hosts get the same images, [B, E, P].
    logits = host.logits(host_weights, seeds, gates, flat[:, None].expand(-1, hosts, -1))
    for row, expected in enumerate(logits_alone):
        if not torch.allclose(logits[:, row], expected, rtol=0, atol=RELATIVE_TOLERANCE * float(expected.abs().max())):
            raise ConfigError(
                "a host has other logits stacked with others than alone. Make every number that a host draws or learns "
                "an nn.Parameter, and let no forward depend on an earlier forward"
            )
    # The sum of squares depends on all logits; the gradient of a weight that no logit depends on is None.
    grads: Sequence[Tensor | None] = torch.autograd.grad(
        logits.square().sum(), [*host_weights.values()], allow_unused=True
    )
    unused_weights = [name for name, grad in zip(host_weights, grads, strict=True) if grad is None]
    if unused_weights:
        raise ConfigError(
            f"the logits do not depend on parameter {unused_weights[0]}, so it cannot learn. Leave it out"
        )
    # An ablation, as in a validation, must run too.
    host.ablations(host_weights, seeds, gates, flat)


def _build_trial_hosts(host: OwnHost, hosts: int) -> tuple[dict[str, Tensor], list[dict[str, Tensor]], SlotGates]:
    """Return the weights of the hosts of `TRIAL_SEEDS` by name, those of each slot's seeds, and the slots' gates.

    The gates keep the seeds out of the hosts' output.
    """
    slots = len(host.grafts)
    layouts = (host.layout, *host.seeds)
    blocks = [torch.zeros(hosts, layout.size) for layout in layouts]
    # Block 0 has the hosts' own weights, each of the others the seeds' weights in one slot.
    for block, layout in zip(blocks[1:], host.seeds, strict=True):
        init_(block, layout, torch.Generator().manual_seed(0))  # any numbers will do
    host.draw_(blocks[0], torch.tensor(TRIAL_SEEDS))
    host_weights, *seeds = [
        views(block.requires_grad_(), layout) for block, layout in zip(blocks, layouts, strict=True)
    ]
    zeros = torch.zeros(hosts, slots)
    gates = SlotGates(kernel=torch.ones(hosts, KERNEL_TAPS), blueprint=zeros.long(), alpha=zeros, train=zeros)
    return host_weights, seeds, gates
