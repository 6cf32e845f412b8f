"""Stable-Baselines3 DDPG on Pendulum, with a replay buffer that is small and soon full."""

import sys

from stable_baselines3 import DDPG


def main(rounds: int) -> None:
    agent = DDPG(
        "MlpPolicy",
        "Pendulum-v1",
        buffer_size=400,
        learning_starts=50,
        batch_size=32,
        policy_kwargs={"net_arch": [64, 64]},
        device="cpu",
        seed=0,
    )
    agent.learn(total_timesteps=100 * rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
