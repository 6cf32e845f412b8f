"""The page of returns says who is ahead, at equal steps and at equal CPU seconds, and hides no play that failed."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PAGE = SimpleNamespace(**runpy.run_path(str(BENCHMARKS / "flatwater" / "returns_page.py")))
GAMES = {"ppo": {"Pole": {"steps": 2000}, "Never-played": {"steps": 10}}}
CURVES: dict[str, list[list[float]]] = {
    "flatwater": [[1000, 5.0, 40.0], [2000, 10.0, 80.0]],
    "sb3": [[1000, 10.4, 60.0], [2000, 20.0, 100.0]],
    "sbx": [[1000, 30.0, 70.0], [2000, 60.0, 90.0]],
}


def play(player: str, seed: int = 0, **found: Any) -> dict[str, Any]:
    return {"player": player, "algorithm": "ppo", "env": "Pole", "seed": seed, **found}


def rows(plays: list[dict[str, Any]]) -> list[str]:
    return [line for line in PAGE.page_lines(plays, GAMES) if line.startswith("| Pole")]


def test_the_highest_return_is_bold_at_equal_steps_and_at_equal_seconds() -> None:
    steps, seconds = rows([play(name, curve=curve) for name, curve in CURVES.items()])
    assert steps == "| Pole | 2,000 steps | 1 | 80; 10 s | – | **100**; 20 s | 90; 60 s |"
    # The quickest has all its steps after 10 seconds; an evaluation at most 5 % later counts.
    assert seconds == "| Pole | 10 s | 1 | **80** | – | 60 | none yet |"


def test_three_seeds_have_an_interval_and_other_numbers_of_seeds_are_said() -> None:
    plays = [play("flatwater", seed, curve=[[2000, 10.0, 90.0 + seed]]) for seed in range(3)]
    steps, _ = rows([*plays, play("sb3", curve=CURVES["sb3"])])
    assert "| 1 to 3 | 91 (9" in steps
    assert "| **100**; 20 s |" in steps


def test_a_play_that_failed_is_listed_and_has_no_number() -> None:
    lines = list(
        PAGE.page_lines([play("sbx", 2, failed=["TypeError: no gSDE"]), play("sb3", curve=CURVES["sb3"])], GAMES)
    )
    assert lines[-1] == "- SBX (JAX), ppo in Pole, seed 2: `TypeError: no gSDE`"
    assert "| **100**; 20 s | – |" in next(line for line in lines if line.startswith("| Pole"))
