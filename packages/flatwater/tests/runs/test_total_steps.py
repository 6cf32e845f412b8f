"""The length of a run in environment steps: as many whole rounds as reach them, wherever it is given."""

from pathlib import Path

import pytest
from small_runs import TINY_PPO, entries

import flatwater as fw
from flatwater.api import resolve_config
from flatwater.cli.main import main

PPO = ["ppo", *TINY_PPO, "--trackers", "--quiet"]  # 2 environments, blocks of 8 steps


def rounds_of(run: str) -> int:
    return len(entries(Path(run) / "metrics.jsonl"))


@pytest.mark.parametrize(
    ("recipe", "settings", "rounds"),
    [
        ("ppo", {"total_steps": 100_000}, 98),
        ("ppo", {"total_steps": 102_400}, 100),
        ("ppo", {"total_steps": 1, "rounds": 7}, 1),
        ("teach", {"total_steps": 2049, "envs": 32, "block": 64}, 2),
        ("evolve", {"total_steps": 10_001, "steps": 1000, "population": {"size": 5, "envs": 2}}, 2),
        ("ppo", {"rounds": 7}, 7),
    ],
)
def test_they_are_whole_rounds(recipe: str, settings: dict[str, object], rounds: int) -> None:
    assert resolve_config(recipe, None, settings).rounds == rounds


@pytest.mark.long
def test_a_run_has_them_and_goes_on_by_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *PPO, "--total-steps", "33", "--run", "run"]) == 0
    assert rounds_of("run") == 3
    assert main(["resume", "run", "--total-steps", "64", "--quiet"]) == 0
    assert rounds_of("run") == 4
    assert main(["resume", "run", "--rounds", "5", "--quiet"]) == 0
    assert rounds_of("run") == 5
    fw.resume("run", total_steps=96, quiet=True)
    assert rounds_of("run") == 6
    assert main(["train", *PPO, "--config", "run/config.toml", "--rounds", "1", "--run", "again"]) == 0
    assert rounds_of("again") == 1
    assert fw.fork("run", rounds=7, run="longer", quiet=True).finished
    assert main(["fork", "run", "--rounds", "8", "--run", "longest", "--quiet"]) == 0
    assert (rounds_of("longer"), rounds_of("longest")) == (7, 8)
    capsys.readouterr()
    assert main(["resume", "run", "--total-steps", "16"]) == 2
    assert "the run has 6 blocks already" in capsys.readouterr().err
    assert main(["train", "grow", "--total-steps", "16"]) == 2
    assert "plays no episodes of an environment one by one" in capsys.readouterr().err
