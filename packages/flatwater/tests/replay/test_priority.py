"""Prioritised drawing: the law of its frequencies, its weights, and what must never be drawn."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flatwater.replay.priority import (
    Priorities,
    add_priorities_,
    build_priorities,
    draw_prioritised,
    priority_masses,
    remove_priorities_,
    set_priorities_,
)

CPU = torch.device("cpu")


def filled_priorities(count: int, capacity: int, **exponents: float) -> Priorities:
    priorities = build_priorities(capacity, CPU, **exponents)
    add_priorities_(priorities, torch.arange(count))
    return priorities


def test_draws_in_proportion_to_the_error_to_the_power_alpha() -> None:
    priorities, errors = filled_priorities(4, 6, alpha=0.6), torch.tensor([0.1, 1.0, 3.0, 10.0])
    set_priorities_(priorities, torch.arange(4), errors)

    index, _ = draw_prioritised(priorities, (100_000,), torch.Generator().manual_seed(0))

    wanted = errors.double() ** 0.6 / (errors.double() ** 0.6).sum()
    frequency = torch.bincount(index, minlength=6).double() / len(index)
    torch.testing.assert_close(frequency[:4], wanted, rtol=0, atol=4 * 0.5 / len(index) ** 0.5)
    assert frequency[4:].sum() == 0


def test_weights_undo_the_bias_of_the_draw() -> None:
    """With beta = 1 the weighted mean over draws estimates the plain mean over transitions."""
    priorities, values = filled_priorities(50, 50, alpha=1.0, beta=1.0), torch.linspace(0, 1, 50, dtype=torch.float64)
    set_priorities_(priorities, torch.arange(50), 0.1 + values.float())

    index, weight = draw_prioritised(priorities, (200_000,), torch.Generator().manual_seed(0))

    assert abs(values[index].mean() - 0.5) > 0.1
    assert abs((weight * values[index]).sum() / weight.sum() - 0.5) < 0.005


@given(
    held=st.sets(st.integers(0, 19), min_size=1),
    gone=st.sets(st.integers(0, 19)),
    errors=st.lists(st.sampled_from([0.0, 1e-30, 1.0, 1e30, float("inf"), float("nan")]), min_size=20, max_size=20),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_an_empty_place_is_never_drawn_whatever_the_errors(
    held: set[int], gone: set[int], errors: list[float], alpha: float
) -> None:
    priorities = build_priorities(20, CPU, alpha=alpha)
    add_priorities_(priorities, torch.tensor(sorted(held)))
    if gone:
        remove_priorities_(priorities, torch.tensor(sorted(gone)))
    set_priorities_(priorities, torch.arange(20), torch.tensor(errors))
    left = held - gone

    if left:
        index, weight = draw_prioritised(priorities, (4, 64), torch.Generator().manual_seed(1))
        assert set(index.flatten().tolist()) <= left
        assert weight is None if alpha == 0 else torch.isfinite(weight).all()


def test_the_largest_error_of_a_place_counts_in_any_order() -> None:
    for order in ([0, 1, 2], [2, 1, 0]):
        priorities = filled_priorities(2, 2)
        set_priorities_(priorities, torch.tensor([1, 1, 1])[order], torch.tensor([0.5, 9.0, 2.0])[order])

        torch.testing.assert_close(priorities.mass[1], priority_masses(torch.tensor(9.0), 0.6))


def test_a_new_transition_gets_the_largest_mass_so_far() -> None:
    priorities = filled_priorities(2, 4)
    set_priorities_(priorities, torch.arange(2), torch.tensor([30.0, 0.1]))
    add_priorities_(priorities, torch.tensor([2]))

    assert priorities.mass[2] == priorities.mass[0] == priorities.top


@pytest.mark.parametrize("shape", [(3, 8), (3, 2, 8)])
def test_a_row_of_weights_does_not_depend_on_other_rows(shape: tuple[int, ...]) -> None:
    priorities = filled_priorities(30, 30)
    set_priorities_(priorities, torch.arange(30), torch.rand(30, generator=torch.Generator().manual_seed(2)))

    index, weight = draw_prioritised(priorities, shape, torch.Generator().manual_seed(0))

    own = priorities.mass[index[0]] ** -0.4
    torch.testing.assert_close(weight[0], own / own.amax(-1, keepdim=True))


@given(steps=st.lists(st.tuples(st.integers(0, 99), st.booleans(), st.integers(0, 99)), min_size=1))
def test_sums_of_blocks_are_those_that_a_resumed_run_renews(steps: list[tuple[int, bool, int]]) -> None:
    priorities = filled_priorities(70, 100)
    draw_prioritised(priorities, (1,), torch.Generator().manual_seed(0))
    for place, is_drawable, emptied_place in steps:
        if emptied_place != place:
            added, gone = torch.tensor([place]), torch.tensor([emptied_place])
            add_priorities_(priorities, added, is_drawable=torch.tensor([is_drawable]), emptied_places=gone)
            assert priorities.mass[emptied_place] == 0
            assert priorities.mass[place] == is_drawable * priorities.top
    assert not priorities.changed
    kept = priorities.sums.clone()
    if kept.sum():
        priorities.changed = True  # as after a resume
        draw_prioritised(priorities, (1,), torch.Generator().manual_seed(0))
        assert torch.equal(priorities.sums, kept)
