"""The mirror's thread, on checkpoints of a few numbers: what is sent, dropped, spared, removed, and said."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mirrored_run import MirroredRun as Run
from object_store import ObjectStore, bucket, object_store, store

from flatwater.checkpoints import remote
from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.checkpoints.manifest import read_manifest, shard_path
from flatwater.checkpoints.remote import fetch_newest, list_stored_files
from flatwater.mirror import sender as sender_module
from flatwater.mirror import uploader as uploader_module
from flatwater.mirror.uploader import BUFFER_OWNER
from flatwater.storage.faults import StoreError
from flatwater.storage.objects import StoredObjects, open_objects
from flatwater.storage.upload import BUFFER_BYTES, SendBuffer
from flatwater.storage.url_lock import LOCK_FILE, LockedError, read_holder
from flatwater_watch.errors import CheckpointError

__all__ = ["bucket", "object_store", "store"]


@pytest.fixture(params=["s3", "file"])
def url(request: pytest.FixtureRequest, store: ObjectStore, tmp_path: Path) -> str:
    return f"file://{tmp_path}/far/run" if request.param == "file" else f"s3://{store.new_bucket()}/far/run"


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first new try at a store that failed: what is tried again is the same."""
    monkeypatch.setattr(uploader_module, "FIRST_PAUSE", 0.05)


@pytest.fixture
def run(url: str, tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path / "run", url)
    made.mirror.start()
    yield made
    made.mirror.finish(timeout=0)


def test_each_checkpoint_is_sent_and_the_same_ones_are_kept_there(run: Run, tmp_path: Path) -> None:
    for round_ in range(5):
        run.save(round_)
        run.wait(lambda n, want=round_ + 1: n["sent"] == want)  # type: ignore[misc]
    assert run.mirror.finish()

    assert run.rounds() == [m.round for m in list_checkpoints(run.folder.checkpoints)] == [2, 3, 4]
    here = {path.name: path.read_bytes() for path in (run.folder.checkpoints / "objects").iterdir()}
    there = {e.name: run.objects.read(e.name) for e in run.objects.entries("checkpoints/objects/")}
    assert there == {f"checkpoints/objects/{name}": content for name, content in here.items()}
    assert run.objects.read("metrics.jsonl") == run.folder.metrics.read_bytes()
    assert run.objects.read("config.toml") == b"rounds = 9\n"
    assert run.objects.read(LOCK_FILE) is None
    fetched = fetch_newest(run.objects, tmp_path / "fetched", say=pytest.fail)
    assert fetched is not None
    assert fetched.leaves == list_checkpoints(run.folder.checkpoints)[-1].leaves


def test_what_is_there_is_not_sent_again(store: ObjectStore, tmp_path: Path) -> None:
    run = Run(tmp_path / "run", f"s3://{store.new_bucket()}/run")
    run.mirror.start()
    run.save(0)
    run.wait(lambda n: n["sent"] == 1)
    store.set()
    run.save(1)
    run.wait(lambda n: n["sent"] == 2)
    assert run.mirror.finish()
    own = (run.folder.checkpoints / "objects").stat().st_size  # a folder of few files: less than a shard
    assert own > 0
    sizes = [shard.bytes for shard in list_checkpoints(run.folder.checkpoints)[-1].shards]
    received = store.counts().received
    assert sum(sizes) <= received < sum(sizes) + 10_000, "one shard, the manifest, the records"


def test_a_slow_store_gets_the_newest_checkpoint_and_the_ones_between_are_dropped(
    bucket: str, store: ObjectStore, tmp_path: Path
) -> None:
    run = Run(tmp_path / "run", f"{bucket}/run")
    store.set(delay=0.05)
    run.mirror.start()
    for round_ in range(30):
        run.save(round_)
    assert len(list_checkpoints(run.folder.checkpoints)) <= 5, "what is kept, what is sent and what waits"
    assert run.mirror.metrics()["mirror/pending"] <= 2
    assert run.mirror.finish()

    assert run.rounds()[-1] == 29
    numbers = run.mirror.metrics()
    assert numbers["mirror/dropped"] > 20
    assert numbers["mirror/sent"] + numbers["mirror/dropped"] == 30
    news = run.mirror.take_messages()
    assert len(news) == 1
    assert "slower than the run" in news[0]
    assert run.mirror.status_line().endswith(f"{numbers['mirror/dropped']:.0f} dropped")


def test_a_store_that_fails_is_not_called_slow(bucket: str, store: ObjectStore, tmp_path: Path) -> None:
    run = Run(tmp_path / "run", f"{bucket}/run")
    store.set(down=True)
    run.mirror.start()
    run.save(0)
    run.wait(lambda n: n["failures"] >= 1)
    for round_ in range(1, 6):
        run.save(round_)
    run.wait(lambda n: n["dropped"] >= 1)
    fails, dropped = run.mirror.take_messages()
    assert fails.startswith(f"mirror: {bucket}/run: ")
    assert dropped.startswith("mirror: ")
    assert f"({bucket}/run: " in dropped
    assert "slower" not in dropped
    store.set()
    assert run.mirror.finish()


def test_an_outage_is_told_once_and_ends(bucket: str, store: ObjectStore, tmp_path: Path) -> None:
    run = Run(tmp_path / "run", f"{bucket}/run")
    run.mirror.start()
    run.save(0)
    run.wait(lambda n: n["sent"] == 1)
    store.set(down=True)
    run.save(1)
    run.wait(lambda n: n["failures"] >= 2)
    assert "1 pending, " in run.mirror.status_line()
    assert run.mirror.status_line().endswith("failing")
    store.set()
    run.wait(lambda n: n["sent"] == 2)
    assert run.mirror.finish()
    begins, ends = run.mirror.take_messages()
    assert begins.startswith(f"mirror: {bucket}/run: ")
    assert "tried again" in begins
    assert ends.startswith(f"mirror: {bucket}/run works again, after ")
    assert run.rounds() == [0, 1]


def test_a_store_that_stays_down_leaves_the_run_alone(bucket: str, store: ObjectStore, tmp_path: Path) -> None:
    store.set(down=True)
    run = Run(tmp_path / "run", f"{bucket}/run")
    run.mirror.start()
    for round_ in range(5):
        run.save(round_)
    assert not run.mirror.finish(timeout=0.5)
    assert run.mirror.metrics()["mirror/pending"] in {1, 2}, "the one that waits, and one whose request is on its way"
    assert [m.round for m in list_checkpoints(run.folder.checkpoints)][-1] == 4
    assert "nothing sent yet" in run.mirror.status_line()


def test_nothing_is_lost_where_half_of_the_requests_fail(bucket: str, store: ObjectStore, tmp_path: Path) -> None:
    store.set(busy=0.3, cut=0.2)  # a share of the requests that a client with two tries does not always survive
    run = Run(tmp_path / "run", f"{bucket}/run")
    run.mirror.start()
    for round_ in range(2):
        run.save(round_)
    run.wait(lambda n: n["pending"] == 0)
    counts = store.counts()
    assert counts.refused > 0
    assert counts.cut > 0
    store.set()
    assert run.mirror.finish()
    assert run.rounds()[-1] == 1
    assert fetch_newest(run.objects, tmp_path / "fetched", say=pytest.fail) is not None


def test_at_a_signal_the_last_checkpoint_goes_before_one_that_is_on_its_way(
    bucket: str, store: ObjectStore, tmp_path: Path
) -> None:
    run = Run(tmp_path / "run", f"{bucket}/run")
    run.mirror.start()
    run.save(0)
    run.wait(lambda n: n["sent"] == 1)
    store.set(delay=0.2)
    run.save(1)
    run.wait(lambda n: n["pending"] == 1)
    run.save(2)
    assert run.mirror.finish(timeout=60)
    store.set()
    assert run.rounds()[-1] == 2


def test_a_store_that_fails_in_the_middle_of_the_first_look_is_looked_at_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock was taken before: it is this process's own, and holds nobody out."""
    failures = iter([StoreError("busy"), StoreError("busy again")])

    def failing(objects: StoredObjects) -> tuple[list[str], dict[str, int]]:
        for failure in failures:
            raise failure
        return list_stored_files(objects)

    monkeypatch.setattr(sender_module, "list_stored_files", failing)
    run.save(0)
    assert run.mirror.finish(timeout=60)
    assert run.rounds() == [0]


def test_a_checkpoint_that_is_damaged_in_the_folder_is_left_out(bucket: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "run", f"{bucket}/run")
    for round_ in (0, 1):
        saved = run.save(round_)
    own = next(
        s
        for s in read_manifest(saved).shards
        if s not in read_manifest(run.folder.checkpoints / "000000.000000.json").shards
    )
    path = shard_path(run.folder.checkpoints, own.sha256)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    run.mirror.start()
    run.wait(lambda n: n["dropped"] == 2)
    run.save(2)
    assert run.mirror.finish()
    assert run.rounds() == [2]
    assert f"{path.name} is damaged" in run.mirror.take_messages()[-1]


def test_another_process_is_refused_and_another_run_as_well(run: Run, tmp_path: Path) -> None:
    run.save(0)
    run.wait(lambda n: n["sent"] == 1)
    again = Run(tmp_path / "again", run.objects.url)
    with pytest.raises(LockedError, match=f"process {os.getpid()} on "):
        again.mirror.sender.connect_()
    other = Run(tmp_path / "other", run.objects.url, identity="another run")
    with pytest.raises(LockedError, match=r"another run .*--run"):
        other.mirror.sender.connect_()


def test_a_run_that_went_on_elsewhere_is_not_written_over(run: Run, tmp_path: Path) -> None:
    for round_ in (0, 1):
        run.save(round_)
        run.wait(lambda n, want=round_ + 1: n["sent"] == want)  # type: ignore[misc]
    assert run.mirror.finish()
    behind = Run(tmp_path / "behind", run.objects.url)
    behind.mirror.offer = lambda _: None  # type: ignore[method-assign]  # saved while nothing was mirrored
    behind.save(0)
    with pytest.raises(LockedError, match=r"mirror is at round 1, .* at round 0.*--into FOLDER"):
        behind.mirror.sender.connect_()
    assert read_holder(run.objects) is None
    assert run.rounds() == [0, 1]


def test_a_process_that_lost_its_lock_stops_writing(run: Run) -> None:
    run.save(0)
    run.wait(lambda n: n["sent"] == 1)
    run.objects.put(LOCK_FILE, b'{"another": "process"}')
    run.save(1)
    assert not run.mirror.finish()
    assert run.rounds() == [0]
    assert "another process" in run.mirror.take_messages()[0]
    assert run.mirror.status_line() == "mirror: off"
    run.save(2)
    assert run.mirror.metrics()["mirror/pending"] == 0


def test_a_run_resumed_before_its_newest_checkpoint_writes_the_same_again(run: Run, tmp_path: Path) -> None:
    for round_ in (0, 1):
        run.save(round_)
        run.wait(lambda n, want=round_ + 1: n["sent"] == want)  # type: ignore[misc]
    assert run.mirror.finish()
    before = run.objects.read("checkpoints/000001.000000.json")
    again = Run(tmp_path / "run", run.objects.url)
    again.mirror.start()
    again.save(1)
    again.wait(lambda n: n["sent"] == 1)
    again.save(2)
    assert again.mirror.finish()
    assert run.objects.read("checkpoints/000001.000000.json") == before
    assert again.rounds() == [0, 1, 2]


def test_leavings_of_a_killed_sender_are_removed(run: Run, tmp_path: Path) -> None:
    leaving = f"checkpoints/objects/{'0' * 64}.safetensors"
    run.objects.put(leaving, b"half of a checkpoint's shards")
    half = tmp_path / "far" / "run" / "checkpoints" / "objects" / "0001.safetensors#1"
    if run.objects.url.startswith("file:"):
        half.write_bytes(b"half of a shard")
    run.save(0)
    assert run.mirror.finish()
    assert leaving not in {entry.name for entry in run.objects.entries("checkpoints/")}
    assert not half.exists()
    assert run.rounds() == [0]


def test_a_manifest_that_cannot_be_understood_stays_and_so_does_every_shard(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it needs is not known, and it may come whole another time. `flatwater prune` removes it."""
    monkeypatch.setattr(remote, "RETRY_PAUSES", (0.0, 0.0))
    unknown = {f"checkpoints/objects/{'0' * 64}.safetensors", "checkpoints/000007.000000.json"}
    for name in unknown:
        run.objects.put(name, b"{")
    for round_ in range(5):
        run.save(round_)
        run.wait(lambda n, want=round_ + 1: n["sent"] == want)  # type: ignore[misc]
    assert run.mirror.finish()
    assert unknown <= {entry.name for entry in run.objects.entries("checkpoints/")}
    assert run.rounds() == [2, 3, 4]
    (said,) = [line for line in run.mirror.take_messages() if "000007" in line]
    assert "is damaged and stays there" in said


def test_a_good_object_is_not_written_over_by_a_damaged_file(run: Run, tmp_path: Path) -> None:
    saved = run.save(0)
    run.wait(lambda n: n["sent"] == 1)
    assert run.mirror.finish()
    shard = read_manifest(saved).shards[0]
    path = shard_path(run.folder.checkpoints, shard.sha256)
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"?")
    again = Run(tmp_path / "run", run.objects.url)
    with pytest.raises(CheckpointError, match="is damaged"):
        list(
            remote.send_shards(
                again.objects,
                run.folder.checkpoints,
                read_manifest(saved),
                (),
                buffer=SendBuffer(),
                on_bytes_sent=lambda _: None,
            )
        )
    assert run.objects.read(remote.shard_name(shard.sha256)) == good


def test_who_may_not_remove_keeps_everything(bucket: str, store: ObjectStore, tmp_path: Path) -> None:
    store.set(denied=["DELETE"])
    run = Run(tmp_path / "run", f"{bucket}/run")
    run.mirror.start()
    for round_ in range(5):
        run.save(round_)
        run.wait(lambda n, want=round_ + 1: n["sent"] == want)  # type: ignore[misc]
    assert run.rounds() == [0, 1, 2, 3, 4]
    assert run.mirror.finish()
    (said,) = run.mirror.take_messages()
    assert f"{bucket}/run: removing is not permitted" in said
    assert read_holder(run.objects) is None, "a lock that cannot be removed says that nobody holds it"


def test_what_sending_holds_is_one_buffer_in_memory(run: Run) -> None:
    assert run.mirror.buffer_bytes() == {BUFFER_OWNER: BUFFER_BYTES}
    assert len(run.mirror.sender.buffer.buffer) == BUFFER_BYTES


def kill_again_and_again(times: int, base: str, tmp_path: Path) -> None:
    """After each kill the newest checkpoint at the store is whole, and never older than before."""
    starter = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("mirrored_run.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert starter.stdin
    assert starter.stdout
    objects, last = open_objects(base), -1
    for n in range(times):
        starter.stdin.write(f"{tmp_path / 'run'} {base}\n".encode())
        starter.stdin.flush()
        child, begun = int(starter.stdout.readline()), last
        ends = time.monotonic() + 240
        while last == begun:  # at least one checkpoint gets through
            assert time.monotonic() < ends
            time.sleep(0.02)
            last = max((int(Path(name).name[:6]) for name in list_stored_files(objects)[0]), default=-1)
        time.sleep(0.037 * (n % 5))
        os.kill(child, signal.SIGKILL)
        fetched = fetch_newest(objects, tmp_path / f"fetched{n}", say=lambda _: None)
        assert fetched is not None
        assert fetched.round >= last
        last = fetched.round
    starter.stdin.close()
    starter.wait()
    starter.stdout.close()


@pytest.mark.long
def test_a_sender_that_was_killed_leaves_a_whole_checkpoint(bucket: str, tmp_path: Path) -> None:
    kill_again_and_again(1, f"{bucket}/run", tmp_path)


@pytest.mark.slow
def test_a_sender_killed_twenty_times_leaves_a_whole_checkpoint_each_time(bucket: str, tmp_path: Path) -> None:
    kill_again_and_again(20, f"{bucket}/run", tmp_path)
