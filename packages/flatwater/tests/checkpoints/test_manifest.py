"""Manifests come back as they were written, and facts are compared name by name."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatwater.checkpoints.manifest import (
    LeafRecord,
    Manifest,
    ShardRecord,
    encode_manifest,
    fact_differences,
    manifest_files,
    manifest_path,
    read_manifest,
    scalar_hash,
    to_plain_json,
)

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(st.text(max_size=4), below, max_size=3)),
    max_leaves=8,
)
FACTS = st.dictionaries(st.text(max_size=5), JSON, max_size=4)
HASHES = st.text("0123456789abcdef", min_size=64, max_size=64)
SHARDS = st.lists(
    st.builds(ShardRecord, sha256=HASHES, bytes=st.integers(0, 2**50)), max_size=3, unique_by=lambda shard: shard.sha256
)
NUMBERS = st.one_of(
    st.tuples(st.just("float"), st.floats()),
    st.tuples(st.just("int"), st.integers()),
    st.tuples(st.just("bool"), st.booleans()),
    st.tuples(st.just("str"), st.text()),
    st.tuples(st.just("none"), st.none()),
)


@st.composite
def records(draw: st.DrawFn, shards: list[ShardRecord]) -> list[LeafRecord]:
    """Leaves whose bytes lie in `shards`, and numbers."""
    found = []
    for path in draw(st.lists(st.text(max_size=9), max_size=5, unique=True)):
        if shards and draw(st.booleans()):
            record = LeafRecord(
                path=path,
                kind=draw(st.sampled_from(["tensor", "array", "generator"])),
                sha256=draw(HASHES),
                dtype=draw(st.text(max_size=5)),
                shape=tuple(draw(st.lists(st.integers(0, 99), max_size=4))),
                shard=draw(st.sampled_from(shards)).sha256,
            )
        else:
            kind, value = draw(NUMBERS)
            record = LeafRecord(path=path, kind=kind, sha256=scalar_hash(kind, value), value=value)
        found.append(record)
    return found


@settings(max_examples=60, deadline=None)
@given(
    at=st.integers(0, 10**7),
    step=st.integers(0, 10**7),
    facts=FACTS,
    shards=SHARDS,
    data=st.data(),
)
def test_a_manifest_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    at: int,
    step: int,
    facts: dict[str, Any],
    shards: list[ShardRecord],
    data: st.DataObject,
) -> None:
    leaves = data.draw(records(shards))
    file = manifest_path(tmp_path_factory.mktemp("manifest"), at, step)
    manifest = Manifest(
        file=file, round=at, step=step, saved="now", facts=facts, leaves=tuple(leaves), shards=tuple(shards)
    )
    file.write_bytes(encode_manifest(manifest))
    back = read_manifest(file)
    assert repr(back) == repr(manifest)  # repr: NaN is not equal to itself, and True is equal to 1
    assert encode_manifest(back) == encode_manifest(manifest)


def test_manifests_are_found_in_the_order_of_rounds_beyond_six_digits(tmp_path: Path) -> None:
    for at, step in ((1_000_000, 0), (999_999, 2), (999_999, 10), (5, 0)):
        manifest_path(tmp_path, at, step).write_bytes(b"")
    (tmp_path / "notes.json").write_bytes(b"{}")
    assert [file.name for file in manifest_files(tmp_path)] == [
        "000005.000000.json",
        "999999.000002.json",
        "999999.000010.json",
        "1000000.000000.json",
    ]


def test_facts_that_json_cannot_say_are_refused_and_not_a_number_is_text() -> None:
    assert to_plain_json({"a": (1, float("nan")), "b": Path("x/y"), "c": float("-inf")}) == {
        "a": [1, "nan"],
        "b": "x/y",
        "c": "-inf",
    }
    with pytest.raises(TypeError, match="a set: "):
        to_plain_json({"a": {1}})


def test_differences_name_every_fact_that_differs_and_no_other() -> None:
    saved = {"population": {"size": 16, "seed": 1}, "data": "abc", "gone": {}, "list": [1, 2], "rate": 1, "best": 0.5}
    now = {"population": {"size": 8, "seed": 1}, "data": "abd", "list": [1], "rate": 1.0, "best": 0.5, "new": True}
    assert fact_differences(saved, now) == [
        "population.size: 16 in the checkpoint, 8 now",
        'data: "abc" in the checkpoint, "abd" now',
        "gone: {} in the checkpoint, absent now",
        "list: [1, 2] in the checkpoint, [1] now",
        "new: absent in the checkpoint, true now",
    ]
    assert fact_differences({"flag": True}, {"flag": 1}) == ["flag: true in the checkpoint, 1 now"]


@settings(max_examples=60, deadline=None)
@given(facts=FACTS)
def test_facts_that_went_through_a_manifest_do_not_differ(facts: dict[str, Any], tmp_path_factory: Any) -> None:
    file = manifest_path(tmp_path_factory.mktemp("facts"), 1, 0)
    file.write_bytes(encode_manifest(Manifest(file=file, round=1, step=0, facts=facts)))
    assert fact_differences(read_manifest(file).facts, facts) == []
