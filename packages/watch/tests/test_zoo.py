"""Each program of the zoo under `flatwater watch`: right owner, right line, right verdict, in twelve rounds."""

import importlib.util
import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[0] / "zoo"))
from expected import FLAT, GROWING, MARK, ROUNDS, ZOO, marked_line, program_of

QUICK = ("env_registry", "window_replay", "vector_env")
"""Run by default; the others are slow."""
PLATEAU = 0.05
WATCH = "import sys; from flatwater_watch.faces.main import main; sys.exit(main())"


def zoo_params(names: list[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


_told: dict[str, dict[str, Any]] = {}


def run_watched(name: str, folder: Path, needs: str | None) -> dict[str, Any]:
    """The JSON of a program that ran its rounds under `flatwater watch`, once for all tests of it."""
    if needs is not None and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{name} needs {needs}, which is not installed: pip install -r benchmarks/requirements.txt")
    if name in _told:
        return deepcopy(_told[name])
    told = folder / "watch.json"
    ended = subprocess.run(
        [
            sys.executable, "-c", WATCH, "run", "--json", str(told),
            "--", sys.executable, str(program_of(name)), str(ROUNDS),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    _told[name] = json.loads(told.read_text())
    return deepcopy(_told[name])


@pytest.mark.parametrize("name", zoo_params(list(GROWING)))
def test_what_grows_is_named(name: str, tmp_path: Path) -> None:
    expected = GROWING[name]
    found = run_watched(name, tmp_path, expected.needs)
    assert found["findings"], "nothing was found"
    first = found["findings"][0]
    assert (first["verdict"], expected.owner in first["owner"]) == (expected.verdict, True), first
    assert expected.does in first["advice"], first
    assert found["explained_share"] >= 0.9, found
    if expected.line:
        made = first["made_at"]
        assert made is not None, first
        assert Path(made["file"]).name == f"{name}.py"
        assert abs(made["line"] - marked_line(name)) <= expected.near, made


@pytest.mark.parametrize("name", zoo_params(list(FLAT)))
def test_nothing_is_found_where_nothing_grows(name: str, tmp_path: Path) -> None:
    assert run_watched(name, tmp_path, FLAT[name])["findings"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "plateau"),
    [
        ("window_replay", 10_000 * 250 * 32 * 4),
        ("first_touch", 16_000 * 64 * 64 * 4),
        ("sb3_image_replay", 2 * 6000 * 3 * 64 * 64),
    ],
)
def test_a_filling_says_where_it_ends(name: str, plateau: int, tmp_path: Path) -> None:
    """The bytes of the whole buffer, of which the run fills about a third."""
    found = run_watched(name, tmp_path, GROWING[name].needs)["findings"]
    assert {one["verdict"] for one in found} == {"filling"}, found
    assert sum(one["plateau_bytes"] for one in found) == pytest.approx(plateau, rel=PLATEAU)


@pytest.mark.slow
def test_overlapping_windows_are_told(tmp_path: Path) -> None:
    (first, *_) = run_watched("window_replay", tmp_path, None)["findings"]
    assert "rows but one" in first["redundancy"]


def test_every_program_is_expected_to_do_something() -> None:
    files = {path.stem: path for path in ZOO.glob("*/*.py")}
    assert set(files) == {*GROWING, *FLAT}
    assert all(files[name] == program_of(name) for name in files)


@pytest.mark.parametrize("name", sorted(GROWING))
def test_a_program_that_grows_tells_the_reader_what_to_do(name: str) -> None:
    text = program_of(name).read_text().split('"""')[1]
    assert "\nLooks like: " in text
    assert "\nFix: " in text


def test_every_program_that_grows_is_linked_from_the_page_that_starts_at_the_symptom() -> None:
    page = (Path(__file__).parents[3] / "docs" / "watch" / "out-of-memory.md").read_text()
    assert [name for name in GROWING if f"(../../packages/watch/tests/zoo/growing/{name}.py)" not in page] == []


@pytest.mark.parametrize("name", [name for name, expected in GROWING.items() if expected.line])
def test_the_line_is_marked_once(name: str) -> None:
    assert MARK in program_of(name).read_text().splitlines()[marked_line(name) - 1]
