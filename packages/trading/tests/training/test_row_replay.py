"""The replay of row numbers: the newest transitions, whole windows for 882 bytes, and links that hold."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flatwater.replay.config import RowReplayConfig
from flatwater.state.tree import leaves, nbytes
from flatwater_trading.training.row_replay import (
    RowReplay,
    append_,
    build_row_replay,
    draw,
    drawable_count,
    gather_windows,
)
from flatwater_watch.errors import ConfigError

CPU = torch.device("cpu")


def ring(capacity: int, *, instruments: int = 2, account: bool = False, prioritised: bool = False) -> RowReplay:
    config = RowReplayConfig(warmup=1, prioritised=prioritised)
    return build_row_replay(config, capacity=capacity, instruments=instruments, sees_account=account, device=CPU)


def play(replay: RowReplay, *, start: int, episodes: int, days: int) -> None:
    """Append episodes in lock-step. The reward tells which transition it is: 1000 x episode + row."""
    k = replay.action.shape[1]
    for day in range(days):
        row, number = torch.full((episodes,), start + day), torch.arange(episodes)
        reward = (1000 * number + row).float()
        append_(
            replay,
            row=row,
            action=reward[:, None, None].expand(-1, k, 2),
            reward=reward,
            terminated=torch.full((episodes,), day == days - 1),
            member=number,
            account=None if replay.account is None else reward[:, None, None].expand(-1, k, 3),
        )


def test_a_transition_of_108_instruments_takes_882_bytes() -> None:
    """The original stored two windows: 24.28 MB. 108 x 2 actions x 4 bytes, and 18 bytes of numbers."""
    capacity = 50_000
    planned = build_row_replay(
        RowReplayConfig(), capacity=capacity, instruments=108, sees_account=False, device=torch.device("meta")
    )
    tensors = [leaf.value for leaf in leaves(planned) if isinstance(leaf.value, torch.Tensor)]
    assert sum(tensor.nbytes for tensor in tensors) == 882 * capacity
    assert sum(nbytes(planned).values()) - 882 * capacity == 3 * 8  # `appended`, and two fields that are None


def test_the_account_block_and_priorities_cost_what_they_say() -> None:
    plain = sum(nbytes(ring(1000)).values())
    watched = sum(nbytes(ring(1000, account=True)).values())
    weighed = nbytes(ring(1000, prioritised=True))
    assert watched - plain == 1000 * 2 * 3 * 4 - nbytes(ring(1000))["account"]
    assert weighed["priorities.mass"] + weighed["priorities.sums"] == 16 * (64 * 4 + 8)  # whole blocks of 64


@given(
    capacity=st.integers(12, 60),
    games=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), max_size=8),
    account=st.booleans(),
)
def test_holds_the_newest_transitions_in_the_storage_it_began_with(
    capacity: int, games: list[tuple[int, int]], account: object
) -> None:
    replay = ring(capacity, account=bool(account))
    homes = [leaf.value.data_ptr() for leaf in leaves(replay) if isinstance(leaf.value, torch.Tensor)]
    told: list[int] = []
    for n, (episodes, days) in enumerate(games):
        play(replay, start=100 * n, episodes=episodes, days=days)
        told += [1000 * e + 100 * n + day for day in range(days) for e in range(episodes)]

    newest = told[-capacity:]
    assert drawable_count(replay) == len(newest)
    assert sorted(replay.reward[: drawable_count(replay)].tolist()) == sorted(newest)
    for at in range(drawable_count(replay)):
        number = int(replay.reward[at])
        assert int(replay.row[at]) == number % 1000
        assert int(replay.member[at]) == number // 1000
        assert (replay.action[at] == number).all()
        assert replay.account is None or (replay.account[at] == number).all()
    assert homes == [leaf.value.data_ptr() for leaf in leaves(replay) if isinstance(leaf.value, torch.Tensor)]


@given(
    capacity=st.integers(12, 60),
    games=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=8),
)
def test_each_transition_names_the_next_day_of_its_episode(capacity: int, games: list[tuple[int, int]]) -> None:
    """A transition is overwritten before its successor is, so no link ever leads to another episode."""
    replay = ring(capacity)
    for n, (episodes, days) in enumerate(games):
        play(replay, start=100 * n, episodes=episodes, days=days)
    for at in range(drawable_count(replay)):
        following = int(replay.following[at])
        if replay.discount[at]:
            assert float(replay.reward[following]) == float(replay.reward[at]) + 1
            assert int(replay.member[following]) == int(replay.member[at])
        else:
            assert following == at


def test_a_ring_smaller_than_two_days_of_its_episodes_is_refused() -> None:
    """The second day would overwrite the first, and the links of the first would lead to itself."""
    with pytest.raises(ConfigError, match=r"capacity = 11: .*\b12\b"):
        play(ring(11), start=0, episodes=6, days=1)


@given(
    days=st.integers(3, 40),
    columns=st.integers(1, 5),
    features=st.integers(1, 4),
    context=st.integers(1, 12),
    picks=st.lists(st.integers(0, 1000), min_size=1, max_size=6),
)
def test_windows_are_rebuilt_bit_for_bit(
    days: int, columns: int, features: int, context: int, picks: list[int]
) -> None:
    context = min(context, days)
    rows = [context - 1 + pick % (days - context + 1) for pick in picks]
    values = np.random.default_rng(days).standard_normal((columns, days, features)).astype(np.float32)
    values[0, 0, 0] = -0.0  # equal to 0, but not the same bits
    found = gather_windows(torch.from_numpy(values), torch.tensor(rows), context).numpy()
    for window, row in zip(found, rows, strict=True):
        assert window.tobytes() == np.ascontiguousarray(values[:, row - context + 1 : row + 1]).tobytes()


def test_windows_take_any_shape_of_rows() -> None:
    observations = torch.arange(2 * 9 * 3.0).view(2, 9, 3)
    rows = torch.tensor([[3, 8], [5, 4], [8, 2]])
    found = gather_windows(observations, rows, 3)
    assert found.shape == (3, 2, 2, 3, 3)
    assert torch.equal(found[2, 0], gather_windows(observations, torch.tensor(8), 3))


def test_draws_are_uniform_over_what_is_held_and_nothing_else() -> None:
    replay = ring(1000)
    play(replay, start=0, episodes=4, days=5)
    index, weight = draw(replay, (50, 400), torch.Generator().manual_seed(0))
    counts = torch.bincount(index.flatten(), minlength=1000)
    assert weight is None
    assert counts[20:].sum() == 0
    # 20,000 draws from 20 places: 1,000 each, give or take 5 standard deviations (31).
    assert (counts[:20] - 1000).abs().max() < 5 * 31


def test_a_prioritised_draw_comes_with_weights_of_at_most_one() -> None:
    replay = ring(1000, prioritised=True)
    play(replay, start=0, episodes=4, days=5)
    index, weight = draw(replay, (4, 8), torch.Generator().manual_seed(0))
    assert weight is not None
    assert weight.shape == index.shape == (4, 8)
    assert int(index.max()) < 20
    assert 0 < float(weight.max()) <= 1


def test_windows_in_a_buffer_are_the_same_and_leave_its_rest_alone() -> None:
    observations, rows = torch.arange(60.0).view(2, 10, 3), torch.tensor([[9, 2], [4, 4]])
    buffer = torch.full((6, 2, 3, 3), -1.0)

    found = gather_windows(observations, rows, 3, out=buffer)

    assert torch.equal(found, gather_windows(observations, rows, 3))
    assert found.data_ptr() == buffer.data_ptr()
    assert bool((buffer[4:] == -1).all())
