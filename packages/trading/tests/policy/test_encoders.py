"""Encoders: one window alone and the same day within a series agree, and no day sees the next."""

import re
from math import prod

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flatwater.nets.stack import Layout, Params, init_, views
from flatwater_trading.policy.config import TraderNetConfig
from flatwater_trading.policy.encoders import MAXIMUM_KERNEL, Encoder, build_encoder, kernels
from flatwater_watch.errors import ConfigError

FEATURES, COLUMNS, DAYS = 5, 3, 7


def encoder_of(kind: str, context: int, members: int) -> tuple[Encoder, Params]:
    config = TraderNetConfig(encoder=kind, channels=6)  # type: ignore[arg-type]  # parametrised by text
    encoder = build_encoder(config, context=context, features=FEATURES)
    layout = Layout(encoder.weights)
    block = torch.empty(members, layout.size, dtype=torch.float64)
    init_(block, layout, torch.Generator().manual_seed(1))
    return encoder, views(block, layout)


def series(length: int) -> torch.Tensor:
    """Slices that all members have in common."""
    return torch.randn(1, 2, COLUMNS, length, FEATURES, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize("kind", ["tcn", "lstm"])
@pytest.mark.parametrize("context", [1, 12, 20, 36])
def test_a_day_in_a_series_equals_its_window_alone(kind: str, context: int) -> None:
    encoder, params = encoder_of(kind, context, members=2)
    x = series(context - 1 + DAYS)

    shared = encoder.days(params, x)
    for day in range(DAYS):
        window = x[:, :, :, day : day + context].expand(2, -1, -1, -1, -1)
        torch.testing.assert_close(shared[:, :, day], encoder.windows(params, window), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["tcn", "lstm"])
def test_a_day_depends_on_exactly_its_context(kind: str) -> None:
    """Changing one row moves the days from that row on, for `context` days, and no day before it or after them."""
    context, row = 12, 14
    encoder, params = encoder_of(kind, context, members=1)
    x = series(context - 1 + 2 * context)
    changed = x.clone()
    changed[:, :, :, row] += 1

    moved = (encoder.days(params, x) != encoder.days(params, changed)).any(-1).all(-1)[0, 0]
    first = row - (context - 1)
    assert moved.nonzero().squeeze(1).tolist() == list(range(max(0, first), first + context))


@pytest.mark.parametrize("kind", ["tcn", "lstm"])
def test_members_do_not_see_each_other(kind: str) -> None:
    encoder, params = encoder_of(kind, 12, members=3)
    x = series(15)
    alone = encoder.days({name: weight[1:2] for name, weight in params.items()}, x)
    torch.testing.assert_close(encoder.days(params, x)[1], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["tcn", "lstm"])
def test_members_may_have_slices_of_their_own(kind: str) -> None:
    encoder, params = encoder_of(kind, 12, members=2)
    x = torch.cat([series(15), series(15) + 1])
    own = encoder.days(params, x)
    for member in range(2):
        alone = encoder.days({name: weight[member : member + 1] for name, weight in params.items()}, x[member, None])
        torch.testing.assert_close(own[member], alone[0], rtol=0, atol=1e-12)


def test_columns_in_chunks_equal_columns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, params = encoder_of("tcn", 12, members=2)
    x = series(20)
    whole = encoder.days(params, x)
    monkeypatch.setattr("flatwater_trading.policy.tcn.CHUNK_NUMBERS", 1)
    torch.testing.assert_close(encoder.days(params, x), whole, rtol=0, atol=1e-14)


@pytest.mark.parametrize("context", [36, 300])
@pytest.mark.parametrize("days", [3, 20, 40])
def test_a_series_has_the_gradient_of_its_windows(context: int, days: int) -> None:
    """Whether the days are fewer than a level's taps span or more, their gradients add up to those of the windows."""
    encoder, params = encoder_of("tcn", context, members=2)
    params = {name: weight.detach().requires_grad_() for name, weight in params.items()}
    x = series(context - 1 + days)
    wanted = torch.randn(2, 2, days, COLUMNS, encoder.width, generator=torch.Generator().manual_seed(3)).double()

    of_series = torch.autograd.grad((encoder.days(params, x) * wanted).sum(), list(params.values()))
    windows = x.unfold(3, context, 1).movedim(3, 2).transpose(-1, -2).flatten(1, 2).expand(2, -1, -1, -1, -1)
    alone = encoder.windows(params, windows).unflatten(1, (2, days))
    of_windows = torch.autograd.grad((alone * wanted).sum(), list(params.values()))
    for one, other in zip(of_series, of_windows, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@given(st.integers(1, 3000))
def test_kernels_multiply_to_the_context_or_say_what_would(context: int) -> None:
    if _largest_prime(context) > MAXIMUM_KERNEL:
        with pytest.raises(ConfigError, match=r"env.episode.context") as refused:
            kernels(context)
        nearest = re.findall(r"\b\d+", str(refused.value))[-2:]
        assert all(prod(kernels(int(length))) == int(length) for length in nearest)
    else:
        found = kernels(context)
        assert prod(found) == context
        assert max(found) <= MAXIMUM_KERNEL


def _largest_prime(number: int) -> int:
    factor, largest = 2, 1
    while number > 1:
        if number % factor:
            factor += 1
        else:
            number, largest = number // factor, factor
    return largest


@pytest.mark.parametrize(("context", "expected"), [(504, (9, 8, 7)), (252, (7, 6, 6)), (100, (10, 10)), (12, (12,))])
def test_kernels_are_few_and_even(context: int, expected: tuple[int, ...]) -> None:
    assert kernels(context) == expected
