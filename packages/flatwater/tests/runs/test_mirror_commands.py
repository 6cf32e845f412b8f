"""The commands with a mirror: a run goes on elsewhere bit for bit, and what cannot work is told before it begins."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from object_store import ObjectStore, bucket, object_store, store
from rich.console import Console
from small_runs import TINY, TINY_GROW, entries, newest_leaves

from flatwater.checkpoints.catalogue import find_damage, list_checkpoints
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.cli.main import main
from flatwater.mirror import opening, uploader
from flatwater.rundir.events import RunEvents
from flatwater.rundir.layout import RunFolder, create_folder
from flatwater.storage.objects import open_objects
from flatwater.storage.upload import BUFFER_BYTES, QUEUE_BYTES
from flatwater.storage.url_lock import LOCK_FILE, take_lock

__all__ = ["bucket", "object_store", "store"]

Train = Callable[..., Path]
Same = Callable[[Path, Path], None]
Said = pytest.CaptureFixture[str]


@pytest.fixture
def mirrored_url(bucket: str, train: Train, capsys: Said) -> str:
    """The URL of a run of two generations, which lies in the folder `first` as well."""
    train("first", "--rounds", "2")
    assert main(["mirror", "first", "--to", f"{bucket}/far"]) == 0
    capsys.readouterr()
    return f"{bucket}/far/first"


def test_a_run_goes_on_from_its_mirror_bit_for_bit_and_stays_mirrored(
    mirrored_url: str, train: Train, same: Same, tmp_path: Path
) -> None:
    assert main(["resume", mirrored_url, "--into", "elsewhere/run", "--rounds", "4"]) == 0
    same(train("whole", "--rounds", "4"), tmp_path / "elsewhere" / "run")

    last, newest = list_checkpoints(Path("elsewhere/run/checkpoints"))[-2:]
    assert newest.round == 4
    assert open_objects(mirrored_url).read(f"checkpoints/{newest.file.name}") == newest.file.read_bytes()
    # One that still waits when a newer one comes is left out.
    assert open_objects(mirrored_url).read(f"checkpoints/{last.file.name}") in (None, last.file.read_bytes())
    assert open_objects(mirrored_url).read(LOCK_FILE) is None


@pytest.mark.slow
def test_growing_networks_go_on_as_well(bucket: str, tmp_path: Path) -> None:
    assert main(["train", "grow", *TINY_GROW, "--rounds", "2", "--run", "whole"]) == 0
    options = [*TINY_GROW, "--rounds", "1", "--run", "first", "--mirror", bucket]
    assert main(["train", "grow", *options]) == 0
    assert main(["resume", f"{bucket}/first", "--into", "second", "--rounds", "2"]) == 0
    assert newest_leaves(tmp_path / "whole") == newest_leaves(tmp_path / "second")


@pytest.mark.long
def test_the_mirror_is_on_the_terminal_and_in_plan_ledger_and_metrics(bucket: str, capsys: Said) -> None:
    assert main(["train", "erl", *TINY, "--rounds", "2", "--run", "first", "--mirror", f"{bucket}/far"]) == 0
    said = capsys.readouterr().out
    assert "mirror: 0 pending, last ok" in said or "mirror: 1 pending" in said
    assert f"mirror: everything is at {bucket}/far/first" in said
    ledger = entries(Path("first/ledger.jsonl"))
    assert [line["owned"]["mirror.buffer"] for line in ledger] == [BUFFER_BYTES, BUFFER_BYTES]
    assert json.loads(Path("first/plan.json").read_text())["owners"]["mirror.buffer"] == QUEUE_BYTES
    metrics = json.loads(Path("first/metrics.jsonl").read_text().splitlines()[-1])
    assert metrics["mirror/sent"] + metrics["mirror/dropped"] + metrics["mirror/pending"] == 2
    assert metrics["mirror/failures"] == 0
    assert metrics["memory/mirror.buffer"] == BUFFER_BYTES


def test_a_mirror_is_listed_and_reported(mirrored_url: str, capsys: Said) -> None:
    url = mirrored_url.rpartition("/")[0]
    open_objects(url).put("website/index.html", b"not a run")
    assert main(["runs", url, "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["runs"]
    assert (line["name"], line["state"], line["done"], line["trainer"]) == ("first", "finished", 2, "erl")
    assert line["bytes"] == sum(entry.bytes for entry in open_objects(mirrored_url).entries())

    assert main(["report", mirrored_url]) == 0
    assert "2 of 2" in Path("first.html").read_text()


UNREADABLE = {
    "no TOML": (b"rounds = ", ".*TOML: "),
    "of another trainer": (b"trainer = 'sarsa'", "trainer = 'sarsa': .*description.json"),
    "no text": (b"\xff\xfe", ".*UTF-16"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize(("content", "told"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_mirror_with_an_unreadable_configuration_is_listed_with_the_reason_beside_the_others(
    mirrored_url: str, content: bytes, told: str, capsys: Said
) -> None:
    url = mirrored_url.rpartition("/")[0]
    open_objects(url).put("second/config.toml", content)
    assert re.match(f"{re.escape(url)}/second/config.toml: {told}", listed_with_reason(url, capsys))


def test_a_mirror_whose_configuration_has_no_end_is_listed_with_the_reason_beside_the_others(
    mirrored_url: str, store: ObjectStore, capsys: Said
) -> None:
    url = mirrored_url.rpartition("/")[0]
    open_objects(url).put("second/config.toml", b"rounds = 2")
    store.set(endless="second/config.toml")
    assert "more than the 10 bytes" in listed_with_reason(url, capsys)


def listed_with_reason(url: str, capsys: Said) -> str:
    """Of the one run that cannot be read."""
    assert main(["runs", url, "--json"]) == 0
    lines = {line["name"]: line for line in json.loads(capsys.readouterr().out)["runs"]}
    assert {name: line["state"] for name, line in lines.items()} == {"first": "finished", "second": "unreadable"}
    assert main(["runs", url]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"second: {lines['second']['problem']}" in shown
    return str(lines["second"]["problem"])


@pytest.mark.slow
def test_a_mirror_is_evaluated_and_each_look_at_the_holdout_is_counted_there(mirrored_url: str, capsys: Said) -> None:
    assert main(["evaluate", mirrored_url, "--json"]) == 0
    assert main(["evaluate", "first", "--json"]) == 0
    there, here = capsys.readouterr().out.split("\n}\n")[:2]
    assert there == here
    for look in (1, 2):
        assert main(["evaluate", mirrored_url, "--holdout"]) == 0
        assert f"look number {look} " in capsys.readouterr().err
    assert len((open_objects(mirrored_url).read("holdout_looks.jsonl") or b"").splitlines()) == 2


@pytest.mark.long
def test_a_mirror_that_was_pruned_goes_on(mirrored_url: str, capsys: Said) -> None:
    assert main(["prune", mirrored_url, "--keep", "1"]) == 0
    assert "1 kept, 2 removed" in capsys.readouterr().out
    assert main(["resume", mirrored_url, "--into", "pruned", "--rounds", "3"]) == 0


@pytest.mark.long
def test_a_run_beside_an_object_of_an_odd_name_goes_on(mirrored_url: str, store: ObjectStore, capsys: Said) -> None:
    bucket = mirrored_url.removeprefix("s3://").partition("/")[0]
    store.put_any(bucket, "far/first/\x1b[31m")
    open_objects(mirrored_url).put("thesis.tex", b"not of the run")
    assert main(["runs", mirrored_url.rpartition("/")[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["name"] == "first"
    assert main(["resume", mirrored_url, "--into", "second"]) == 0
    assert re.search(rf"{mirrored_url}: .*name", " ".join(capsys.readouterr().out.split()))
    assert newest_leaves(Path("second")) == newest_leaves(Path("first"))
    assert not Path("second/thesis.tex").exists()


def test_checkpoints_are_listed_at_a_url_as_in_a_folder(mirrored_url: str, capsys: Said) -> None:
    def list_checkpoints_at(place: str) -> list[dict[str, Any]]:
        assert main(["checkpoints", place, "--json"]) == 0
        return [each | {"file": None} for each in json.loads(capsys.readouterr().out)["checkpoints"]]

    assert [each["intact"] for each in list_checkpoints_at("first")] == [True] * 3
    assert list_checkpoints_at(mirrored_url) == list_checkpoints_at("first")
    nowhere = mirrored_url.removesuffix("first") + "second"
    assert main(["checkpoints", nowhere]) == 2
    parent = mirrored_url.removesuffix("/first")
    assert re.search(rf"{nowhere}: .*`flatwater runs {parent}`", " ".join(capsys.readouterr().err.split()))


@pytest.mark.slow
def test_a_damaged_checkpoint_at_the_mirror_is_skipped(mirrored_url: str, capsys: Said) -> None:
    objects = open_objects(mirrored_url)
    newest = json.loads(objects.read("checkpoints/000002.000000.json") or b"")
    older = json.loads(objects.read("checkpoints/000001.000000.json") or b"")
    only = {s["sha256"] for s in newest["shards"]} - {s["sha256"] for s in older["shards"]}
    name = f"checkpoints/objects/{only.pop()}.safetensors"
    content = bytearray(objects.read(name) or b"")
    content[len(content) // 2] ^= 1
    objects.put(name, content)

    assert main(["checkpoints", mirrored_url]) == 0
    assert "000002.000000.json: objects/" in capsys.readouterr().out
    assert main(["resume", mirrored_url, "--into", "second"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Checkpoint 000002.000000.json at" in said
    assert "is damaged and is skipped: objects/" in said
    assert "000001.000000.json (round 1)" in said
    assert newest_leaves(Path("second")) == newest_leaves(Path("first"))
    assert main(["checkpoints", mirrored_url]) == 0
    assert "objects/" not in capsys.readouterr().out, "what was damaged is sent again"

    objects.put(name, content)
    assert main(["prune", mirrored_url, "--keep", "1"]) == 0
    assert main(["resume", mirrored_url, "--into", "third"]) == 0, "prune kept the last good one"


def test_prune_never_removes_the_last_good_checkpoint(train: Train, capsys: Said) -> None:
    run = train("run", "--rounds", "2")
    folder = run / "checkpoints"
    newest = list_checkpoints(folder)[-1]
    newest.file.write_bytes(newest.file.read_bytes()[:-1])
    assert main(["prune", str(run), "--keep", "1"]) == 0
    (left,) = list_checkpoints(folder)
    assert (left.round, find_damage(folder, left)) == (1, [])
    shards = {path.stem for path in (folder / "objects").iterdir()}
    assert shards == {shard.sha256 for shard in left.shards}

    left.file.write_bytes(b"{}")
    assert main(["prune", str(run), "--keep", "1"]) == 2
    assert re.search(
        r"1 checkpoint, and none is intact.*flatwater checkpoints", " ".join(capsys.readouterr().err.split())
    )
    assert len(list_checkpoints(folder)) == 1
    assert main(["prune", str(run), "--keep", "0"]) == 2


@pytest.mark.long
def test_a_store_that_is_down_for_the_whole_run_is_caught_up_with_later(
    bucket: str, store: ObjectStore, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set(down=True)
    with monkeypatch.context() as soon:  # what follows, on a busy machine, needs the usual time
        soon.setattr(uploader, "STILL_SECONDS", 0.5)
        assert main(["train", "erl", *TINY, "--rounds", "2", "--run", "first", "--mirror", bucket]) == 0
    said = capsys.readouterr().out
    assert "tried again" in said
    assert "flatwater mirror first" in said
    for thread in threading.enumerate():
        if thread.name == "mirror":
            thread.join(60)  # a request on its way is answered while the store is down
    store.set()
    assert open_objects(bucket).entries() == []

    assert main(["mirror", "first"]) == 0
    assert f"{bucket}/first  3 checkpoints " in capsys.readouterr().out
    assert main(["mirror", "first"]) == 0
    assert f"{bucket}/first  0 checkpoints " in capsys.readouterr().out
    for url in ("file://", "file:///", "s3://"):  # nothing is written at the place that the run's name alone would be
        assert main(["mirror", "first", "--to", url]) == 2
        assert "has no " in capsys.readouterr().err
    newest = list_checkpoints(Path("first/checkpoints"))[-1].file
    assert open_objects(f"{bucket}/first").read(f"checkpoints/{newest.name}") == newest.read_bytes()
    assert open_objects(f"{bucket}/first").read("result.json") == Path("first/result.json").read_bytes()


@pytest.mark.slow
def test_a_run_without_a_mirror_gets_one(train: Train, bucket: str, capsys: Said) -> None:
    run = train("run", "--rounds", "1")
    assert main(["mirror", str(run)]) == 2
    assert "--to s3://bucket/path" in capsys.readouterr().err
    assert main(["mirror", str(run), "--to", bucket]) == 0
    assert main(["resume", f"{bucket}/run", "--into", "second", "--rounds", "2"]) == 0
    assert open_objects(f"{bucket}/run").read("checkpoints/000002.000000.json") is not None


@pytest.mark.long
def test_the_last_checkpoint_is_sent_at_a_signal(bucket: str, capsys: Said) -> None:
    metrics = Path("first/metrics.jsonl")

    def terminate() -> None:
        while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 2):
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    options = [*TINY, "--rounds", "5000", "--run", "first", "--mirror", bucket]
    assert main(["train", "erl", *options]) == 143
    said = capsys.readouterr().out
    assert f"mirror: everything is at {bucket}/first" in said
    newest = list_checkpoints(Path("first/checkpoints"))[-1]
    assert open_objects(f"{bucket}/first").read(f"checkpoints/{newest.file.name}") == newest.file.read_bytes()


def test_who_interrupts_a_run_twice_does_not_wait_for_the_store(
    bucket: str, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(opening, "finish_mirror", pytest.fail)
    store.set(down=True)
    voice = RunEvents(Console(quiet=True))

    def interrupt() -> None:
        with opening.open_mirror(bucket, CheckpointConfig(), RunFolder(tmp_path / "run"), voice) as mirror:
            assert mirror.metrics()["mirror/failures"] >= 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()


@pytest.mark.parametrize(
    ("url", "faults", "said"),
    [
        ("s3://missing/path", {}, "no bucket 'missing'"),
        ("{bucket}", {"strangers": True}, "the credentials are not accepted"),
        ("{bucket}", {"denied": ["PUT"]}, "writing is not permitted"),
        ("{bucket}", {"denied": ["GET"]}, "listing is not permitted"),
        ("ftp://host/path", {}, "'ftp', expected one of s3, gs, az, file"),
        ("runs/elsewhere", {}, "mirror = 'runs/elsewhere': "),
    ],
)
def test_what_cannot_work_is_told_before_the_first_round(
    url: str, faults: dict[str, object], said: str, bucket: str, store: ObjectStore, capsys: Said
) -> None:
    store.set(**faults)
    options = [*TINY, "--rounds", "1", "--run", "first", "--mirror", url.format(bucket=bucket)]
    assert main(["train", "erl", *options]) == 2
    assert said in capsys.readouterr().err
    assert not Path("first/metrics.jsonl").exists()
    assert create_folder(Path("first"), "erl"), "as good as empty: the same command can be given again"


def test_missing_credentials_are_told_before_the_first_round(
    bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Said
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert main(["train", "erl", *TINY, "--rounds", "1", "--run", "first", "--mirror", bucket]) == 2
    assert "Set AWS_ACCESS_KEY_ID" in capsys.readouterr().err
    assert not Path("first").exists()


def test_a_run_that_is_trained_elsewhere_is_refused(mirrored_url: str, capsys: Said) -> None:
    lock, _ = take_lock(open_objects(mirrored_url))
    for command in (
        ["resume", mirrored_url, "--into", "second"],
        ["prune", mirrored_url, "--keep", "1"],
        ["mirror", "first"],
    ):
        assert main(command) == 2, command
        assert f"process {os.getpid()} on" in capsys.readouterr().err
    assert main(["runs", mirrored_url.rpartition("/")[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["state"] == "training"
    lock.release_()


@pytest.mark.long
def test_a_new_run_gets_a_name_that_is_free_at_its_mirror(bucket: str) -> None:
    objects = open_objects(bucket)
    for n in (1, 2):
        objects.put(f"erl-{datetime.now().astimezone():%Y-%m-%d}-{n}/config.toml", b"")
    assert main(["train", "erl", *TINY, "--rounds", "1", "--mirror", bucket]) == 0
    names = {name.rpartition("-")[2] for name in objects.folders()}
    assert names == {"1", "2", "3"}


def test_a_folder_that_is_in_use_is_not_written_over(mirrored_url: str, capsys: Said, tmp_path: Path) -> None:
    assert main(["resume", mirrored_url, "--into", "first"]) == 2
    assert "`flatwater resume first`" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    assert main(["resume", mirrored_url, "--into", "other"]) == 2
    assert "(thesis.tex)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["resume", "evaluate", "report", "prune"])
def test_a_url_without_a_run_is_told(command: str, bucket: str, capsys: Said) -> None:
    keep = ["--keep", "1"] if command == "prune" else []
    assert main([command, f"{bucket}/nothing", *keep]) == 2
    assert re.search(rf"{bucket}/nothing: .*`flatwater runs {bucket}`", " ".join(capsys.readouterr().err.split()))
    assert open_objects(bucket).entries() == []
