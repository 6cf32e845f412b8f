"""PyTorch Lightning: `Trainer.fit` on a small regression, without a logger and without checkpoints."""

import sys
import time

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.network(inputs), targets)
        self.log("loss", loss)
        time.sleep(0.005)  # the reading of a larger batch
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main(rounds: int) -> None:
    inputs = torch.randn(2048, 32)
    batches = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=128, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=3 * rounds,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), batches)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
