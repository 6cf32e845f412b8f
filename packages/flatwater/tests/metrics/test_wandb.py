"""Weights & Biases offline: no network, the same id after a resume, and a line that says what is missing."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flatwater.metrics.config import WandbConfig
from flatwater_watch.errors import ConfigError

pytest.importorskip("wandb", reason="the extra `wandb` is not installed")

import wandb
from wandb.proto.wandb_internal_pb2 import Record

from flatwater.metrics.sinks import TrackedRun
from flatwater.metrics.wandb import WandbSink, check_login, read_or_make_id

OFFLINE = WandbConfig(mode="offline")


@pytest.fixture(autouse=True)
def _nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key and no settings of the machine."""
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))


def describe_run(run: Path, say: Callable[[str], None]) -> TrackedRun:
    return TrackedRun("run", run / "wandb", {"seed": 3, "learner": {"noise": 0.1}}, resume_at=0, say=say)


def complete_files(run: Path) -> list[Path]:
    """The files that `wandb sync` would send, complete: the library's own process writes on after a run is closed."""
    wandb.teardown()
    return sorted(run.glob("wandb/offline-run-*/run-*.wandb"))


HEADER, BLOCK, WHOLE, LAST = 7, 1 << 15, 1, 4
"""Of the file, and of each piece in it: LevelDB's log format, in blocks of which no piece reaches into the next."""


def records(file: Path) -> Iterator[Record]:
    """What the library has written, as `wandb sync` reads it."""
    content, at, held = file.read_bytes(), HEADER, b""
    while at + HEADER <= len(content):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
        _, size, kind = struct.unpack_from("<IHB", content, at)
        held += content[at + HEADER : at + HEADER + size]
        at += HEADER + size
        if kind in {WHOLE, LAST}:
            yield Record.FromString(held)
            held = b""


def rounds_in(file: Path) -> dict[int, dict[str, float]]:
    """Round -> the numbers that were logged for it."""
    lines = [record.history for record in records(file) if record.HasField("history")]
    return {
        line.step.num: {
            name: json.loads(item.value_json)
            for item in line.item
            if not (name := item.key or ".".join(item.nested_key)).startswith("_")
        }
        for line in lines
    }


def test_offline_rounds_are_kept_in_the_run_folder_and_a_resumed_run_has_the_same_id(tmp_path: Path) -> None:
    for rounds in (range(1, 4), range(3, 6)):
        sink = WandbSink(describe_run(tmp_path, pytest.fail), OFFLINE)
        for n in rounds:
            sink.write(n, {"fitness/mean": n / 2, "train/sps": float("nan"), "memory/replay.action": 4096.0})
        sink.close()
    files = complete_files(tmp_path)
    assert len(files) == 2
    assert {file.name for file in files} == {f"run-{read_or_make_id(tmp_path / 'wandb')}.wandb"}
    first, second = map(rounds_in, files)
    assert first | second == {n: {"fitness/mean": n / 2, "memory/replay.action": 4096.0} for n in range(1, 6)}
    assert ([*first], [*second]) == ([1, 2, 3], [3, 4, 5])


def test_online_without_a_key_is_told_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"wandb login.*--wandb\.mode offline"):
        check_login(WandbConfig())
    check_login(OFFLINE)


def test_a_project_has_a_name() -> None:
    with pytest.raises(ConfigError, match=r"wandb\.project"):
        WandbConfig(project="")


def test_a_service_that_cannot_be_reached_leaves_the_rounds_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import flatwater.metrics.wandb as tracker

    opened: Callable[..., object] = tracker._start_wandb_run

    def unreachable(run: TrackedRun, identity: str, place: WandbConfig, mode: str) -> object:
        if mode == "online":
            raise wandb.errors.CommError("connection refused")
        return opened(run, identity, place, mode)

    monkeypatch.setattr(tracker, "_start_wandb_run", unreachable)
    said = list[str]()
    sink = WandbSink(describe_run(tmp_path, said.append), WandbConfig())
    sink.write(1, {"a": 1.0})
    sink.close()
    assert len(complete_files(tmp_path)) == 1
    assert said == [f"cannot be reached; send the numbers later with: wandb sync {tmp_path}/wandb/offline-run-*"]
