"""`flatwater`, with a replay that stores both windows of every transition, as many programs do.

    python benchmarks/flatwater/stored_windows.py train erl --learner.algorithm ddpg ...

This is how a run comes to hold 24 MB a transition where 900 bytes are enough. The numbers of a run are the same, bit
for bit (`packages/flatwater/tests/runs/test_stored_windows.py`). Unlike everything else that a run holds, the pages of
these blocks are
touched as the replay fills: resident memory grows for as long as that takes, which is the growth that people take for a
leak.
"""

import mmap
import sys
from dataclasses import fields
from math import prod

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.cli.main import main
from flatwater.state.tree import derived_field, state
from flatwater_trading.market.market import Market
from flatwater_trading.policy.trader import MarketObs
from flatwater_trading.recipe.run import ErlRun
from flatwater_trading.training import learn, round, tile
from flatwater_trading.training import state as erl_state
from flatwater_trading.training.learn import ReplaySource
from flatwater_trading.training.row_replay import RowReplay, drawable_count, gather_windows
from flatwater_trading.training.setup import ErlSetup
from flatwater_watch.errors import MemoryLimitError
from flatwater_watch.units import format_bytes

AT_ONCE = 256
"""Transitions whose windows are gathered together."""
FLOAT_BYTES = 4


@state
class StoredWindows:
    """A window before and one after each transition; on a CPU their pages are touched when they are first written."""

    seen: Float[Tensor, "C N W F"] = derived_field()
    following: Float[Tensor, "C N W F"] = derived_field()


@state
class StoringReplay(RowReplay):
    """A replay of row numbers with copies of what they say. Checkpoints hold the numbers alone."""

    windows: StoredWindows = derived_field()


def storing(replay: RowReplay, window: tuple[int, int, int], device: torch.device) -> StoringReplay:
    """Return a replay that also has room for windows of [columns, days, features].

    Raises:
        MemoryLimitError: the system has not so many addresses to give.
    """
    shape = (len(replay.row), *window)
    own = {field.name: getattr(replay, field.name) for field in fields(replay)}
    return StoringReplay(
        **own, windows=StoredWindows(seen=untouched_tensor(shape, device), following=untouched_tensor(shape, device))
    )


def untouched_tensor(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """A float32 tensor whose pages come from the system: an allocator could give some that were touched before."""
    if device.type != "cpu":
        return torch.empty(shape, device=device)
    size = FLOAT_BYTES * prod(shape)
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as refused:
        raise MemoryLimitError(
            f"the system refuses {format_bytes(size)} for one of two blocks of windows ({refused.strerror}). Lower "
            "replay.generations, or do not store them"
        ) from refused
    return torch.frombuffer(pages, dtype=torch.float32).view(shape)


def store_(replay: RowReplay, observations: Float[Tensor, "N T F"], places: Int[Tensor, "n"]) -> None:
    """Copy the windows of the transitions at these ring positions."""
    assert isinstance(replay, StoringReplay)
    kept, context = replay.windows, replay.windows.seen.shape[2]
    for at in torch.split(places, AT_ONCE):
        following = replay.row[replay.following[at].long()]
        kept.seen.index_copy_(0, at, gather_windows(observations, replay.row[at].long(), context))
        kept.following.index_copy_(0, at, gather_windows(observations, following.long(), context))


def store_windows_() -> None:
    """Make every later run of traders in this process store its windows."""
    build, append_ = erl_state._empty_replay, tile.append_to_replay_  # noqa: SLF001  (what is replaced)

    def build_storing(setup: ErlSetup, market: Market) -> StoringReplay:
        columns, _, features = market.observations.shape
        return storing(build(setup, market), (columns, setup.config.env.episode.context, features), setup.device)

    def append_and_store_(setup: ErlSetup, run: erl_state.ErlState, *played: object) -> None:
        assert run.replay is not None
        before = run.replay.appended
        append_(setup, run, *played)  # type: ignore[arg-type]
        places = torch.arange(before, run.replay.appended, device=setup.device) % len(run.replay.row)
        store_(run.replay, run.market.observations, places)

    def refill_(run: ErlRun) -> None:
        replay = run.trainer.run.replay
        assert replay is not None
        store_(
            replay, run.trainer.run.market.observations, torch.arange(drawable_count(replay), device=replay.row.device)
        )

    for module, name, ours in (
        (erl_state, "_empty_replay", build_storing),
        (round, "append_to_replay_", append_and_store_),
        (learn, "observe", observe_stored),
        (learn, "observe_next", observe_next_stored),
    ):
        assert name in vars(module), f"{module.__name__} has no {name}: nothing would be stored"
        vars(module)[name] = ours
    setattr(ErlRun, "rebuild_", refill_)  # noqa: B010  (of a class that is not ours)


def observe_stored(source: ReplaySource, at: Int[Tensor, "P B"]) -> MarketObs:
    """Gather the observations at ring positions `at`, from their copies."""
    assert isinstance(source.replay, StoringReplay)
    return copy_windows(source, source.replay.windows.seen, at, at, source.buffers.seen)


def observe_next_stored(source: ReplaySource, at: Int[Tensor, "P B"]) -> MarketObs:
    """Gather the observations that followed on ring positions `at`, from their copies."""
    assert isinstance(source.replay, StoringReplay)
    following = source.replay.following[at].long()
    return copy_windows(source, source.replay.windows.following, at, following, source.buffers.following)


def copy_windows(source: ReplaySource, copies: Tensor, at: Tensor, slot: Tensor, buffer: Tensor) -> MarketObs:
    """Copies of windows in the run's buffer, with the account of the day that they show."""
    seen = torch.index_select(copies, 0, at.flatten(), out=buffer[: at.numel()]).view(*at.shape, *copies.shape[1:])
    account = source.replay.account
    return MarketObs(seen, None if account is None else account[slot])


if __name__ == "__main__":
    store_windows_()
    sys.exit(main(sys.argv[1:]))
