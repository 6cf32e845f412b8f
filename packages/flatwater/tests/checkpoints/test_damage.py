"""Whatever happens to a checkpoint's files is found, told, and the checkpoint before it is used."""

import errno
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flatwater.checkpoints import verification
from flatwater.checkpoints.catalogue import list_verified_checkpoints, remove_orphan_shards
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.manifest import Manifest, _encode_with_hash, manifest_path
from flatwater.checkpoints.reader import find_damage, list_checkpoints, newest_intact, restore_state_
from flatwater.checkpoints.verification import VerifiedCheckpoint, verify_checkpoint
from flatwater.checkpoints.writer import save_checkpoint
from flatwater_watch.errors import CheckpointError
from flatwater_watch.files import directory

CONFIG = CheckpointConfig(keep=3, shard_bytes=64)


def tree_at(number: int) -> dict[str, Any]:
    return {"weights": torch.full((40,), float(number)), "small": torch.full((3,), number), "round": number}


def save(folder: Path, number: int) -> Path:
    return save_checkpoint(folder, tree_at(number), round=number, step=0, facts={}, config=CONFIG)


def two(folder: Path) -> tuple[Manifest, Manifest]:
    save(folder, 1)
    save(folder, 2)
    first, second = list_checkpoints(folder)
    return first, second


def files_of(folder: Path, manifest: Manifest) -> list[Path]:
    return [manifest.file, *(folder / "objects" / f"{shard.sha256}.safetensors" for shard in manifest.shards)]


def assert_falls_back(folder: Path, told_of: str) -> None:
    told: list[str] = []
    found = newest_intact(folder, say=told.append)
    assert found is not None
    assert found.manifest.round == 1
    assert "000002.000000.json" in told[0]
    assert told_of in told[0]
    assert "000001.000000.json (round 1)" in told[1]
    root = tree_at(0)
    restore_state_(root, found)
    assert (root["round"], root["weights"][0].item(), root["small"][0].item()) == (1, 1.0, 1)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_in_any_file_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("flip")
    _, second = two(folder)
    file = data.draw(st.sampled_from(files_of(folder, second)))
    content = bytearray(file.read_bytes())
    at, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
    content[at] ^= 1 << bit
    file.write_bytes(content)
    assert_falls_back(folder, "hash" if file.suffix == ".safetensors" else "manifest")


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_truncated_file_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("cut")
    _, second = two(folder)
    file = data.draw(st.sampled_from(files_of(folder, second)))
    content = file.read_bytes()
    file.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    assert_falls_back(folder, "bytes where" if file.suffix == ".safetensors" else "manifest")


def test_a_missing_shard_and_a_longer_one_are_found(tmp_path: Path) -> None:
    _, second = two(tmp_path)
    shard = files_of(tmp_path, second)[1]
    content = shard.read_bytes()
    shard.write_bytes(content + b"x")
    assert_falls_back(tmp_path, "bytes where")
    shard.unlink()
    assert_falls_back(tmp_path, "missing")


def test_a_renamed_manifest_is_found(tmp_path: Path) -> None:
    _, second = two(tmp_path)
    second.file.rename(manifest_path(tmp_path, 9, 0))
    told: list[str] = []
    found = newest_intact(tmp_path, say=told.append)
    assert found is not None
    assert found.manifest.round == 1
    assert "was renamed" in told[0]


@pytest.mark.parametrize("content", [b"", b"null", b"[1]", b'{"format": 1}', b"\xff\xfe", b"{" * 100_000])
def test_a_file_that_is_no_manifest_is_found(tmp_path: Path, content: bytes) -> None:
    _, second = two(tmp_path)
    second.file.write_bytes(content)
    assert_falls_back(tmp_path, "the manifest")


def test_a_checkpoint_of_a_later_format_is_told_of_and_stays(tmp_path: Path) -> None:
    """It may be whole, and so may every shard in the folder be one of its own."""
    save(tmp_path, 1)
    later = manifest_path(tmp_path, 2, 0)
    later.write_bytes(_encode_with_hash({"format": 99, "anything": []}))
    its_own = tmp_path / "objects" / f"{'0' * 64}.safetensors"
    its_own.write_bytes(b"in a format of its own")
    told: list[str] = []
    found = newest_intact(tmp_path, say=told.append)
    assert found is not None
    assert found.manifest.round == 1
    assert "format 99" in told[0]
    assert "format 1, " in told[0]
    for number in range(3, 9):
        save(tmp_path, number)
    assert later.is_file()
    assert its_own.is_file()


def test_a_manifest_that_cannot_be_read_this_time_costs_no_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = two(tmp_path)
    opened = directory.open_at_once

    def failing(path: Path) -> FileIO:
        if path == second.file:
            raise OSError(errno.EIO, "Input/output error")
        return opened(path)

    monkeypatch.setattr(directory, "open_at_once", failing)
    for number in range(3, 9):
        save(tmp_path, number)
    remove_orphan_shards(tmp_path)
    monkeypatch.undo()
    assert find_damage(tmp_path, second) == []
    save(tmp_path, 9)
    assert [manifest.round for manifest in list_checkpoints(tmp_path)] == [7, 8, 9]
    named = {shard.sha256 for manifest in list_checkpoints(tmp_path) for shard in manifest.shards}
    assert {path.stem for path in (tmp_path / "objects").iterdir()} == named


def test_only_verification_makes_an_intact(tmp_path: Path) -> None:
    _, second = two(tmp_path)
    with pytest.raises(TypeError, match="`verify_checkpoint`"):
        VerifiedCheckpoint(manifest=second, folder=tmp_path, spans={}, marks={}, proof=object())


def test_a_shard_that_is_written_to_after_it_was_verified_is_not_restored(tmp_path: Path) -> None:
    _, second = two(tmp_path)
    whole = verify_checkpoint(tmp_path, second)
    last = files_of(tmp_path, second)[-1]
    content = last.read_bytes()
    last.write_bytes(content)
    later = last.stat().st_mtime_ns + 1
    os.utime(last, ns=(later, later))
    root = tree_at(0)
    with pytest.raises(CheckpointError, match="changed since"):
        restore_state_(root, whole)
    assert (root["round"], root["weights"][0].item(), root["small"][0].item()) == (0, 0.0, 0)


def test_leavings_of_a_save_that_was_cut_off_are_told(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "objects" / ".0123.safetensors.77.tmp").write_bytes(b"half")
    told: list[str] = []
    assert newest_intact(tmp_path, say=told.append) is not None
    (sentence,) = told
    assert f"1 unfinished file in {tmp_path}" in sentence
    save(tmp_path, 2)
    assert not list(tmp_path.rglob("*.tmp"))


def test_nothing_intact_is_none_and_says_why(tmp_path: Path) -> None:
    first, second = two(tmp_path)
    for manifest in (first, second):
        files_of(tmp_path, manifest)[1].unlink()
    told: list[str] = []
    assert newest_intact(tmp_path, say=told.append) is None
    assert len(told) == 2
    assert newest_intact(tmp_path / "nowhere", say=told.append) is None


def test_an_intact_checkpoint_has_no_problems(tmp_path: Path) -> None:
    assert [find_damage(tmp_path, manifest) for manifest in two(tmp_path)] == [[], []]


def test_a_damaged_checkpoint_is_not_restored_in_part(tmp_path: Path) -> None:
    _, second = two(tmp_path)
    last = files_of(tmp_path, second)[-1]
    last.write_bytes(last.read_bytes()[:-1] + b"\x55")
    root = tree_at(0)
    with pytest.raises(CheckpointError, match="hash of its content"):
        restore_state_(root, verify_checkpoint(tmp_path, second))
    assert (root["round"], root["weights"][0].item(), root["small"][0].item()) == (0, 0.0, 0)


def test_the_checkpoint_before_is_used_until_the_run_saves_again(
    tmp_path: Path, contents: Callable[[object], dict[str, Any]]
) -> None:
    """Resumed from round 1 because round 2 is damaged, the run saves its own round 2 in its place."""
    _, second = two(tmp_path)
    files_of(tmp_path, second)[1].unlink()
    save(tmp_path, 2)
    told: list[str] = []
    found = newest_intact(tmp_path, say=told.append)
    assert found is not None
    assert (found.manifest.round, told) == (2, [])
    root = tree_at(0)
    restore_state_(root, found)
    assert contents(root) == contents(tree_at(2))


def test_a_shard_that_checkpoints_share_is_read_once_and_told_of_in_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        save_checkpoint(tmp_path, tree_at(1), round=number, step=0, facts={}, config=CONFIG)
    first, second = list_checkpoints(tmp_path)
    assert first.shards == second.shards
    shard = files_of(tmp_path, first)[1]
    shard.write_bytes(bytes(shard.stat().st_size))
    read: list[Path] = []
    opened = verification.open_at_once
    monkeypatch.setattr(verification, "open_at_once", lambda path: (read.append(path), opened(path))[1])
    found = list_verified_checkpoints(tmp_path)
    assert sorted(read) == sorted(files_of(tmp_path, first)[1:])
    assert [problems for _, problems in found] == [find_damage(tmp_path, first)] * 2
    assert len(found[0][1]) == 1
