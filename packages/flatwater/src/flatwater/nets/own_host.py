"""A network of the user's as a host: E copies of one `nn.Module` at once, with seeds behind the layers that it names.

`torch.func.vmap` runs the module with the weights of every host; no number of one host enters another's. A hook at each
slot puts the seed's part behind the layer's output (the formula of `flatwater.nets.slots`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, vmap

from flatwater.nets.grafts import Graft
from flatwater.nets.hosts import ImageShape
from flatwater.nets.module_encoder import lend_generator
from flatwater.nets.slots import SlotGates, vmap_blend_seed, vmap_seed_input
from flatwater.nets.stack import Layout, Params, Weight, views

MakesHost = Callable[[int, int, int, int], nn.Module]
"""A class of the user's, called with channels, height, width and classes."""


def make_network(build: MakesHost, image_shape: ImageShape, random_seed: int) -> nn.Module:
    """Return a new network on the CPU, whose weights follow from the random seed; torch's generator stays as it was."""
    with lend_generator(random_seed):
        return build(image_shape.channels, image_shape.height, image_shape.width, image_shape.classes)


@dataclass(frozen=True, eq=False)
class OwnHost:
    """A `Host` made of a class of the user's."""

    build: MakesHost
    image_shape: ImageShape
    module: nn.Module
    """The network on the meta device: its computation without its numbers."""
    grafts: Mapping[str, Graft]
    """The seed of each slot, by the name of the submodule behind whose output it grows."""
    constants: Mapping[str, Tensor]
    """The module's buffers, which never change: one copy for all hosts, on their device."""
    has_kernels = False

    @cached_property
    def layout(self) -> Layout:
        """The module's parameters. `draw_` writes their initial values, which the layout does not know."""
        return Layout({name: Weight(tuple(value.shape), fan_in=0) for name, value in self.module.named_parameters()})

    @cached_property
    def seeds(self) -> tuple[Layout, ...]:
        """Weights of the seed in each slot."""
        return tuple(graft.layout for graft in self.grafts.values())

    def seed_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Return the numbers of weights in use in a seed, by slot and blueprint."""
        return tuple(graft.sizes for graft in self.grafts.values())

    def draw_(self, block: Float[Tensor, "E n"], random_seeds: Int[Tensor, " E"]) -> None:
        """Write a new network's initial weights into each row of `block`, drawn from that row's random seed alone."""
        weights = views(block, self.layout)
        for row, random_seed in enumerate(random_seeds.tolist()):
            for name, value in make_network(self.build, self.image_shape, random_seed).named_parameters():
                weights[name][row].copy_(value.detach())

    def logits(
        self, host: Params, seeds: Sequence[Params], gates: SlotGates, images: Float[Tensor, "B E P"]
    ) -> Float[Tensor, "B E K"]:
        """Return the logits of every host on images of its own, in training mode.

        Args:
            host: the hosts' own weights, each [E, *shape].
            seeds: the weights of each slot's seeds, each [E, *shape].
            gates: how much each seed is blended in, and whether it learns.
            images: P numbers of each of B images of E hosts.
        """
        self.module.train()
        return self._run_hosts(host, self._cut_seeds(seeds, gates), gates, images, own_images=True)

    def ablations(
        self, host: Params, seeds: Sequence[Params], gates: SlotGates, images: Float[Tensor, "N P"]
    ) -> Float[Tensor, "V N E K"]:
        """Return logits on the same images in evaluation mode, of each host as it is and without each slot's seed.

        Index 0 of the first axis is each host as it is, index 1 + s is without the seed of slot s. The module stays in
        evaluation mode.

        Args:
            host: the hosts' own weights, each [E, *shape].
            seeds: the weights of each slot's seeds, each [E, *shape].
            gates: how much each seed is blended in, and whether it learns.
            images: P numbers of each of N images, which all hosts see.
        """
        self.module.eval()
        seed_params = self._cut_seeds(seeds, gates)
        # First each host as it is, then with alpha 0 for the seed of one slot after another.
        passes = [self._run_hosts(host, seed_params, gates, images, own_images=False)]
        for slot in range(len(seeds)):
            # A copy: the gates are the environments' own state.
            alpha = gates.alpha.clone()
            alpha[:, slot] = 0
            passes.append(self._run_hosts(host, seed_params, gates._replace(alpha=alpha), images, own_images=False))
        return torch.stack(passes)

    def _cut_seeds(self, seeds: Sequence[Params], gates: SlotGates) -> list[Params]:
        """Return the weights of each slot's seeds, cut to their blueprints."""
        pairs = enumerate(zip(self.grafts.values(), seeds, strict=True))
        return [graft.cut_to_blueprint(seed, gates.blueprint[:, slot]) for slot, (graft, seed) in pairs]

    def _run_hosts(
        self, host: Params, seeds: list[Params], gates: SlotGates, images: Tensor, *, own_images: bool
    ) -> Tensor:
        """Return the logits [B, E, K] of all hosts.

        Args:
            host: the hosts' own weights, each [E, *shape].
            seeds: the weights of each slot's seeds, cut to their blueprints.
            gates: only `alpha` and `train` are read.
            images: [B, E, P] with `own_images`, else [B, P].
            own_images: whether each host has images of its own; else all see the same.
        """
        shape = self.image_shape
        pictures = images.view(*images.shape[:-1], shape.channels, shape.height, shape.width)

        def run_host(host: Params, seeds: list[Params], alpha: Tensor, train: Tensor, x: Tensor) -> Tensor:
            """Return the logits [B, K] of one host; `vmap` removes the host axis from the arguments.

            Args:
                host: the host's own weights.
                seeds: the weights of each slot's seed.
                alpha: share of each seed's output, [S].
                train: 1 where a seed learns behind the host, else 0, [S].
                x: images [B, C, H, W].
            """
            with self._attach_seeds(seeds, alpha, train):
                outputs: Tensor = functional_call(self.module, (dict(host), dict(self.constants)), (x,))
            return outputs

        # The first axis of weights and gates is the host's; of own images it is the second, and shared ones have none.
        run_all = vmap(run_host, in_dims=(0, 0, 0, 0, 1 if own_images else None), out_dims=1)
        outputs: Tensor = run_all(dict(host), seeds, gates.alpha, gates.train, pictures)
        return outputs

    @contextmanager
    def _attach_seeds(
        self, seeds: list[Params], alpha: Float[Tensor, " S"], train: Float[Tensor, " S"]
    ) -> Iterator[None]:
        """Attach one host's seeds behind its slots' layers while the context is open.

        Args:
            seeds: weights of each slot's seed, cut to its blueprint, without the host axis.
            alpha: share of each seed's output, 0 to 1.
            train: 1 where the seed learns behind the host, else 0.
        """

        def make_hook(slot: int, graft: Graft) -> Callable[[nn.Module, object, Tensor], Tensor]:
            """Return a forward hook that blends the slot's seed into its layer's output."""

            def hook(_: nn.Module, __: object, features: Tensor) -> Tensor:
                """Return the layer's output, `features`, with the seed's output on it blended in."""
                # `vmap_seed_input`: the same features, but while a seed trains behind the host, its gradient does not
                # reach the host.
                seed_output = graft.apply_seed(seeds[slot], vmap_seed_input(features, train[slot]))
                # `alpha` 0: the host's own output; 1: the seed's.
                return vmap_blend_seed(features, seed_output, alpha=alpha[slot], train=train[slot])

            return hook

        hooks = []
        try:
            for slot, (name, graft) in enumerate(self.grafts.items()):
                hooks.append(self.module.get_submodule(name).register_forward_hook(make_hook(slot, graft)))
            yield
        finally:
            # A hook that stayed would keep this pass's tensors alive, and act in the next pass.
            for hook in hooks:
                hook.remove()
