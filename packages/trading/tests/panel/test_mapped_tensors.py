"""What is mapped is what was made, in pages that processes share; a file that is not whole is made again."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from flatwater_trading.panel.mapped_tensors import MAXIMUM_FILES, map_tensors, open_mapped_file
from flatwater_watch.meters.mappings import footprint

HOLDS = """
import sys
from pathlib import Path
from flatwater_trading.panel.mapped_tensors import open_mapped_file
tensors = open_mapped_file(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def tensors() -> dict[str, Tensor]:
    return {"x": torch.arange(60.0).view(3, 4, 5), "days": torch.tensor([3, -1, 4])}


def test_what_is_mapped_is_what_was_made(tmp_path: Path) -> None:
    place = tmp_path / "new" / "x"
    for _ in range(2):
        found, private = map_tensors(place, tensors)
        assert private == ""
        assert {name: (each.dtype, each.tolist()) for name, each in found.items()} == {
            name: (each.dtype, each.tolist()) for name, each in tensors().items()
        }
    assert found["x"].untyped_storage().nbytes() == 240
    assert [path.name for path in place.parent.iterdir()] == ["x"]


def not_again() -> dict[str, Tensor]:
    raise AssertionError("it is there")


@pytest.mark.parametrize("where", [3, 20, 200, -200, -1])
def test_a_damaged_file_is_made_again(where: int, tmp_path: Path) -> None:
    place = tmp_path / "x"
    map_tensors(place, tensors)
    whole = bytearray(place.read_bytes())
    assert map_tensors(place, not_again)[0]["days"].tolist() == [3, -1, 4]
    whole[where] ^= 1
    for damaged in (bytes(whole), bytes(whole[:where]), b""):
        place.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"cut off|hash|empty"):
            open_mapped_file(place)
        assert map_tensors(place, tensors)[0]["days"].tolist() == [3, -1, 4]
        assert map_tensors(place, not_again)[0]["x"].sum() == sum(range(60))


def test_where_nothing_can_be_written_the_tensors_are_private_and_the_reason_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found, private = map_tensors(tmp_path / "file" / "x", tensors)
    assert found["x"].sum() == sum(range(60))
    assert private == f"{tmp_path / 'file'}: File exists"


def test_the_folder_keeps_the_newest_files(tmp_path: Path) -> None:
    for number in range(MAXIMUM_FILES + 3):
        map_tensors(tmp_path / str(number), tensors)
        time.sleep(0.01)  # files of one tick of the clock have no order
    assert {path.name for path in tmp_path.iterdir()} == {str(number) for number in range(3, MAXIMUM_FILES + 3)}


@pytest.mark.long
def test_two_processes_share_the_pages(tmp_path: Path) -> None:
    """PSS of each: half of the file, where a private copy would be the whole."""
    size, place = 24 << 20, tmp_path / "x"
    map_tensors(place, lambda: {"x": torch.ones(size // 4)})
    command = [sys.executable, "-c", HOLDS, str(place)]
    holding = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for process in holding:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
        for process in holding:
            shares = shares_of(process.pid, place)
            assert shares["Rss"] == pytest.approx(size, rel=0.02)
            assert shares["Pss"] == pytest.approx(size / 2, rel=0.02)
            assert shares["Private_Dirty"] == shares["Anonymous"] == 0
            assert footprint(process.pid).file_mapped > size
    finally:
        for process in holding:
            process.communicate()


def shares_of(pid: int, place: Path) -> dict[str, int]:
    """Bytes of a process's mapping of a file."""
    lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if line.endswith(str(place)))
    fields = (line.split() for line in lines[at + 1 : at + 20])
    return {name.rstrip(":"): int(json.loads(value)) * 1024 for name, value, *_ in fields if value.isdigit()}
