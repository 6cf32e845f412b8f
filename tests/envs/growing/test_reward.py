"""What is paid, by hand."""

import torch

from flatwater.envs.growing.config import GrowRewardConfig
from flatwater.envs.growing.reward import credit, reward_of


def test_a_seed_is_paid_no_more_than_its_host_has_gained_and_harm_counts_in_full() -> None:
    found = credit(
        torch.tensor([[0.3, 0.3, -0.2], [0.3, 0.1, -0.2]]),
        accuracy=torch.tensor([0.5, 0.4]),
        started_from=torch.tensor([[0.4, 0.1, 0.1], [0.6, 0.1, 0.6]]),
    )
    torch.testing.assert_close(found, torch.tensor([[0.1, 0.3, -0.2], [0.0, 0.1, -0.2]]))


def test_a_step_pays_contributions_less_rent_and_churn_and_the_last_one_accuracy() -> None:
    config = GrowRewardConfig(contribution=0.5, rent=0.1, churn=0.25, terminal=4.0)
    paid = reward_of(
        config,
        credits_=torch.tensor([[0.2, 0.1], [0.0, 0.4]]),
        weights=torch.tensor([[1.0, 0.5], [0.0, 2.0]]),
        changes=torch.tensor([1.0, 0.0]),
        accuracy=torch.tensor([0.9, 0.5]),
        last=torch.tensor([False, True]),
    )
    # 0.5 x 0.3 - 0.1 x 1.5 - 0.25, and 0.5 x 0.4 - 0.1 x 2 + 4 x 0.5
    torch.testing.assert_close(paid, torch.tensor([-0.25, 2.0]))
