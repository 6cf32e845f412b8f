"""A demand model that ignite trains further with each day's orders, watched on that day's control group.

Thread: https://github.com/pytorch/ignite/issues/2779, https://github.com/pytorch-ignite/code-generator/issues/86
Looks like: the orders of days that are past are still there.
Cause: each day adds a handler to the one trainer, and the handler holds the control group of its day.
Fix: `with self.trainer.add_event_handler(...)`, or `remove_event_handler`, or one handler, added in `__init__`.
"""

import sys

import torch
from ignite.engine import Engine, Events
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
torch.set_num_threads(1)
FEATURES = 40


def orders_of(day, count=1500):
    features = torch.randn(count, FEATURES) + 0.001 * day
    demand = features[:, :5].sum(1, keepdim=True) + 0.1 * torch.randn(count, 1)
    return features, demand


class Refit:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.trainer = Engine(self.train_step)
        self.drift = 0.0

    def train_step(self, engine, batch):
        features, demand = batch
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(features), demand)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit_day(self, day):
        features, demand = orders_of(day)
        control, control_demand = orders_of(day, 1200)  # <- or here

        def watch(_engine):  # <- or here
            with torch.no_grad():
                error = self.model(control[:16]) - control_demand[:16]
            self.drift = error.abs().mean().item()

        self.trainer.add_event_handler(Events.EPOCH_COMPLETED, watch)  # <- here
        loader = DataLoader(TensorDataset(features, demand), batch_size=64, shuffle=True)
        self.trainer.run(loader, max_epochs=1)
        return self.trainer.state.output


def main(days: int) -> None:
    refit = Refit()
    loss = 0.0
    for day in range(days):
        loss = refit.fit_day(day)
    print(f"{days} days, loss {loss:.4f}, drift {refit.drift:.4f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 460)
