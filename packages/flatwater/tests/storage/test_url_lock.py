"""One process writes at a place, and a lock that was left behind does not stand in the way for long."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from object_store import ObjectStore

from flatwater import __version__
from flatwater.storage.objects import StoredObjects, open_objects
from flatwater.storage.url_lock import (
    LOCK_FILE,
    STALE_SECONDS,
    Holder,
    Lock,
    LockedError,
    has_writer,
    read_holder,
    take_lock,
)


@pytest.fixture(params=["s3", "file"])
def objects(request: pytest.FixtureRequest, store: ObjectStore, tmp_path: Path) -> StoredObjects:
    return open_objects(f"file://{tmp_path}" if request.param == "file" else f"s3://{store.new_bucket()}/run")


def write_lock(objects: StoredObjects, **changes: object) -> Holder:
    """The lock as another process would have written it."""
    found = read_holder(objects)
    assert found is not None
    other = replace(found, token="other", **changes)  # type: ignore[arg-type]
    objects.put(LOCK_FILE, json.dumps(asdict(other)).encode())
    return other


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def test_the_second_process_is_refused_and_told_who_is_first(objects: StoredObjects) -> None:
    take_lock(objects)
    with pytest.raises(LockedError) as refused:
        take_lock(objects)
    said = str(refused.value)
    assert f"{objects.url}: process {os.getpid()} on " in said
    assert "last sign of life" in said
    assert "after 15 min 0 s" in said
    assert f"remove {objects.url}/{LOCK_FILE}" in said


def test_a_lock_that_was_released_is_free(objects: StoredObjects) -> None:
    take_lock(objects)[0].release_()
    assert objects.read(LOCK_FILE) is None
    assert take_lock(objects)[1] == ""


def test_the_lock_of_a_machine_that_is_silent_is_taken_over(objects: StoredObjects) -> None:
    first, _ = take_lock(objects)
    write_lock(objects, boot="another machine", host="box-7", pid=41, renewed=ago(STALE_SECONDS - 30))
    with pytest.raises(LockedError, match="process 41 on box-7"):
        take_lock(objects)
    write_lock(objects, boot="another machine", host="box-7", pid=41, renewed=ago(STALE_SECONDS + 30))

    second, left_by = take_lock(objects)

    assert left_by.startswith("process 41 on box-7, last sign of life 15 min ")
    assert second.is_held()
    assert not first.renew_(), "who comes back after that finds that it has lost its place"


def test_the_lock_of_a_dead_process_of_this_machine_is_free_at_once(objects: StoredObjects) -> None:
    take_lock(objects)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    write_lock(objects, pid=gone.pid)
    assert take_lock(objects)[1].startswith(f"process {gone.pid} on ")


def test_a_process_number_that_came_again_is_another_process(objects: StoredObjects) -> None:
    take_lock(objects)
    write_lock(objects, ticks=1)
    assert take_lock(objects)[0].is_held()


def test_the_start_of_a_process_is_counted_from_that_of_the_machine(objects: StoredObjects) -> None:
    """So whoever sets the clock makes no living process a dead one."""
    take_lock(objects)
    found = read_holder(objects)
    assert found is not None
    assert found.ticks is not None
    seconds = found.ticks / os.sysconf("SC_CLK_TCK")
    assert seconds == pytest.approx(psutil.Process().create_time() - psutil.boot_time(), abs=2)


def test_the_lock_of_an_older_version_counts_by_its_last_sign_of_life(objects: StoredObjects) -> None:
    """It says by a clock when its process was started, which tells nothing."""
    take_lock(objects)
    old = {name: value for name, value in asdict(write_lock(objects)).items() if name != "ticks"} | {"began": 1000.5}
    objects.put(LOCK_FILE, json.dumps(old).encode())
    with pytest.raises(LockedError, match="writes here"):
        take_lock(objects)
    objects.put(LOCK_FILE, json.dumps(old | {"renewed": ago(STALE_SECONDS + 1)}).encode())
    assert take_lock(objects)[0].is_held()


def test_a_process_number_beyond_all_is_nobody(objects: StoredObjects) -> None:
    take_lock(objects)
    write_lock(objects, pid=2**70)
    assert take_lock(objects)[0].is_held()


def test_a_try_that_failed_after_it_had_the_lock_has_it_still(objects: StoredObjects) -> None:
    take_lock(objects, "mine")
    lock, left_by = take_lock(objects, "mine")
    assert (lock.is_held(), left_by) == (True, "")
    with pytest.raises(LockedError, match="writes here"):
        take_lock(objects, "theirs")


def test_of_many_that_find_a_lock_left_behind_one_gets_it(objects: StoredObjects) -> None:
    take_lock(objects)
    write_lock(objects, ticks=1)
    ready, taken, late = threading.Barrier(8), list[Lock](), list[str]()

    def attempt() -> None:
        ready.wait()
        try:
            taken.append(take_lock(objects)[0])
        except LockedError as refused:
            late.append(str(refused))

    attempts = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in attempts:
        thread.start()
    for thread in attempts:
        thread.join()
    assert (len(taken), len(late)) == (1, 7), late
    assert taken[0].is_held()
    assert [entry.name for entry in objects.entries()] == [LOCK_FILE]


def test_who_comes_when_another_has_just_taken_over_is_late(
    objects: StoredObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other takes over, and is done with it, between this one's look at the lock and its next request."""
    take_lock(objects)
    write_lock(objects, ticks=1)
    first: list[Lock] = []

    def left_behind(_: Holder) -> bool:
        if not first:
            first.append(Lock(objects, "first"))
            first[:] = [take_lock(objects)[0]]
        return True

    monkeypatch.setattr(Holder, "is_stale", property(left_behind))
    with pytest.raises(LockedError, match="another process"):
        take_lock(objects)
    assert first[0].is_held()


def test_renewing_is_a_sign_of_life(objects: StoredObjects) -> None:
    lock, _ = take_lock(objects)
    objects.put(LOCK_FILE, json.dumps(asdict(replace(read_holder(objects), renewed=ago(500)))).encode())  # type: ignore[type-var]
    assert lock.renew_()
    found = read_holder(objects)
    assert found is not None
    assert found.age < 60


@pytest.mark.parametrize(
    ("changes", "version"),
    [
        ({"ticks": 12.5, "version": "9.1"}, "'9.1'"),
        ({"pid": {"host": "box-7", "number": 41}, "version": "9.1"}, "'9.1'"),
        ({"renewed": "a moment ago"}, repr(__version__)),
        ({"renewed": "2026-11-23T01:00:00", "version": "\x1b[31m"}, r"'\x1b[31m'"),
        ({"host": None, "version": None}, "None"),
    ],
)
def test_the_lock_of_another_version_is_refused_with_both_versions(
    objects: StoredObjects, changes: dict[str, object], version: str
) -> None:
    lock, _ = take_lock(objects)
    theirs = json.dumps(asdict(write_lock(objects)) | changes).encode()
    objects.put(LOCK_FILE, theirs)
    with pytest.raises(LockedError) as refused:
        take_lock(objects)
    said = str(refused.value)
    assert f"Flatwater {version} " in said
    assert f"Flatwater {__version__!r}" in said
    assert f"remove {objects.url}/{LOCK_FILE}" in said
    assert has_writer(objects)
    assert not lock.renew_()
    lock.release_()
    assert objects.read(LOCK_FILE) == theirs


def test_an_object_that_is_no_lock_holds_nobody_out(objects: StoredObjects) -> None:
    objects.put(LOCK_FILE, b"{half of a lo")
    assert take_lock(objects)[0].is_held()
