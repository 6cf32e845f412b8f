"""What is paid, by hand."""

import pytest
import torch

from flatwater.envs.growing.config import GrowRewardConfig
from flatwater.envs.growing.reward import (
    add_ungrown_accuracy_,
    build_ungrown_accuracy,
    seed_credit,
    step_reward,
    ungrown_accuracy,
)


def test_a_seed_is_paid_no_more_than_its_host_has_gained_and_harm_counts_in_full() -> None:
    found = seed_credit(
        torch.tensor([[0.3, 0.3, -0.2], [0.3, 0.1, -0.2]]),
        accuracy=torch.tensor([0.5, 0.4]),
        initial_accuracy=torch.tensor([[0.4, 0.1, 0.1], [0.6, 0.1, 0.6]]),
        ungrown=torch.zeros(2),
    )
    torch.testing.assert_close(found, torch.tensor([[0.1, 0.3, -0.2], [0.0, 0.1, -0.2]]))


def test_a_seed_is_not_paid_for_what_its_host_learns_by_itself() -> None:
    """Three hosts that depend on a seed by 0.4: better than hosts left alone by 0.3, by 0.05, and worse."""
    found = seed_credit(
        torch.full((3, 1), 0.4),
        accuracy=torch.tensor([0.5, 0.85, 0.8]),
        initial_accuracy=torch.full((3, 1), 0.1),
        ungrown=torch.tensor([0.2, 0.8, 0.85]),
    )
    torch.testing.assert_close(found, torch.tensor([[0.3], [0.05], [0.0]]))


def test_hosts_left_alone_are_known_by_kind_and_step() -> None:
    alone = build_ungrown_accuracy(3, torch.device("cpu"))
    impaired = torch.tensor([False, True, False])
    for accuracy, step in ((0.4, 1), (0.6, 1), (0.8, 3)):
        add_ungrown_accuracy_(
            alone, torch.tensor([accuracy, 0.1, 1.0]), is_impaired=impaired, step=torch.full((3,), step)
        )

    def known(step: int) -> list[float]:
        kinds = torch.tensor([False, True])
        return ungrown_accuracy(alone, is_impaired=kinds, step=torch.full((2,), step)).tolist()

    assert known(1) == pytest.approx([0.75, 0.1])
    assert known(2) == [0, 0]
    assert known(3) == pytest.approx([0.9, 0.1])


def test_a_step_pays_contributions_less_rent_and_churn_and_the_last_one_accuracy() -> None:
    config = GrowRewardConfig(contribution=0.5, rent=0.1, churn=0.25, terminal=4.0)
    paid = step_reward(
        config,
        credits_=torch.tensor([[0.2, 0.1], [0.0, 0.4]]),
        sizes=torch.tensor([[1.0, 0.5], [0.0, 2.0]]),
        changes=torch.tensor([1.0, 0.0]),
        accuracy=torch.tensor([0.9, 0.5]),
        is_last=torch.tensor([False, True]),
    )
    # 0.5 x 0.3 - 0.1 x 1.5 - 0.25, and 0.5 x 0.4 - 0.1 x 2 + 4 x 0.5
    torch.testing.assert_close(paid, torch.tensor([-0.25, 2.0]))
