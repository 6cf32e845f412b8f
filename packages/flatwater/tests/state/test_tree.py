"""Every leaf is met once, under one path; bytes are counted once, and a plan weighs what is then held."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flatwater.state.random import generator
from flatwater.state.tree import derived_field, leaves, nbytes, set_scalar_, state

CPU, META = torch.device("cpu"), torch.device("meta")


@state
class Inner:
    """A block, a view of it, and something rebuilt."""

    block: Tensor
    view: Tensor
    window: Tensor = derived_field()


@state
class Outer:
    """One of everything."""

    inner: Inner
    by_name: dict[str, Tensor]
    listed: list[Inner]
    array: np.ndarray
    rng: torch.Generator
    count: int = 3
    best: float | None = None


def inner(device: torch.device) -> Inner:
    block = torch.zeros(4, 6, device=device)
    return Inner(block=block, view=block[:, 2:], window=torch.zeros(5, device=device))


def outer(device: torch.device) -> Outer:
    return Outer(
        inner=inner(device),
        by_name={"w": torch.zeros(2, dtype=torch.bfloat16, device=device), "b": torch.zeros((), device=device)},
        listed=[inner(device)],
        array=np.zeros((3, 2), np.int16),
        rng=generator(1, "draw", device),
    )


def test_paths_are_field_names_and_keys_in_field_order() -> None:
    assert [leaf.path for leaf in leaves(outer(CPU))] == [
        "inner.block",
        "inner.view",
        "inner.window",
        "by_name.w",
        "by_name.b",
        "listed.0.block",
        "listed.0.view",
        "listed.0.window",
        "array",
        "rng",
        "count",
        "best",
    ]


def test_what_is_below_a_derived_field_is_derived() -> None:
    @state
    class Holder:
        kept: Inner
        rebuilt: Inner = derived_field()

    found = {leaf.path: leaf.derived for leaf in leaves(Holder(kept=inner(CPU), rebuilt=inner(CPU)))}
    assert found == {
        "kept.block": False,
        "kept.view": False,
        "kept.window": True,
        "rebuilt.block": True,
        "rebuilt.view": True,
        "rebuilt.window": True,
    }


def test_a_storage_that_several_leaves_view_is_counted_once_and_whole() -> None:
    block = torch.zeros(4, 6)
    held = nbytes({"view": block[1], "block": block, "again": block})
    assert held == {"view": 96, "block": 0, "again": 0}


def test_an_array_and_its_slices_are_counted_once_and_whole() -> None:
    array = np.zeros((4, 6), np.float32)
    assert nbytes([array[1:][:, 2], array]) == {"0": 96, "1": 0}


def test_a_plan_on_the_meta_device_weighs_what_is_held() -> None:
    planned, held = nbytes(outer(META)), nbytes(outer(CPU))
    assert planned == held
    # Two blocks of 24 floats and two windows of 5, 2 bfloat16, 1 float, 6 int16, 5056 of a generator, 2 numbers.
    assert sum(held.values()) == 2 * (96 + 20) + 4 + 4 + 12 + 5056 + 16


def test_a_generator_weighs_the_bytes_of_its_state() -> None:
    assert nbytes({"rng": generator(0, "x", CPU)})["rng"] == generator(0, "x", CPU).get_state().numel()


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.integers(0, 50), max_size=8), repeats=st.integers(1, 3))
def test_the_sum_is_the_storage_that_exists(sizes: list[int], repeats: int) -> None:
    tensors = [torch.zeros(size, dtype=torch.int32) for size in sizes]
    held = nbytes({f"{turn}": [t[: t.numel() // turn] for t in tensors] for turn in range(1, repeats + 1)})
    assert sum(held.values()) == sum(4 * size for size in sizes)
    assert len(held) == repeats * len(sizes)


def test_a_number_is_written_back_where_it_was() -> None:
    tree = {"state": outer(CPU), "listed": [1, 2], "by_number": {7: 1.5}}
    for leaf in leaves(tree):
        if leaf.path in {"state.count", "state.best", "listed.1", "by_number.7"}:
            set_scalar_(leaf, 99)
    assert (tree["state"].count, tree["state"].best) == (99, 99)
    assert tree["listed"] == [1, 99]
    assert tree["by_number"] == {7: 99}


def test_what_cannot_be_a_leaf_is_named_by_its_path() -> None:
    @dataclass
    class Holder:
        deep: dict[str, object]

    with pytest.raises(TypeError, match=r"deep\.callback\.1: .* function"):
        list(leaves(Holder(deep={"callback": [1, test_paths_are_field_names_and_keys_in_field_order]})))
    with pytest.raises(TypeError, match=r"deep\.net: .* Linear\..*state_dict\(\)"):
        list(leaves(Holder(deep={"net": torch.nn.Linear(1, 1)})))


def test_a_state_takes_no_other_fields() -> None:
    with pytest.raises(AttributeError):
        outer(CPU).other = 1  # type: ignore[attr-defined]
