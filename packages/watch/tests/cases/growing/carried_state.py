"""The state of a recurrent cell that goes from step to step with its whole past.

Thread: https://github.com/pytorch/pytorch/issues/20275
Looks like: memory and the time of each step grow until `backward` is called.
Fix: `hidden = hidden.detach()` between two stretches.
"""

import sys
import time

import torch
from torch import nn


class Player:
    def __init__(self) -> None:
        self.cell = nn.GRUCell(64, 256)
        self.hidden = torch.zeros(512, 256)

    def act(self) -> None:
        self.hidden = self.cell(torch.randn(512, 64), self.hidden)  # <- here


def main(rounds: int) -> None:
    player = Player()
    for _ in range(rounds):
        player.act()
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
