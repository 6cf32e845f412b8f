"""A run is fetched from a store that is wrong in every way: nothing is removed there, nothing read or written without
end, and what is brought is what was saved, or an error says what is wrong."""

import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hostile import ANSWERS, LISTS, PIECE, Hostile, HostileObjects, changed_names, saved_run, tree
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from object_store import ObjectStore, bucket, object_store, store

from flatwater.checkpoints import remote
from flatwater.checkpoints.catalogue import newest_intact
from flatwater.checkpoints.reader import restore_state_
from flatwater.checkpoints.remote import fetch_newest, list_remote, list_stored_files, shard_name
from flatwater.mirror import download
from flatwater.mirror.download import fetch_run
from flatwater.storage import objects as objects_module
from flatwater.storage.faults import OversizeError, StoreError
from flatwater.storage.objects import StoredObjects, is_plain, open_objects
from flatwater_watch.errors import FlatwaterError

__all__ = ["bucket", "object_store", "store"]

URL = "s3://memory/run"
SCRIPTS = st.lists(st.sampled_from((*ANSWERS, *ANSWERS[1:], *LISTS[1:])), max_size=40)


@pytest.fixture(scope="session")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return saved_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause before something is read again."""
    monkeypatch.setattr(remote, "RETRY_PAUSES", (0.0, 0.0))


def assert_equal(folder: Path, told: list[str]) -> int:
    """That the newest checkpoint in a folder is as it was saved. Its round."""
    found = newest_intact(folder / "checkpoints", say=pytest.fail)
    assert found is not None, told
    root = tree(7)
    restore_state_(root, found)
    wanted = tree(found.manifest.round)
    assert all((root[name] == wanted[name]) if name == "round" else root[name].equal(wanted[name]) for name in root)
    return found.manifest.round


def fetch_and_judge(hostile: Hostile, into: Path, monkeypatch: pytest.MonkeyPatch, *, listed: bool) -> str:
    """What became of it; nothing else may. `listed`: no list was wrong, so what is passed over is told."""
    before, told = dict(hostile.contents), list[str]()
    monkeypatch.setattr(download, "open_objects", lambda url: HostileObjects(url, None, hostile=hostile))  # type: ignore[arg-type]
    end = "told"
    with suppress(FlatwaterError):
        fetch_run(URL, into, told.append)
        end = f"round {assert_equal(into, told)}"
    assert changed_names(hostile) == [], "fetching never changes what is there"
    assert {name: hostile.contents[name] for name in before} == before
    assert hostile.beyond <= PIECE, "at most the piece that is one too many is read"
    files = {path.relative_to(into).as_posix(): path.stat().st_size for path in into.rglob("*") if path.is_file()}
    assert set(files) <= {*before}, "known names alone"
    assert all(size <= 3 * len(before[name]) + 1 for name, size in files.items() if name != "mirror.json")
    assert end in {"told", "round 2"} or not listed or any("is skipped" in line for line in told)
    return end


def attack_each(examples: int, contents: dict[str, bytes], scratch: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    ends = set[str]()

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(
        script=SCRIPTS, always=st.dictionaries(st.sampled_from(sorted(contents)), st.sampled_from(ANSWERS), max_size=2)
    )
    def attack(script: list[str], always: dict[str, str]) -> None:
        shutil.rmtree(scratch, ignore_errors=True)
        hostile = Hostile(dict(contents), iter(script), always)
        ends.add(fetch_and_judge(hostile, scratch, monkeypatch, listed=not {*script} & {*LISTS[1:]}))

    attack()
    return ends


@pytest.mark.usefixtures("at_once")
def test_a_hostile_store_costs_nothing(
    contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"told", "round 2"} <= attack_each(60, contents, tmp_path / "into", monkeypatch)


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_thousands_of_hostile_stores_cost_nothing(
    contents: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert {"told", "round 2", "round 1", "round 0"} <= attack_each(3000, contents, tmp_path / "into", monkeypatch)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("fault", ANSWERS[1:])
def test_two_wrong_answers_in_a_row_cost_nothing(fault: str, contents: dict[str, bytes], tmp_path: Path) -> None:
    """The third reading is right, of the manifest and of the shard."""
    script = ["", fault, fault, "", fault, fault]
    hostile = Hostile(dict(contents), iter(script))
    found = fetch_newest(HostileObjects(URL, None, hostile=hostile), tmp_path, say=pytest.fail)  # type: ignore[arg-type]
    assert found is not None
    assert found.round == 2
    assert changed_names(hostile) == []


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("fault", ["flip", "short", "long", "endless", "gone", "other"])
def test_an_object_that_stays_wrong_is_told_of_and_stays(
    fault: str, contents: dict[str, bytes], tmp_path: Path
) -> None:
    there = HostileObjects(URL, None, hostile=Hostile(dict(contents)))  # type: ignore[arg-type]
    newest, older = (manifest for manifest, _ in list_remote(there)[:0:-1])
    own = next(shard for shard in newest.shards if shard not in older.shards)
    there.hostile.always[shard_name(own.sha256)] = fault
    told: list[str] = []
    found = fetch_newest(there, tmp_path / "checkpoints", say=told.append)
    assert found is not None
    assert assert_equal(tmp_path, told) == 1
    assert "000002.000000.json at s3://memory/run is damaged and is skipped: objects/" in told[0]
    assert changed_names(there.hostile) == []
    assert [bool(problems) for _, problems in list_remote(there)] == [False, False, True]


@pytest.fixture
def mirrored_run(bucket: str, contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> StoredObjects:
    """The run at a real server, with a client that tries again once."""
    monkeypatch.setattr(remote, "RETRY_PAUSES", (0.0, 0.0))
    objects = open_objects(f"{bucket}/run", 1)
    for name, content in contents.items():
        objects.put(name, content)
    return objects


@pytest.fixture
def hurried_client(mirrored_run: StoredObjects, monkeypatch: pytest.MonkeyPatch) -> StoredObjects:
    """The same, with a client that waits five seconds."""
    monkeypatch.setitem(objects_module._CLIENT_OPTIONS, "timeout", timedelta(seconds=5))
    monkeypatch.setattr(objects_module, "REQUEST_SECONDS", 5.0)
    return mirrored_run.reconnect()


def newest_shard(objects: StoredObjects) -> str:
    (_, _), (older, _), (newest, _) = list_remote(objects)
    return shard_name(next(shard for shard in newest.shards if shard not in older.shards).sha256)


def assert_nothing_removed(objects: StoredObjects, contents: dict[str, bytes]) -> None:
    assert {entry.name for entry in objects.entries()} == {*contents}


@pytest.mark.parametrize("fault", ["endless", "flip", "half"])
def test_a_server_that_answers_wrong_for_ever_is_left(
    fault: str, mirrored_run: StoredObjects, store: ObjectStore, contents: dict[str, bytes], tmp_path: Path
) -> None:
    name = newest_shard(mirrored_run)
    store.set(**{fault: Path(name).stem})
    told: list[str] = []
    if fault == "half":  # as good as down: another time it may be better
        with pytest.raises(StoreError, match="reading fails"):
            fetch_newest(mirrored_run, tmp_path / "checkpoints", say=told.append)
    else:
        assert fetch_newest(mirrored_run, tmp_path / "checkpoints", say=told.append) is not None
        assert assert_equal(tmp_path, told) == 1
    store.set()
    assert_nothing_removed(mirrored_run, contents)
    sizes = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert sizes <= sum(len(content) for content in contents.values())


def test_a_manifest_without_end_is_left_and_the_one_before_is_used(
    mirrored_run: StoredObjects,
    store: ObjectStore,
    contents: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects_module, "SMALL_BYTES", 1 << 20)
    store.set(endless="000002.000000.json")
    told: list[str] = []
    assert fetch_newest(mirrored_run, tmp_path / "checkpoints", say=told.append) is not None
    assert assert_equal(tmp_path, told) == 1
    assert "000002.000000.json" in told[0]
    with pytest.raises(OversizeError, match="more than the 1048576 bytes"):
        mirrored_run.read("checkpoints/000002.000000.json")
    store.set()
    assert_nothing_removed(mirrored_run, contents)


@pytest.mark.slow
def test_a_server_that_trickles_is_left(hurried_client: StoredObjects, store: ObjectStore, tmp_path: Path) -> None:
    store.set(trickle=Path(newest_shard(hurried_client)).stem)
    with pytest.raises(StoreError, match="reading fails"):
        fetch_newest(hurried_client, tmp_path / "checkpoints", say=pytest.fail)


def test_a_list_without_end_is_told(
    mirrored_run: StoredObjects, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects_module, "MAXIMUM_ENTRIES", 50)
    store.set(endless_list=True)
    with pytest.raises(StoreError, match="50 objects"):
        list_stored_files(mirrored_run)


@pytest.mark.slow
def test_a_list_that_has_no_end_in_time_is_told(hurried_client: StoredObjects, store: ObjectStore) -> None:
    store.set(endless_list=True)
    with pytest.raises(StoreError, match="listing fails"):
        hurried_client.entries()
    with pytest.raises(StoreError, match="listing fails"):
        replace(hurried_client, url=hurried_client.url.removesuffix("/run"), prefix="").folders()


@pytest.mark.slow
def test_dozens_of_runs_are_brought_through_a_server_that_spoils_a_share(
    mirrored_run: StoredObjects, store: ObjectStore, contents: dict[str, bytes], tmp_path: Path
) -> None:
    ends = []
    for n in range(36):
        store.set(busy=0.1, cut=0.1, flipped=0.15, halved=0.15, seed=n)
        told: list[str] = []
        with suppress(FlatwaterError):
            if fetch_newest(mirrored_run, tmp_path / str(n) / "checkpoints", say=told.append) is not None:
                ends.append(assert_equal(tmp_path / str(n), told))
        store.set()
        assert_nothing_removed(mirrored_run, contents)
    assert ends.count(2) > 18


@pytest.mark.parametrize("name", ["a//b", "../x", "a/../b", "", "/x", "x/", "\x1b[2J", "n" * 300, "\udcff", "a\nb"])
def test_odd_names_are_not_plain(name: str) -> None:
    assert not is_plain(name)


def test_plain_names_are() -> None:
    assert all(map(is_plain, ["config.toml", "tensorboard/events.out.1", "é☃", "a b", "..a", "a..b"]))
