"""Train, write checkpoints, and report how far the weights moved since the earlier ones.

Thread: https://github.com/huggingface/safetensors/issues/355
Looks like: resident memory grows by a file with each checkpoint, as the kept tensor is a view of it.
Fix: `.clone()` of the tensor that is kept.
"""

import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


class Checkpoints:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.embeddings: dict[int, torch.Tensor] = {}

    def add(self, step: int, model: torch.nn.Module) -> None:
        path = self.folder / f"step{step % 4}.safetensors"
        path.unlink(missing_ok=True)
        save_file(model.state_dict(), path)
        self.embeddings[step] = load_file(path)["0.weight"]  # <- here

    def drift(self) -> list[float]:
        last = self.embeddings[max(self.embeddings)]
        return [float((last - earlier).norm()) for earlier in self.embeddings.values()][-5:]


def main(steps: int) -> None:
    torch.manual_seed(3)
    torch.set_num_threads(1)
    layers = (torch.nn.Embedding(2000, 200), torch.nn.Flatten(), torch.nn.Linear(800, 300))
    model = torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Linear(300, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        for step in range(1, steps + 1):
            words = torch.randint(0, 2000, (64, 4))
            loss = torch.nn.functional.cross_entropy(model(words), words.sum(1) % 10)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 12 == 0:
                checkpoints.add(step, model)
                drift = checkpoints.drift()
    print("drift", drift)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 900)
