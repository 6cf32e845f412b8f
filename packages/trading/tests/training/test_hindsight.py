"""Learning in hindsight: the loss by hand, members that do not touch each other, and a truth that is found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flatwater.algorithms.api import Members, Networks, Setting, Update, read_tally_
from flatwater.algorithms.compilation import has_compiler
from flatwater.nets.stack import Layout, Params, linear
from flatwater.state.tree import nbytes
from flatwater_trading.policy.trader import apply_rowwise
from flatwater_trading.training.hindsight import (
    SHARPNESS,
    HindsightBatch,
    build_hindsight_members,
    hindsight_loss,
    interpolate_gain,
    make_update,
)
from flatwater_trading.training.learner import HindsightConfig, LearnerConfig

CPU = torch.device("cpu")
F, K = 3, 4


@dataclass(frozen=True)
class LinearActor:
    """Coefficient and target of each column from its features of the day."""

    layout = Layout(linear("action", F, 2))

    def over_days(self, params: Params, x: Tensor) -> Tensor:
        days = x.transpose(2, 3).flatten(1, 2)  # [P, S D, N, F]
        return torch.tanh(apply_rowwise(params, "action", days))


@dataclass(frozen=True)
class Market:
    threshold = 0.0


NETS = Networks(LinearActor(), Market())


def learner_of(
    members: int = 3,
    groups: Sequence[tuple[int, int]] | None = None,
    device: torch.device = CPU,
    micro_batches: int = 1,
    *,
    compiled: bool = False,
) -> tuple[Members, Update]:
    own = HindsightConfig(actor_lr=0.05)
    config = LearnerConfig(weight_decay=0.0, micro_batches=micro_batches, compile=compiled, hindsight=own)
    learner = build_hindsight_members(
        config, NETS, Setting(members=members, seed=0, device=device, dtype=torch.float64)
    )
    return learner, make_update(config, NETS, learner, groups or [(0, members)])


def lesson_of(members: int, rng: torch.Generator, days: int = 16) -> HindsightBatch:
    """Columns whose first feature is high gain, the others lose; a larger target gains more."""
    seen = torch.randn(members, 2, K, days // 2, F, generator=rng, dtype=torch.float64)
    worth = seen[..., 0].transpose(2, 3).flatten(1, 2)
    return HindsightBatch(seen, worth.unsqueeze(-1) * torch.linspace(0.5, 1.5, 5, dtype=torch.float64))


def lesson_slices(lesson: HindsightBatch) -> Callable[[int, int], HindsightBatch]:
    return lambda low, high: HindsightBatch(lesson.observations[low:high], lesson.gain[low:high])


@given(target=st.floats(-1, 1), gains=st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_between_two_targets_the_gain_lies_on_a_line(target: float, gains: list[float]) -> None:
    found = interpolate_gain(torch.tensor([gains], dtype=torch.float64), torch.tensor([target], dtype=torch.float64))
    expected = np.interp((target + 1) / 2 * (len(gains) - 1), range(len(gains)), gains)
    assert float(found[0]) == pytest.approx(float(expected), abs=1e-9)


def test_the_loss_is_minus_the_mean_gain_of_what_is_asked_for() -> None:
    """One day, two instruments: sigmoid(10 (0.1 - 0.2)) = 0.26894 of a gain of 3, half of a loss of 1."""
    action = torch.tensor([[[[0.1, -1.0], [0.2, 1.0]]]])
    gain = torch.tensor([[[[3.0, 9.0], [9.0, -1.0]]]])
    expected = -(3 / (1 + np.exp(SHARPNESS * 0.1)) - 1 / 2) / 2
    assert float(hindsight_loss(action, gain, threshold=0.2)) == pytest.approx(expected, abs=1e-6)


def test_members_find_what_gains_and_the_better_target() -> None:
    learner, update_ = learner_of()
    rng = torch.Generator().manual_seed(1)
    for _ in range(200):
        update_([lesson_slices(lesson_of(3, rng))])
    weight = learner.actor[:3, : 2 * F].view(3, F, 2)
    assert (weight[:, 0, 0] > 5 * weight[:, 1:, 0].abs().amax(1)).all()
    losses = read_tally_(learner.tally)
    assert losses["train/actor_loss"] < -0.2
    assert losses.keys() == {"train/actor_loss", "train/actor_grad_norm", "train/skipped"}


@pytest.mark.parametrize("groups", [[(0, 3)], [(0, 1), (1, 3)], [(0, 1), (1, 2), (2, 3)]])
def test_a_member_learns_the_same_in_any_group(groups: list[tuple[int, int]]) -> None:
    alone, update_alone_ = learner_of(groups=[(0, 3)], micro_batches=2)
    other, update_ = learner_of(groups=groups, micro_batches=2)
    for seed in range(3):
        lessons = [lesson_slices(lesson_of(3, torch.Generator().manual_seed(seed)))] * 2
        update_alone_(lessons)
        update_(lessons)
    torch.testing.assert_close(other.actor, alone.actor, rtol=0, atol=1e-12)


def test_two_half_batches_are_one_batch() -> None:
    whole, update_whole_ = learner_of()
    halves, update_ = learner_of(micro_batches=2)
    lesson = lesson_of(3, torch.Generator().manual_seed(3))
    update_whole_([lesson_slices(lesson)])
    parts = [HindsightBatch(lesson.observations[:, s : s + 1], lesson.gain[:, 8 * s : 8 * s + 8]) for s in range(2)]
    update_([lesson_slices(part) for part in parts])
    torch.testing.assert_close(halves.actor, whole.actor, rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(), reason="compiling needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it loads its compiler
def test_compiled_equals_eager() -> None:
    eager, update_ = learner_of()
    compiled, update_compiled_ = learner_of(compiled=True)
    for seed in range(3):
        lessons = [lesson_slices(lesson_of(3, torch.Generator().manual_seed(seed)))]
        update_(lessons)
        update_compiled_(lessons)
    torch.testing.assert_close(compiled.actor, eager.actor, rtol=0, atol=1e-9)


def test_a_member_without_a_finite_gain_leaves_out_the_step_alone() -> None:
    learner, update_ = learner_of()
    before, lesson = learner.actor.clone(), lesson_of(3, torch.Generator().manual_seed(4))
    lesson.gain[1, 0, 0] = torch.nan
    update_([lesson_slices(lesson)])
    moved = (learner.actor != before).any(1)
    assert moved.tolist() == [True, False, True, False]
    assert read_tally_(learner.tally)["train/skipped"] == 1


def test_the_plan_is_what_is_held_and_nothing_moves() -> None:
    meta, _ = learner_of(device=torch.device("meta"))
    learner, update_ = learner_of()
    assert nbytes(learner) == nbytes(meta)
    home = [
        learner.actor.data_ptr(),
        learner.actor_adam.exp_avg.data_ptr(),
        learner.tally.sums["actor_loss"].data_ptr(),
    ]
    update_([lesson_slices(lesson_of(3, torch.Generator().manual_seed(5)))])
    assert [
        learner.actor.data_ptr(),
        learner.actor_adam.exp_avg.data_ptr(),
        learner.tally.sums["actor_loss"].data_ptr(),
    ] == home
    assert nbytes(learner) == nbytes(meta)
    assert list(learner.trained) == ["actor"]
    assert not learner.targets
