"""A state tree with a leaf of every kind, filled from a seed."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from flatwater.state.random import generator
from flatwater.state.tree import Value, derived_field, leaves, state

torch.set_num_threads(1)


@state
class Nets:
    """A block and a view that shares its storage."""

    block: Tensor
    view: Tensor
    cache: Tensor = derived_field()


@state
class Tree:
    """A leaf of every kind."""

    nets: Nets
    by_name: dict[str, Tensor]
    arrays: list[np.ndarray]
    rng: torch.Generator
    same_rng: torch.Generator
    appended: int
    best: float
    worst: float
    zero: float
    name: str
    done: bool
    champion: int | None
    sizes: tuple[int, str] = (2, "fixed")


def _tensors(rng: torch.Generator) -> dict[str, Tensor]:
    def draw_normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng)

    return {
        "bf16": draw_normal(5, 3).bfloat16(),
        "f16": draw_normal(7).half(),
        "f64": draw_normal(2, 2).double(),
        "flags": draw_normal(9) > 0,
        "i64": (draw_normal(4) * 1e6).long(),
        "u8": (draw_normal(3).abs() * 50).byte(),
        "c64": torch.complex(draw_normal(3), draw_normal(3)),
        "scalar": draw_normal(),
        "empty": draw_normal(0, 4),
        "turned": draw_normal(4, 6).t(),
        "strided": draw_normal(6, 8)[::2, 1::3],
        "weight": draw_normal(3, 3).requires_grad_(),
    }


def _arrays(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    trades = np.zeros(3, dtype=[("day", "<M8[D]"), ("gain", "<f4")])
    trades["day"], trades["gain"] = rng.integers(0, 20_000, 3), rng.random(3)
    return [
        rng.random((3, 4)),
        rng.integers(0, 9, (2, 5)).astype(np.int16).T,
        rng.integers(0, 20_000, 4).astype("<M8[D]"),
        rng.random(3).astype(">f4"),
        np.asfortranarray(rng.random((3, 2), np.float32)),
        np.array(rng.integers(0, 9)),
        np.zeros((0, 2), np.bool_),
        np.array(["ab", "c" * seed]).astype("<U8"),
        trades,
    ]


def make_tree(seed: int) -> Tree:
    """A tree whose every leaf that can vary differs between seeds."""
    rng = generator(seed, "tree", torch.device("cpu"))
    torch.rand(seed, generator=rng)
    block = torch.randn(4, 6, generator=rng)
    return Tree(
        nets=Nets(block=block, view=block[:, 2:], cache=torch.full((3,), float(seed))),
        by_name=_tensors(rng),
        arrays=_arrays(seed),
        rng=rng,
        same_rng=rng,
        appended=2**60 + seed,
        best=float("nan"),
        worst=[float("inf"), float("-inf")][seed % 2],
        zero=[-0.0, 0.1 + 0.2][seed % 2],
        name=f"é\u2028\ud800{seed}",
        done=seed % 2 == 0,
        champion=[None, 7][seed % 2],
    )


def exactly(value: Value) -> tuple[object, ...]:
    """What must come back, bit for bit, derived without the code under test."""
    if isinstance(value, torch.Generator):
        return ("generator", value.get_state().numpy().tobytes())
    if isinstance(value, Tensor):
        flat = value.detach().contiguous().reshape(-1)
        return (str(value.dtype), tuple(value.shape), bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b"")
    if isinstance(value, np.ndarray):
        return (value.dtype, value.shape, value.tobytes())
    return (type(value), repr(value))


@pytest.fixture
def tree() -> Callable[[int], Tree]:
    """Build a tree from a seed."""
    return make_tree


@pytest.fixture
def contents() -> Callable[[object], dict[str, tuple[object, ...]]]:
    """The content of every leaf of a tree that is not derived, by path."""
    return lambda root: {leaf.path: exactly(leaf.value) for leaf in leaves(root) if not leaf.derived}


@pytest.fixture
def homes() -> Callable[[object], dict[str, int]]:
    """Where every tensor and array lies, and which object every generator is."""
    return lambda root: {leaf.path: _home(leaf.value) for leaf in leaves(root)}


def _home(value: Value) -> int:
    if isinstance(value, Tensor):
        return value.data_ptr()
    if isinstance(value, np.ndarray):
        return int(value.__array_interface__["data"][0])
    return id(value) if isinstance(value, torch.Generator) else 0
