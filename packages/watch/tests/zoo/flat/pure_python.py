"""Tabular Q-learning on a ring of states: no library at all, and a table that has every state after the first round."""

import random
import sys
import time

STATES, ACTIONS = 2000, 4


def main(rounds: int) -> None:
    generator = random.Random(0)
    table = {(state, action): 0.0 for state in range(STATES) for action in range(ACTIONS)}
    for _ in range(rounds):
        state = 0
        for _ in range(40_000):
            action = generator.randrange(ACTIONS)
            after = (state + action - 1) % STATES
            best = max(table[after, other] for other in range(ACTIONS))
            table[state, action] += 0.1 * (float(after == 0) + 0.99 * best - table[state, action])
            state = after
        time.sleep(0.8)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
