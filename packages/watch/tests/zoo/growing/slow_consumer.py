"""A simulator thread that fills a queue faster than the learner empties it.

Looks like: memory climbs as long as the simulator is the faster one, and falls again when it rests.
Fix: bound the queue, `queue.Queue(maxsize=64)`, so that the simulator waits; or let the learner take larger batches.
"""

import queue
import sys
import threading
import time

import numpy as np
import torch


def simulate(trajectories: "queue.Queue[np.ndarray]", over: threading.Event) -> None:
    generator = np.random.default_rng(0)
    while not over.is_set():
        trajectories.put(generator.standard_normal((500, 200)))  # <- here
        time.sleep(0.03)


def main(rounds: int) -> None:
    trajectories: queue.Queue[np.ndarray] = queue.Queue()
    over = threading.Event()
    simulator = threading.Thread(target=simulate, args=(trajectories, over), name="simulator")
    simulator.start()
    policy = torch.nn.Linear(200, 8)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    for _ in range(rounds):
        for _ in range(3):
            batch = torch.from_numpy(trajectories.get()).float()
            loss = policy(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.1)
    over.set()
    simulator.join()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
