"""An object store on loopback for tests and benchmarks, behind a proxy that refuses, cuts, delays and spoils on demand.

    python object_store.py        prints its address, then serves until its input ends

moto speaks S3, and what Google's client says. Both run in a process of their own. `PUT /-/faults` sets what goes wrong.
"""

import contextlib
import http.client
import json
import logging
import os
import random
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest

ENDLESS = 10**12
"""Bytes that are promised of an answer without end."""
ACCESS_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
WRONG_KEY = b"<Error><Code>InvalidAccessKeyId</Code><Message>No such key.</Message></Error>"


@dataclass
class Faults:
    """What goes wrong with the requests."""

    busy: float = 0.0
    """Share answered with 503."""
    cut: float = 0.0
    """Share whose connection is cut: half of them before the store sees the request, half before its answer comes."""
    down: bool = False
    """Every connection is cut."""
    denied: list[str] = field(default_factory=list)
    """Methods that are not permitted."""
    strangers: bool = False
    """Nobody is known."""
    spoiled: str = ""
    """A byte is changed on the way in, in objects whose name holds this."""
    flipped: float = 0.0
    """Share of the contents read in which a bit is changed."""
    halved: float = 0.0
    """Share of the contents read of which the second half does not come."""
    flip: str = ""
    """A bit is changed on the way out, in objects whose name holds this."""
    half: str = ""
    """The second half of such objects does not come."""
    endless: str = ""
    """Such objects go on without end."""
    trickle: str = ""
    """Such objects come byte by byte, ten in a second."""
    endless_list: bool = False
    """Every list says that there is more."""
    seed: int = 7
    """Of the shares."""
    delay: float = 0.0
    """Seconds before each answer."""
    rate: float = 0.0
    """Bytes of uploads per second; 0 is as fast as it goes."""


@dataclass
class Counts:
    """What came through."""

    refused: int = 0
    cut: int = 0
    received: int = 0
    """Bytes of uploads."""


class Proxy(ThreadingHTTPServer):
    """Stands before the store."""

    daemon_threads = True

    def __init__(self, store: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.store, self.faults, self.counts, self.draw = store, Faults(), Counts(), random.Random(7)

    def handle_error(self, *_: Any) -> None:
        """A client that went away is part of the game."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.startswith("/-/"):
            self._control(body)
        else:
            self._serve(body)

    def _control(self, body: bytes) -> None:
        if self.command == "PUT":
            self.server.faults, self.server.counts = Faults(**json.loads(body)), Counts()
            self.server.draw = random.Random(self.server.faults.seed)
        self._answer(200, [], json.dumps(asdict(self.server.counts)).encode())

    def _serve(self, body: bytes) -> None:
        faults, counts = self.server.faults, self.server.counts
        chance = self.server.draw.random()
        if faults.down or chance < faults.cut / 2:
            return self._cut()
        if faults.strangers:
            return self._answer(403, [], WRONG_KEY)
        if ("DELETE" if self.path.endswith("?delete") else self.command) in faults.denied:
            return self._answer(403, [], ACCESS_DENIED)
        if faults.cut <= chance < faults.cut + faults.busy:
            counts.refused += 1
            return self._answer(503, [], SLOW_DOWN)
        time.sleep(faults.delay + (len(body) / faults.rate if faults.rate else 0))
        if faults.spoiled and faults.spoiled in self.path and self.command == "PUT" and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        status, headers, content = self._forwarded(body)
        counts.received += len(body)
        if faults.cut / 2 <= chance < faults.cut:
            return self._cut()
        read = self.command == "GET" and status < 300
        return self._read(status, headers, content) if read else self._answer(status, headers, content)

    def _read(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        """Answer with an object or a list, as the faults want it."""
        faults = self.server.faults
        if "list-type" in self.path:
            if faults.endless_list:
                more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>"
                content = re.sub(rb"<IsTruncated>\w+</IsTruncated>", more, content)
            return self._answer(status, headers, content)
        chance = self.server.draw.random()
        if chance < faults.flipped or (faults.flip and faults.flip in self.path):
            content = content[:-1] + bytes([content[-1] ^ 1]) if content else b""
        if faults.flipped <= chance < faults.flipped + faults.halved or (faults.half and faults.half in self.path):
            return self._pour(status, headers, content[: len(content) // 2], len(content))
        if faults.endless and faults.endless in self.path:
            return self._pour(status, headers, content, ENDLESS)
        if faults.trickle and faults.trickle in self.path:
            return self._pour(status, headers, content, len(content), pause=0.1)
        return self._answer(status, headers, content)

    def _pour(
        self, status: int, headers: list[tuple[str, str]], content: bytes, length: int, *, pause: float = 0.0
    ) -> None:
        """Promise `length` bytes, and send what there is: all at once, byte by byte, or zeros until nobody reads."""
        self.close_connection = True
        self._head(status, headers, str(length))
        with contextlib.suppress(OSError):
            for byte in content if pause else ():
                self.wfile.write(bytes([byte]))
                time.sleep(pause)
            if not pause:
                self.wfile.write(content)
            while length == ENDLESS:
                self.wfile.write(bytes(1 << 16))

    def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        through = http.client.HTTPConnection(*self.server.store)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        path = re.sub("continuation-token=[^&]*&?", "", self.path) if self.server.faults.endless_list else self.path
        through.request(self.command, path, body, headers)
        got = through.getresponse()
        content = got.read()
        through.close()
        return got.status, got.getheaders(), content

    def _head(self, status: int, headers: list[tuple[str, str]], length: str) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                self.send_header(name, value)
        self.send_header("content-length", length)
        self.end_headers()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        length = {name.lower(): value for name, value in headers}.get("content-length")
        self._head(status, headers, length if self.command == "HEAD" and length else str(len(content)))
        self.wfile.write(b"" if self.command == "HEAD" else content)

    def _cut(self) -> None:
        self.server.counts.cut += 1
        self.close_connection = True


class ObjectStore:
    """The process of the store and its proxy."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        self._numbers = count(1)

    def stop(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        # Not only by the end of its input: a process that a test has forked may hold the other end as well.
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()

    def new_bucket(self) -> str:
        """The name of a bucket of its own."""
        name = f"bucket{next(self._numbers)}"  # Google's client writes a hyphen in a way that moto does not read
        self._ask("PUT", f"/{name}")
        return name

    def put_any(self, bucket: str, name: str) -> None:
        """An object of any name, also of one that the client would not write."""
        self._ask("PUT", f"/{bucket}/{quote(name)}", b"content")

    def set(self, **faults: Any) -> None:
        """Let these things go wrong from here on, and count anew."""
        assert set(faults) <= {f.name for f in fields(Faults)}
        self._ask("PUT", "/-/faults", json.dumps(faults).encode())

    def counts(self) -> Counts:
        """Since `set`."""
        return Counts(**json.loads(self._ask("GET", "/-/counts")))

    def environment(self) -> dict[str, str]:
        """What the S3 and the Google client read, with keys that mean nothing."""
        return {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
            "GOOGLE_BASE_URL": self.url,
            "GOOGLE_BEARER_TOKEN": "testing",
        }

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(urllib.request.Request(self.url + path, body, method=method)) as answer:
            content: bytes = answer.read()
        return content


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """The store, started once."""
    store = ObjectStore()
    yield store
    store.stop()


@pytest.fixture
def store(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """The store with nothing wrong, and with the credentials for it in the environment."""
    object_store.set()
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
        monkeypatch.delenv(name)
    for name, value in object_store.environment().items():
        monkeypatch.setenv(name, value)
    yield object_store
    object_store.set()


@pytest.fixture
def bucket(store: ObjectStore) -> str:
    """The URL of a bucket of its own."""
    return f"s3://{store.new_bucket()}"


def serve() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    from moto.server import ThreadedMotoServer

    store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    proxy = Proxy(store.get_host_and_port())
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{proxy.server_port}"}) + "\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdin.read()


if __name__ == "__main__":
    serve()
