"""The callbacks in the real libraries, each on a program that leaks; those that are not installed are left out."""

import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import flatwater_watch
from flatwater_watch.errors import ConfigError
from flatwater_watch.faces import callbacks

needs_sb3 = pytest.mark.skipif(
    find_spec("stable_baselines3") is None,
    reason="stable-baselines3 is not installed: pip install -r benchmarks/requirements.txt",
)

HISTORY: list[Any] = []
PACE = 0.0015
"""Seconds of a step: a watch needs a second or two to be sure."""


@pytest.fixture(autouse=True)
def _empty() -> Any:
    yield
    HISTORY.clear()


class Leaky(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps each observation, many times over."""

    def step(self, action: Any) -> Any:
        time.sleep(PACE)
        told = self.env.step(action)
        HISTORY.append(np.tile(told[0], 4_000))
        return told


def assert_found(callback: Any, unit: str, function: str) -> None:
    found = callback.watch.findings()[0]
    assert (found.verdict, found.unit) == ("leak", unit)
    assert found.owner.endswith("HISTORY")
    assert found.made_at is not None
    assert (Path(found.made_at.file).name, found.made_at.function) == (Path(__file__).name, function)
    assert callback.watch.summary()["findings"][0]["owner"] == found.owner


@needs_sb3
def test_stable_baselines3(capsys: pytest.CaptureFixture[str]) -> None:
    from stable_baselines3 import PPO

    callback = callbacks.sb3()
    env = Leaky(gym.make("CartPole-v1"))
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=4, device="cpu", seed=1)
    model.learn(1000, callback=callback)
    assert model.num_timesteps >= 1000
    assert callback.watch.summary()["steps"] == model.num_timesteps // 16
    assert_found(callback, "rollout", "Leaky.step")
    told = capsys.readouterr().err
    assert "HISTORY grows by" in told
    assert max(map(len, told.splitlines())) <= 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # theirs
def test_lightning() -> None:
    pl = pytest.importorskip("lightning.pytorch")

    class Net(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(256, 256)

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            time.sleep(10 * PACE)
            HISTORY.append(np.ones(1 << 17))
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 1e-3)

    callback = callbacks.lightning(report=False)
    data = torch.utils.data.TensorDataset(torch.ones(150 * 64, 256))
    silent = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(max_epochs=1, callbacks=[callback], accelerator="cpu", **silent)
    trainer.fit(Net(), torch.utils.data.DataLoader(data, 64))
    assert callback.watch.summary()["steps"] == 150
    assert_found(callback, "batch", "test_lightning.Net.training_step")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # theirs
def test_hugging_face_trainer(tmp_path: Path) -> None:
    hf = pytest.importorskip("transformers")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(256, 256)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            time.sleep(10 * PACE)
            HISTORY.append(np.ones(1 << 17))
            return {"loss": self.net(x).square().mean()}

    callback = callbacks.transformers(report=False)
    options = {"report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no"}
    arguments = hf.TrainingArguments(str(tmp_path), max_steps=150, per_device_train_batch_size=64, **options)
    rows = [{"x": torch.ones(256)}] * 64 * 150
    hf.Trainer(model=Net(), args=arguments, train_dataset=rows, callbacks=[callback]).train()
    assert callback.watch.summary()["steps"] == 150
    assert_found(callback, "update", "test_hugging_face_trainer.Net.forward")


@needs_sb3
def test_a_training_that_failed_does_not_block_the_next() -> None:
    from stable_baselines3 import PPO

    class Failing(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, _action: Any) -> Any:
            raise RuntimeError

    first, second = callbacks.sb3(report=False), callbacks.sb3(report=False)
    settings = {"n_steps": 16, "batch_size": 16, "device": "cpu"}
    with pytest.raises(RuntimeError):
        PPO("MlpPolicy", Failing(gym.make("CartPole-v1")), **settings).learn(16, callback=first)
    PPO("MlpPolicy", gym.make("CartPole-v1"), **settings).learn(16, callback=second)
    assert first.watch.summary()["steps"] == 0
    assert second.watch.summary()["steps"] == 1
    with flatwater_watch.watch(report=False):
        pass


def test_a_library_that_is_not_there_is_said_and_none_is_loaded() -> None:
    program = """
import sys
LIBRARIES = {"torch", "numpy", "stable_baselines3", "lightning", "pytorch_lightning", "transformers"}
from flatwater_watch.errors import ConfigError
from flatwater_watch.faces import callbacks
print(*LIBRARIES & set(sys.modules))
sys.path = [folder for folder in sys.path if "site-packages" not in folder]
for make in (callbacks.sb3, callbacks.lightning, callbacks.transformers):
    try:
        make()
    except ConfigError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded, *messages = done.stdout.splitlines()
    assert loaded == ""
    for package, message in zip(("stable-baselines3", "lightning", "transformers"), messages, strict=True):
        assert re.fullmatch(rf"{package} .*pip install {package}", message)


@needs_sb3
def test_a_budget_that_cannot_be_read_is_told_before_the_training() -> None:
    with pytest.raises(ConfigError, match=r"'lots' .*\b8GiB"):
        callbacks.sb3(budget="lots")
