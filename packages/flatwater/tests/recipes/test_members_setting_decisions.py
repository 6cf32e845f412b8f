"""Whether members are compiled follows from their updates where a run begins, and stays so."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from flatwater.algorithms.compilation import COMPILER_BYTES
from flatwater.cli.main import command_class, main
from flatwater.config.toml import load_config
from flatwater.recipes.evolve import setting_decisions
from flatwater.recipes.evolve.agents import SacRunConfig
from flatwater.recipes.evolve.config import MembersRunConfig
from flatwater.recipes.evolve.run import build_worlds
from flatwater.recipes.evolve.setting_decisions import COMPILED_NOTE, COMPILED_UPDATES, decide_settings

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="compiling needs a C++ compiler")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


AGENT = ("--steps", "1000", "--replay.warmup", "1", "--replay.capacity", "100", "--evaluation.episodes", "1")
AGENT += ("--threads", "1", "--trackers")


def decide_agent(recipe: str, *options: str) -> bool | None:
    words = [*AGENT, "--rounds", str(-(-COMPILED_UPDATES // 1000)), *options]
    config: MembersRunConfig = command_class(("train", recipe)).read(f"train {recipe}", words).settings()
    return decide_settings(config, build_worlds(config).training.spaces).learner.compile


@needs_compiler
@pytest.mark.parametrize("recipe", ["sac", "evolve"])
def test_members_are_compiled_from_the_updates_on_that_gain(recipe: str) -> None:
    one = ("--population.size", "1", "--population.envs", "1") if recipe == "evolve" else ()
    assert decide_agent(recipe, *one) is True
    assert decide_agent(recipe, *one, "--rounds", "15") is False
    assert decide_agent(recipe, *one, "--learner.no-compile") is False
    assert decide_agent(recipe, *one, "--rounds", "15", "--learner.compile") is True
    assert decide_agent(recipe, *one, "--learner.autocast", "bf16") is False


@needs_compiler
def test_images_stay_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parent)])
    assert decide_agent("dqn", "--env", "own_nets:Spot", "--learner.train-every", "1") is False


@needs_compiler
def test_the_plan_of_an_agent_says_it_and_counts_the_compiler(capsys: pytest.CaptureFixture[str]) -> None:
    totals = {}
    for compiled in ("--learner.compile", "--learner.no-compile"):
        assert main(["plan", "sac", *AGENT, compiled, "--json"]) == 0
        said = capsys.readouterr().out
        assert (COMPILED_NOTE in said) == (compiled == "--learner.compile")
        totals[compiled] = json.loads(said)["base_bytes"]
    assert totals["--learner.compile"] > totals["--learner.no-compile"] + COMPILER_BYTES // 2


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it loads its compiler
def test_an_agent_that_was_compiled_by_itself_is_resumed_so_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting_decisions, "COMPILED_UPDATES", 50)
    for folder, rounds in (("whole", "2"), ("parts", "1")):
        assert main(["train", "sac", *AGENT, "--steps", "60", "--rounds", rounds, "--run", folder]) == 0
        assert load_config(SacRunConfig, Path(folder, "config.toml")).learner.compile is True
    monkeypatch.setattr(setting_decisions, "COMPILED_UPDATES", COMPILED_UPDATES)
    assert main(["resume", "parts", "--rounds", "2"]) == 0
    ledger = json.loads(Path("parts", "ledger.jsonl").read_text().splitlines()[-1])
    assert abs(ledger["unaccounted"]) < COMPILER_BYTES // 4, "the compiler is a part of the base, as in the plan"
    whole, parts = (
        {
            leaf["path"]: leaf["sha256"]
            for leaf in json.loads(max(Path(run, "checkpoints").glob("*.json")).read_text())["leaves"]
        }
        for run in ("whole", "parts")
    )
    assert whole == parts
