"""Callbacks that watch other people's trainers: Stable-Baselines3, PyTorch Lightning, the Hugging Face Trainer.

Each function imports its library, and makes an instance of the library's callback class. `callback.watch` is the watch
of the training that runs or ran last: `callback.watch.findings()`, `callback.watch.summary()`.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from flatwater_watch.errors import ConfigError
from flatwater_watch.faces.context import Watch

_Hook = Callable[..., Any]


def sb3(*, budget: str | int | None = None, report: bool = True) -> Any:
    """Make a Stable-Baselines3 callback: `model.learn(..., callback=sb3())`. Growth is reported per rollout.

    Args:
        budget: bytes, or a text such as "8GiB", at which the forecasts end; None takes the machine's limit.
        report: whether findings are printed to stderr.

    Raises:
        ConfigError: Stable-Baselines3 is not installed, or the budget is not an amount of memory.
    """
    base = _find_callback_class(("stable_baselines3.common.callbacks",), "BaseCallback", "stable-baselines3")
    begin, step, end = _watch_methods("rollout", budget, report=report)
    return _make_instance(
        base,
        _on_training_start=begin,
        _on_rollout_end=step,
        _on_training_end=end,
        _on_step=lambda _self: True,  # False would end the training
    )


def lightning(*, budget: str | int | None = None, report: bool = True) -> Any:
    """Make a PyTorch Lightning callback: `Trainer(callbacks=[lightning()])`. Growth is reported per batch.

    Args:
        budget: bytes, or a text such as "8GiB", at which the forecasts end; None takes the machine's limit.
        report: whether findings are printed to stderr.

    Raises:
        ConfigError: neither `lightning` nor `pytorch_lightning` is installed, or the budget is not an amount of memory.
    """
    base = _find_callback_class(("lightning.pytorch.callbacks", "pytorch_lightning.callbacks"), "Callback", "lightning")
    begin, step, end = _watch_methods("batch", budget, report=report)
    return _make_instance(base, on_train_start=begin, on_train_batch_end=step, on_train_end=end, on_exception=end)


def transformers(*, budget: str | int | None = None, report: bool = True) -> Any:
    """Make a Hugging Face Trainer callback: `Trainer(..., callbacks=[transformers()])`. Growth is reported per update.

    Args:
        budget: bytes, or a text such as "8GiB", at which the forecasts end; None takes the machine's limit.
        report: whether findings are printed to stderr.

    Raises:
        ConfigError: Transformers is not installed, or the budget is not an amount of memory.
    """
    base = _find_callback_class(("transformers.trainer_callback",), "TrainerCallback", "transformers")
    begin, step, end = _watch_methods("update", budget, report=report)
    return _make_instance(base, on_train_begin=begin, on_step_end=step, on_train_end=end)


def _find_callback_class(modules: tuple[str, ...], name: str, package: str) -> type:
    """Find the library's callback class; if two packages have it, in the package that the program has imported.

    Raises:
        ConfigError: no package with the class is installed.
    """
    installed_modules = [module for module in modules if find_spec(module.partition(".")[0]) is not None]
    if not installed_modules:
        raise ConfigError(f"{package} is not installed here, so there is no trainer to watch: pip install {package}")
    imported_modules = [module for module in installed_modules if module.partition(".")[0] in sys.modules]
    module = [*imported_modules, *installed_modules][0]
    callback_class: type = vars(import_module(module))[name]
    return callback_class


def _watch_methods(unit: str, budget: str | int | None, *, report: bool) -> tuple[_Hook, _Hook, _Hook]:
    """Make the three methods of a callback that open its watch, tell it of a step, and close it.

    They take any arguments of the library.
    """

    def open_watch() -> Watch:
        # A trainer that fails may not tell its callbacks: the next watch then closes this watch.
        return Watch(unit=unit, budget=budget, report=report, closes_for_next=True)

    open_watch()  # so that a wrong budget is an error now, and not when the training begins

    def begin(self: Any, *_: object, **__: object) -> None:
        self.watch = open_watch()
        self.watch.open()

    def step(self: Any, *_: object, **__: object) -> None:
        # The watch may be closed by a trainer inside of this trainer, or None in a trainer that resumes without a call
        # of `begin`.
        if self.watch is not None and self.watch.is_open:
            self.watch.step()

    def end(self: Any, *_: object, **__: object) -> None:
        if self.watch is not None:  # a trainer may fail before it begins
            self.watch.close()

    return begin, step, end


def _make_instance(base: type, **hooks: _Hook) -> Any:
    """Make an instance of a new subclass of `base`, with the hooks as methods; its `watch` is None until it begins."""
    members = {"__doc__": "Watches what memory grows.", "__module__": __name__, "watch": None}
    return type(f"Flatwater{base.__name__}", (base,), {**members, **hooks})()
