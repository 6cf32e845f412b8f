"""Manifests and shards that somebody made up: no traceback, nothing restored in part, an older checkpoint is used."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from flatwater.checkpoints.catalogue import list_checkpoints, list_verified_checkpoints, newest_intact
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.manifest import _encode_with_hash, manifest_path
from flatwater.checkpoints.reader import restore_state_
from flatwater.checkpoints.verification import VerifiedCheckpoint
from flatwater.checkpoints.writer import save_checkpoint
from flatwater_watch.errors import CheckpointError
from flatwater_watch.files.json_values import MAXIMUM_BYTES

CONFIG = CheckpointConfig(keep=3, shard_bytes=64)
ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63,
    10**300,
    0.5,
    -0.0,
    1e308,
    "",
    "nan",
    "\x00",
    "\ud800",
    "../../etc/passwd",
    "/dev/zero",
    "f" * 64,
    "F" * 64,
    "f" * 64 + "\n",
    "٣" * 64,
    "a" * 10_000,
    [],
    {},
    [[]],
    [None],
    {"": None},
    [1, 2],
    [3, 1],
    [0, 10**18],
    ["a"],
    {"path": "weights"},
]
"""What may stand where something else is wanted."""


def tree_at(number: int) -> dict[str, Any]:
    rng = torch.Generator().manual_seed(number)
    return {"weights": torch.full((40,), float(number)), "small": torch.full((3,), number), "round": number, "rng": rng}


def same(root: dict[str, Any], number: int) -> bool:
    wanted = tree_at(number)
    return (
        torch.equal(root["weights"], wanted["weights"])
        and torch.equal(root["small"], wanted["small"])
        and torch.equal(root["rng"].get_state(), wanted["rng"].get_state())
        and root["round"] == number
    )


@pytest.fixture(scope="session")
def saved_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints of rounds 1 and 2."""
    folder = tmp_path_factory.mktemp("saved_folder")
    for number in (1, 2):
        save_checkpoint(folder, tree_at(number), round=number, step=0, facts={"config": {"rate": 0.1}}, config=CONFIG)
    return folder


@pytest.fixture
def folder(saved_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_folder, tmp_path / "checkpoints"))


def reseal(content: dict[str, Any]) -> bytes:
    return _encode_with_hash({key: value for key, value in content.items() if key != "sha256"})


def mutate(value: Any, draw: random.Random) -> Any:
    """`value` with one thing in it changed, somewhere."""
    if isinstance(value, dict | list) and value and draw.random() < 0.9:
        return mutated_map(value, draw) if isinstance(value, dict) else mutated_list(value, draw)
    if isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.5:
        return value + draw.choice([-1, 1, 8, 64])
    if isinstance(value, str) and len(value) == 64 and draw.random() < 0.3:
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    return draw.choice(ODD)


def mutated_map(value: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    key, act = draw.choice(list(value)), draw.random()
    if act < 0.08:
        return {k: v for k, v in value.items() if k != key}
    if act < 0.14:
        return {**value, draw.choice(["more", "", key + "x", "__metadata__"]): draw.choice(ODD)}
    if act < 0.2:
        return {(key + "x" if k == key else k): v for k, v in value.items()}
    return {**value, key: mutate(value[key], draw)}


def mutated_list(value: list[Any], draw: random.Random) -> list[Any]:
    at, act = draw.randrange(len(value)), draw.random()
    if act < 0.08:
        return value[:at] + value[at + 1 :]
    if act < 0.14:
        return [*value, value[at]]
    if act < 0.2:
        return [*value[at:], *value[:at]]
    return [*value[:at], mutate(value[at], draw), *value[at + 1 :]]


def forge_manifest(folder: Path, draw: random.Random) -> None:
    """The newest manifest with one or two things changed, and sealed again as whoever forges one would."""
    file = manifest_path(folder, 2, 0)
    content = json.loads(file.read_bytes())
    for _ in range(draw.choice([1, 1, 2])):
        content = mutate(content, draw)
    if not isinstance(content, dict):
        file.write_bytes(json.dumps(content).encode())
        return
    file.write_bytes(reseal(content))


def forge_shard(folder: Path, draw: random.Random) -> None:
    """A shard of the newest checkpoint with another header, under its right hash, in a manifest that lists it."""
    file = manifest_path(folder, 2, 0)
    content = json.loads(file.read_bytes())
    record = draw.choice(content["shards"])
    path = folder / "objects" / f"{record['sha256']}.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    data, header = raw[8 + length :], json.loads(raw[8 : 8 + length])
    text = json.dumps(mutate(header, draw)).encode()
    act = draw.random()
    if act < 0.1:
        text = draw.choice([b"", b"{}", b"[" * 100_000, b"\xff\xfe", b"1" * 5000, b'{"a": NaN}', text[:-1]])
    told = len(text) if act > 0.2 else draw.choice([0, 1, 7, len(text) + 1, len(raw), 2**31, 2**63, 2**64 - 1])
    if act > 0.9:
        data = draw.choice([b"", data[:-1], data + b"\0", data[::-1]])
    forged = told.to_bytes(8, "little") + text + data
    name = hashlib.sha256(forged).hexdigest()
    (folder / "objects" / f"{name}.safetensors").write_bytes(forged)
    for leaf in content["leaves"]:
        if leaf.get("shard") == record["sha256"]:
            leaf["shard"] = name
    record |= {"sha256": name, "bytes": len(forged)}
    file.write_bytes(reseal(content))


def spoil(folder: Path, draw: random.Random) -> None:
    """Bytes of the newest manifest changed, cut, doubled or put elsewhere, without a new seal."""
    file = manifest_path(folder, 2, 0)
    raw = file.read_bytes()
    at = draw.randrange(len(raw))
    file.write_bytes(
        draw.choice(
            [
                raw[:at],
                raw[:at] + bytes([raw[at] ^ (1 << draw.randrange(8))]) + raw[at + 1 :],
                raw[:at] + raw[at:] * 2,
                raw[at:] + raw[:at],
                raw[:at] + draw.randbytes(8) + raw[at:],
            ]
        )
    )


def outcome(folder: Path) -> str:
    """What becomes of the folder: `older`, `newest` or `refused`; whatever else happens is a failure."""
    told: list[str] = []
    found = newest_intact(folder, say=told.append)
    listed = list_verified_checkpoints(folder)
    assert next(not problems for _, problems in listed), "the older one is as it was"
    assert isinstance(found, VerifiedCheckpoint)
    assert found.manifest == [manifest for manifest, problems in listed if not problems][-1]
    root = tree_at(7)
    if found.manifest.round == 1:
        assert "000002.000000.json" in told[0]
        restore_state_(root, found)
        assert same(root, 1)
        return "older"
    try:
        restore_state_(root, found)
    except CheckpointError:  # whole, and of another state: told, and nothing written
        assert same(root, 7)
        return "refused"
    assert same(root, 2), "what was changed says nothing about the state, such as the time"
    return "newest"


def fuzz(saved_folder: Path, scratch: Path, count: int, seed: int) -> dict[str, int]:
    draw, found = random.Random(seed), {"older": 0, "newest": 0, "refused": 0}
    for n in range(count):
        folder = Path(shutil.copytree(saved_folder, scratch / str(n)))
        draw.choice([forge_manifest, forge_shard, spoil])(folder, draw)
        found[outcome(folder)] += 1
        shutil.rmtree(folder)
    return found


def test_hundreds_of_forged_checkpoints(saved_folder: Path, tmp_path: Path) -> None:
    found = fuzz(saved_folder, tmp_path, 300, seed=1)
    assert found["older"] > 250


@pytest.mark.slow
def test_ten_thousand_forged_checkpoints(saved_folder: Path, tmp_path: Path) -> None:
    found = fuzz(saved_folder, tmp_path, 10_000, seed=2)
    assert found["older"] > 8_000


def without_shard(content: dict[str, Any]) -> None:
    content["shards"] = [s for s in content["shards"] if s["sha256"] != content["leaves"][0]["shard"]]


def other_leaf_hash(content: dict[str, Any]) -> None:
    content["leaves"][0]["sha256"] = "0" * 64


def other_number(content: dict[str, Any]) -> None:
    next(leaf for leaf in content["leaves"] if leaf["kind"] == "int")["value"] = 3


def same_leaf_twice(content: dict[str, Any]) -> None:
    content["leaves"].append(content["leaves"][0])


def other_shape(content: dict[str, Any]) -> None:
    content["leaves"][0]["shape"] = [4, 10]


def out_of_the_folder(content: dict[str, Any]) -> None:
    content["shards"][0]["sha256"] = "../../../etc/passwd"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_shard, "shard of the leaf 'weights'"),
        (other_leaf_hash, "hash of the leaf 'weights'"),
        (other_number, "hash of the int 'round'"),
        (same_leaf_twice, "leaf twice"),
        (other_shape, "'weights' is F32 [40] in 160 bytes, and tensor float32 [4, 10] in the manifest"),
        (out_of_the_folder, "matching regex"),
    ],
)
def test_what_contradicts_itself_is_damaged(folder: Path, change: Callable[[dict[str, Any]], None], said: str) -> None:
    file = manifest_path(folder, 2, 0)
    content = json.loads(file.read_bytes())
    change(content)
    file.write_bytes(reseal(content))
    _, (_, problems) = list_verified_checkpoints(folder)
    assert said in problems[0]
    assert outcome(folder) == "older"


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b'{"facts": ' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"format": 1, "round": ' + b"9" * 5_000 + b"}",
        b'{"format": NaN}',
        b'{"format": 1, "format": 1}',
        b'{"facts": "\xed\xa0\x80"}',
        b" " * (MAXIMUM_BYTES + 1),
    ],
    ids=["deep", "deeper than facts are", "long number", "NaN", "a key twice", "no text", "large"],
)
def test_what_no_parser_likes_is_damaged(folder: Path, raw: bytes) -> None:
    manifest_path(folder, 2, 0).write_bytes(raw)
    assert outcome(folder) == "older"


def test_a_sealed_manifest_of_many_brackets_is_damaged(folder: Path) -> None:
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    content = json.loads(manifest_path(folder, 2, 0).read_bytes())
    manifest_path(folder, 2, 0).write_bytes(reseal(content | {"facts": {"config": deep}}))
    assert outcome(folder) == "older"


def test_a_state_that_no_generator_takes_is_refused_before_anything_is_written(folder: Path) -> None:
    """Whole by every hash, and still no state."""
    root = tree_at(3)
    root["rng"] = torch.zeros(len(root["rng"].get_state()), dtype=torch.uint8)
    save_checkpoint(folder, root, round=3, step=0, facts={}, config=CONFIG)
    file = manifest_path(folder, 3, 0)
    content = json.loads(file.read_bytes())
    next(leaf for leaf in content["leaves"] if leaf["path"] == "rng")["kind"] = "generator"
    file.write_bytes(reseal(content))
    found = newest_intact(folder, say=pytest.fail)
    assert found is not None
    fresh = tree_at(7)
    with pytest.raises(CheckpointError, match=r"rng: .*generator"):
        restore_state_(fresh, found)
    assert same(fresh, 7)


def test_a_pipe_in_the_place_of_a_manifest_or_a_shard_is_not_waited_for(folder: Path) -> None:
    *_, newest = list_checkpoints(folder)
    shard = folder / "objects" / f"{newest.shards[-1].sha256}.safetensors"
    shard.unlink()
    os.mkfifo(shard)
    os.mkfifo(manifest_path(folder, 3, 0))
    assert outcome(folder) == "older"


def test_facts_that_could_not_be_read_again_are_refused(folder: Path) -> None:
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(TypeError, match="too deep"):
        save_checkpoint(folder, tree_at(3), round=3, step=0, facts={"deep": deep}, config=CONFIG)
