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

from flatwater.algorithms.api import Members, Networks, Setting, perturb
from flatwater.algorithms.config import DDPGConfig
from flatwater.algorithms.ddpg import build, make_update
from flatwater.nets.mlp import MLPActor, MLPCritic
from flatwater.nets.stack import views
from flatwater.replay.batch import Batch
from flatwater.replay.config import ReplayConfig
from flatwater.replay.ring import Ring, append_, build_ring, draw, gather, start_
from flatwater.state.random import generator
from flatwater_trading import LearnerConfig

VectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]
CPU = torch.device("cpu")
MEMBERS, STEPS, TORQUE = 4, 200, 2.0
ACTOR, CRITIC = MLPActor(3, 1, (64, 64)), MLPCritic(3, 1, (64, 64))
OWN = DDPGConfig(batch_size=128, actor_lr=2e-3, critic_lr=1e-3)
CONFIG = LearnerConfig(algorithm="ddpg", weight_decay=0.0, grad_clip=0.0, ddpg=OWN)


def play_(
    ring: Ring, learner: Members, envs: VectorEnv, rng: torch.Generator, learn_: Callable[[], None]
) -> np.ndarray:
    """One episode of each member in its own env, with an update of all members after each step; the returns."""
    params = views(learner.actor, ACTOR.layout)
    obs, _ = envs.reset()
    start_(ring, torch.arange(MEMBERS), obs)
    returns = np.zeros(MEMBERS)
    for _ in range(STEPS):
        with torch.no_grad():
            action = ACTOR(params, torch.from_numpy(obs).unsqueeze(1)).squeeze(1)
        action = perturb(action, OWN.noise, rng)
        obs, reward, terminated, truncated, _ = envs.step(TORQUE * action.numpy())
        append_(ring, action=action, reward=reward, terminated=terminated, truncated=truncated, next_obs=obs)
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
    ring = build_ring(ReplayConfig(capacity=20_000), *spaces, envs=MEMBERS, device=CPU)
    rngs = {name: generator(options.seed, name, CPU) for name in ("noise", "replay")}
    nets = Networks(ACTOR, CRITIC)
    learner = build(CONFIG, nets, Setting(members=MEMBERS, extra=0, seed=options.seed, device=CPU))
    update_ = make_update(CONFIG, nets, learner, [(0, MEMBERS)])

    def learn_() -> None:
        index: Tensor = draw(ring, (MEMBERS, OWN.batch_size), rngs["replay"]).index

        def batch(low: int, high: int) -> Batch:
            return gather(ring, index[low:high])

        update_([batch])

    envs.reset(seed=options.seed)
    for episode in range(1, options.episodes + 1):
        returns = play_(ring, learner, envs, rngs["noise"], learn_)
        print(f"episode {episode:>3}  " + "  ".join(f"{value:8.0f}" for value in returns), flush=True)


if __name__ == "__main__":
    main()
