"""A tracker of somebody else's: one file, named where those that ship are named. No line of Flatwater knows it."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flatwater.cli.main import main

FILE = Path(__file__).with_name("trackers.py")
TINY = ("--candidates", "4", "--elites", "2", "--threads", "1")
RECIPE = Path(__file__).parents[4] / "examples" / "flatwater" / "cross_entropy.py"

pytestmark = pytest.mark.usefixtures("unpainted")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with the file of the trackers and of a small recipe."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if Path(entry) not in {FILE.parent, RECIPE.parent}])
    for file in (FILE, RECIPE):
        monkeypatch.delitem(sys.modules, file.stem, raising=False)
        (tmp_path / file.name).write_text(file.read_text())
    return tmp_path


def train(run: str, *trackers: str, rounds: int = 2) -> int:
    options = [*TINY, "--rounds", str(rounds), "--run", run, "--trackers", *trackers]
    return main(["train", "cross_entropy:SEARCH", *options])


def numbers(file: Path) -> dict[int, dict[str, float]]:
    """By round, without what the machine has to say."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {line.pop("round"): {name: line[name] for name in line if "/" not in name} for line in lines}


@pytest.mark.long
def test_it_gets_every_round_beside_those_that_ship(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("run", "tensorboard", "trackers:Kept") == 0
    kept = Path("run", "trackers.Kept")
    assert "trackers:Kept: keeps run in after-0.jsonl" in capsys.readouterr().out
    assert main(["resume", "run", "--rounds", "3"]) == 0
    rounds = numbers(kept / "after-0.jsonl") | numbers(kept / "after-2.jsonl")
    assert {n: line.pop("seed") for n, line in rounds.items()} == {1: 0, 2: 0, 3: 0}
    assert rounds == numbers(Path("run", "metrics.jsonl"))
    assert {path.name for path in kept.glob("*.closed")} == {"after-0.closed", "after-2.closed"}
    assert len([*Path("run", "tensorboard").iterdir()]) == 2
    assert 'trackers = ["tensorboard", "trackers:Kept"]' in Path("run", "config.toml").read_text()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "told"),
    [("Unwritable", "failed (KeyError: 'no such chart')"), ("Leaving", "failed (SystemExit: no licence)")],
)
def test_whatever_it_raises_the_run_goes_on_with_the_same_numbers(
    name: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("alone") == 0
    assert train("tracked", f"trackers:{name}") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"trackers:{name}: {told}" in said
    assert numbers(Path("alone", "metrics.jsonl")) == numbers(Path("tracked", "metrics.jsonl"))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "tensorbord",
            r"'tensorbord'.*\"tensorboard\"\?.* tensorboard, wandb, or package\.",
        ),
        (
            "trackers:Nothing",
            "module 'trackers' has no attribute 'Nothing'.* tensorboard, wandb",
        ),
        ("nowhere:Kept", "No module named 'nowhere'"),
        ("trackers:Silent", r"trackers:Silent.*write\(round, metrics\) and close\(\)"),
        ("trackers:json", r"trackers:json.*write\(round, metrics\) and close\(\)"),
        ("trackers:Curious", "TrackedRun.*missing a required argument: 'password'"),
    ],
)
def test_what_is_none_is_refused_before_the_run(name: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("run", name) == 2
    assert re.search(told, " ".join(capsys.readouterr().err.split()))
    assert not Path("run").exists()
    assert train("run") == 0
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    assert main(["resume", "run", "--rounds", "3", "--trackers", name]) == 2
    assert {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_a_write_into_what_runs_share_ends_the_process_with_its_line(folder: Path) -> None:
    words = ["train", "cross_entropy:SEARCH", *TINY, "--trackers", "trackers:Stray"]
    command = [sys.executable, "-c", "from flatwater.cli.main import main; main()", *words]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGSEGV
    line = 1 + (folder / "trackers.py").read_text().splitlines().index('        tensors["close"][3] = 0.0')
    assert f'trackers.py", line {line} in write' in ended.stderr
