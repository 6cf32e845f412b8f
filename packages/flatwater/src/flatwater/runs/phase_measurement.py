"""Measures the bytes of a run's phases: each runs on torch's meta device, in a fork of this process."""

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch

from flatwater_watch.errors import ConfigError, UserCodeError
from flatwater_watch.meters.fork import AbortedForkError, copy_unsafe_driver, run_in_fork

KERNEL_FACTOR = 2.5
"""Factor from the bytes of a phase's tensors to the bytes that it takes: kernels have workspaces, and the allocator's
blocks do not fit exactly. Factors of 2.0, 1.8 and 2.6 were measured in the benchmarks."""
AUTOGRAD_REFUSES_FORK = "in combination with fork-based multiprocessing"
"""Part of the message of torch's `RuntimeError` in a fork of a process whose autograd has begun its threads."""
SYMBOL_QUERIES = (
    "expect_true",
    "guard_or_false",
    "guard_or_true",
    "guard_size_oblivious",
    "guarding_hint_or_throw",
    "statically_known_true",
)
"""Functions that torch's meta kernels ask about sizes which may be symbols; for a number, each returns its argument."""


def phase_bytes(transients: Callable[[], Mapping[str, int]], extra_bytes: Mapping[str, int]) -> dict[str, int]:
    """Return the most bytes of each phase. The phases run in a fork, so that modules which they import do not stay.

    Args:
        transients: runs each phase on the meta device, and returns the most bytes of its tensors, by phase.
        extra_bytes: bytes by phase that are in no tensor.

    Raises:
        ConfigError: a phase refuses the user's settings or code.
    """
    # By phase; a text is the message of an error; None asks for a measurement without a fork. That is needed where a
    # driver would break in a fork, or where autograd refuses to work in one, as its threads have begun: in a second run
    # of one program on a GPU, or after some exports with torch's CUDA builds. Then imported modules stay, unplanned.
    try:
        bytes_or_reason = None if copy_unsafe_driver() else run_in_fork(lambda: _measure_in_fork(transients))
    except AbortedForkError:  # autograd's threads of two devices may begin at once in a fork, and abort it
        bytes_or_reason = None
    if bytes_or_reason is None:
        bytes_or_reason = _measure_phases(transients)
    if isinstance(bytes_or_reason, str):
        raise ConfigError(bytes_or_reason)
    return {phase: size + extra_bytes.get(phase, 0) for phase, size in bytes_or_reason.items()}


def _measure_in_fork(transients: Callable[[], Mapping[str, int]]) -> dict[str, int] | str | None:
    """Return bytes by phase, or the message of an error of the user's; None if autograd refuses to work in a fork.

    Called in the fork, which ends with the answer.
    """
    try:
        bytes_or_reason = _measure_with_stand_ins(transients)
    except (RuntimeError, UserCodeError) as error:
        if AUTOGRAD_REFUSES_FORK in str(error):
            return None
        if isinstance(error, UserCodeError):
            return str(error)  # as text, since a fork cannot raise in its parent
        raise
    # A check of the user's own network tells autograd's refusal as a fault of the network.
    is_refusal = isinstance(bytes_or_reason, str) and AUTOGRAD_REFUSES_FORK in bytes_or_reason
    return None if is_refusal else bytes_or_reason


def _measure_with_stand_ins(transients: Callable[[], Mapping[str, int]]) -> dict[str, int] | str:
    """Return the result of `_measure_phases`, with stand-ins for torch's compiler and sympy, to save their imports.

    Called only in a fork, which ends with the answer: the stand-ins would break a later use of torch's compiler.
    """
    # Meta kernels import the compiler (0.8 CPU seconds and 46 MB) only to be left alone by it, and sympy (0.7 CPU
    # seconds) only to ask whether sizes are symbols. Here sizes are numbers, so the answers are known.
    size_answers: dict[str, Any] = dict.fromkeys(SYMBOL_QUERIES, lambda size, *_, **__: size)
    size_answers |= {"is_nested_int": lambda _: False, "has_guarding_hint": lambda _: True}
    size_answers |= {"free_unbacked_symbols": lambda _: (), "sym_eq": _are_equal}
    size_answers |= {"sym_and": lambda *answers: all(answers), "sym_or": lambda *answers: any(answers)}
    contents: dict[str, dict[str, Any]] = {
        "torch._dynamo": {"disable": lambda kernel, *_, **__: kernel},
        "torch.fx.experimental.symbolic_shapes": size_answers,
        "sympy": {"Basic": type("Basic", (), {})},
    }
    stand_ins = {name: ModuleType(name) for name in contents if name not in sys.modules}
    for name, module in stand_ins.items():
        vars(module).update(contents[name])
    if compiler := stand_ins.get("torch._dynamo"):
        vars(torch)["_dynamo"] = compiler  # kernels read it as an attribute of torch, too
    sys.modules.update(stand_ins)
    try:
        return _measure_phases(transients)
    except (AttributeError, ImportError, UserCodeError):
        # Another version of torch, or the user's code, may need more of a module than its stand-in has. The compiler's
        # stand-in stays: kernels would only import the compiler to be left alone by it.
        for name in stand_ins.keys() - {"torch._dynamo"}:
            del sys.modules[name]
        return _measure_phases(transients)


def _are_equal(left: object, right: object) -> bool:
    """Return whether sizes are equal; a list equals a tuple of the same sizes."""
    return (tuple(left) if isinstance(left, list) else left) == (tuple(right) if isinstance(right, list) else right)


def _measure_phases(transients: Callable[[], Mapping[str, int]]) -> dict[str, int] | str:
    """Return the bytes to plan for each phase, or the message of a ConfigError: a fork cannot raise in its parent."""
    try:
        # Anomaly detection reads numbers, which there are none of on the meta device.
        with torch.autograd.set_detect_anomaly(False):
            return {phase: int(KERNEL_FACTOR * size) for phase, size in transients().items()}
    except ConfigError as error:
        return str(error)
