"""An `nn.Module` that reads observations: networks for images, and a network of the user's.

Its parameters are views into the policy's flat block, through `torch.func.functional_call`, and its buffers lie next to
it: so the plan weighs it, the optimiser steps it, a checkpoint has it and an export holds it as any other network.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from flatwater.border import Border
from flatwater.nets.images import ImageNetwork
from flatwater.nets.observation import Parts, nest_parts, split_parts
from flatwater.nets.stack import Layout, Weight
from flatwater.state.allocation import filled_tensor
from flatwater_watch.errors import ConfigError

PREFIX = "network."
"""Prefix of the names of its weights and buffers, which tells them from those of the heads."""
TRIED = 2
"""Observations that a module is tried out with."""


@contextmanager
def lent_generator(seed: int) -> Iterator[torch.Generator]:
    """Lend torch's default generator, from a seed: modules draw their first weights from it alone."""
    rng = torch.default_generator
    before = rng.get_state()
    try:
        yield rng.manual_seed(seed)
    finally:
        rng.set_state(before)


@dataclass(frozen=True, eq=False)
class ModuleEncoder:
    """Pure functions of the weights."""

    build: Callable[[], nn.Module]
    """Makes a new module, with weights of its own."""
    what: str
    """Beginning of messages: `network eyes:Eyes`."""
    parts: Parts
    """Parts of a row of observations."""
    module: nn.Module
    """The module on the meta device: its computation without its numbers."""
    features: int
    """Numbers that it returns for an observation, F."""
    raw: bool = False
    """Whether it is given pixels as they are in bytes, with their channels side by side, in which convolutions take
    half of the time. A user's module is given shares, in a tensor of which it may take a `view`."""

    @cached_property
    def _places(self) -> list[tuple[str, dict[str, Tensor], str]]:
        """The tensors of the module: name beside the heads' weights, and the dict and key that hold it.

        A tied weight has one name and several places.
        """
        names: dict[int, str] = {}
        places = []
        for prefix, module in self.module.named_modules(remove_duplicate=False):
            for home in (vars(module)["_parameters"], vars(module)["_buffers"]):
                for key, value in home.items():
                    if value is not None:
                        name = names.setdefault(id(value), f"{PREFIX}{prefix}{'.' if prefix else ''}{key}")
                        places.append((name, home, key))
        return places

    @contextmanager
    def _lend_module(self, tensors: Mapping[str, Tensor]) -> Iterator[nn.Module]:
        """Lend the module with tensors by name in the place of its own.

        `torch.func.functional_call` does the same, but takes longer than a small network does.
        """
        own = [home[key] for _, home, key in self._places]
        try:
            for name, home, key in self._places:
                home[key] = tensors[name]
            yield self.module
        finally:
            for value, (_, home, key) in zip(own, self._places, strict=True):
                home[key] = value

    @cached_property
    def layout(self) -> Layout:
        """The parameters that learn. Their first values are not the layout's to say: see `draw_`."""
        learns = {name: value for name, value in self.module.named_parameters() if value.requires_grad}
        return Layout({PREFIX + name: Weight(tuple(value.shape), 0) for name, value in learns.items()})

    def build_buffers(self, device: torch.device) -> dict[str, Tensor]:
        """Return a buffer for each tensor that does not learn: the module's buffers and its frozen parameters."""
        tensors = (*self.module.named_buffers(), *self.module.named_parameters())
        return {
            name: filled_tensor(0, *value.shape, dtype=value.dtype, device=device)
            for name, value in ((PREFIX + name, value) for name, value in tensors)
            if name not in self.layout.weights
        }

    def fill_buffers(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the buffers, with numbers that were saved.

        Raises:
            ValueError: a buffer is missing, or has another shape.
        """
        buffers = self.build_buffers(torch.device("cpu"))
        for name, buffer in buffers.items():
            if name not in named or named[name].shape != buffer.shape:
                raise ValueError(f"buffer {name}: expected {buffer.dtype} {list(buffer.shape)}")
            buffer.copy_(named[name])
        return buffers

    def draw_(self, tensors: Mapping[str, Tensor], rng: torch.Generator) -> None:
        """Write the first numbers of a new module into its weights and buffers, by name; a plan's have none.

        Raises:
            ConfigError: the module differs from that which was tried out.
        """
        if any(home.is_meta for home in tensors.values()):
            return
        seed = int(torch.randint(1 << 62, (), generator=rng, device=rng.device))
        module = make_module(self.build, self.what, self.parts, seed)
        for name, value in (*module.named_parameters(), *module.named_buffers()):
            home = tensors.get(PREFIX + name)
            if home is None or home.shape != value.shape:
                raise ConfigError(f"{self.what}: {name} is not the same in each module that is made. Make all alike")
            home.copy_(value.detach())

    def __call__(self, tensors: Mapping[str, Tensor], numbers: Tensor, row: Tensor | None, *, learning: bool) -> Tensor:
        """Return the features [B, F] of B observations.

        Args:
            tensors: weights and buffers by name; a module that changes its buffers changes these, in place.
            numbers: numbers of the observations that are in no image, [B, N].
            row: rows of bytes [B, bytes]; None if there is no image.
            learning: whether the module is in training mode.
        """
        read = split_parts(self.parts, numbers, row, raw=self.raw)
        observation = nest_parts(self.parts, read)
        if self.module.training != learning:
            self.module.train(learning)
        with self._lend_module(tensors) as module:
            features: Tensor = module(observation)
        return features


def shipped_encoder(parts: Parts, name: str) -> ModuleEncoder:
    """Return the encoder of images by one of `NETWORKS`."""
    with torch.device("meta"):
        module = ImageNetwork(parts, name)
    build = partial(ImageNetwork, parts, name)
    # It is not called here: a call on the meta device imports the compiler, which takes a second of the CPU.
    return ModuleEncoder(build, f"network {name}", parts, module, module.features, raw=True)


def make_module(build: Callable[[], nn.Module], what: str, parts: Parts, seed: int) -> nn.Module:
    """Return a new module on the CPU, whose weights follow from the seed; torch's generator is left as it was.

    Raises:
        ConfigError: `build` made something else than a module.
    """
    with lent_generator(seed):
        with Border(what, build, "__init__", call="its construction"):
            module = build()
        if not isinstance(module, nn.Module):
            raise ConfigError(f"{what}: expected a torch.nn.Module, got a {type(module).__name__}")
        if any(nn.parameter.is_lazy(value) for value in module.parameters()):
            with torch.no_grad(), Border(what, module, "forward"):
                # Lazy layers get their sizes and numbers; in evaluation mode, so that no buffer learns from it.
                module.eval()(_example(parts, "cpu"))
    return module


def _example(parts: Parts, device: str) -> Any:  # noqa: ANN401  (as the observation is)
    """Return observations of zeros."""
    return nest_parts(parts, [torch.zeros(TRIED, *part.read_shape, device=device) for part in parts])


def try_module(build: Callable[[], nn.Module], what: str, parts: Parts) -> ModuleEncoder:
    """Make a module and let it read two observations, so that no run fails because of it, and return its encoder.

    Args:
        build: makes the module.
        what: beginning of messages.
        parts: parts of a row of observations.

    Raises:
        ConfigError: the module cannot read observations, or cannot learn under the memory contract.
        UserCodeError: the module raised.
    """
    module = make_module(build, what, parts, 0)
    for name, value in module.named_parameters():
        if value.requires_grad and value.dtype != torch.float32:
            raise ConfigError(f"{what}: parameter {name}: expected float32, got {str(value.dtype)[6:]}")
    with lent_generator(0) as rng, torch.no_grad():
        drawn_before = rng.get_state()
        with Border(what, module, "forward"):
            features = module(_example(parts, "cpu"))
        if not torch.equal(rng.get_state(), drawn_before):
            raise ConfigError(
                f"{what}: forward draws random numbers, as dropout does: a resumed run would draw others. Leave "
                "them out"
            )
    if not isinstance(features, Tensor) or features.dtype != torch.float32 or features.shape[:-1] != (TRIED,):
        got = f"{features.dtype} {list(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise ConfigError(f"{what}: forward: expected features float32 [{TRIED}, F] of {TRIED} observations, got {got}")
    encoder = ModuleEncoder(build, what, parts, module.to_empty(device="meta"), features.shape[1])
    _check_on_meta(encoder)
    return encoder


def _check_on_meta(encoder: ModuleEncoder) -> None:
    """Refuse a module that cannot be planned or saved: it holds tensors of its own, looks at numbers, swaps buffers.

    Raises:
        ConfigError: the message says what the module does, and what to do instead.
    """
    buffers = dict(encoder.module.named_buffers())
    try:
        encoder.module(_example(encoder.parts, "meta"))
    except (RuntimeError, NotImplementedError) as error:
        raise ConfigError(
            f"{encoder.what}: forward cannot be planned on the meta device: {str(error).partition(chr(10))[0]}. Keep "
            "tensors with register_buffer, and leave branches on their values and .item() out"
        ) from error
    for name, value in encoder.module.named_buffers():
        if buffers.get(name) is not value:
            raise ConfigError(
                f"{encoder.what}: forward puts another tensor in the place of buffer {name}, which would be lost. "
                f"Write into it: self.{name}.copy_(...)"
            )
