"""`flatwater checkpoints`: keys that scripts rely on, a table that fits, and no torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.reader import list_checkpoints
from flatwater.checkpoints.writer import save_checkpoint
from flatwater.cli.checkpoints import Checkpoints
from flatwater_watch.errors import RunError


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with three checkpoints, the second of them damaged."""
    folder = tmp_path / "checkpoints"
    for at, step in ((1, 0), (2, 0), (2, 7)):
        root = {"weights": torch.full((3000,), float(at + step)), "count": at}
        save_checkpoint(folder, root, round=at, step=step, facts={}, config=CheckpointConfig())
    damaged = list_checkpoints(folder)[1]
    path = folder / "objects" / f"{damaged.shards[0].sha256}.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x99")
    return tmp_path


def test_json_has_the_hash_of_every_leaf_of_every_checkpoint(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Checkpoints(run=str(run), json=True)() == 0
    found = json.loads(capsys.readouterr().out)["checkpoints"]
    assert [(each["round"], each["step"], each["intact"]) for each in found] == [
        (1, 0, True),
        (2, 0, False),
        (2, 7, True),
    ]
    for each, manifest in zip(found, list_checkpoints(run / "checkpoints"), strict=True):
        assert set(each) == {"round", "step", "saved", "file", "intact", "problems", "bytes", "leaves"}
        assert Path(each["file"]) == manifest.file
        assert each["leaves"] == {record.path: record.sha256 for record in manifest.leaves}
        assert set(each["leaves"]) == {"weights", "count"}
        assert bool(each["problems"]) != each["intact"]
    assert found[1]["leaves"]["count"] == found[2]["leaves"]["count"] != found[0]["leaves"]["count"]


def test_the_table_fits_into_100_columns_and_names_what_is_damaged(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert Checkpoints(run=str(run))() == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if ".json" in line][:-1]
    assert [row.split()[-1] for row in rows] == [
        "000001.000000.json",
        "000002.000000.json",
        "000002.000007.json",
    ]
    assert ["no" in row.split() for row in rows] == [False, True, False]
    assert max(map(len, lines[:-1])) <= 100
    assert lines[-1].startswith("000002.000000.json: objects/")


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no checkpoints .*runs/NAME"):
        Checkpoints(run=str(tmp_path))()


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "checkpoints").mkdir()
    assert Checkpoints(run=str(tmp_path))() == 0
    assert "no checkpoint yet" in capsys.readouterr().out
    Checkpoints(run=str(tmp_path), json=True)()
    assert json.loads(capsys.readouterr().out) == {"checkpoints": []}


def test_listing_needs_no_torch(run: Path) -> None:
    program = (
        "import sys; from flatwater.cli.checkpoints import Checkpoints; "
        f"Checkpoints(run={str(run)!r})(); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0
