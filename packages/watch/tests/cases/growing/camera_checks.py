"""Cameras asked for a picture in turn by Qt, of which those are noted that do not answer with one.

Thread: https://github.com/lycis/QtDropbox/issues/35, https://github.com/AttorneyOnline/akashi/pull/450, https://github.com/Tribler/tribler/pull/3623
Looks like: each picture takes its hundred kilobytes for good, outside of Python; only its start was read.
Cause: a reply is a child of the network manager, and lives as long, with what nobody read of it.
Fix: `reply.deleteLater()` at the end of `check`, or `self.network.setAutoDeleteReplies(True)`.
"""

import random
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PySide6.QtCore import QCoreApplication, QObject, QTimer, QUrl
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkReply, QNetworkRequest


class Camera(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        picture = b"\xff\xd8\xff" + random.randbytes(random.randrange(90_000, 150_000))
        self.send_response(200)
        self.send_header("Content-Type", "image/jpeg")
        self.send_header("Content-Length", str(len(picture)))
        self.end_headers()
        self.wfile.write(picture)

    def log_message(self, *arguments):
        pass


class Checker(QObject):
    def __init__(self, port):
        super().__init__()
        self.port = port
        self.asked, self.broken = 0, 0
        self.network = QNetworkAccessManager(self)
        self.network.finished.connect(self.check)  # <- or here
        self.timer = QTimer(self)
        self.timer.timeout.connect(self.ask)
        self.timer.start(30)

    def ask(self):
        self.asked += 1
        self.network.get(QNetworkRequest(QUrl(f"http://127.0.0.1:{self.port}/camera/{self.asked % 64}")))  # <- here

    def check(self, reply):  # <- or here
        start = bytes(reply.peek(3))  # <- or here
        if reply.error() != QNetworkReply.NetworkError.NoError or start != b"\xff\xd8\xff":  # <- or here
            self.broken += 1


def main(seconds: int) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Camera)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    application = QCoreApplication(sys.argv)
    checker = Checker(server.server_port)
    QTimer.singleShot(1000 * seconds, application.quit)
    application.exec()
    print(f"{checker.asked} pictures asked for, {checker.broken} broken")
    server.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
