"""An `nn.Module` that reads observations: networks for images, and a network of the user's.

Its parameters are views into the policy's flat block, and its buffers lie next to the block, so the plan, the
optimiser, checkpoints and exports treat it like any other network.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flatwater.nets.images import ImageNetwork
from flatwater.nets.observation import Parts, nest_parts, split_parts
from flatwater.nets.stack import Layout, Weight
from flatwater.state.allocation import filled_tensor
from flatwater.user_code import CallGuard
from flatwater_watch.errors import ConfigError

PREFIX = "network."
"""Prefix of the names of a module's weights and buffers among the policy's weights."""
TRIAL_BATCH = 2
"""Number of observations in the batch on which a module is tried."""


@contextmanager
def lend_generator(seed: int) -> Iterator[torch.Generator]:
    """Yield torch's default generator, seeded, and restore its state afterwards: modules draw their weights from it."""
    rng = torch.default_generator
    previous_state = rng.get_state()
    try:
        yield rng.manual_seed(seed)
    finally:
        rng.set_state(previous_state)


@dataclass(frozen=True, eq=False)
class ModuleEncoder:
    """A module's computation, as a function of weights and buffers by name."""

    build: Callable[[], nn.Module]
    """Makes a new module, with initial weights."""
    subject: str
    """Subject of messages, such as `network eyes:Eyes`."""
    parts: Parts
    """Parts of a row of observations."""
    module: nn.Module
    """The module on the meta device: its computation without its numbers."""
    features: int
    """Numbers that it returns for an observation, F."""
    raw: bool = False
    """Whether the module is given raw pixels in channels-last order, in which convolutions take half of the time. A
    user's module is given pixels from 0 to 1, in a contiguous tensor."""

    @cached_property
    def _places(self) -> list[tuple[str, dict[str, Tensor], str]]:
        """The places of the module's tensors: the tensor's name, and the dict and the key that hold it.

        A tied weight has one name and several places.
        """
        names: dict[int, str] = {}  # name of a tensor, by its id
        places = []
        # With duplicates, as a submodule that is used twice has two paths.
        for path, module in self.module.named_modules(remove_duplicate=False):
            prefix = f"{PREFIX}{path}." if path else PREFIX
            # The dicts in which torch keeps a module's tensors, without those of its submodules.
            for holder in (vars(module)["_parameters"], vars(module)["_buffers"]):
                for key, tensor in holder.items():
                    if tensor is not None:
                        name = names.setdefault(id(tensor), prefix + key)
                        places.append((name, holder, key))
        return places

    @contextmanager
    def _lend_module(self, tensors: Mapping[str, Tensor]) -> Iterator[nn.Module]:
        """Yield the module with the given tensors in its places, and put its own tensors back afterwards.

        `torch.func.functional_call` does the same, but takes longer than a small network does.
        """
        own_tensors = [holder[key] for _, holder, key in self._places]
        try:
            for name, holder, key in self._places:
                holder[key] = tensors[name]
            with _without_fast_path():
                yield self.module
        finally:
            for tensor, (_, holder, key) in zip(own_tensors, self._places, strict=True):
                holder[key] = tensor

    @cached_property
    def layout(self) -> Layout:
        """The parameters that learn. `draw_` writes their initial values, which the layout does not know."""
        trainable = {name: value for name, value in self.module.named_parameters() if value.requires_grad}
        return Layout({PREFIX + name: Weight(tuple(value.shape), fan_in=0) for name, value in trainable.items()})

    def build_buffers(self, device: torch.device) -> dict[str, Tensor]:
        """Return a zero tensor for each tensor that does not learn: the module's buffers and its frozen parameters."""
        tensors = (*self.module.named_buffers(), *self.module.named_parameters())
        return {
            PREFIX + name: filled_tensor(0, *value.shape, dtype=value.dtype, device=device)
            for name, value in tensors
            if PREFIX + name not in self.layout.weights
        }

    def fill_buffers(self, saved_tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the buffers on the CPU, with saved numbers from `saved_tensors`.

        Raises:
            ValueError: a buffer is missing, or has another shape.
        """
        buffers = self.build_buffers(torch.device("cpu"))
        for name, buffer in buffers.items():
            if name not in saved_tensors or saved_tensors[name].shape != buffer.shape:
                raise ValueError(f"buffer {name}: expected {buffer.dtype} {list(buffer.shape)}")
            buffer.copy_(saved_tensors[name])
        return buffers

    def draw_(self, tensors: Mapping[str, Tensor], rng: torch.Generator) -> None:
        """Write a new module's initial numbers into the given weights and buffers, except on the meta device.

        Raises:
            ConfigError: the new module has other tensors than the module that was tried.
        """
        if any(tensor.is_meta for tensor in tensors.values()):
            return
        # The module draws from torch's generator, which is seeded by a number from `rng`.
        seed = int(torch.randint(1 << 62, (), generator=rng, device=rng.device))
        module = make_module(self.build, self.subject, self.parts, seed)
        for name, value in (*module.named_parameters(), *module.named_buffers()):
            target = tensors.get(PREFIX + name)
            if target is None or target.shape != value.shape:
                raise ConfigError(f"{self.subject}: {name} is not the same in each module that is made. Make all alike")
            target.copy_(value.detach())

    def __call__(self, tensors: Mapping[str, Tensor], numbers: Tensor, row: Tensor | None, *, learning: bool) -> Tensor:
        """Return the features [B, F] of B observations.

        Args:
            tensors: weights and buffers by name; a module that changes its buffers changes these, in place.
            numbers: numbers of the observations outside of images, [B, N].
            row: rows of bytes [B, bytes] with the images; None if there is no image.
            learning: whether the module is in training mode.
        """
        values = split_parts(self.parts, numbers, row, is_raw=self.raw)
        observation = nest_parts(self.parts, values)
        if self.module.training != learning:
            self.module.train(learning)
        with self._lend_module(tensors) as module:
            features: Tensor = module(observation)
        return features


def shipped_encoder(parts: Parts, name: str) -> ModuleEncoder:
    """Return an encoder whose module is the image network `name`, one of `images.NETWORKS`."""
    with torch.device("meta"):
        module = ImageNetwork(parts, name)
    build = partial(ImageNetwork, parts, name)
    # It is not tried here: a call on the meta device imports the compiler, which takes a second of the CPU.
    return ModuleEncoder(build, f"network {name}", parts, module=module, features=module.features, raw=True)


def make_module(build: Callable[[], nn.Module], subject: str, parts: Parts, seed: int) -> nn.Module:
    """Return a new module on the CPU, whose weights follow from the seed; torch's generator is left as it was.

    Raises:
        ConfigError: `build` made something else than a module.
        UserCodeError: `build`, or the first call of a module with lazy layers, raised.
    """
    with lend_generator(seed):
        with CallGuard(subject, build, "__init__", call="its construction"):
            module = build()
        if not isinstance(module, nn.Module):
            raise ConfigError(f"{subject}: expected a torch.nn.Module, got a {type(module).__name__}")
        for name, inner in module.named_modules():
            if isinstance(inner, torch.jit.ScriptModule):
                raise ConfigError(f"{subject}: module {name!r} is of torch.jit, which keeps its tensors. Leave it out")
            if isinstance(inner, nn.Embedding | nn.EmbeddingBag) and inner.sparse:
                raise ConfigError(f"{subject}: module {name!r}: expected sparse=False, as no optimiser reads it")
        if any(nn.parameter.is_lazy(value) for value in (*module.parameters(), *module.buffers())):
            with torch.no_grad(), CallGuard(subject, module, "forward"):
                # A call gives lazy layers their sizes and numbers; evaluation mode keeps buffers unchanged.
                module.eval()(_example_observations(parts, "cpu"))
    return module


def _example_observations(parts: Parts, device: str) -> Any:  # noqa: ANN401  (as the observation is)
    """Return `TRIAL_BATCH` observations of zeros, in the form of these parts."""
    return nest_parts(parts, _example_values(parts, device))


def _example_values(parts: Parts, device: str) -> list[Tensor]:
    """Return zeros [TRIAL_BATCH, *read_shape] for each part."""
    return [torch.zeros(TRIAL_BATCH, *part.read_shape, device=device) for part in parts]


@contextmanager
def _without_fast_path() -> Iterator[None]:
    """Leave out torch's own kernels for transformers: they run in evaluation mode alone, and give other last bits.

    They do not run on the meta device either.
    """
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was_enabled)


def try_module(build: Callable[[], nn.Module], subject: str, parts: Parts) -> ModuleEncoder:
    """Try a new module on observations of zeros, in both of its modes, and return its encoder.

    Args:
        build: function that makes the module.
        subject: subject of messages, such as `network eyes:Eyes`.
        parts: parts of a row of observations.

    Raises:
        ConfigError: the module cannot read observations, or a run cannot plan its memory or resume it.
        UserCodeError: the module raised.
    """
    # Any seed will do: only names and shapes are kept of this module, and each member gets another one.
    module = make_module(build, subject, parts, seed=0)
    for name, value in module.named_parameters():
        if value.requires_grad and value.dtype != torch.float32:
            raise ConfigError(
                f"{subject}: parameter {name}: expected float32, got {str(value.dtype).removeprefix('torch.')}"
            )
    _check_memory(module, subject)
    # Both modes are tried; the features of evaluation, the last, stand for both.
    for learning in (True, False):
        features = _try_mode(module.train(learning), subject, parts)
    _check_features(features, TRIAL_BATCH, subject)
    _move_to_meta_(module)
    encoder = ModuleEncoder(build, subject, parts, module=module, features=features.shape[1])
    for learning in (True, False):
        module.train(learning)
        _check_on_meta(encoder)
    # The module has lost its numbers.
    _try_rows(make_module(build, subject, parts, seed=0).eval(), subject, parts)
    return encoder


def _check_features(features: Any, count: int, subject: str) -> None:  # noqa: ANN401  (what forward returns)
    """Check that a module has returned a row of float32 numbers for each of `count` observations.

    Raises:
        ConfigError: the result, `features`, is of another type or shape.
    """
    is_right = isinstance(features, Tensor) and features.dtype == torch.float32 and features.numel() > 0
    if not is_right or features.shape[:-1] != (count,):
        got = f"{features.dtype} {list(features.shape)}" if isinstance(features, Tensor) else type(features).__name__
        raise ConfigError(
            f"{subject}: forward: expected features float32 [{count}, F] of {count} observations, got {got}"
        )


def _check_memory(module: nn.Module, subject: str) -> None:
    """Refuse a module of which two tensors share memory: a checkpoint would save each by itself.

    Raises:
        ConfigError: the message names both.
    """
    owners = dict[int, str]()  # name of the first tensor at each address
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        address = value.untyped_storage().data_ptr()  # 0 for a tensor without elements, which shares nothing
        # `setdefault` returns the first name at an address: another one shares its memory.
        if address and owners.setdefault(address, name) != name:
            raise ConfigError(
                f"{subject}: {name} is in the memory of {owners[address]}, and would be saved apart from it. Make it "
                f"from {owners[address]} in forward, or give it a clone()"
            )


def _try_mode(module: nn.Module, subject: str, parts: Parts) -> Any:  # noqa: ANN401  (whatever the module gives)
    """Return the module's features of observations of zeros, in its present mode.

    Raises:
        ConfigError: its features depend on something that is neither an observation nor a saved tensor.
        UserCodeError: the module raised.
    """
    values = _example_values(parts, "cpu")
    observation = nest_parts(parts, values)
    values_before, frames_before = _python_values(module), _compiled_frames()

    def call() -> Any:  # noqa: ANN401  (whatever the module gives)
        with CallGuard(subject, module, "forward"):
            return module(observation)

    # The state of torch's generator is restored, so that the module's draws do not change those of the run.
    with lend_generator(0), torch.no_grad(), _without_fast_path():
        generators_before, buffers_before = _generator_states(), _copy_buffers(module)
        features = call()
        changed_names = {name for name, value in _python_values(module).items() if values_before.get(name) != value}
        if _generator_states() != generators_before:
            fault = (
                "draws random numbers, as dropout does: a resumed run would draw others. Leave them out, and give "
                "layers dropout=0"
            )
        elif changed_names:
            name = min(changed_names)
            fault = (
                f"changes self.{name}, which no checkpoint has: a resumed run would begin with another. Keep it as a "
                f"tensor, register_buffer({name.rpartition('.')[2]!r}, torch.tensor(...)), and write into it in place"
            )
        elif any(value._version for value in values):  # noqa: SLF001  (torch's count of writes, 0 for new tensors)
            fault = "writes into its observations, which are learned from again. Give it a clone() of them"
        elif _compiled_frames() != frames_before:
            fault = "calls torch.compile: a compiled run that is resumed would end with other last bits. Leave it out"
        elif isinstance(features, Tensor) and not _repeats_call(module, call, features, buffers_before):
            fault = (
                "gives other features or buffers for the same observations when it is called again: expected both to "
                "follow from observations, parameters and buffers alone"
            )
        else:
            return features
    raise ConfigError(f"{subject}: forward {fault}")


def _try_rows(module: nn.Module, subject: str, parts: Parts) -> None:
    """Refuse a module, in evaluation mode, whose features of an observation depend on others of the same batch.

    Raises:
        ConfigError: they do, as where a layer takes the axis of the batch for one of the observation, or there is not
            one row for each observation.
        UserCodeError: the module cannot read a batch of another size.
    """
    # Two batches that differ in their last observation alone, which is zeros or ones.
    zeros = [torch.cat([value, value[:1]]) for value in _example_values(parts, "cpu")]
    last_of_ones = [torch.cat([value[:-1], value[:1] + 1]) for value in zeros]
    buffers = _copy_buffers(module)
    with lend_generator(0), torch.no_grad(), _without_fast_path():
        with CallGuard(subject, module, "forward"):
            features = module(nest_parts(parts, zeros))
        _check_features(features, len(zeros[0]), subject)
        _restore_buffers_(module, buffers)
        other_features = features
        with suppress(Exception):  # ones may be no observation, as for a table of one row
            other_features = module(nest_parts(parts, last_of_ones))
    if not torch.allclose(features[:-1], other_features[:-1], rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ConfigError(
            f"{subject}: forward: features of an observation change with the others of its batch. Leave the first "
            "axis alone: softmax(dim=-1), batch_first=True"
        )


def _copy_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of a module's buffers, by name."""
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def _repeats_call(
    module: nn.Module, call: Callable[[], Any], features: Tensor, earlier_buffers: Mapping[str, Tensor]
) -> bool:
    """Return whether a call from the same buffers gives the same features and leaves the same buffers, bit by bit.

    Args:
        module: module that has been called.
        call: calls it again, with the same observations.
        features: features that the first call gave.
        earlier_buffers: buffers before the first call.
    """
    # A copy, as the second call may write into the same tensor. No buffer has the name "".
    results = {"": features.clone()} | _copy_buffers(module)
    _restore_buffers_(module, earlier_buffers)
    repeated_results = {"": call()} | _copy_buffers(module)
    return all(_read_bits(result).equal(_read_bits(repeated_results[name])) for name, result in results.items())


def _restore_buffers_(module: nn.Module, earlier_buffers: Mapping[str, Tensor]) -> None:
    """Give a module's buffers the numbers of earlier copies, by name."""
    for name, buffer in module.named_buffers():
        # Replaced and not copied into: forward may have put a buffer of another shape there.
        buffer.data = earlier_buffers[name].clone()


def _read_bits(tensor: Tensor) -> Tensor:
    """Return a tensor's bytes, which are equal where numbers are NaN as well."""
    return tensor.flatten().contiguous().view(torch.uint8)


def _python_values(module: nn.Module) -> dict[str, str]:
    """Return a text for each attribute of a module and its submodules, by path: `layers.0.count`.

    The text tells numbers, texts, lists and dicts of different content apart; for all else, such as tensors, it is
    empty.
    """
    texts = {}
    for path, inner in module.named_modules():
        # Buffers count as attributes: one may be None at first, and a tensor later.
        attributes = vars(inner) | vars(inner)["_buffers"]
        for name, value in attributes.items():
            if name != "_buffers":
                texts[f"{path}.{name}".lstrip(".")] = _value_text(value)
    return texts


def _value_text(value: object) -> str:
    """Return a text of numbers, texts, and lists and dicts of them, which differs where they do; empty for all else."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_value_text(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value_text, value))}]"
    return repr(value) if value is None or isinstance(value, bool | int | float | complex | str) else ""


def _generator_states() -> tuple[bytes, str, str]:
    """Return the states of the global generators from which a module may draw: torch's, NumPy's and Python's."""
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002  (whether it is used is the question)
    return bytes(torch.default_generator.get_state().untyped_storage()), repr(numpy_state), repr(random.getstate())


def _compiled_frames() -> int:
    """Return how many functions torch.compile has compiled in this process."""
    dynamo = sys.modules.get("torch._dynamo.utils")  # torch imports it at the first compilation
    return 0 if dynamo is None else sum(dynamo.counters["frames"].values())


def _move_to_meta_(module: nn.Module) -> None:
    """Replace a module's tensors by tensors of the meta device; one that the module has in several places stays one."""
    moved_tensors = dict[int, tuple[Tensor, Tensor]]()  # by the id of the old tensor: old and new
    for inner in module.modules():
        for holder in (vars(inner)["_parameters"], vars(inner)["_buffers"]):
            for key, value in holder.items():
                if value is None:
                    continue
                if id(value) not in moved_tensors:
                    empty = torch.empty_like(value, device="meta")
                    is_parameter = isinstance(value, nn.Parameter)
                    # With the old tensor, so that no other takes its address.
                    moved_tensors[id(value)] = (
                        value,
                        nn.Parameter(empty, value.requires_grad) if is_parameter else empty,
                    )
                holder[key] = moved_tensors[id(value)][1]


def _check_on_meta(encoder: ModuleEncoder) -> None:
    """Refuse a module that cannot be planned or saved: it hides tensors, branches on numbers or replaces buffers.

    Raises:
        ConfigError: the message says what the module does, and what to do instead.
    """
    buffers = dict(encoder.module.named_buffers())
    try:
        with _without_fast_path():
            encoder.module(_example_observations(encoder.parts, "meta"))
    except (RuntimeError, NotImplementedError, TypeError) as error:  # TypeError: of `.numpy()`
        first_line = str(error).partition("\n")[0]
        raise ConfigError(
            f"{encoder.subject}: forward cannot be planned on the meta device: {first_line}. Keep "
            "tensors with register_buffer, and leave branches on their values, .item() and .numpy() out"
        ) from error
    for name, value in encoder.module.named_buffers():
        if buffers.get(name) is not value:
            raise ConfigError(
                f"{encoder.subject}: forward puts another tensor in the place of buffer {name}, which would be lost. "
                f"Write into it: self.{name}.copy_(...)"
            )
