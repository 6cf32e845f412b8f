"""A compiled function of nested tensors: the same results for each set of shapes, and nothing of a call is kept."""

import gc
import weakref
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from flatwater.algorithms.compilation import compile_nested, has_compiler
from flatwater.state.garbage import freeze_gc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_compiler(), reason="compiling needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own, while it loads its compiler
]


@dataclass(frozen=True)
class Drawn:
    rows: Tensor
    weight: Tensor | None = None


class Named(NamedTuple):
    error: Tensor | None


@dataclass(frozen=True)
class Gained:
    sums: list[tuple[str, Tensor]]
    grads: dict[str, Tensor]
    errors: Named


def learn(params: dict[str, Tensor], drawn: Drawn) -> Gained:
    leaves = {name: weight.detach().requires_grad_() for name, weight in params.items()}
    error = (drawn.rows @ leaves["w"] + leaves["b"]).tanh()
    loss = (error if drawn.weight is None else error * drawn.weight).square().mean()
    grads = torch.autograd.grad(loss, list(leaves.values()))
    return Gained([("loss", loss.detach())], dict(zip(leaves, grads, strict=True)), Named(error.detach()))


@pytest.mark.usefixtures("real_unfreeze")
def test_in_a_run_the_collector_need_not_visit_what_the_compiler_made() -> None:
    """The first look after a round was a quarter of a CPU second, for objects that stay as long as the run."""
    rng = torch.Generator().manual_seed(0)
    compiled = compile_nested(learn)
    with freeze_gc():
        compiled({"w": torch.randn(3, generator=rng), "b": torch.tensor(0.5)}, Drawn(torch.randn(4, 3, generator=rng)))
        visited = len(gc.get_objects())
    assert visited < 10_000


def test_results_are_the_function_s_for_each_set_of_shapes() -> None:
    rng = torch.Generator().manual_seed(0)
    params = {"w": torch.randn(3, generator=rng), "b": torch.randn((), generator=rng)}
    compiled = compile_nested(learn)
    kept: list[weakref.ref[Tensor]] = []
    for count, weighed in ((5, False), (7, False), (5, True), (5, False), (7, False)):
        drawn = Drawn(torch.randn(count, 3, generator=rng), torch.rand(count, generator=rng) if weighed else None)
        expected, gained = learn(params, drawn), compiled(params, drawn)
        assert [name for name, _ in gained.sums] == ["loss"]
        torch.testing.assert_close(gained.sums[0][1], expected.sums[0][1])
        torch.testing.assert_close(gained.grads, expected.grads)
        torch.testing.assert_close(gained.errors.error, expected.errors.error)
        kept += [weakref.ref(drawn.rows), weakref.ref(gained.grads["w"])]
        del drawn, expected, gained
    gc.collect()
    assert [ref() for ref in kept] == [None] * len(kept)
