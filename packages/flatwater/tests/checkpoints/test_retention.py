"""What is kept, what goes, and that the newest intact checkpoint always stays."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flatwater.checkpoints.catalogue import prune_checkpoints, remove_orphan_shards
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.reader import find_damage, list_checkpoints, newest_intact
from flatwater.checkpoints.writer import save_checkpoint
from flatwater_watch.errors import ConfigError, RunError


def save(folder: Path, at: int, step: int = 0, *, config: CheckpointConfig) -> Path:
    root = {"weights": torch.full((20,), float(at * 100 + step)), "still": torch.ones(20)}
    return save_checkpoint(folder, root, round=at, step=step, facts={}, config=config)


def places(folder: Path) -> list[tuple[int, int]]:
    return [(manifest.round, manifest.step) for manifest in list_checkpoints(folder)]


def objects(folder: Path) -> set[str]:
    return {path.stem for path in (folder / "objects").iterdir()}


@settings(max_examples=15, deadline=None)
@given(
    keep=st.integers(1, 4),
    every=st.integers(0, 4),
    steps=st.lists(st.sampled_from([(1, False), (0, True), (2, False)]), min_size=1, max_size=9),
)
def test_the_newest_rounds_and_every_nth_stay_with_their_shards_alone(
    tmp_path_factory: pytest.TempPathFactory, keep: int, every: int, steps: list[tuple[int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("keep")
    config = CheckpointConfig(keep=keep, keep_every=every, shard_bytes=64)
    at, step, whole, last = 0, 0, [], (0, 0)
    for rounds, inside in steps:
        at, step = at + rounds, step + 1 if inside else 0
        save(folder, at, step, config=config)
        last = (at, step)
        if step == 0:
            whole.append(last)

    wanted = set([place for place in whole if place != last][-(keep - 1) :] if keep > 1 else [])
    wanted |= {(r, s) for r, s in whole if every and r % every == 0} | {last}
    # What an earlier save removed does not come back.
    found = places(folder)
    assert set(found) == wanted
    assert all(find_damage(folder, manifest) == [] for manifest in list_checkpoints(folder))
    assert objects(folder) == {shard.sha256 for manifest in list_checkpoints(folder) for shard in manifest.shards}


def test_a_checkpoint_inside_a_round_goes_when_a_newer_one_is_there(tmp_path: Path) -> None:
    config = CheckpointConfig(keep=3)
    for at, step in ((1, 0), (1, 5), (1, 9)):
        save(tmp_path, at, step, config=config)
    assert places(tmp_path) == [(1, 0), (1, 9)]
    save(tmp_path, 2, config=config)
    assert places(tmp_path) == [(1, 0), (2, 0)]


def test_a_damaged_checkpoint_takes_no_place_of_an_intact_one(tmp_path: Path) -> None:
    config = CheckpointConfig(keep=2)
    save(tmp_path, 1, config=config)
    damaged = save(tmp_path, 2, config=config)
    damaged.write_bytes(b"")
    save(tmp_path, 3, config=config)
    assert places(tmp_path) == [(1, 0), (3, 0)]


def test_a_later_checkpoint_that_the_run_was_not_resumed_from_goes(tmp_path: Path) -> None:
    """A round 5 whose shard rotted must not make the round 4 just saved look like an old one."""
    config = CheckpointConfig(keep=1, shard_bytes=64)
    save(tmp_path, 3, config=config)
    save(tmp_path, 5, 7, config=CheckpointConfig(keep=3, shard_bytes=64))
    (later,) = (record for record in list_checkpoints(tmp_path)[-1].leaves if record.path == "weights")
    shard = tmp_path / "objects" / f"{later.shard}.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x77")
    saved = save(tmp_path, 4, 2, config=config)
    found = newest_intact(tmp_path, say=print)
    assert found is not None
    assert found.manifest.file == saved
    assert places(tmp_path) == [(4, 2)]


def test_shards_without_a_manifest_and_temporary_files_are_swept(tmp_path: Path) -> None:
    save(tmp_path, 1, config=CheckpointConfig())
    before = objects(tmp_path)
    (tmp_path / "objects" / ("0" * 64 + ".safetensors")).write_bytes(b"of a save that was cut off")
    (tmp_path / ".000002.000000.json.9.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_bytes(b"the user's own")
    remove_orphan_shards(tmp_path)
    assert objects(tmp_path) == before
    assert {path.name for path in tmp_path.iterdir()} == {"objects", "000001.000000.json", "notes.txt"}


def test_a_save_that_fails_removes_what_it_wrote_and_keeps_the_others(tmp_path: Path) -> None:
    config = CheckpointConfig(shard_bytes=64)
    save(tmp_path, 1, config=config)
    before = objects(tmp_path)
    (tmp_path / "000002.000000.json").mkdir()  # the manifest cannot be put here
    with pytest.raises(RunError, match=r"000002\.000000\.json: "):
        save(tmp_path, 2, config=config)
    assert objects(tmp_path) == before
    found = newest_intact(tmp_path, say=lambda _: None)
    assert found is not None
    assert found.manifest.round == 1


def test_a_folder_that_is_emptied_after_the_save_is_not_pruned(tmp_path: Path) -> None:
    """Somebody deletes a run folder between the two: what is written next says so."""
    prune_checkpoints(tmp_path / "checkpoints", tmp_path / "checkpoints" / "000001.000000.json", CheckpointConfig())
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="folder writable"):
        save(tmp_path, 1, config=CheckpointConfig())


@pytest.mark.parametrize(("field", "value"), [("keep", 0), ("keep_every", -1), ("shard_bytes", 0)])
def test_a_policy_that_cannot_work_is_refused(field: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"checkpoints.{field} = {value}"):
        CheckpointConfig(**{field: value})
