"""The runs of `bench_mirror.py`: beside a store that fails, with a store that is slow, killed and brought back."""

import os
import random
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from contract_runs import cpu_seconds, train_session
from sizes import config_of

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.checkpoints.remote import fetch_newest, list_stored_files
from flatwater.mirror.uploader import Mirror
from flatwater.storage.faults import StoreError
from flatwater.storage.objects import open_objects
from flatwater.storage.upload import PART_BYTES, SendBuffer, send_file
from flatwater_watch.meters.process import resident_bytes

ROOT = Path(__file__).parents[2]
STORE = runpy.run_path(str(ROOT / "packages" / "flatwater" / "tests" / "runs" / "object_store.py"))["ObjectStore"]
TRAIN = ["train", "erl", "--config", str(ROOT / "examples" / "trading" / "small.toml")]
FLATWATER = [sys.executable, "-c", "import sys; from flatwater.cli.main import main; sys.exit(main())"]
MIRROR_METHODS = (
    "protected_manifests",
    "offer",
    "take_messages",
    "status_line",
    "metrics",
    "buffer_bytes",
    "finish",
)
"""Methods that a run calls on its mirror."""
THREAD = "_run_thread"
"""Name of the function that the mirror's thread runs, from its beginning to its end."""
Hashes = dict[str, str]


class Inside:
    """The cost of a mirror for its run: seconds that the run waits in it and at its end, CPU seconds of its thread."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.waited = self.end = self.thread = 0.0

    def count_(self) -> None:
        """Count from here on, in this process."""
        for name in MIRROR_METHODS:
            setattr(Mirror, name, self._around(getattr(Mirror, name)))
        work = getattr(Mirror, THREAD)

        def count_thread(mirror: Mirror) -> None:
            work(mirror)
            self.thread = time.thread_time()

        setattr(Mirror, THREAD, count_thread)

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def count_waits(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            began = time.perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                took = time.perf_counter() - began
                if call.__name__ == "finish":
                    self.end += took
                else:
                    self.waited += took

        return count_waits


def run_beside(url: str, folder: Path, rounds: int) -> dict[str, Any]:
    """A run at S, mirrored to `url` where it is not empty: its times, and what is at the store when it has ended."""
    inside = Inside()
    inside.count_()
    began, cpu = time.perf_counter(), cpu_seconds()
    train_session(replace(config_of("S", rounds=rounds), mirror=url or None), folder)
    wall, spent = time.perf_counter() - began, cpu_seconds() - cpu
    here = [(manifest.round, leaves_of(manifest)) for manifest in list_checkpoints(folder / "checkpoints")[-1:]]
    return {
        "wall": wall,
        "cpu": spent,
        "waited": inside.waited / wall,
        "end": inside.end,
        "thread": inside.thread / spent,
        "here": here,
    }


def measure_slowdown(url: str, folder: Path, pairs: int) -> dict[str, Any]:
    """Times that small torch calls take while a thread sends without a pause, over those while it sleeps.

    Two seconds of each, one after the other and in turns: a machine's own speed changes little from one to the next.
    Beside the ratios stand the shards that were sent whole.
    """
    torch.set_num_threads(1)
    source, busy = folder / "shard", threading.Event()
    source.write_bytes(os.urandom(PART_BYTES))
    sent: list[str] = []

    def send() -> None:
        objects, buffer = open_objects(url), SendBuffer()
        while busy.wait():
            name = f"shard{len(sent) % 50}"
            with suppress(StoreError):  # as often as the store likes
                send_file(objects, name, source, buffer, lambda _: None)
                sent.append(name)

    threading.Thread(target=send, daemon=True).start()
    ratios = []
    for n in range(pairs):
        pace = {}
        for sending in (True, False) if n % 2 else (False, True):
            (busy.set if sending else busy.clear)()
            time.sleep(0.5)  # what was begun comes to its end
            pace[sending] = _calls(seconds=2.0)
        ratios.append(pace[False] / pace[True])
    busy.clear()
    return {"ratios": ratios, "sent": len(sent)}


def _calls(seconds: float) -> float:
    """Small torch calls per second, which take the interpreter as often as training does."""
    x, weights = torch.ones(64, 256), torch.eye(256)
    calls, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        for _ in range(50):
            x = torch.tanh(x @ weights)
        calls += 50
    return calls / (time.perf_counter() - began)


def brought_back(url: str, folder: Path) -> list[tuple[int, Hashes]]:
    """The newest checkpoint at a URL, every byte verified; fails where the first that is looked at is not whole."""

    def fail(line: str) -> None:
        raise SystemExit(line)

    found = fetch_newest(open_objects(url), folder, say=fail)
    return [] if found is None else [(found.round, leaves_of(found))]


def leaves_of(manifest: Any) -> Hashes:  # noqa: ANN401  (a Manifest)
    """Hash of each leaf, by path."""
    return {leaf.path: leaf.sha256 for leaf in manifest.leaves}


def growth(url: str, folder: Path, checkpoints: int) -> dict[str, Any]:
    """Save checkpoints of 12 MB faster than the store takes them; resident memory after each twentieth of them."""
    run = runpy.run_path(str(ROOT / "packages" / "flatwater" / "tests" / "runs" / "mirrored_run.py"))["MirroredRun"](
        folder, url
    )
    run.mirror.start()
    resident: list[int] = []
    for at in range(checkpoints):
        run.save(at, numbers=3_000_000)
        run.mirror.status_line()
        if at % (checkpoints // 20) == checkpoints // 20 - 1:
            resident.append(resident_bytes())
    numbers = run.mirror.metrics()
    run.mirror.finish(timeout=120)
    return {"resident": resident, "dropped": numbers["mirror/dropped"], "sent": numbers["mirror/sent"]}


def killed_again_and_again(bucket: str, folder: Path, kills: int, rounds: int) -> dict[str, Any]:
    """Train with a mirror, kill while something is being sent, and go on from the URL in an empty folder, many times.

    After each kill the newest checkpoint at the store must be whole, and no older than before. The last life trains to
    the end, and must come to the numbers of a run that nobody killed.
    """
    draw = random.Random(7)  # noqa: S311  (moments, not secrets)
    url, valid, newest = f"{bucket}/life0", 0, -1
    for n in range(kills + 1):
        place = folder / f"life{n}"
        command = ["resume", url, "--into"] if n else [*TRAIN, "--mirror", bucket, "--run"]
        words = [*FLATWATER, *command, str(place), "--rounds", str(rounds)]
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        if n == kills:
            child.wait()
            break
        _wait_for_a_newer_one(url, newest, child)
        time.sleep(draw.random() / 2)
        child.send_signal(signal.SIGKILL)
        child.wait()
        ((at, _),) = brought_back(url, folder / f"seen{n}")
        valid += at >= newest
        newest = at
    words = [*FLATWATER, *TRAIN, "--rounds", str(rounds), "--run", str(folder / "whole")]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    ends = [list_checkpoints(folder / name / "checkpoints")[-1] for name in ("whole", f"life{kills}")]
    return {
        "kills": kills,
        "valid": valid,
        "killed_at_round": newest,
        "exit": child.returncode,
        "bit_equal": leaves_of(ends[0]) == leaves_of(ends[1]) and ends[0].round == rounds,
    }


def _wait_for_a_newer_one(url: str, than: int, child: "subprocess.Popen[bytes]") -> None:
    objects = open_objects(url)
    while max((int(Path(name).name[:6]) for name in list_stored_files(objects)[0]), default=-1) <= than:
        if child.poll() is not None:
            raise SystemExit(f"a life ended by itself with {child.returncode}, after round {than}")
        time.sleep(0.05)


def use(store: Any) -> None:  # noqa: ANN401  (an ObjectStore)
    """Let this process and its children use the store, and nothing else."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        del os.environ[name]
    os.environ.update(store.environment())
