"""A run's memory: allocated once, where it was planned, and never elsewhere."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from flatwater.state.tree import leaves, nbytes
from flatwater.trainers.loop import train_
from flatwater_trading.market.market import Market, build_market
from flatwater_trading.market.simulator import Simulator
from flatwater_trading.recipe.run import ErlRun
from flatwater_trading.training.state import build_erl

EVERYTHING = {
    "learner.algorithm": "td3",
    "replay.prioritised": True,
    "env.account_observation": True,
    "env.trade.hold_days": 3,
    "evolution.champion_injection": 1,
}


def places(root: object) -> dict[str, tuple[int, int, int]]:
    """Where each tensor and generator lives: the object itself, its first element, its storage."""
    found = {}
    for leaf in leaves(root):
        if isinstance(leaf.value, torch.Tensor):
            at = leaf.value.data_ptr(), leaf.value.untyped_storage().data_ptr()
            found[leaf.path] = (id(leaf.value), *at)
        elif isinstance(leaf.value, torch.Generator):
            found[leaf.path] = (id(leaf.value), 0, 0)
    return found


@pytest.mark.parametrize("changes", [{}, EVERYTHING], ids=["plain", "everything"])
def test_nothing_moves_in_three_generations(
    changes: dict[str, object], compose_run: Callable[..., ErlRun], silent: Callable[..., object]
) -> None:
    composition = compose_run(changes)
    run = composition.trainer.run
    before, paths, held = places(run), [leaf.path for leaf in leaves(run)], nbytes(run)
    assert len(before) > 60

    for rounds in (1, 2, 3):
        assert train_(composition.trainer, rounds, silent(done=rounds - 1))
        assert [leaf.path for leaf in leaves(run)] == paths
        assert nbytes(run) == held
        assert places(run) == before


@pytest.mark.parametrize("changes", [{}, EVERYTHING], ids=["plain", "everything"])
def test_the_plan_on_the_meta_device_weighs_what_is_held(
    changes: dict[str, object], compose_run: Callable[..., ErlRun]
) -> None:
    composition = compose_run(changes)
    setup, meta = composition.setup, torch.device("meta")
    held = composition.trainer.run.market
    market = Market(**{leaf.path: leaf.value.to(meta) for leaf in leaves(held)})
    planned = build_erl(replace(setup, device=meta), market)

    assert nbytes(planned) == nbytes(composition.trainer.run)
    tensors = [leaf for leaf in leaves(planned) if isinstance(leaf.value, torch.Tensor)]
    on_host = [leaf.path for leaf in tensors if not leaf.value.is_meta]
    assert on_host == ["schedule.best"]  # a few numbers that are read on the host in every round


def test_a_run_makes_two_simulators_and_no_other(
    monkeypatch: pytest.MonkeyPatch, train_run: Callable[..., object]
) -> None:
    made = []
    build = Simulator.__init__

    def counting(sim: Simulator, **fields: object) -> None:
        build(sim, **fields)
        made.append(sim)

    monkeypatch.setattr(Simulator, "__init__", counting)
    composition, _ = train_run(2)  # type: ignore[misc]
    held = [sim for sim in made if not sim.day.is_meta]  # a plan on the meta device comes before
    assert held == [composition.trainer.run.eval_env, composition.trainer.run.val_env]


def test_the_market_is_not_copied_into_the_run(compose_run: Callable[..., ErlRun]) -> None:
    """What a checkpoint can rebuild from the panel is no part of it."""
    run = compose_run().trainer.run
    saved = [leaf.path for leaf in leaves(run) if not leaf.derived]
    assert not [path for path in saved if path.startswith("market.")]
    market = build_market(compose_run().panel, run.market.observations, torch.device("cpu"))
    assert market.observations is run.market.observations
