"""A population's weights as rows of one block: where they lie, how they start, what shares storage."""

from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flatwater.nets.stack import Layout, Weight, apply_linear, init_, linear, views

SHAPES = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), min_size=1, max_size=5)


@given(shapes=SHAPES, members=st.integers(1, 4))
def test_views_cover_each_row_once_and_in_order(shapes: list[tuple[int, ...]], members: int) -> None:
    layout = Layout({f"w{n}": Weight(shape, 1) for n, shape in enumerate(shapes)})
    block = torch.arange(members * layout.size, dtype=torch.float32).view(members, -1)

    named = views(block, layout)

    assert layout.size == sum(prod(shape) for shape in shapes)
    assert [view.shape for view in named.values()] == [(members, *shape) for shape in shapes]
    assert torch.equal(torch.cat([view.flatten(1) for view in named.values()], dim=1), block)


def test_writing_to_a_view_writes_to_the_block() -> None:
    layout = Layout(linear("only", 2, 3))
    block = torch.zeros(4, layout.size)

    views(block, layout)["only.weight"][2].fill_(1)

    assert block.sum(1).tolist() == [0, 0, 6, 0]


def test_weights_start_by_the_law_of_torch_nn_linear() -> None:
    layout = Layout(linear("wide", 100, 50) | {"gain": Weight((7,), 0, start=1.5)})
    block = torch.empty(8, layout.size)
    init_(block, layout, torch.Generator().manual_seed(0))
    reference = torch.nn.Linear(100, 50)

    named = views(block, layout)
    for part, like in (("wide.weight", reference.weight), ("wide.bias", reference.bias)):
        assert named[part].abs().max() <= 0.1
        assert named[part].abs().max() > 0.099
        # Uniform in +-a has deviation a / sqrt(3), and so has torch's.
        torch.testing.assert_close(float(named[part].std()), 0.1 / 3**0.5, rtol=0.05, atol=0)
        torch.testing.assert_close(float(like.detach().std()), 0.1 / 3**0.5, rtol=0.2, atol=0)
    assert (named["gain"] == 1.5).all()


def test_members_start_different_and_the_seed_decides() -> None:
    layout = Layout(linear("only", 3, 3))
    blocks = [torch.empty(2, layout.size) for _ in range(3)]
    for block, seed in zip(blocks, (0, 0, 1), strict=True):
        init_(block, layout, torch.Generator().manual_seed(seed))

    assert torch.equal(blocks[0], blocks[1])
    assert not torch.equal(blocks[0], blocks[2])
    assert not torch.equal(blocks[0][0], blocks[0][1])


def test_a_linear_layer_is_each_members_own() -> None:
    layout = Layout(linear("only", 3, 2))
    block = torch.empty(4, layout.size, dtype=torch.float64)
    init_(block, layout, torch.Generator().manual_seed(0))
    named, x = (
        views(block, layout),
        torch.randn(4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),
    )

    y = apply_linear(named, "only", x)

    for p in range(4):
        expected = torch.nn.functional.linear(x[p], named["only.weight"][p].T, named["only.bias"][p])
        torch.testing.assert_close(y[p], expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("members", [1, 3])
def test_a_plan_draws_nothing(members: int) -> None:
    layout = Layout(linear("only", 3, 2))
    rng = torch.Generator().manual_seed(0)
    before = rng.get_state()

    init_(torch.empty(members, layout.size, device="meta"), layout, rng)

    assert torch.equal(rng.get_state(), before)
