"""Rewards are divided by the deviation of discounted returns, which is merged block by block."""

import torch

from flatwater.nets.policy import COUNT, VARIANCE
from flatwater.rollouts.block import ColumnSpec, Rollout, build_rollout
from flatwater.trainers.blocks.rewards import EPSILON, RETURN, build_reward_scale, scale_rewards_

CPU = torch.device("cpu")
GAMMA = 0.9


def block(seed: int) -> Rollout:
    flag = ColumnSpec((), torch.bool)
    columns = {"reward": ColumnSpec(), "terminated": flag, "truncated": flag, "alive": flag}
    found, rng = build_rollout(columns, steps=6, batch=2, device=CPU), torch.Generator().manual_seed(seed)
    found["reward"].normal_(generator=rng).mul_(100)
    found["alive"].fill_(True)  # noqa: FBT003
    found["terminated"][2, 0] = found["truncated"][4, 1] = True
    return found


def test_rewards_are_on_the_scale_of_the_returns_of_all_blocks() -> None:
    scale, seen = build_reward_scale(2, CPU), list[float]()
    running = [0.0, 0.0]
    for seed in range(3):
        rollout = block(seed)
        before = rollout["reward"].clone()
        found = scale_rewards_(scale, rollout, GAMMA)
        for t in range(6):
            for agent in range(2):
                running[agent] = float(before[t, agent]) + GAMMA * running[agent]
                seen.append(running[agent])
                if rollout["terminated"][t, agent] or rollout["truncated"][t, agent]:
                    running[agent] = 0.0
        variance = torch.tensor(seen).var(correction=0)
        torch.testing.assert_close(scale[VARIANCE], variance[None])
        torch.testing.assert_close(found, (before / (variance + EPSILON).sqrt()).clamp(-10, 10))
        assert torch.equal(rollout["reward"], before)
    assert scale[COUNT] == 3 * 6 * 2
    torch.testing.assert_close(scale[RETURN], torch.tensor(running))


def test_agents_that_are_over_and_what_is_no_number_are_not_counted() -> None:
    scale, rollout = build_reward_scale(2, CPU), block(0)
    rollout["alive"][3:, 0] = False
    rollout["reward"][5, 1] = torch.nan
    scale_rewards_(scale, rollout, GAMMA)
    assert scale[COUNT] == 12 - 3 - 1
    assert scale[VARIANCE].isfinite()
    rollout["reward"].zero_()
    assert not scale_rewards_(build_reward_scale(2, CPU), rollout, GAMMA).any()
