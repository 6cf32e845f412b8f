"""Stable-Baselines3 PPO on CartPole: its rollout buffer is allocated once and written over."""

import sys

from stable_baselines3 import PPO


def main(rounds: int) -> None:
    agent = PPO("MlpPolicy", "CartPole-v1", n_steps=256, batch_size=64, n_epochs=4, device="cpu", seed=0)
    agent.learn(total_timesteps=256 * rounds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
