"""The three baselines act within the masks, and differ as they should."""

import pytest
import torch
from small import begun, config, do, generator

from flatwater.envs.growing.baselines import BASELINES, FIRST_SEED_STEP, Baseline, draw_noise
from flatwater.envs.growing.simulator import masks, step_
from flatwater.envs.growing.spaces import Operation, head_sizes
from flatwater.envs.growing.stages import SlotStage

torch.set_num_threads(1)


@pytest.mark.parametrize("act", BASELINES.values(), ids=BASELINES.keys())
def test_a_baseline_never_tries_the_impossible(act: Baseline) -> None:
    envs, rng = begun(config(steps=20), torch.tensor([1, 2, 3])), generator(0)
    for _ in range(20):
        step_(envs, act(envs, masks(envs), draw_noise(3, head_sizes(envs.config.lifecycle, 3), rng, rng.device)))
        assert bool(envs.measures.success.all())
    grew = int(envs.slots.germinations.sum())
    assert grew == 0 if act is BASELINES["wait"] else grew > 3


def test_the_heuristic_lets_strong_hosts_be_and_grows_weak_ones_to_the_end() -> None:
    envs, act = begun(config(steps=60), torch.tensor([2, 4])), BASELINES["heuristic"]
    for _ in range(FIRST_SEED_STEP):
        do(envs)
    for step in range(40):
        # The host's own luck with four images is not what is tested: the second is made strong, each seed a help.
        envs.measures.accuracy[:, 0] = torch.tensor([0.3, 0.9])
        envs.measures.contribution.fill_(0.1)
        action = act(envs, masks(envs), torch.empty(2, 0))
        assert action[1, 0] == Operation.WAIT
        assert step > 0 or action[0, 0] == Operation.GERMINATE
        step_(envs, action)
    assert envs.slots.stage[0].tolist() == [SlotStage.FOSSILISED] * 3


def test_the_heuristic_prunes_a_seed_that_does_not_help() -> None:
    envs, act = begun(config(steps=60), torch.tensor([2, 4])), BASELINES["heuristic"]
    envs.slots.stage[0, 1] = SlotStage.HOLDING
    envs.measures.contributions[0, 1] = 1
    envs.measures.contribution[0, 1] = -0.1
    assert act(envs, masks(envs), torch.empty(2, 0))[:, :2].tolist() == [[Operation.PRUNE, 1], [Operation.WAIT, 0]]
