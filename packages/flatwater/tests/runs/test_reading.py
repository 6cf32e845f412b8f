"""Reading never executes: whatever a run folder names, brings or has become, who lists or shows it runs none of it."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hostile_runs import Trap, broken_runs, foreign_runs, foreign_weights, set_trap, write_run
from object_store import bucket, object_store, store

import flatwater as fw
from flatwater.api import TrainedRun
from flatwater.cli.main import main
from flatwater.mirror.remote_listing import list_mirrored_runs
from flatwater.rundir.listing import list_runs
from flatwater.storage.objects import open_objects
from flatwater_watch.errors import FlatwaterError

__all__ = ["bucket", "object_store", "store"]

FOREIGN = ("payload", "payload.deep", "unittest.__main__", "flatwater.__main__", "runs")
SOUND = ("sound one", "sound two")


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trap]:
    """A user's folder with hostile runs and two sound ones, in which commands run; nothing of it is executed."""
    trap = set_trap(tmp_path)
    foreign_runs(trap)
    for name in SOUND:
        write_run(trap.runs / name, 'trainer = "ppo"', rounds=2)
    monkeypatch.chdir(trap.folder)
    monkeypatch.setattr(sys, "path", [*sys.path, ""])  # as `python -m flatwater` has it
    before = {*sys.modules}
    yield trap
    assert trap.executed() == []
    assert not {name for name in FOREIGN if name in sys.modules and name not in before}


@pytest.mark.long
def test_lists_show_every_other_run(trap: Trap, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("runs", trap.runs.as_uri()):
        assert main(["runs", folder, "--json"]) == 0
        found = {run["name"]: run["state"] for run in json.loads(capsys.readouterr().out)["runs"]}
        assert found.keys() == {path.name for path in trap.runs.iterdir()}
        assert {found[name] for name in SOUND} == {"finished"}
        assert main(["runs", folder]) == main(["runs", folder, "--sort", "return/mean"]) == 0
        capsys.readouterr()
    assert main(["runs", "--page", "index.html"]) == 0
    assert "<script>" not in Path("index.html").read_text()
    assert {line.name for line in list_runs(trap.runs)} == {
        line.name for line in list_mirrored_runs(trap.runs.as_uri())
    }


COMMANDS: dict[str, Callable[[str], list[list[str]]]] = {
    "top": lambda run: [["top", run, "--once"], ["top", run, "--json"]],
    "report": lambda run: [["report", run, "--out", "page.html"]],
    "report at a URL": lambda run: [["report", Path(run).absolute().as_uri(), "--out", "page.html"]],
    "compare": lambda run: [["compare", run, "runs/sound one", "--page", "both.html"]],
    "checkpoints": lambda run: [["checkpoints", run], ["checkpoints", run, "--json"]],
    "mirror": lambda run: [["mirror", run, "--to", Path("mirrored").absolute().as_uri()]],
    "prune": lambda run: [["prune", run, "--keep", "1"]],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_shows_a_run_executes_nothing(command: str, trap: Trap) -> None:
    codes = [main(words) for run in sorted(trap.runs.iterdir()) for words in COMMANDS[command](f"runs/{run.name}")]
    assert {*codes} <= {0, 2}
    assert len(codes) >= 27


def test_functions_of_python_execute_nothing(trap: Trap) -> None:
    shown = 0
    for run in sorted(trap.runs.iterdir()):
        seen = TrainedRun(run)
        for look in (
            lambda seen: seen.recipe.name,
            lambda seen: seen.result,
            lambda seen: seen.metrics,
            lambda seen: seen.report(trap.folder / "page.html"),
            lambda seen: seen._repr_html_(),
            lambda seen: fw.compare(seen, trap.runs / "sound one"),
        ):
            with suppress(FlatwaterError):  # a damaged one is refused
                look(seen)
                shown += 1
    assert shown >= 2 * 5


def test_weights_execute_nothing(trap: Trap) -> None:
    for file in foreign_weights(trap):
        with pytest.raises(FlatwaterError) as refused:
            fw.load(file)
        assert refused.value.exit_code == 2


def test_a_run_that_is_damaged_on_purpose_costs_its_own_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    write_run(runs / SOUND[0], 'trainer = "ppo"', rounds=2)
    broken_runs(runs)
    began = time.process_time()
    assert main(["runs", str(runs), "--json"]) == 0
    assert time.process_time() - began < 15, "bounded, however large a file says that it is"
    found = {run["name"]: run for run in json.loads(capsys.readouterr().out)["runs"]}
    assert found[SOUND[0]]["state"] == "finished"
    assert len(found) == sum(os.path.lexists(run / "config.toml") for run in runs.iterdir())
    assert main(["runs", str(runs)]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "root:" not in said, "no link is followed to a file of the reader's"


@pytest.mark.slow
def test_a_damaged_run_is_shown_or_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "sound one", 'trainer = "ppo"', rounds=2)
    for run in broken_runs(tmp_path):
        for words in (["top", str(run), "--once"], ["report", str(run), "--out", str(tmp_path / "page.html")]):
            assert main(words) in {0, 2}, words
        page = tmp_path / "page.html"
        assert not page.exists() or "root:x:0" not in page.read_text()


@pytest.mark.slow
def test_runs_in_a_bucket_execute_nothing(trap: Trap, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    for run in trap.runs.iterdir():
        objects = open_objects(f"{bucket}/{run.name}")
        for file in ("config.toml", "description.json", "metrics.jsonl", "result.json", "sections.json"):
            if (run / file).is_file():
                objects.put(file, (run / file).read_bytes())
    assert main(["runs", bucket, "--json"]) == 0
    found = {run["name"]: run["state"] for run in json.loads(capsys.readouterr().out)["runs"]}
    assert found.keys() == {path.name for path in trap.runs.iterdir()}
    assert {found[name] for name in SOUND} == {"finished"}
    for run in found:
        assert main(["report", f"{bucket}/{run}", "--out", "page.html"]) in {0, 2}
        assert main(["checkpoints", f"{bucket}/{run}"]) in {0, 2}
        assert main(["compare", f"{bucket}/{run}", "runs/sound one"]) in {0, 2}
