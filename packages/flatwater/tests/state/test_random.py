"""Each consumer has numbers of its own, and they depend on the seed and its name alone."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flatwater.state.random import generator

CPU = torch.device("cpu")


def draw_four(rng: torch.Generator) -> list[float]:
    return torch.rand(4, generator=rng, dtype=torch.float64).tolist()


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**63), name=st.text(max_size=20))
def test_the_same_seed_and_name_give_the_same_numbers(seed: int, name: str) -> None:
    assert draw_four(generator(seed, name, CPU)) == draw_four(generator(seed, name, CPU))


def test_another_seed_or_another_name_gives_other_numbers() -> None:
    streams = [draw_four(generator(seed, name, CPU)) for seed in range(5) for name in ("replay.draw", "noise", "")]
    assert len({tuple(stream) for stream in streams}) == len(streams)


def test_drawing_from_one_does_not_move_another_or_the_global_one() -> None:
    before, other = torch.random.get_rng_state(), generator(0, "noise", CPU)
    draw_four(generator(0, "draw", CPU))
    assert draw_four(other) == draw_four(generator(0, "noise", CPU))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_plan_gets_a_generator_that_works() -> None:
    assert draw_four(generator(3, "x", torch.device("meta"))) == draw_four(generator(3, "x", CPU))
