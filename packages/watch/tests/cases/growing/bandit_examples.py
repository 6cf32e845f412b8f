"""A contextual bandit that learns from each click, and parses its examples itself.

Thread: https://github.com/VowpalWabbit/vowpal_wabbit/issues/2363
Looks like: memory climbs with each simulated round, though the model has a fixed number of weights.
Cause: parsed examples belong to VW's pool, and are given back by `finish_example` alone.
Fix: `workspace.finish_example(examples)` after `predict` and after `learn`.
"""

import random
import sys
import time

from vowpalwabbit import LabelType, Workspace

ACTIONS = ["politics", "sports", "music", "food", "finance", "health", "camping"]


def written(user: int, shown: int | None, cost: float = 0.0, chance: float = 1.0) -> str:
    lines = [f"shared |User user={user} hour={user % 24} " + " ".join(f"h{k}:{k / 7:.2f}" for k in range(40))]
    for n, action in enumerate(ACTIONS):
        label = f"0:{cost}:{chance} " if n == shown else ""
        lines.append(f"{label}|Action article={action} " + " ".join(f"a{k}:{k / 3:.2f}" for k in range(20)))
    return "\n".join(lines)


def main(rounds: int) -> None:
    random.seed(2)
    workspace = Workspace("--cb_explore_adf -q UA --quiet --epsilon 0.2", enable_logging=False)
    clicks = 0
    for n in range(rounds):
        for _ in range(2):
            user = random.randrange(500)
            asked = workspace.parse(written(user, None), LabelType.CONTEXTUAL_BANDIT)  # <- here
            chances = workspace.predict(asked)
            shown = random.choices(range(len(ACTIONS)), chances)[0]
            clicked = random.random() < 0.2 + 0.1 * (user % 7 == shown)
            clicks += clicked
            told = workspace.parse(written(user, shown, -float(clicked), chances[shown]), LabelType.CONTEXTUAL_BANDIT)
            workspace.learn(told)
        time.sleep(0.09)
    print("clicks", clicks)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 180)
