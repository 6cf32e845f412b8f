"""Eight CartPoles stepped together at random: episodes end and begin again, and nothing is kept."""

import sys

import gymnasium


def main(rounds: int) -> None:
    envs = gymnasium.make_vec("CartPole-v1", num_envs=8, vectorization_mode="sync")
    envs.reset(seed=0)
    envs.action_space.seed(0)
    for _ in range(rounds):
        for _ in range(2000):
            envs.step(envs.action_space.sample())
    envs.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
