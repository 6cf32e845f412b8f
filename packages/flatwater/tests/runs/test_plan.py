"""What is planned is what is held, byte for byte; what does not fit is not started."""

import gc
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from flatwater.algorithms.config import DDPGConfig, SACConfig, TD3Config
from flatwater.cli.main import command_class, main
from flatwater.replay.config import RowReplayConfig
from flatwater.state.tree import nbytes
from flatwater_trading.market.market import market_tensors
from flatwater_trading.market.simulator import count_live_simulators
from flatwater_trading.panel.locate import cache_folder, load_panel
from flatwater_trading.recipe.config import ErlRunConfig
from flatwater_trading.recipe.plan import build_on_meta, plan_erl
from flatwater_trading.recipe.run import compose
from flatwater_trading.training.learner import HindsightConfig, LearnerConfig
from flatwater_watch.meters.process import resident_bytes

CPU = torch.device("cpu")


@pytest.fixture
def config(tiny: list[str]) -> ErlRunConfig:
    return command_class(("train", "erl")).read("train erl", tiny).settings()


def variants() -> dict[str, dict[str, object]]:
    replay = RowReplayConfig(generations=2, warmup=50)
    small: dict[str, Any] = {"updates": 2, "batch_size": 8}
    ddpg = LearnerConfig(algorithm="ddpg", ddpg=DDPGConfig(**small))
    td3 = LearnerConfig(algorithm="td3", td3=TD3Config(**small))
    return {
        "plain": {},
        "bf16": {"learner": LearnerConfig(hindsight=HindsightConfig(**small), autocast="bf16")},
        "ddpg": {"learner": ddpg, "replay": replay},
        "td3": {"learner": td3, "replay": replay},
        "sac": {"learner": LearnerConfig(algorithm="sac", sac=SACConfig(**small)), "replay": replay},
        "prioritised": {"learner": ddpg, "replay": replace(replay, prioritised=True)},
        "ddpg, bf16 and compiled": {"learner": replace(ddpg, autocast="bf16", compile=True), "replay": replay},
    }


@pytest.mark.parametrize("changed", variants().values(), ids=variants())
def test_the_plan_is_what_is_held(config: ErlRunConfig, changed: dict[str, object]) -> None:
    composition = compose(replace(config, **changed))  # type: ignore[arg-type]
    assert {**composition.plan.owners, **composition.plan.mapped} == nbytes(composition.trainer.run)
    assert {path.split(".")[0] for path in composition.plan.mapped} == {"market"}


def test_without_a_cache_the_market_is_private_planned_so_and_told(
    config: ErlRunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, workers=2, population=replace(config.population, tile=2))
    shared = compose(config)
    folder = cache_folder("markets")
    monkeypatch.setattr("flatwater_trading.recipe.market.MARKETS", "blocked/below")
    folder.with_name("blocked").write_text("")
    assert not plan_erl(config, load_panel(config.panel), CPU).mapped
    for judged in (True, False):
        monkeypatch.setattr("flatwater_trading.recipe.plan.can_be_mapped", lambda *_, judged=judged: judged)
        private = compose(config)
        assert private.about()[-1].startswith("market: in the memory of each process")
        assert private.plan.owners == {**shared.plan.owners, **shared.plan.mapped}
        more = [own - without for own, without in zip(private.plan.workers, shared.plan.workers, strict=True)]
        assert more == [shared.plan.mapped_bytes] * 2
        for name, mapped in market_tensors(shared.trainer.run.market).items():
            held = market_tensors(private.trainer.run.market)[name]
            assert torch.equal(held.nan_to_num(-1), mapped.nan_to_num(-1))
    assert len(shared.about()) == len(private.about()) - 1


def test_a_phase_was_tried_out_and_takes_something(config: ErlRunConfig) -> None:
    plan = plan_erl(config, load_panel(config.panel), CPU)
    assert plan.transients.keys() == {"evaluate", "validate", "learn", "evolve", "score"}
    assert min(plan.transients.values()) > 1000
    more = replace(config, learner=config.learner.with_algorithm_settings(batch_size=64))
    assert plan_erl(more, load_panel(config.panel), CPU).transients["learn"] > 2 * plan.transients["learn"]


def test_a_plan_of_a_terabyte_allocates_nothing(config: ErlRunConfig) -> None:
    panel = load_panel(config.panel)
    build_on_meta(config, panel, "cpu")
    before = resident_bytes()
    learner = LearnerConfig(algorithm="ddpg")
    large = replace(config, learner=learner, replay=RowReplayConfig(generations=20_000_000, warmup=50))
    _, run = build_on_meta(large, panel, "cpu")
    assert sum(nbytes(run).values()) > 1e11
    assert resident_bytes() - before < 16 << 20


def test_the_command_prints_what_the_run_writes(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "erl", *tiny, "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    run = tmp_path / "run"
    gc.collect()
    others = count_live_simulators()  # of runs of tests before
    assert main(["train", "erl", *tiny, "--rounds", "1", "--run", str(run)]) == 0
    written = json.loads((run / "plan.json").read_text())
    assert written["owners"] == planned["owners"]
    assert written["transients"] == planned["transients"]
    assert written.keys() == planned.keys()
    ledger = json.loads((run / "ledger.jsonl").read_text().splitlines()[0])
    assert ledger["owned_bytes"] == planned["total_bytes"]
    assert ledger["envs"] == others + 2


def test_the_table_fits_and_names_owners_limits_and_budget(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "erl", *tiny]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    for word in ("outcomes.seen", "state, exactly", "phase learn", "RAM", "90% of the tightest limit", "it fits"):
        assert word in said


def test_what_does_not_fit_exits_with_3_and_says_what_to_change(
    replayed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*replayed, "--replay.generations", "200000", "--budget", "300MiB"]
    assert main(["plan", "erl", *options]) == 3
    said = capsys.readouterr().out
    assert "it does not fit" in said
    assert "replay.generations = 100000: replay would take" in said
    run = tmp_path / "run"
    assert main(["train", "erl", *options, "--run", str(run)]) == 3
    assert "replay.generations = 100000: replay would take" in capsys.readouterr().err
    assert not run.exists() or not any(run.iterdir())


@pytest.mark.long
def test_what_the_system_refuses_is_told_with_owners_and_remedy(
    replayed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # More than a process has addresses: a system that gives what it does not have refuses that too.
    options = ["--replay.generations", "500000000000", "--start-over-budget"]
    assert main(["train", "erl", *replayed, *options, "--run", str(tmp_path / "run")]) == 3
    assert "refuses" in capsys.readouterr().err


def test_a_budget_below_the_libraries_is_told_first(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Only smaller states were suggested, and none of them can fit."""
    assert main(["plan", "erl", *tiny, "--json"]) == 0
    base_bytes = json.loads(capsys.readouterr().out)["base_bytes"]
    assert main(["plan", "erl", *tiny, "--budget", f"{base_bytes // 2 >> 20}MiB"]) == 3
    suggestions = capsys.readouterr().out.partition("it does not fit")[2].splitlines()[1:]
    assert suggestions[0].startswith("  budget: expected more than the ")


@pytest.mark.parametrize("budget", ["8 bananas", "0", "-1GiB", ""])
def test_a_budget_that_is_none_is_refused(tiny: list[str], budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "erl", *tiny, f"--budget={budget}"]) == 2
    assert "8GiB" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("panel", "context", "members"),
    [("synthetic:60x1500", 100, 4), ("synthetic:200x2000", 252, 8)],
    ids=["S", "M"],
)
def test_the_plan_is_what_is_held_at_the_measured_sizes(panel: str, context: int, members: int) -> None:
    config = ErlRunConfig(panel=panel, threads=1)
    config = replace(
        config,
        population=replace(config.population, size=members),
        env=replace(config.env, episode=replace(config.env.episode, context=context)),
    )
    composition = compose(config)
    assert composition.plan.owners | composition.plan.mapped == nbytes(composition.trainer.run)
