"""A metric that keeps all predictions until it is reset, and never is.

Thread: https://github.com/Lightning-AI/torchmetrics/issues/2921
Looks like: evaluation gets slower and larger from epoch to epoch.
Fix: `metric.reset()` at the end of each epoch, or thresholds.
"""

import sys
import time

import torch
from torchmetrics.classification import BinaryPrecisionRecallCurve


class Evaluation:
    def __init__(self) -> None:
        self.curve = BinaryPrecisionRecallCurve(thresholds=None)

    def run(self) -> None:
        scores = torch.rand(300_000)
        self.curve.update(scores, (scores > 0.5).long())  # <- here


def main(rounds: int) -> None:
    evaluation = Evaluation()
    for _ in range(rounds):
        evaluation.run()
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
