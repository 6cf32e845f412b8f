"""Collects the parts of an upload that a camera writes into a spool folder.

Thread: https://github.com/gorakhargosh/watchdog/issues/587
Looks like: memory climbs with the uploads ever taken, although their files are gone.
Fix: `observer.unschedule(watch)` with what `schedule` returned, when an upload is complete.
"""

import pathlib
import random
import tempfile
import time

from watchdog.events import FileSystemEventHandler
from watchdog.observers import Observer

spool = pathlib.Path(tempfile.mkdtemp())
observer = Observer()


class Upload(FileSystemEventHandler):
    def __init__(self, camera):
        self.camera = camera
        self.parts = []

    def on_closed(self, event):
        path = pathlib.Path(event.src_path)
        if path.name.startswith(f"{self.camera}-"):
            self.parts.append(path.read_bytes())  # <- here


def upload(camera):
    handler = Upload(camera)
    observer.schedule(handler, str(spool))
    for part in range(3):
        path = spool / f"{camera}-{part}"
        path.write_bytes(random.randbytes(90_000))
        time.sleep(0.012)
    while len(handler.parts) < 3:
        time.sleep(0.002)
    for path in spool.iterdir():
        path.unlink()
    return sum(len(part) for part in handler.parts)


def main():
    observer.start()
    total = 0
    for number in range(220):
        total += upload(f"camera{number}")
    observer.stop()
    observer.join()
    print(total, "bytes")


main()
