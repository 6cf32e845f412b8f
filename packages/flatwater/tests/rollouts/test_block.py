"""The rollout: one block, written in place, in the storage that it began with."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flatwater.rollouts.block import ColumnSpec, Rollout, build_rollout, write_step_
from flatwater.state.tree import leaves, nbytes

CPU, META = torch.device("cpu"), torch.device("meta")
COLUMNS = {"obs": ColumnSpec((3, 2), torch.uint8), "reward": ColumnSpec(), "continues": ColumnSpec((), torch.bool)}


class Storages(TorchDispatchMode):
    """Notes every storage that an operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.seen |= {value.untyped_storage()._cdata for value in tree_leaves(result) if isinstance(value, Tensor)}
        return result


def rollout_of(device: torch.device = CPU) -> Rollout:
    return build_rollout(COLUMNS, steps=4, batch=5, device=device)


def step_of(number: int) -> dict[str, Tensor]:
    return {
        "obs": torch.full((5, 3, 2), number, dtype=torch.uint8),
        "reward": torch.full((5,), float(number)),
        "continues": torch.full((5,), number % 2 == 0),
    }


def test_a_step_is_written_to_its_row_and_to_no_other() -> None:
    rollout = rollout_of()
    for t in (2, 0):
        write_step_(rollout, t, **step_of(t + 1))
    assert rollout["reward"][:, 0].tolist() == [1, 0, 3, 0]
    assert rollout["obs"][:, 4, 2, 1].tolist() == [1, 0, 3, 0]
    write_step_(rollout, 2, reward=torch.full((5,), 9.0))
    assert rollout["reward"][:, 3].tolist() == [1, 0, 9, 0]
    assert rollout["obs"][:, 0, 0, 0].tolist() == [1, 0, 3, 0]


def test_writing_makes_no_tensor() -> None:
    rollout, step = rollout_of(), step_of(7)
    own = {column.untyped_storage()._cdata for column in rollout.columns.values()}
    with Storages() as storages:
        for t in range(4):
            write_step_(rollout, t, **step)
    assert storages.seen == own


def test_the_witness_of_storages_sees_a_new_one() -> None:
    """So that the test above can fail."""
    rollout = rollout_of()
    with Storages() as storages:
        rollout["reward"] + 1
    assert storages.seen - {rollout["reward"].untyped_storage()._cdata}


def test_a_row_can_be_handed_out_to_be_written() -> None:
    rollout = rollout_of()
    torch.add(torch.ones(5), 1, out=rollout["reward"][1])
    assert rollout["reward"][:, 0].tolist() == [0, 2, 0, 0]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"reward": torch.zeros(1)}, r"reward: .*torch\.float32 \[1\].*torch\.float32 \[5\]"),
        ({"reward": torch.zeros(5, dtype=torch.int64)}, r"reward: .*torch\.int64 \[5\].*torch\.float32 \[5\]"),
    ],
)
def test_nothing_is_broadcast_or_cast_without_a_word(wrong: dict[str, Tensor], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        write_step_(rollout_of(), 0, **wrong)


def test_an_unknown_column_is_named_beside_the_known() -> None:
    with pytest.raises(KeyError, match=r"rewards: .* obs, reward, continues"):
        write_step_(rollout_of(), 0, rewards=torch.zeros(5))


def test_its_plan_is_what_it_holds() -> None:
    """4 steps x 5 environments x (6 + 4 + 1) bytes."""
    assert nbytes(rollout_of(META)) == nbytes(rollout_of())
    assert sum(nbytes(rollout_of()).values()) == 4 * 5 * (6 + 4 + 1)
    assert [leaf.path for leaf in leaves(rollout_of())] == ["columns.obs", "columns.reward", "columns.continues"]
