"""What is stored more than once."""

import re

import numpy as np
import pytest
import torch

from flatwater_watch.diagnose.redundancy import describe_redundancy

PRICES = np.random.default_rng(0).normal(size=(100, 8))


@pytest.mark.parametrize("torch_too", [False, True])
@pytest.mark.parametrize(("shift", "words"), [(1, "one"), (3, "3")])
@pytest.mark.parametrize("axis", [0, 1])
def test_windows_that_move_on_by_a_few_rows(axis: int, shift: int, words: str, torch_too: bool) -> None:  # noqa: FBT001
    windows = [PRICES[i * shift : i * shift + 10].swapaxes(0, axis).copy() for i in range(12)]
    given = [torch.from_numpy(w) for w in windows] if torch_too else windows
    assert f" rows but {words}: " in (describe_redundancy(given) or "")


def test_a_new_episode_now_and_then_does_not_hide_it() -> None:
    starts = [*range(10), *range(50, 60)]
    windows = [PRICES[i : i + 10].copy() for i in starts]
    assert " rows but one: " in (describe_redundancy(windows) or "")


def test_equal_arrays() -> None:
    assert " equal: " in (describe_redundancy([np.arange(9), np.arange(9), np.arange(9)]) or "")
    assert describe_redundancy([np.arange(9), np.arange(9), np.arange(1, 10)]) is None


def test_wide_numbers() -> None:
    narrow = PRICES.astype(np.float32).astype(np.float64)
    assert re.match(r"float64 .*float32: ", describe_redundancy([narrow[:5], narrow[20:25]]) or "")
    assert describe_redundancy([PRICES[:5], PRICES[20:25]]) is None
    assert describe_redundancy([np.array([np.nan, 1e300])]) is None
    assert describe_redundancy([narrow[:5].astype(np.float32), narrow[20:25].astype(np.float32)]) is None


def test_what_cannot_be_read_is_left_alone() -> None:
    odd = [torch.zeros(3, 4, device="meta"), torch.ones(4, dtype=torch.bfloat16), np.array([object()]), "text", None]
    assert describe_redundancy(odd) is None
    assert describe_redundancy([]) is None
    assert describe_redundancy([torch.ones(2, 2, requires_grad=True), torch.zeros(2, 2)]) is None
