"""Random numbers as functions of a seed: permutations, uniform weights, and nothing shared between uses."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flatwater.envs.growing.stream import (
    DATA,
    SEEDLING,
    WEIGHTS,
    draw_weights_,
    hash_sequence,
    image_numbers,
    longest_non_coprime_run,
    mix_bits,
    stream_key,
)
from flatwater.nets.stack import Layout, Weight

torch.set_num_threads(1)
PRIME = 1433


def lowbias32(x: int) -> int:
    """Wells' constants, with Python's own integers."""
    x = ((x ^ x >> 16) * 0x7FEB352D) % 2**32
    x = ((x ^ x >> 15) * 0x846CA68B) % 2**32
    return x ^ x >> 16


@given(st.integers(0, 2**32 - 1))
def test_the_mixer_is_lowbias32(x: int) -> None:
    assert int(mix_bits(torch.tensor(x))) == lowbias32(x)
    assert int(hash_sequence(torch.tensor(x), 5)) == lowbias32((lowbias32(0x9E3779B9 ^ x) + 0x9E3779B9) % 2**32 ^ 5)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 50), images=st.integers(2, 500))
def test_an_epoch_of_any_number_of_images_shows_each_once(seed: int, epoch: int, images: int) -> None:
    seeds = torch.tensor([seed, seed ^ 1])
    rows = image_numbers(seeds, torch.tensor([epoch * images] * 2), count=images, images=images)
    assert rows.sort(0).values.T.tolist() == [list(range(images))] * 2


def test_a_slope_is_searched_as_far_as_the_factors_ask() -> None:
    assert [longest_non_coprime_run(images) for images in (2, 1433, 9, 30, 50_000)] == [0, 0, 1, 5, 3]


def test_a_prime_number_of_images_keeps_the_slope_that_the_hash_gives() -> None:
    seeds = torch.arange(50)
    rows = image_numbers(seeds, torch.zeros_like(seeds), count=2, images=PRIME)
    stream = hash_sequence(stream_key(seeds, DATA), torch.zeros_like(seeds))
    assert torch.equal((rows[1] - rows[0]) % PRIME, 1 + hash_sequence(stream, 0) % (PRIME - 1))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 50))
def test_each_epoch_shows_every_image_once(seed: int, epoch: int) -> None:
    seeds, drawn = torch.tensor([seed, seed ^ 1]), torch.tensor([epoch * PRIME] * 2)
    rows = image_numbers(seeds, drawn, count=PRIME, images=PRIME)
    assert rows.sort(0).values.T.tolist() == [list(range(PRIME))] * 2
    assert not torch.equal(rows[:, 0], rows[:, 1])
    assert not torch.equal(rows, image_numbers(seeds, drawn + PRIME, count=PRIME, images=PRIME))


def test_a_batch_across_two_epochs_is_the_same_whole_or_in_parts() -> None:
    seeds = torch.tensor([3, 4])
    start = torch.tensor([PRIME - 5, 7])
    whole = image_numbers(seeds, start, count=12, images=PRIME)
    parts = [image_numbers(seeds, start + at, count=4, images=PRIME) for at in (0, 4, 8)]
    assert torch.equal(whole, torch.cat(parts))


def test_initial_weights_are_uniform_and_their_own_in_each_row_use_and_seed() -> None:
    layout = Layout({"a": Weight((100, 400), 25), "b": Weight((7,), 0, 1.0)})
    seeds = torch.tensor([1, 2, 1])
    block = torch.full((3, layout.size), 9.0)
    draw_weights_(block, layout, stream_key(seeds, WEIGHTS), torch.tensor([True, True, False]))
    drawn = block[:2, :-7]
    assert drawn.abs().max() <= 0.2
    torch.testing.assert_close(drawn.mean(1), torch.zeros(2), rtol=0, atol=0.003)
    torch.testing.assert_close(drawn.std(1), torch.full((2,), 0.2 / 3**0.5), rtol=0.01, atol=0)
    assert abs(torch.corrcoef(drawn)[0, 1]) < 0.02
    assert block[0, -7:].tolist() == [1.0] * 7
    assert bool((block[2] == 9).all())
    assert len({int(stream_key(seeds, use, slot)[0]) for use in (WEIGHTS, SEEDLING, DATA) for slot in range(3)}) == 9
