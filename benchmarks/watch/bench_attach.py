"""A server that is looked into again and again while it answers: is it unharmed, and is the same said each time?

    python benchmarks/watch/bench_attach.py [--looks 100] [--seconds 3]

The server leaks 100 kB a request, and is asked without a pause for breath. After the last look it must have no thread,
no open file, no callback of the collector's and no mapped page more than after the first, and the same signal handlers;
no request may have failed, and each look must name the same owner and line. Exits with 1 where that fails.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim, record_claims

from flatwater_watch.units import format_bytes

SERVER = """
import gc, signal, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEPT = []

def keep():
    KEPT.append(bytearray(100_000))

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/state":
            handlers = [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())]
            lengths = [len(each) for each in (gc.callbacks, sys.meta_path, sys.modules)]
            said = repr((lengths, handlers, sys.path, sorted(globals())))
            KEPT.clear()
        else:
            keep()
            said = "kept"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(said.encode())

    def log_message(self, *words):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
print(server.server_port, flush=True)
server.serve_forever()
"""
MAIN = "import sys; from flatwater.cli.main import main; sys.exit(main())"


class Client:
    """Asks without a pause, and notes what failed and the slowest answer."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.answers, self.failed, self.slowest, self.over = 0, list[str](), 0.0, False
        self.thread = threading.Thread(target=self._ask)
        self.thread.start()

    def _ask(self) -> None:
        while not self.over:
            began = time.perf_counter()
            try:
                urllib.request.urlopen(self.address, timeout=30).read()  # noqa: S310  (loopback)
                self.answers += 1
            except OSError as fault:
                self.failed.append(str(fault))
            self.slowest = max(self.slowest, time.perf_counter() - began)
            time.sleep(0.01)

    def state(self) -> str:
        """Ask the server for the parts of its process that a watch could have changed."""
        said: bytes = urllib.request.urlopen(f"{self.address}/state", timeout=30).read()  # noqa: S310  (same)
        return said.decode()


def look(pid: int, seconds: float, folder: Path) -> list[tuple[str, str, str]]:
    """Verdict, owner and line of each finding of one look."""
    line = [sys.executable, "-c", MAIN, "watch", "--attach", str(pid), "--seconds", str(seconds), "--json", "out.json"]
    subprocess.run(line, cwd=folder, check=True, capture_output=True)
    found: list[dict[str, Any]] = json.loads((folder / "out.json").read_text())["findings"]
    return [
        (each["verdict"], each["owner"], f"line {each['made_at']['line']}" if each["made_at"] else "no line")
        for each in found
    ]


def leftover_counts(pid: int) -> dict[str, int]:
    """Threads, files and mappings of a process; answers that are under way would be threads of its own."""
    process = Path(f"/proc/{pid}")
    maps = (process / "maps").read_text().splitlines()
    return {
        "threads": len(list((process / "task").iterdir())),
        "files": len(list((process / "fd").iterdir())),
        "mappings of the watch": sum("flatwater-watch" in mapping for mapping in maps),
    }


def main() -> int:
    """Look, compare, and say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--looks", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            client = Client(int(server.stdout.readline()))
            before = after = ""
            said, resident = [], []
            for number in range(asked.looks):
                said.append(look(server.pid, asked.seconds, folder))
                after = client.state()  # which empties the server
                before = before or after  # the first look loads modules, which stay
                resident.append(_resident(server.pid))
                if (number + 1) % 10 == 0:
                    print(f"{number + 1} looks, {format_bytes(resident[-1])} resident, {said[-1]}", flush=True)
            client.over = True
            client.thread.join()
            time.sleep(2.0)
            end = leftover_counts(server.pid)
            lives = server.poll() is None
            server.kill()
    quarter = len(resident) // 4
    early, late = min(resident[quarter : 2 * quarter + 1]), min(resident[-quarter - 1 :])
    answers = Counter(str(each) for each in said)
    claims = [
        ("the same finding in each look", len(answers) == 1 and bool(said[0]), dict(answers)),
        ("no request failed", not client.failed, f"{client.answers} answered, slowest {client.slowest:.2f} s"),
        ("the server is as after the first look", before == after and lives, ""),
        ("threads and mappings are gone", end["threads"] == 1 and end["mappings of the watch"] == 0, end),
        (
            "memory does not grow from look to look",
            late - early < 2 << 20,
            f"{format_bytes(late - early)} from the least of the second quarter of looks to that of the last",
        ),
    ]
    for claim, holds, detail in claims:
        print(f"{'holds' if holds else 'FAILS':<6} {claim}  {detail}")
    held, name = sum(holds for _, holds, _ in claims), f"claims on a server that is looked into {asked.looks} times"
    note = "The same finding each time; no request failed; nothing left; memory flat."
    record_claims([Claim("watch", "looks", name, f"{held} of {len(claims)}", "all", held == len(claims), note=note)])
    return 0 if all(holds for _, holds, _ in claims) else 1


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


if __name__ == "__main__":
    sys.exit(main())
