"""Windows stored whole are those that row numbers would give, whatever was overwritten."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from flatwater.replay.config import RowReplayConfig
from flatwater.replay.rows import RowReplay, append_, build_rows, held, windows
from flatwater.replay.stored import refill_, store_
from flatwater.state.tree import nbytes

CPU = torch.device("cpu")
N, T, F, CONTEXT, K = 3, 60, 2, 4, 2


def ring(capacity: int) -> RowReplay:
    config = RowReplayConfig(warmup=1, windows="stored")
    return build_rows(config, capacity=capacity, instruments=K, account=False, device=CPU, window=(N, CONTEXT, F))


def played(replay: RowReplay, observations: torch.Tensor, episodes: int, days: int, first: int) -> None:
    """Episodes in lock-step, from row `first` on, all of them ending after `days`."""
    assert replay.windows is not None
    for day in range(days):
        row = torch.full((episodes,), first + day)
        terminated = torch.full((episodes,), day == days - 1)
        at = append_(
            replay,
            row=row,
            action=torch.zeros(episodes, K, 2),
            reward=torch.zeros(episodes),
            terminated=terminated,
            member=torch.zeros(episodes),
            account=None,
        )
        store_(replay.windows, observations, at=at, row=row, terminated=terminated)


@given(capacity=st.integers(4, 30), rounds=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 12)), max_size=6))
def test_copies_are_what_the_row_numbers_say(capacity: int, rounds: list[tuple[int, int]]) -> None:
    observations = torch.randn(N, T, F, generator=torch.Generator().manual_seed(0))
    replay = ring(capacity)
    assert replay.windows is not None
    for episodes, days in rounds:
        played(replay, observations, episodes, days, first=CONTEXT)
    here = slice(0, held(replay))
    following = replay.row[replay.following[here].long()]
    assert torch.equal(replay.windows.seen[here], windows(observations, replay.row[here].long(), CONTEXT))
    assert torch.equal(replay.windows.following[here], windows(observations, following.long(), CONTEXT))


def test_a_restored_ring_is_filled_from_its_row_numbers() -> None:
    observations = torch.randn(N, T, F, generator=torch.Generator().manual_seed(1))
    replay = ring(20)
    assert replay.windows is not None
    played(replay, observations, episodes=2, days=14, first=CONTEXT)
    seen, following = replay.windows.seen.clone(), replay.windows.following.clone()
    replay.windows.seen.fill_(7)
    replay.windows.following.fill_(7)
    refill_(replay, observations)
    assert torch.equal(replay.windows.seen, seen)
    assert torch.equal(replay.windows.following, following)


def test_the_plan_counts_all_windows() -> None:
    held = nbytes(ring(20))
    assert held["windows.seen"] == held["windows.following"] == 20 * N * CONTEXT * F * 4


def test_row_numbers_alone_keep_no_windows() -> None:
    replay = build_rows(
        RowReplayConfig(), capacity=100, instruments=K, account=False, device=CPU, window=(N, CONTEXT, F)
    )
    assert replay.windows is None
