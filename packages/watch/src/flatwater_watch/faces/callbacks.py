"""Callbacks that watch other people's trainers: Stable-Baselines3, PyTorch Lightning, the Hugging Face Trainer.

Each function imports the library that it is for, and makes an instance of its callback class. `callback.watch` is the
watch of the training that runs or ran last: `callback.watch.findings()`, `callback.watch.summary()`.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from flatwater_watch.errors import ConfigError
from flatwater_watch.faces.context import Watch

_Hook = Callable[..., Any]


def sb3(*, budget: str | int | None = None, report: bool = True) -> Any:  # noqa: ANN401  (a class made below)
    """A Stable-Baselines3 callback: `model.learn(..., callback=sb3())`. Growth is told per rollout.

    Args:
        budget: as of `flatwater_watch.watch`.
        report: as of `flatwater_watch.watch`.

    Raises:
        ConfigError: Stable-Baselines3 is not installed, or the budget is no amount of memory.
    """
    base = _class(("stable_baselines3.common.callbacks",), "BaseCallback", "stable-baselines3")
    begin, step, end = _hooks("rollout", budget, report=report)
    return _instance(
        base,
        _on_training_start=begin,
        _on_rollout_end=step,
        _on_training_end=end,
        _on_step=lambda _self: True,  # False would end the training
    )


def lightning(*, budget: str | int | None = None, report: bool = True) -> Any:  # noqa: ANN401
    """A PyTorch Lightning callback: `Trainer(callbacks=[lightning()])`. Growth is told per batch.

    Args:
        budget: as of `flatwater_watch.watch`.
        report: as of `flatwater_watch.watch`.

    Raises:
        ConfigError: neither `lightning` nor `pytorch_lightning` is installed, or the budget is no amount of memory.
    """
    base = _class(("lightning.pytorch.callbacks", "pytorch_lightning.callbacks"), "Callback", "lightning")
    begin, step, end = _hooks("batch", budget, report=report)
    return _instance(base, on_train_start=begin, on_train_batch_end=step, on_train_end=end, on_exception=end)


def transformers(*, budget: str | int | None = None, report: bool = True) -> Any:  # noqa: ANN401
    """A callback of the Hugging Face Trainer: `Trainer(..., callbacks=[transformers()])`. Growth is told per update.

    Args:
        budget: as of `flatwater_watch.watch`.
        report: as of `flatwater_watch.watch`.

    Raises:
        ConfigError: Transformers is not installed, or the budget is no amount of memory.
    """
    base = _class(("transformers.trainer_callback",), "TrainerCallback", "transformers")
    begin, step, end = _hooks("update", budget, report=report)
    return _instance(base, on_train_begin=begin, on_step_end=step, on_train_end=end)


def _class(modules: tuple[str, ...], name: str, package: str) -> type:
    """The library's callback class; where there are two libraries, of the one that the program uses."""
    present = [module for module in modules if find_spec(module.partition(".")[0]) is not None]
    if not present:
        raise ConfigError(f"{package} is not installed here, so there is no trainer to watch: pip install {package}")
    used = [module for module in present if module.partition(".")[0] in sys.modules]
    found: type = vars(import_module((*used, *present)[0]))[name]
    return found


def _hooks(unit: str, budget: str | int | None, *, report: bool) -> tuple[_Hook, _Hook, _Hook]:
    """Methods that open, step and close a watch, whatever the library hands to them."""

    def open_watch() -> Watch:
        # A trainer that fails may not tell its callbacks: the next watch then closes this one.
        return Watch(unit=unit, budget=budget, report=report, yields=True)

    open_watch()  # so that a budget that cannot be read is told now, and not when the training begins

    def begin(self: Any, *_: object, **__: object) -> None:  # noqa: ANN401
        self.watch = open_watch()
        self.watch.open()

    def step(self: Any, *_: object, **__: object) -> None:  # noqa: ANN401
        # A trainer inside of this one has closed it, or the trainer resumes without telling that it begins.
        if self.watch is not None and self.watch.is_open:
            self.watch.step()

    def end(self: Any, *_: object, **__: object) -> None:  # noqa: ANN401
        if self.watch is not None:  # a trainer may fail before it begins
            self.watch.close()

    return begin, step, end


def _instance(base: type, **hooks: _Hook) -> Any:  # noqa: ANN401
    space = {"__doc__": "Watches what memory grows.", "__module__": __name__, "watch": None}
    return type(f"Flatwater{base.__name__}", (base,), {**space, **hooks})()
