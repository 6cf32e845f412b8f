"""A replay that stores panel row numbers in place of observations, whose windows are gathered when they are drawn.

Two consecutive windows share all rows but one, so storing windows keeps every row of the panel hundreds of times.
A transition here is the row of its day, the action, the reward, the discount, the member that acted and the ring
position of the transition that followed it: 18 bytes and the action.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.replay.config import RowReplayConfig
from flatwater.replay.priority import Priorities, add_priorities_, build_priorities, draw_prioritised
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state
from flatwater_watch.errors import require


@state
class RowReplay:
    """A ring of transitions, allocated whole by `build_row_replay`; `append_` writes over the oldest transitions."""

    row: Int[Tensor, "C"]
    """Panel row of the day, int32."""
    following: Int[Tensor, "C"]
    """Ring position of the next transition of the same episode, int32; the transition's own at an episode's end."""
    action: Float[Tensor, "C K 2"]
    """Action as the networks give it, in [-1, 1]."""
    reward: Float[Tensor, "C"]
    discount: Float[Tensor, "C"]
    """Discount: 0 if the episode terminated, else 1; gamma is a setting of the learner."""
    member: Int[Tensor, "C"]
    """Number of the member that acted, for readers of a checkpoint: learning does not use it. As int16: a number
    above 32,767 is stored as 65,536 less."""
    account: Float[Tensor, "C K 3"] | None
    """The account block of the day; None if it is not observed."""
    priorities: Priorities | None
    """Priority of each transition in draws; None if all are equally likely."""
    appended: int = 0
    """Transitions ever appended. The next transition is written at position `appended % capacity`."""


@state
class Transitions:
    """Transitions of B episodes in lock-step over D days, before they are appended."""

    row: Int[Tensor, "D B"]
    """Row of the panel of the day."""
    action: Float[Tensor, "D B K 2"]
    """Action as the networks give it, in [-1, 1], with its noise."""
    reward: Float[Tensor, "D B"]
    terminated: Bool[Tensor, "D B"]
    """True on the last day of an episode."""
    account: Float[Tensor, "D B K 3"] | None
    """Open positions before the day's step; None if they are not observed."""


def build_transitions(
    days: int, batch: int, *, instruments: int, sees_account: bool, device: torch.device
) -> Transitions:
    """Allocate the transitions of all days of an episode, and write their memory, so that it is in use from then on.

    Args:
        days: number D of days of an episode.
        batch: number B of episodes in lock-step.
        instruments: number K of instruments that can be bought.
        sees_account: whether the account block is observed, and stored.
        device: device of the tensors; `meta` for a plan.

    Returns:
        Columns [D, B, ...], all 0.
    """
    zeros = partial(filled_tensor, 0, days, batch, device=device)
    return Transitions(
        row=zeros(dtype=torch.int64),
        action=zeros(instruments, 2),
        reward=zeros(),
        terminated=zeros(dtype=torch.bool),
        account=zeros(instruments, 3) if sees_account else None,
    )


def build_row_replay(
    config: RowReplayConfig,
    *,
    capacity: int,
    instruments: int,
    sees_account: bool,
    device: torch.device,
) -> RowReplay:
    """Allocate an empty ring for transitions.

    Args:
        config: settings of the replay, with those of priorities.
        capacity: number C of transitions.
        instruments: number K of instruments that can be bought.
        sees_account: whether the account block is observed, and stored.
        device: device of the tensors; `meta` for a plan.
    """
    zeros = partial(filled_tensor, 0, device=device)
    return RowReplay(
        row=zeros(capacity, dtype=torch.int32),
        following=zeros(capacity, dtype=torch.int32),
        action=zeros(capacity, instruments, 2),
        reward=zeros(capacity),
        discount=zeros(capacity),
        member=zeros(capacity, dtype=torch.int16),
        account=zeros(capacity, instruments, 3) if sees_account else None,
        priorities=(
            build_priorities(capacity, device, alpha=config.alpha, beta=config.beta) if config.prioritised else None
        ),
    )


def drawable_count(replay: RowReplay) -> int:
    """Return the number of transitions that can be drawn."""
    return min(replay.appended, len(replay.row))


def append_(
    replay: RowReplay,
    *,
    row: Int[Tensor, "B"],
    action: Float[Tensor, "B K 2"],
    reward: Float[Tensor, "B"],
    terminated: Tensor,
    member: Int[Tensor, "B"],
    account: Float[Tensor, "B K 3"] | None,
) -> None:
    """Write a day of B episodes in lock-step over the oldest transitions.

    The next call appends the following day of the same episodes in the same order, until they terminate.

    Args:
        replay: ring; written in place.
        row: panel rows of the day.
        action: actions in [-1, 1], as the networks give them, for K instruments.
        reward: reward of the day.
        terminated: mask [B] of the episodes that end on this day.
        member: numbers of the members that acted.
        account: open positions before the step; None if they are not observed.

    Raises:
        ConfigError: the ring holds less than two days of B transitions.
    """
    capacity, batch = len(replay.row), len(row)
    # In a smaller ring a day would be written over before its next day is appended.
    require(
        2 * batch <= capacity, "capacity", capacity, f"at least {2 * batch}, two days of the {batch} episodes played"
    )
    numbers = torch.arange(replay.appended, replay.appended + batch, device=row.device)
    positions = numbers % capacity
    # The next call writes the same episodes in the same order, so a transition's next is `batch` positions on.
    following = torch.where(terminated, positions, (numbers + batch) % capacity)
    for stored_rows, new_row in (
        (replay.row, row),
        (replay.following, following),
        (replay.action, action),
        (replay.reward, reward),
        (replay.discount, ~terminated),
        (replay.member, member),
    ):
        # batch <= capacity, so no position is written twice and the result is always the same.
        stored_rows.index_copy_(0, positions, new_row.to(stored_rows.dtype))
    if replay.account is not None and account is not None:
        replay.account.index_copy_(0, positions, account)
    if replay.priorities is not None:
        add_priorities_(replay.priorities, positions)
    replay.appended += batch


def draw(replay: RowReplay, shape: tuple[int, ...], rng: torch.Generator) -> tuple[Tensor, Tensor | None]:
    """Draw ring positions of this shape, with replacement; return them and their importance weights.

    Without priorities all transitions are equally likely, and the weights are None.
    """
    if replay.priorities is not None:
        return draw_prioritised(replay.priorities, shape, rng)
    # The count is a number of the host: a draw does not wait for the device.
    return torch.randint(drawable_count(replay), shape, generator=rng, device=replay.row.device), None


def gather_windows(
    observations: Float[Tensor, "N T F"],
    rows: Int[Tensor, "*batch"],
    context: int,
    *,
    out: Float[Tensor, "R N C F"] | None = None,
) -> Float[Tensor, "*batch N C F"]:
    """Gather windows from the panel: for each row the `context` days that end at it, of all columns.

    Args:
        observations: observations of N columns on T days, contiguous.
        rows: last rows of the windows, `context` - 1 or more.
        context: number C of days of a window.
        out: buffer for at least as many windows as rows: it is written over, and the result is a view of its
            beginning. None allocates the result.
    """
    columns, days, features = observations.shape
    size = context * features
    # A window of one column is contiguous, so the panel itself is a table of all windows, which overlap: entry [r, n]
    # begins at row r of column n, with strides of F to the next row and T F to the next column.
    table = observations.as_strided((days - context + 1, columns, size), (features, days * features, 1))
    buffer = None if out is None else out[: rows.numel()].view(-1, columns, size)
    gathered_rows = torch.index_select(table, 0, rows.flatten() - (context - 1), out=buffer)
    return gathered_rows.view(*rows.shape, columns, context, features)
