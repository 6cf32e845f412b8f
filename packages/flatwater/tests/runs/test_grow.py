"""Runs of growing networks: the same contract, commands and files as those of traders."""

import json
import linecache
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import TINY_GROW, entries

from flatwater.cli.main import main
from flatwater.envs.growing.stages import SlotStage
from flatwater.memory.planner import Plan
from flatwater.recipes.grow.config import GrowRunConfig
from flatwater.recipes.grow.lives import read_lives
from flatwater.recipes.grow.plan import plan_grow
from flatwater.recipes.grow.run import compose
from flatwater.recipes.grow.sections import STAGE_COLOURS
from flatwater.reports.page import run_page
from flatwater.reports.records import read_run
from flatwater.rundir.records import read_plan
from flatwater.state.tree import nbytes

PROGRAM = Path(__file__).parent / "leaking_envs.py"
LARGER = ("--env.host.channels", "24", "48", "96")
"""Hosts whose batch of env states takes some megabytes."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of two batches, trained to its end."""
    folder = tmp_path_factory.mktemp("grow") / "run"
    assert main(["train", "grow", *TINY_GROW, "--rounds", "2", "--run", str(folder)]) == 0
    return folder


def test_what_is_planned_is_held(run: Path) -> None:
    plan = read_plan(run / "plan.json")
    assert isinstance(plan, Plan)
    for line in entries(run / "ledger.jsonl"):
        assert line["owned_bytes"] == plan.total_bytes
        assert line["envs"] == 2


def test_the_plan_of_large_hosts_is_what_they_hold() -> None:
    """At 4 hosts of 1.2 million weights, leaf by leaf."""
    config = GrowRunConfig(envs=4)
    config = GrowRunConfig(
        envs=4, env=type(config.env)(host=type(config.env.host)(channels=(66, 132, 264)), steps=2), threads=1
    )
    composed_run = compose(config)
    weights = composed_run.trainer.run.envs
    assert weights.host.weights.shape[1] + sum(seed.weights.shape[1] for seed in weights.seeds) > 1_200_000
    assert composed_run.plan.owners == nbytes(composed_run.trainer.run)


@pytest.mark.long
def test_what_does_not_fit_says_what_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "grow", "--env.host.channels", "1024", "2048", "4096", "--budget", "2GiB"]) == 3
    said = capsys.readouterr().out
    assert "it does not fit" in said
    assert "env.host.channels = [512, 1024, 2048]: envs would take" in said
    assert "envs = 8: envs would take" in said


@pytest.mark.long
def test_more_hosts_take_more_while_they_are_trained() -> None:
    small, large = (plan_grow(GrowRunConfig(envs=envs), torch.device("cpu")) for envs in (4, 16))
    assert large.transients["collect"] > 2 * small.transients["collect"]


def test_a_run_leaves_its_result_and_its_lives(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    assert set(result["players"]) == {"policy", "wait", "random", "heuristic"}
    assert (result["trainer"], result["split"], result["episodes"]) == ("grow", "held-out", 2)
    lives = read_lives(run)
    assert lives is not None
    assert len(lives["player"]) == 4 * 2 * 3
    policy = lives["player"] == "policy"
    returns = [lives["reward"][policy & (lives["env_seed"] == seed)].sum() for seed in {*lives["env_seed"].tolist()}]
    assert result["players"]["policy"]["return"] == pytest.approx(np.mean(returns))
    assert (lives["stage"][lives["player"] == "wait"] == int(SlotStage.DORMANT)).all()
    assert result["players"]["wait"]["germinated"] == 0
    last = entries(run / "episodes.jsonl")[-1]
    assert [len(last[name]) for name in ("seed", "return", "accuracy", "wait", "fossilised")] == [2] * 5
    assert (run / "result.png").read_bytes()[:4] == b"\x89PNG"


def test_evaluating_again_gives_the_result(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((run / "result.json").read_text())


@pytest.mark.long
def test_the_holdout_has_other_episodes_and_each_look_is_logged(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--holdout", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["first_seed"] > json.loads((run / "result.json").read_text())["first_seed"] + result["episodes"]
    assert result["players"] != json.loads((run / "result.json").read_text())["players"]
    assert len(entries(run / "holdout_looks.jsonl")) == 1


def test_the_table_and_the_list_name_what_was_trained(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(run, tmp_path / "runs" / "run"))
    assert main(["evaluate", str(run)]) == 0
    said = capsys.readouterr().out
    assert "held-out episodes of 3 steps" in said
    assert [line.split()[0] for line in said.splitlines() if "%" in line] == ["policy", "wait", "random", "heuristic"]
    assert main(["runs", str(run.parent), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["runs"]
    result = json.loads((run / "result.json").read_text())
    assert (listed["trainer"], listed["measured"]) == ("grow", "accuracy")
    assert listed["score"] == result["players"]["policy"]["accuracy"]
    (run / "result.json").unlink()
    assert main(["runs", str(run.parent), "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["runs"]
    assert (listed["state"], listed["measured"]) == ("stopped", "held out")
    assert listed["score"] == entries(run / "metrics.jsonl")[-1]["evaluation/policy"]
    assert main(["top", str(run), "--once"]) == 0
    assert "batch 2/2" in capsys.readouterr().out


def test_a_page_shows_every_slots_life(run: Path) -> None:
    made = run_page(read_run(run))
    assert "Trading" not in made
    assert made.count("<h4>") == 2
    assert all(f"</i>{name}</span>" in made for name in STAGE_COLOURS)
    assert '"ticktext":["slot 2","slot 1","slot 0"]' in made


@pytest.mark.long
def test_a_page_of_a_run_without_a_result_says_so(run: Path, tmp_path: Path) -> None:
    for name in ("config.toml", "metrics.jsonl", "ledger.jsonl"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    made = run_page(read_run(tmp_path))
    assert "There is no result here" in made


def test_stages_are_drawn_in_the_order_of_their_numbers() -> None:
    assert list(STAGE_COLOURS) == [stage.name.lower() for stage in SlotStage]


def test_a_run_of_another_kind_is_refused_as_settings(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "erl", "--config", str(run / "config.toml"), "--run", str(tmp_path / "new")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "envs" in said or "trainer" in said
    assert not (tmp_path / "new").exists()


def test_a_folder_with_a_setting_that_is_gone_is_refused_with_the_remedy(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(run, tmp_path / "run"))
    config = run / "config.toml"
    config.write_text(config.read_text().replace("[env]\n", '[env]\nenv_states = "pooled"\n'))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["resume", str(run), "--rounds", "3"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "env.env_states: " in said
    assert "since November 2026" in said
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_a_resumed_run_goes_on_bit_for_bit(run: Path, tmp_path: Path, same: Callable[[Path, Path], None]) -> None:
    halved = tmp_path / "halved"
    assert main(["train", "grow", *TINY_GROW, "--rounds", "1", "--run", str(halved)]) == 0
    assert main(["resume", str(halved), "--rounds", "2"]) == 0
    same(run, halved)


def leaking(folder: Path, how: str, rounds: int, *options: str) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), how, str(rounds), *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.slow
def test_callbacks_that_keep_fresh_env_states_are_named(tmp_path: Path) -> None:
    told = leaking(tmp_path / "run", "registry", 10, *LARGER)
    first = told["findings"][0]
    assert first["verdict"] == "leak"
    assert "leaking_envs.CALLBACKS" in first["owner"] or "__main__.CALLBACKS" in first["owner"], first
    assert told["envs"][-1] > told["envs"][0]


@pytest.mark.slow
def test_cycles_of_fresh_env_states_are_collected_between_batches(tmp_path: Path) -> None:
    """A run collects after each round, so a pure cycle holds one batch and no more: nothing grows or is told."""
    told = leaking(tmp_path / "run", "cycle", 30, *LARGER)
    assert told["findings"] == []
    assert max(told["resident"][20:]) - max(told["resident"][10:20]) < 2 << 20
    assert set(told["envs"]) == {2}


@pytest.mark.long
def test_a_plan_does_not_import_the_compiler() -> None:
    """It would take four CPU seconds and 60 MB, in every run."""
    program = """
import sys
from flatwater.recipes.grow.config import GrowRunConfig
from flatwater.recipes.grow.lives import read_lives
from flatwater.recipes.grow.plan import plan_grow
import torch
plan_grow(GrowRunConfig(), torch.device("cpu"))
sys.exit("torch._dynamo" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.long
def test_a_plan_of_a_million_updates_a_step_is_made_in_seconds_and_counts_what_they_draw(
    capsys: pytest.CaptureFixture[str],
) -> None:
    totals = []
    for updates in (1, 1 << 20):
        assert main(
            ["plan", "grow", "--envs", "2", "--learner.minibatches", "1", "--env.fit.updates", str(updates), "--json"]
        ) in {0, 3}
        totals.append(json.loads(capsys.readouterr().out)["transients"]["collect"])
    assert totals[1] - totals[0] > 8 * 2 * 16 * (1 << 20)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of a small run of the example's network."""
    monkeypatch.syspath_prepend(Path(__file__).parents[4] / "examples" / "flatwater")
    return [*TINY_GROW, "--host", "own_host:Pixels"]


@pytest.mark.slow
def test_a_network_of_the_user_s_is_grown_as_planned_and_resumed_bit_for_bit(
    own: list[str], tmp_path: Path, same: Callable[[Path, Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    assert main(["train", "grow", *own, "--rounds", "2", "--run", str(whole)]) == 0
    assert "2 own_host:Pixels hosts" in capsys.readouterr().out
    plan = read_plan(whole / "plan.json")
    assert isinstance(plan, Plan)
    assert {line["owned_bytes"] for line in entries(whole / "ledger.jsonl")} == {plan.total_bytes}
    assert main(["train", "grow", *own, "--rounds", "1", "--run", str(halved)]) == 0
    assert main(["resume", str(halved), "--rounds", "2"]) == 0
    same(whole, halved)
    result = json.loads((whole / "result.json").read_text())
    assert result["slots"] == 3
    policy = result["players"]["policy"]
    assert policy["accuracy"] is not None
    assert policy["accuracy_capable"] is policy["accuracy_impaired"] is None
    made = run_page(read_run(whole))
    assert '"ticktext":["slot 2","slot 1","slot 0"]' in made
    assert ">impaired<" not in made
    assert "capable host" not in made


@pytest.mark.slow
def test_another_text_of_a_host_is_told_where_its_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[4] / "examples" / "flatwater" / "own_host.py").read_text()
    (tmp_path / "changing_host.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    run, options = tmp_path / "run", [*TINY_GROW, "--host", "changing_host:Pixels", "--rounds", "1"]
    assert main(["train", "grow", *options, "--run", str(run)]) == 0
    (tmp_path / "changing_host.py").write_text(text.replace("mean(", "amax("))
    monkeypatch.delitem(sys.modules, "changing_host")
    linecache.clearcache()
    capsys.readouterr()
    assert main(["resume", str(run), "--rounds", "2"]) == 0
    assert "the text of changing_host (" in " ".join(capsys.readouterr().out.split())


def test_what_an_own_host_s_plan_suggests_is_not_for_shipped_hosts(
    own: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "grow", *own, "--budget", "100MiB"]) == 3
    said = capsys.readouterr().out
    assert "envs = 1: envs would take" in said
    assert "env.host.channels" not in said


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="compiling needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it loads its compiler
def test_a_compiled_policy_learns_the_same_and_is_resumed_bit_for_bit(
    run: Path, tmp_path: Path, same: Callable[[Path, Path], None]
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for rounds, folder in ((2, whole), (1, cut)):
        options = ("--learner.compile", "--rounds", str(rounds), "--run", str(folder))
        assert main(["train", "grow", *TINY_GROW, *options]) == 0
    assert main(["resume", str(cut), "--rounds", "2"]) == 0
    same(whole, cut)
    eager, compiled = (entries(folder / "metrics.jsonl")[0] for folder in (run, whole))
    learned = [name for name in eager if name.startswith("train/") and name != "train/sps"]
    assert len(learned) > 3
    assert [compiled[name] for name in learned] == pytest.approx([eager[name] for name in learned], rel=1e-3)
