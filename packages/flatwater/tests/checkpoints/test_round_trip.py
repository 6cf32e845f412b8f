"""What is saved comes back bit for bit, into the memory that was there."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file

from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.manifest import shard_path
from flatwater.checkpoints.reader import list_checkpoints, newest_intact, restore_state_
from flatwater.checkpoints.writer import save_checkpoint
from flatwater_watch.errors import CheckpointError

Make = Callable[[int], Any]
Look = Callable[[object], dict[str, Any]]
CONFIG = CheckpointConfig(keep=3, shard_bytes=256)
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


def save(folder: Path, root: object, at: int, step: int = 0, config: CheckpointConfig = CONFIG) -> Path:
    return save_checkpoint(folder, root, round=at, step=step, facts={"round": at}, config=config)


def load_(root: object, folder: Path) -> list[str]:
    told: list[str] = []
    intact = newest_intact(folder, say=told.append)
    assert intact is not None
    restore_state_(root, intact)
    return told


@pytest.mark.parametrize("shard_bytes", [1, 64, 256, 1 << 20])
def test_every_kind_of_leaf_comes_back_in_place(
    tmp_path: Path, tree: Make, contents: Look, homes: Look, shard_bytes: int
) -> None:
    saved, other = tree(1), tree(2)
    wanted, home, cache = contents(saved), homes(other), other.nets.cache.clone()
    moved = {path for path, value in contents(other).items() if value != wanted[path]}
    assert {"nets.block", "by_name.strided", "arrays.8", "rng", "best", "name", "champion"} - moved == {"best"}

    save(tmp_path, saved, 1, config=CheckpointConfig(shard_bytes=shard_bytes))
    assert load_(other, tmp_path) == []

    assert contents(other) == wanted
    assert homes(other) == home
    assert torch.equal(other.nets.cache, cache), "a derived leaf was touched"
    assert torch.equal(torch.rand(5, generator=other.rng), torch.rand(5, generator=saved.rng))


def test_saving_changes_nothing(tmp_path: Path, tree: Make, contents: Look, homes: Look) -> None:
    root = tree(1)
    before, home = contents(root), homes(root)
    save(tmp_path, root, 1)
    assert contents(root) == before
    assert homes(root) == home


CELLS = st.tuples(st.lists(st.integers(0, 4), max_size=3), st.sampled_from(range(len(DTYPES))), st.booleans())
SPECS = st.recursive(
    st.one_of(
        st.tuples(st.just("tensor"), CELLS),
        st.tuples(st.just("array"), CELLS),
        st.just(("generator", None)),
        st.tuples(st.just("scalar"), st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())),
    ),
    lambda below: st.one_of(
        st.tuples(st.just("list"), st.lists(below, max_size=4)),
        st.tuples(st.just("dict"), st.dictionaries(st.text("ab_", min_size=1, max_size=3), below, max_size=4)),
    ),
    max_leaves=12,
)


def build(spec: tuple[str, Any], rng: torch.Generator, *, blank: bool) -> Any:
    """The tree that `spec` describes; with `blank`, its twin of other content."""
    kind, inside = spec
    if kind == "list":
        return [build(below, rng, blank=blank) for below in inside]
    if kind == "dict":
        return {name: build(below, rng, blank=blank) for name, below in inside.items()}
    if kind == "scalar":
        return 0 if blank else inside
    if kind == "generator":
        return torch.Generator().manual_seed(int(torch.randint(1 << 40, (), generator=rng)))
    shape, dtype, turned = inside
    size = torch.Size(shape)
    high = 2 if DTYPES[dtype] is torch.bool else 256
    width = torch.empty(0, dtype=DTYPES[dtype]).element_size()
    flat = torch.randint(high, (size.numel() * width,), dtype=torch.uint8, generator=rng).view(DTYPES[dtype])
    tensor = flat.reshape(size)
    if turned and len(shape) > 1:
        tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)
    if kind == "tensor":
        return tensor
    return tensor.float().numpy().copy(order="K") if DTYPES[dtype] is torch.bfloat16 else tensor.numpy().copy(order="K")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    spec=st.dictionaries(st.sampled_from("xyz"), SPECS, max_size=3), seed=st.integers(0, 99), size=st.integers(1, 99)
)
def test_any_tree_comes_back_in_place(
    tmp_path_factory: pytest.TempPathFactory, contents: Look, homes: Look, spec: dict[str, Any], seed: int, size: int
) -> None:
    folder, rng = tmp_path_factory.mktemp("tree"), torch.Generator().manual_seed(seed)
    saved, other = (build(("dict", spec), rng, blank=blank) for blank in (False, True))
    home = homes(other)

    save(folder, saved, 1, config=CheckpointConfig(shard_bytes=size))
    load_(other, folder)

    assert contents(other) == contents(saved)
    assert homes(other) == home


def test_the_safetensors_library_reads_every_shard(tmp_path: Path, tree: Make) -> None:
    root = tree(1)
    save(tmp_path, root, 1)
    (manifest,) = list_checkpoints(tmp_path)
    found: dict[str, torch.Tensor] = {}
    for shard in manifest.shards:
        found |= load_file(shard_path(tmp_path, shard.sha256))
        with safe_open(shard_path(tmp_path, shard.sha256), "pt") as file:
            assert all(name in found for name in file.keys())  # noqa: SIM118  (it is no mapping)

    for name, tensor in root.by_name.items():
        if tensor.dtype is not torch.complex64:
            torch.testing.assert_close(found[f"by_name.{name}"], tensor.detach(), rtol=0, atol=0)
    assert found["by_name.c64"].numpy().tobytes() == root.by_name["c64"].numpy().tobytes()
    np.testing.assert_array_equal(found["arrays.1"].numpy(), root.arrays[1])
    assert set(found) == {record.path for record in manifest.leaves if record.shard}


def test_every_leaf_lies_at_a_multiple_of_its_cell_so_that_files_can_be_mapped(tmp_path: Path, tree: Make) -> None:
    save(tmp_path, tree(1), 1, config=CheckpointConfig())
    ((shard,),) = (manifest.shards for manifest in list_checkpoints(tmp_path))
    content = shard_path(tmp_path, shard.sha256).read_bytes()
    length = int.from_bytes(content[:8], "little")
    places = json.loads(content[8 : 8 + length])
    cells = {"BOOL": 1, "U8": 1, "I16": 2, "BF16": 2, "F16": 2, "F32": 4, "I64": 8, "F64": 8}
    assert {place["dtype"] for place in places.values()} == set(cells)
    assert all((8 + length + place["data_offsets"][0]) % cells[place["dtype"]] == 0 for place in places.values())


def test_the_manifest_hashes_are_those_of_the_bytes(tmp_path: Path, tree: Make) -> None:
    root = tree(1)
    save(tmp_path, root, 1)
    (manifest,) = list_checkpoints(tmp_path)
    hashes = {record.path: record.sha256 for record in manifest.leaves}
    assert hashes["arrays.0"] == hashlib.sha256(root.arrays[0].tobytes()).hexdigest()
    assert hashes["by_name.turned"] == hashlib.sha256(root.by_name["turned"].numpy().tobytes()).hexdigest()
    for shard in manifest.shards:
        content = shard_path(tmp_path, shard.sha256).read_bytes()
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (shard.sha256, shard.bytes)


def test_equal_states_have_equal_hashes_and_a_changed_leaf_alone_has_another(tmp_path: Path, tree: Make) -> None:
    hashes = []
    for name, change in (("a", 0.0), ("b", 0.0), ("c", 1.0)):
        root = tree(1)
        root.by_name["scalar"] += change
        save(tmp_path / name, root, 1)
        hashes.append({record.path: record.sha256 for record in list_checkpoints(tmp_path / name)[0].leaves})
    assert hashes[0] == hashes[1]
    assert {path for path in hashes[0] if hashes[0][path] != hashes[2][path]} == {"by_name.scalar"}


def test_a_shard_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    root = {"still": torch.arange(100), "moving": torch.zeros(100)}
    save(tmp_path, root, 1)
    (still,) = {r.shard for r in list_checkpoints(tmp_path)[0].leaves if r.path == "still"}
    before = shard_path(tmp_path, still).stat()
    root["moving"] += 1
    save(tmp_path, root, 2)
    after = shard_path(tmp_path, still).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert len(list((tmp_path / "objects").iterdir())) == 3


def test_a_shard_that_rotted_is_written_again(tmp_path: Path, contents: Look) -> None:
    root, other = {"still": torch.arange(100)}, {"still": torch.zeros(100, dtype=torch.int64)}
    save(tmp_path, root, 1)
    (path,) = (tmp_path / "objects").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    save(tmp_path, root, 2)
    assert load_(other, tmp_path) == []
    assert contents(other) == contents(root)


def test_nothing_in_a_checkpoint_is_pickled(tmp_path: Path, tree: Make) -> None:
    save(tmp_path, tree(1), 1)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".safetensors"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.float64(1.0), "x: .*float64.*number"),
        (torch.zeros(1).expand(3), "x: .*expand"),
        (torch.zeros(3, device="meta"), "x: .*dense.* on meta"),
        (torch.zeros(3).to_sparse(), "x: .*dense"),
        (np.array([object()]), "x: .*array of objects"),
        (np.broadcast_to(np.zeros(1), (3,)), "x: .*overlap"),
    ],
)
def test_a_leaf_that_could_not_come_back_exactly_is_refused(tmp_path: Path, value: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        save(tmp_path, {"x": value}, 1)
    assert list_checkpoints(tmp_path) == []


def test_two_leaves_of_one_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="same path"):
        save(tmp_path, {"a": {"b": torch.zeros(1)}, "a.b": 1}, 1)
    with pytest.raises(TypeError, match="same path"):
        save(tmp_path, {"a": {"b": torch.zeros(1)}, "a.b": torch.zeros(1)}, 1)
    assert list_checkpoints(tmp_path) == []


def test_a_tree_of_another_structure_is_refused_whole(tmp_path: Path, contents: Look) -> None:
    save(tmp_path, {"a": torch.zeros(2, 3), "b": 1, "c": [torch.ones(1)], "d": np.zeros(2), "e": 2.5, "t": (1, 2)}, 1)
    other = {
        "a": torch.ones(2, 4),
        "b": 5,
        "c": [],
        "d": np.ones(2, np.float32),
        "e": torch.ones(2),
        "t": (1, 3),
        "f": 3,
    }
    before = contents(other)

    with pytest.raises(CheckpointError) as error:
        load_(other, tmp_path)

    text = str(error.value)
    for line in (
        "a: tensor float32 [2, 3] in the checkpoint, tensor float32 [2, 4] in this run",
        "c.0: tensor float32 [1] in the checkpoint, absent in this run",
        "d: array <f8 [2] in the checkpoint, array <f4 [2] in this run",
        "e: float 2.5 in the checkpoint, tensor float32 [2] in this run",
        "t.1: int 2 in the checkpoint, 3 in this run",
        "f: absent in the checkpoint, 3 in this run",
        "config.toml",
    ):
        assert line in text
    assert "t.0" not in text
    assert contents(other) == before


def test_a_long_list_of_differences_is_cut(tmp_path: Path) -> None:
    save(tmp_path, [torch.zeros(1)] * 50, 1)
    with pytest.raises(CheckpointError, match="and 30 more"):
        load_([torch.zeros(2)] * 50, tmp_path)


def test_a_read_only_array_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    fixed = np.zeros(3)
    save(tmp_path, {"first": torch.ones(2), "fixed": fixed}, 1)
    fixed.flags.writeable = False
    first = torch.zeros(2)
    with pytest.raises(CheckpointError, match=r"fixed: .*read-only"):
        load_({"first": first, "fixed": fixed}, tmp_path)
    assert torch.equal(first, torch.zeros(2))


@pytest.mark.gpu
def test_leaves_on_cuda_come_back_in_place(tmp_path: Path, contents: Look, homes: Look) -> None:
    cuda = torch.device("cuda")

    def on_cuda(seed: int) -> dict[str, Any]:
        rng = torch.Generator(cuda).manual_seed(seed)
        block = torch.randn(300, 40, device=cuda, generator=rng)
        return {"block": block, "turned": block.t(), "rng": rng, "half": block.bfloat16()}

    def host_contents(root: dict[str, Any]) -> dict[str, Any]:
        return contents({name: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf for name, leaf in root.items()})

    saved, other = on_cuda(1), on_cuda(2)
    home = homes(other)
    save(tmp_path, saved, 1)
    load_(other, tmp_path)
    assert host_contents(other) == host_contents(saved)
    assert homes(other) == home
