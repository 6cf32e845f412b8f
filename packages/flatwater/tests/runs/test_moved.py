"""A run folder that is renamed, replaced or deleted while the run trains: one whole run, and nothing half-made."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import OPTIONS

import flatwater as fw
from flatwater.cli.main import main
from flatwater.rundir.layout import RunFolder, hold_lock
from flatwater_watch.errors import FlatwaterError

Same = Callable[[Path, Path], None]
ROUNDS = 4
KINDS = pytest.mark.parametrize(
    "kind", ["ppo", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("erl", "grow", "teach"))]
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="folders are held through /proc")


def train(
    kind: str, run: Path, act: Callable[[], object] | None = None, sent: Path | None = None, **settings: Any
) -> Path:
    """The folder of a small run; `act` happens at any moment of its second round, which waits for its end.

    With `sent`, the folder of its checkpoints at the mirror, each round waits until the checkpoint before it is there:
    a mirror leaves out a checkpoint that waits when a newer one comes, as it does on a busy machine.
    """
    thread = threading.Thread(target=act)

    def on_round(round_: Any) -> None:
        while sent is not None and not (sent / f"{round_.number - 1:06d}.000000.json").exists():
            time.sleep(0.01)
        if act is not None and round_.number == 1:
            thread.start()
        elif act is not None and round_.number == 2:
            thread.join()

    try:
        trained = fw.train(
            kind, run=run, on_round=on_round, **{"rounds": ROUNDS} | as_settings(OPTIONS[kind]) | settings
        )
    finally:
        if thread.ident is not None:
            thread.join()
    return trained.path


def as_settings(words: list[str]) -> dict[str, Any]:
    """Options of the command line as tables."""
    tables: dict[str, Any] = {}
    for option, value in zip(words[::2], words[1::2], strict=True):
        *names, last = option.removeprefix("--").replace("-", "_").split(".")
        table = tables
        for name in names:
            table = table.setdefault(name, {})
        table[last] = int(value) if value.isdigit() else value
    return tables


@pytest.mark.long
@KINDS
def test_a_renamed_run_goes_on_where_it_is_now(
    kind: str, tmp_path: Path, same: Same, capsys: pytest.CaptureFixture[str]
) -> None:
    run, now, whole, store = (tmp_path / name for name in ("run", "now", "whole", "store"))
    store.mkdir()
    services = {"trackers": ("tensorboard",), "mirror": f"file://{store}"}
    sent = store / "run" / "checkpoints"
    assert train(kind, run, lambda: run.rename(now), sent, **services) == now
    said = capsys.readouterr().out
    assert said.count(f"goes on in {now}") == 1
    assert "/proc/" not in said
    assert not run.exists()
    train(kind, whole, **services)
    same(whole, now)
    listed = {path.relative_to(whole).as_posix() for path in whole.rglob("*") if "tensorboard/" not in str(path)}
    assert listed == {path.relative_to(now).as_posix() for path in now.rglob("*") if "tensorboard/" not in str(path)}
    (events,) = (now / "tensorboard").iterdir()
    assert events.stat().st_size > 1000
    assert {path.name for path in sent.glob("*.json")} == {path.name for path in (now / "checkpoints").glob("*.json")}
    assert main(["resume", str(now), "--rounds", "5"]) == 0
    assert main(["resume", str(whole), "--rounds", "5"]) == 0
    same(whole, now)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["erl", "grow", "teach"])
def test_a_folder_put_in_its_place_is_left_alone(kind: str, tmp_path: Path, same: Same) -> None:
    run, now, whole = tmp_path / "run", tmp_path / "now", tmp_path / "whole"

    def replace() -> None:
        run.rename(now)
        run.mkdir()
        (run / "mine.txt").write_text("mine")

    train(kind, run, replace)
    assert [path.name for path in run.iterdir()] == ["mine.txt"]
    train(kind, whole)
    same(whole, now)


@KINDS
def test_a_deleted_folder_ends_the_run_in_a_sentence(kind: str, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def delete() -> None:
        run.rename(tmp_path / "gone")  # in one step: what is emptied slowly may be written to in between
        while (tmp_path / "gone").exists():  # the run may write and remove in it until it has noticed
            shutil.rmtree(tmp_path / "gone", ignore_errors=True)

    with pytest.raises(FlatwaterError) as error:
        train(kind, run, delete)
    said = str(error.value)
    assert error.value.exit_code == 2
    assert "moved to another disk" in said or "gone/" in said  # a file that went before it
    assert not run.exists()
    assert not (tmp_path / "gone").exists()


def test_a_run_is_locked_by_whatever_name(tmp_path: Path) -> None:
    run, now = tmp_path / "run", tmp_path / "now"
    run.mkdir()
    second = "import sys; from pathlib import Path; from flatwater.rundir.layout import *\n"
    second += "with hold_lock(RunFolder(Path(sys.argv[1]))): pass"
    with hold_lock(RunFolder(run)) as held:
        run.rename(now)
        assert held.with_current_name.path == now
        ended = subprocess.run([sys.executable, "-c", second, str(now)], capture_output=True, text=True, check=False)
        assert "another process" in ended.stderr
    assert subprocess.run([sys.executable, "-c", second, str(now)], check=False).returncode == 0
