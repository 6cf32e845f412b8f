"""Requests of real servers are what growth is told by, in whatever thread or process they are answered."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from running import Watched

APP = """
import socket, threading, time, urllib.request

KEPT = []

def keep():
    KEPT.append(bytearray(200_000))
    return b"kept"

def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]

def drive(port, stop, seconds=5):
    def ask():
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).read()
            except OSError:  # it has not begun to listen
                time.sleep(0.05)
            time.sleep(0.01)
        stop()
    threading.Thread(target=ask).start()
"""
STDLIB = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from app import drive, keep

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        said = keep()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *words):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
drive(server.server_port, server.shutdown)
server.serve_forever()
"""
WERKZEUG = """
from werkzeug.serving import make_server
from app import drive, keep

def app(environ, start_response):
    start_response("200 OK", [])
    return [keep()]

server = make_server("127.0.0.1", 0, app, threaded=True)
drive(server.server_port, server.shutdown)
server.serve_forever()
"""
UVICORN = """
import uvicorn
from app import drive, free_port, keep

async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": keep()})

def stop():
    server.should_exit = True

port = free_port()
server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", lifespan="off"))
drive(port, stop)
server.run()
"""
AIOHTTP = """
import os, signal
from aiohttp import web
from app import drive, free_port, keep

async def home(request):
    return web.Response(body=keep())

port = free_port()
app = web.Application()
app.add_routes([web.get("/", home)])
drive(port, lambda: os.kill(os.getpid(), signal.SIGINT))
web.run_app(app, port=port, print=None)
"""
GUNICORN = """
import os, signal, sys
from gunicorn.app.base import BaseApplication
from app import drive, free_port, keep

def app(environ, start_response):
    start_response("200 OK", [])
    return [keep()]

class Served(BaseApplication):
    def load_config(self):
        self.cfg.set("bind", f"127.0.0.1:{port}")
        self.cfg.set("workers", 2)
        self.cfg.set("worker_class", sys.argv[1])
        self.cfg.set("loglevel", "error")
        self.cfg.set("control_socket_disable", True)
        self.cfg.set("when_ready", lambda server: drive(port, lambda: os.kill(server.pid, signal.SIGTERM), 14))

    def load(self):
        return app

port = free_port()
Served().run()
"""
SERVERS = [
    ("http.server", STDLIB, ()),
    ("werkzeug", WERKZEUG, ()),
    ("uvicorn", UVICORN, ()),
    ("aiohttp", AIOHTTP, ()),
    ("gunicorn", GUNICORN, ("sync",)),
    ("gunicorn", GUNICORN, ("gthread",)),
]


def skip_marks(library: str) -> list[pytest.MarkDecorator]:
    """All but Python's own server are slow, and need not be there."""
    absent = find_spec(library.partition(".")[0]) is None
    skip = pytest.mark.skipif(absent, reason=f"{library} is not installed: pip install {library}")
    return [] if library == "http.server" else [pytest.mark.slow, skip]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        pytest.param(program, words, marks=skip_marks(library), id=" ".join((library, *words)))
        for library, program, words in SERVERS
    ],
)
def test_growth_is_told_by_the_request(
    tmp_path: Path, run_watched: Watched, server: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "app.py").write_text(APP)
    ran = run_watched(server, *words, command=(sys.executable, "train.py"))
    found = ran.summary["findings"]
    assert ran.code == 0, ran.stderr
    assert [(each["verdict"], each["owner"]) for each in found] == [("leak", "app.KEPT")], ran.stderr
    assert (ran.summary["unit"], found[0]["unit"]) == ("request", "request")
    assert found[0]["made_at"]["function"] == "keep"
    assert found[0]["bytes_per_step"] == pytest.approx(200_000, rel=0.4)
    assert ("2 worker processes" in found[0]["what"]) == bool(words)
