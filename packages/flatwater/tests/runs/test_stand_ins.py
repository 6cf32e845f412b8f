"""Phases are tried out on the meta device without the algebra of torch's compiler, whose import would take longest."""

import faulthandler
import os
import sys
from collections.abc import Callable, Mapping

import pytest
import torch

from flatwater.recipes.grow.config import GrowRunConfig
from flatwater.recipes.grow.plan import plan_grow
from flatwater.recipes.ppo.config import PpoRunConfig
from flatwater.recipes.ppo.run import plan as plan_ppo
from flatwater.runs import phase_measurement, planning
from flatwater_watch.errors import ConfigError
from flatwater_watch.meters.fork import run_in_fork

PLANS: dict[str, Callable[[], object]] = {
    "ppo": lambda: plan_ppo(PpoRunConfig()),
    "grow": lambda: plan_grow(GrowRunConfig(), torch.device("cpu")),
}


def transients_of(plan: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Callable[[], Mapping[str, int]]:
    found: list[Callable[[], Mapping[str, int]]] = []
    with monkeypatch.context() as patch:
        patch.setattr(planning, "phase_bytes", lambda transients, _: found.append(transients) or {})
        plan()
    return found[0]


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_plan_needs_no_algebra_and_has_the_bytes_that_it_has_with_it(
    plan: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real sympy would have taken the place of the stand-in, or would be there beside it with all its parts."""
    transients = transients_of(plan, monkeypatch)
    loaded_before = "sympy.core" in sys.modules

    found, has_algebra = run_in_fork(
        lambda: [phase_measurement._measure_in_fork(transients), "sympy.core" in sys.modules]
    )

    assert has_algebra == loaded_before
    assert found == run_in_fork(lambda: phase_measurement._measure_phases(transients))


def test_who_asks_for_more_than_a_stand_in_has_gets_the_real_module() -> None:
    def transients() -> dict[str, int]:
        from sympy import Symbol  # type: ignore[import-untyped]
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        return {"phase": len(Symbol("four").name) if ShapeEnv else 0}

    assert run_in_fork(lambda: phase_measurement._measure_in_fork(transients)) == {
        "phase": 4 * phase_measurement.KERNEL_FACTOR
    }


def test_autograd_may_refuse_once_the_real_module_is_there() -> None:
    def transients() -> dict[str, int]:
        from sympy import Symbol

        raise RuntimeError(f"{Symbol('four')}: {phase_measurement.AUTOGRAD_REFUSES_FORK}")

    assert run_in_fork(lambda: [phase_measurement._measure_in_fork(transients)]) == [None]


MESSAGES = f"Unable to handle autograd's threading: {phase_measurement.AUTOGRAD_REFUSES_FORK}", "else"


@pytest.mark.parametrize("message", MESSAGES)
def test_what_autograd_refuses_in_a_fork_is_tried_out_here(message: str) -> None:
    """In torch's builds for CUDA, without a GPU too, `train` after an export ended with this error."""
    process = os.getpid()

    def transients() -> dict[str, int]:
        if os.getpid() != process:
            raise RuntimeError(message)
        return {"phase": 4}

    if message == "else":
        with pytest.raises(RuntimeError, match="a fork of this process ended"):
            phase_measurement.phase_bytes(transients, {})
    else:
        assert phase_measurement.phase_bytes(transients, {}) == {"phase": 4 * phase_measurement.KERNEL_FACTOR}


@pytest.mark.parametrize("ends", ["in a check of the user's network", "by SIGABRT"])
def test_a_fork_in_which_torch_gives_up_is_no_end(ends: str) -> None:
    """With torch's builds for CUDA: the plan of a run after other runs in one process."""
    process = os.getpid()

    def transients() -> dict[str, int]:
        if os.getpid() != process and ends == "by SIGABRT":
            faulthandler.disable()  # its report is for failures
            os.abort()
        if os.getpid() != process:
            raise ConfigError(f"host = 'own': {phase_measurement.AUTOGRAD_REFUSES_FORK}")
        return {"phase": 4}

    assert phase_measurement.phase_bytes(transients, {}) == {"phase": 4 * phase_measurement.KERNEL_FACTOR}
