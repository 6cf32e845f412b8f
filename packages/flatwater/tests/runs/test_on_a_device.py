"""What a run of traders does on a CUDA device, as far as it shows without one: on the meta device, without numbers."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flatwater.cli.main import command_class
from flatwater.replay.config import RowReplayConfig
from flatwater.runs import phase_measurement
from flatwater.state.tree import nbytes
from flatwater_trading.market.market import outline_market
from flatwater_trading.panel.locate import load_panel
from flatwater_trading.panel.splits import Days, Splits
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.market import build_run_market
from flatwater_trading.recipe.plan import build_on_meta, plan_erl
from flatwater_trading.training.executor import LocalTileExecutor
from flatwater_trading.training.learner import LearnerConfig
from flatwater_trading.training.setup import build_setup
from flatwater_trading.training.state import build_erl

CPU, META = torch.device("cpu"), torch.device("meta")
REPLAY = RowReplayConfig(generations=2, warmup=50)

STARTED = {"hindsight": (150, 123), "ddpg": (419, 137), "td3": (437, 137), "sac": (802, 163)}
"""Operations that an update of one group of members starts, and a day that they play: what the code did when this was
written. A GPU waits for the host where they are many; raise a number only for what it buys."""


@pytest.fixture
def config(tiny: list[str]) -> ErlRunConfig:
    return command_class(("train", "erl")).read("train erl", tiny).settings()


class Started(TorchDispatchMode):
    """Counts operations that are no views, and keeps those that would bring something to the device, or wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.elsewhere: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        made = func(*args, **(kwargs or {}))
        self.count += not func.is_view
        found = tree_leaves((args, kwargs, made))
        if not {each.device.type for each in found if isinstance(each, torch.Tensor)} <= {"meta"}:
            self.elsewhere.add(str(func))
        return made


def count_starts(work: Callable[[], object]) -> Started:
    with Started() as counted:
        work()
    return counted


@pytest.mark.long
@pytest.mark.parametrize("algorithm", STARTED)
def test_phases_start_few_operations_and_stay_on_the_device(
    algorithm: str, config: ErlRunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = RowReplayConfig() if algorithm == "hindsight" else REPLAY
    config = replace(config, learner=LearnerConfig(algorithm=algorithm), replay=replay)  # type: ignore[arg-type]
    setup, run = build_on_meta(config, load_panel(config.panel), "cuda")
    if run.replay is not None:
        run.replay.appended = len(run.replay.row)
    executor = LocalTileExecutor(setup, run)

    def play_days(days: int) -> Started:
        monkeypatch.setattr("flatwater_trading.training.play.META_DAYS", days)
        return count_starts(lambda: executor.train(0))

    update, one, two, judged = (
        count_starts(executor.learn_),
        play_days(1),
        play_days(2),
        count_starts(lambda: executor.validate(0)),
    )
    assert update.elsewhere | two.elsewhere | judged.elsewhere == set()
    counts = (update.count, two.count - one.count)
    assert all(count <= most for count, most in zip(counts, STARTED[algorithm], strict=True)), counts


def large(kind: str, tile: int = 0) -> int:
    """Members of the largest panel of the benchmarks that learn at once."""
    config = ErlRunConfig()
    config = replace(
        config,
        learner=LearnerConfig(algorithm="ddpg"),
        population=replace(config.population, size=16, tile=tile),
        env=replace(config.env, episode=replace(config.env.episode, context=504)),
    )
    market = outline_market(columns=669, days=3781, features=5, investable=108, device=META)
    days = Days(1000, 2000)
    return build_setup(config, market, Splits(days, days, days), META, device_type=kind).members_at_once(market)


def test_groups_follow_from_the_kind_of_device_and_the_configuration() -> None:
    assert (large("cpu"), large("cuda"), large("cuda", tile=2)) == (1, 16, 2)


def test_the_plan_for_a_gpu_is_what_is_built_for_one(config: ErlRunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Built on the CPU, with a GPU's sizes: members one by one on a CPU, all at once there."""
    config, panel = replace(config, learner=LearnerConfig(algorithm="ddpg"), replay=REPLAY), load_panel(config.panel)
    monkeypatch.setattr("flatwater_trading.training.setup.CACHE_BYTES", 1 << 16)
    market, _ = build_run_market(config, panel, CPU)
    setup = build_setup(config, market, config.split(len(panel.dates)), CPU, device_type="cuda")
    planned = nbytes(build_on_meta(config, panel, "cuda")[1])
    assert planned == nbytes(build_erl(setup, market))
    assert planned["windows.seen"] > nbytes(build_on_meta(config, panel, "cpu")[1])["windows.seen"]


@pytest.mark.long
@pytest.mark.usefixtures("tried_anew")
def test_a_plan_beside_a_gpu_s_driver_needs_no_fork(config: ErlRunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autograd refuses one after the first run on a GPU: `for seed in ...: train(..., device="cuda")` failed."""

    def refuse(_: object) -> None:
        raise RuntimeError("Unable to handle autograd's threading in combination with fork-based multiprocessing")

    panel = load_panel(config.panel)
    in_a_fork = plan_erl(config, panel, CPU).transients
    monkeypatch.setattr(phase_measurement, "copy_unsafe_driver", lambda: "CUDA")
    monkeypatch.setattr(phase_measurement, "run_in_fork", refuse)
    assert plan_erl(config, panel, CPU).transients == in_a_fork
