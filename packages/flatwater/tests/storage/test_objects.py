"""Objects at a URL: the same laws at S3, at Google's and in a folder; errors that say what to set."""

import asyncio
import hashlib
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from object_store import ObjectStore

from flatwater.storage.client_settings import client_settings
from flatwater.storage.faults import OddNameError, OversizeError, StoreError
from flatwater.storage.objects import RANGE_BYTES, StoredObjects, check_url, is_url, open_objects
from flatwater.storage.upload import BUFFER_BYTES, PART_BYTES, SendBuffer, send_file
from flatwater_watch.errors import ConfigError

LARGE = 50_000_000


@pytest.fixture(params=["s3", "gs", "file"])
def objects(request: pytest.FixtureRequest, store: ObjectStore, tmp_path: Path) -> StoredObjects:
    scheme = request.param
    return open_objects(f"file://{tmp_path}/at" if scheme == "file" else f"{scheme}://{store.new_bucket()}/some/path")


def no_step(_: int) -> None:
    pass


def test_an_object_is_read_as_it_was_written(objects: StoredObjects) -> None:
    assert objects.read("below/one") is None
    objects.put("below/one", b"first")
    objects.put("below/one", bytearray(b"second"))
    assert objects.read("below/one") == b"second"
    assert objects.subfolder("below").read("one") == b"second"


def test_names_are_listed_and_removed(objects: StoredObjects) -> None:
    for name in ("one", "below/two", "below/deep/three", "belowed"):
        objects.put(name, name.encode())

    assert [(e.name, e.bytes) for e in objects.entries()] == [
        ("below/deep/three", 16),
        ("below/two", 9),
        ("belowed", 7),
        ("one", 3),
    ]
    assert [e.name for e in objects.entries("below/")] == ["below/deep/three", "below/two"]
    assert objects.folders() == ["below"]
    objects.remove(["one", "below/two", "never"])
    assert [e.name for e in objects.entries()] == ["below/deep/three", "belowed"]


def test_an_empty_place_has_nothing(objects: StoredObjects) -> None:
    assert objects.entries() == []
    assert objects.folders() == []


@pytest.mark.parametrize("scheme", ["s3", "file"])  # the stand-in for Google's store ignores the condition
def test_only_one_of_two_creates_an_object(scheme: str, store: ObjectStore, tmp_path: Path) -> None:
    at = open_objects(f"file://{tmp_path}" if scheme == "file" else f"s3://{store.new_bucket()}")
    assert at.create("name", b"mine")
    assert not at.create("name", b"theirs")
    assert at.create("name", b"mine"), "a put that is tried again after its answer was lost finds itself"
    assert at.read("name") == b"mine"


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_50_mb_come_back_with_the_same_hash(scheme: str, store: ObjectStore, tmp_path: Path) -> None:
    objects = open_objects(f"{scheme}://{store.new_bucket()}/some/path")
    content, steps = os.urandom(LARGE), list[int]()
    (tmp_path / "large").write_bytes(content)

    sent = send_file(objects, "large", tmp_path / "large", SendBuffer(), steps.append)

    found = hashlib.sha256()
    for piece in objects.pieces("large", LARGE):
        found.update(piece)
    assert found.hexdigest() == sent.sha256 == hashlib.sha256(content).hexdigest()
    assert sent.bytes == LARGE == sum(steps)
    assert max(steps) == PART_BYTES


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, BUFFER_BYTES, BUFFER_BYTES + 1, 2 * PART_BYTES])
def test_every_size_comes_whole(size: int, bucket: str, tmp_path: Path) -> None:
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    sent = send_file(open_objects(bucket), "file", tmp_path / "file", SendBuffer(), no_step)
    assert (sent.bytes, sent.sha256) == (size, hashlib.sha256(content).hexdigest())
    assert open_objects(bucket).read("file") == content


@pytest.mark.parametrize("size", [1000, BUFFER_BYTES + 1])
def test_what_is_spoiled_on_the_way_is_noticed(size: int, bucket: str, store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(size))
    store.set(spoiled="file")
    with pytest.raises(StoreError, match=r"file: .*\(\d+ of \d+ bytes\)"):
        send_file(open_objects(bucket), "file", tmp_path / "file", SendBuffer(), no_step)


def test_a_sending_that_is_given_up_leaves_no_shorter_object(objects: StoredObjects, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3 * PART_BYTES))

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        send_file(objects, "large", tmp_path / "large", SendBuffer(), stop)
    assert objects.read("large") is None


def test_nothing_is_lost_where_half_of_the_requests_fail(bucket: str, store: ObjectStore) -> None:
    objects = open_objects(bucket)
    store.set(busy=0.3, cut=0.2)
    for n in range(5):
        objects.put(f"object-{n:02}", bytes([n]) * 1000)
        assert objects.create(f"new-{n:02}", bytes([n]))
    counts = store.counts()
    assert counts.refused >= 2
    assert counts.cut >= 1
    store.set()
    assert [objects.read(f"object-{n:02}") for n in range(5)] == [bytes([n]) * 1000 for n in range(5)]
    assert len(objects.entries()) == 10


def refusal_text(url: str) -> str:
    with pytest.raises(ConfigError) as raised:
        open_objects(url, 0).put("name", b"content")
    return str(raised.value)


@pytest.mark.usefixtures("store")
def test_a_wrong_bucket_is_told() -> None:
    assert "s3://no-such-bucket/path: there is no bucket 'no-such-bucket'" in refusal_text("s3://no-such-bucket/path")
    assert "no bucket 'neither'" in refusal_text("gs://neither/path")
    with pytest.raises(ConfigError, match="no bucket 'no-such-bucket'"):
        open_objects("s3://no-such-bucket/path").folders()


def test_credentials_that_are_not_accepted_are_told(bucket: str, store: ObjectStore) -> None:
    store.set(strangers=True)
    said = refusal_text(bucket)
    assert "InvalidAccessKeyId" in said
    assert "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said


def test_a_missing_permission_is_told(bucket: str, store: ObjectStore) -> None:
    store.set(denied=["PUT"])
    assert f"{bucket}: writing is not permitted" in refusal_text(bucket)


def test_missing_credentials_are_told(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    said = refusal_text(bucket)
    assert said.startswith(f"{bucket}: ")
    assert "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run" in said


@pytest.mark.usefixtures("store")
def test_a_container_without_an_account_is_told() -> None:
    assert "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY" in refusal_text("az://container/path")


def test_keys_of_aws_configure_are_used(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n[other]\naws_access_key_id = c\n"
    )
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = eu-central-1\n")
    assert client_settings("s3")[0] == {
        "access_key_id": "a",
        "secret_access_key": "b",
        "region": "eu-central-1",
        "endpoint": os.environ["AWS_ENDPOINT_URL"],
    }
    open_objects(bucket).put("name", b"content")
    monkeypatch.setenv("AWS_PROFILE", "other")
    with pytest.raises(ConfigError, match="no credentials"):
        open_objects(bucket)


@pytest.mark.usefixtures("store")
def test_a_store_that_is_down_may_be_up_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(StoreError, match="s3://bucket: writing fails"):
            open_objects("s3://bucket", 0).put("name", b"content")


@pytest.mark.parametrize(
    "url", ["s3://", "ftp://host/path", "s3:bucket", "bucket", "file://host/path", "s3://bucket/a#b"]
)
def test_what_is_no_place_is_told(url: str) -> None:
    with pytest.raises(ConfigError, match=rf"{re.escape(url)}.*Expected s3://bucket/path, gs://bucket/path"):
        open_objects(url)


def test_a_url_is_told_from_a_folder() -> None:
    assert is_url("s3://bucket/run")
    assert not is_url("runs/erl-1")
    assert not is_url(Path("/runs"))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"file/below: .*Not a directory .*URL"):
        open_objects(f"file://{tmp_path}/file/below").put("name", b"content")


def test_nothing_of_this_loads_the_client_before_a_url_is_opened() -> None:
    program = "import sys, flatwater.mirror.uploader, flatwater.runs.config; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_folder_is_read_without_its_links_and_odd_names(tmp_path: Path) -> None:
    far = tmp_path / "far"
    (far / "below").mkdir(parents=True)
    (far / "config.toml").write_bytes(b"plain")
    (far / "below" / "one").write_bytes(b"1")
    (tmp_path / "secret").write_bytes(b"not of the store")
    (far / "link").symlink_to(tmp_path / "secret")
    (far / "inner").symlink_to(tmp_path)
    (far / "broken").symlink_to("nowhere")
    (far / "\x1b[2J").write_bytes(b"odd")
    (far / "half#1").write_bytes(b"of a writer")
    Path(os.fsdecode(os.fsencode(far) + b"/\xff\xfe")).write_bytes(b"no text")
    os.mkfifo(far / "pipe")
    objects = open_objects(f"file://{far}")
    assert [(entry.name, entry.bytes) for entry in objects.entries()] == [("below/one", 1), ("config.toml", 5)]
    assert objects.folders() == ["below"]
    assert [objects.read(name) for name in ("link", "inner/secret", "broken", "pipe")] == [None] * 4
    assert [entry.name for entry in objects.find_entries(["config.toml", "link", "pipe"])] == ["config.toml"]


@pytest.mark.parametrize(
    "size", [0, 1, RANGE_BYTES - 1, RANGE_BYTES, RANGE_BYTES + 1, 2 * RANGE_BYTES, 2 * RANGE_BYTES + 7]
)
def test_an_object_of_several_ranges_is_read_whole_and_not_beyond(size: int, bucket: str) -> None:
    objects, content = open_objects(bucket), os.urandom(size)
    objects.put("object", content)
    assert b"".join(objects.pieces("object", size)) == content
    assert b"".join(objects.pieces("object", 10 * RANGE_BYTES)) == content
    if size:
        with pytest.raises(OversizeError, match=f"more than the {size - 1} bytes"):
            list(objects.pieces("object", size - 1))


@pytest.mark.parametrize("odd", ["run/a//b", "run/../x", "run/\x1b[31m", "run/./q"])
def test_an_object_of_an_odd_name_does_not_hide_the_checkpoints(odd: str, store: ObjectStore) -> None:
    bucket = store.new_bucket()
    objects = open_objects(f"s3://{bucket}/run")
    objects.put("config.toml", b"rounds = 1\n")
    objects.put("checkpoints/000001.000000.json", b"{}")
    store.put_any(bucket, odd)
    with pytest.raises(OddNameError, match="cannot be listed"):
        objects.entries()
    assert [entry.name for entry in objects.entries("checkpoints/")] == ["checkpoints/000001.000000.json"]
    assert [entry.name for entry in objects.find_entries(["config.toml", "result.json"])] == ["config.toml"]


def test_a_list_is_read_where_a_loop_runs_already_as_in_a_notebook(bucket: str) -> None:
    objects = open_objects(bucket)
    objects.put("one", b"1")

    async def cell() -> list[str]:
        return [entry.name for entry in objects.entries()]

    assert asyncio.run(cell()) == ["one"]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("file://", "no folder"),
        ("file:///", "no folder"),
        ("file:////", "no folder"),
        ("file://%2f", "slash"),
        ("file://relative/x", "file:///relative"),
        ("file:///a/../../etc", r"`\.\.`"),
        ("file:///a/%2e%2e/etc", r"`\.\.`"),
        ("file:///a%00b", "characters"),
        ("file:///a\nb", "characters"),
        ("s3://", "no bucket"),
        ("s3:///path", "no bucket"),
        ("gs://", "no bucket"),
        ("s3://b?x=1", r"\? or #"),
        ("s3://b?", r"\? or #"),
        ("ftp://b/x", "scheme"),
        ("http://[", r"http://\["),
        ("s3://AKIA:hunter2/x@bucket/run", "key"),
        ("s3://AKIA:hunter2@bucket/run", "key"),
    ],
)
def test_what_names_no_place_is_refused_with_the_reason(url: str, said: str) -> None:
    for refuses in (check_url, open_objects):
        with pytest.raises(ConfigError, match=said) as wrong:
            refuses(url)
        assert "hunter2" not in str(wrong.value)
