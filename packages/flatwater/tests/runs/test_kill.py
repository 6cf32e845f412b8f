"""kill -9 at any moment, while saving as well, loses nothing: the resumed run equals one that was never killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "killed.py"
STORE_PROGRAM = PROGRAM.with_name("killed_store.py")
KINDS = ("teach", "grow", "erl", "weights", "own-traders", "own-world")
SERIES = [("mirror", "folder"), ("prune", "folder"), ("prune", "url")]


def kill(folder: Path, kills: int, *what: str, program: Path = PROGRAM) -> dict[str, object]:
    command = [sys.executable, str(program), str(folder), str(kills), *what]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, object] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize(
    "kind",
    [
        "ppo",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_a_killed_run_goes_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    assert kill(tmp_path, 2, kind)["kills"] == 2


@pytest.mark.long
@pytest.mark.parametrize("kind", [pytest.param("import"), pytest.param("sweep", marks=pytest.mark.slow)])
def test_what_is_killed_and_begun_again_is_as_if_nobody_had(kind: str, tmp_path: Path) -> None:
    assert kill(tmp_path, 2, kind)["kills"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["import", "sweep"])
def test_twenty_killed_sweeps_and_imports_lose_nothing(kind: str, tmp_path: Path) -> None:
    found = kill(tmp_path, 20, kind)
    places = found["places"]
    assert isinstance(places, list)
    assert sum(place.startswith("-9 ") for place in places) >= 10, "those at file operations, at least"
    assert len({place.split()[1] for place in places}) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ppo", *KINDS])
def test_fifty_killed_runs_go_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    found = kill(tmp_path, 50, kind)
    places = found["places"]
    assert isinstance(places, list)
    assert sum(place.startswith("-9 ") for place in places) > 40
    assert len({place.split()[1] for place in places}) >= 4, "killed before, between and after the checkpoints"


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(("command", "place"), SERIES)
def test_a_killed_mirror_or_prune_loses_nothing_and_goes_on(command: str, place: str, tmp_path: Path) -> None:
    assert kill(tmp_path, 2, command, place, program=STORE_PROGRAM)["killed"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(("command", "place"), SERIES)
def test_twenty_killed_mirrors_and_prunes_lose_nothing(command: str, place: str, tmp_path: Path) -> None:
    assert kill(tmp_path, 20, command, place, program=STORE_PROGRAM)["killed"] == 20
