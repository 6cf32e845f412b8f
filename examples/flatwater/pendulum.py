"""Four DDPG members learn Gymnasium's Pendulum at once, from one replay that stores every observation once.

    python examples/flatwater/pendulum.py [--episodes 25] [--seed 0]

There is no panel and no trading here: the stacked learner and the ring work for any agent whose actions are vectors.
Prints each member's return for each round of episodes; about -1200 is a random policy, above -300 the pendulum stands.
"""

import argparse
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

import flatwater as fw
from flatwater.algorithms import AlgorithmConfig, DDPGConfig, Members, Networks, Setting, ddpg, perturb
from flatwater.config import config
from flatwater.nets import MLPActor, MLPCritic
from flatwater.state import generator

VectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]
CPU = torch.device("cpu")
MEMBERS, STEPS, TORQUE = 4, 200, 2.0
ACTOR, CRITIC = MLPActor(3, 1, (64, 64)), MLPCritic(3, 1, (64, 64))
OWN = DDPGConfig(batch_size=128, actor_lr=2e-3, critic_lr=1e-3)


@config
class LearnerConfig(AlgorithmConfig):
    """How members learn: by DDPG, the only algorithm of this program."""

    ddpg: DDPGConfig = OWN


CONFIG = LearnerConfig(algorithm="ddpg", weight_decay=0.0, grad_clip=0.0)


def play_(
    ring: fw.ring.Ring, learner: Members, envs: VectorEnv, rng: torch.Generator, learn_: Callable[[], None]
) -> np.ndarray:
    """One episode of each member in its own env, with an update of all members after each step; the returns."""
    params = fw.stack.views(learner.actor, ACTOR.layout)
    obs, _ = envs.reset()
    fw.ring.start_(ring, torch.arange(MEMBERS), obs)
    returns = np.zeros(MEMBERS)
    for _ in range(STEPS):
        with torch.no_grad():
            action = ACTOR(params, torch.from_numpy(obs).unsqueeze(1)).squeeze(1)
        action = perturb(action, OWN.noise, rng)
        obs, reward, terminated, truncated, _ = envs.step(TORQUE * action.numpy())
        fw.ring.append_(ring, action=action, reward=reward, terminated=terminated, truncated=truncated, next_obs=obs)
        returns += reward
        learn_()
    return returns


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)

    envs = gymnasium.make_vec("Pendulum-v1", num_envs=MEMBERS, vectorization_mode="sync")
    spaces = envs.single_observation_space, envs.single_action_space
    ring = fw.ring.build_ring(fw.ReplayConfig(capacity=20_000), *spaces, envs=MEMBERS, device=CPU)
    rngs = {name: generator(options.seed, name, CPU) for name in ("noise", "replay")}
    nets = Networks(ACTOR, CRITIC)
    learner = ddpg.build(CONFIG, nets, Setting(members=MEMBERS, extra=0, seed=options.seed, device=CPU))
    update_ = ddpg.make_update(CONFIG, nets, learner, [(0, MEMBERS)])

    def learn_() -> None:
        index: Tensor = fw.ring.draw(ring, (MEMBERS, OWN.batch_size), rngs["replay"]).index
        update_([lambda low, high: fw.ring.gather(ring, index[low:high])])

    envs.reset(seed=options.seed)
    for episode in range(1, options.episodes + 1):
        returns = play_(ring, learner, envs, rngs["noise"], learn_)
        print(f"episode {episode:>3}  " + "  ".join(f"{value:8.0f}" for value in returns), flush=True)


if __name__ == "__main__":
    main()
