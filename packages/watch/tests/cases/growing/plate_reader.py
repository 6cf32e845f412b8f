"""One camera with two readers: a live preview and a number plate reader that is slow.

Thread: https://github.com/aiortc/aiortc/issues/554, https://github.com/aiortc/aiortc/issues/498
Looks like: memory climbs with the frames, although each reader holds one of them.
Cause: the relay queues all frames for each of its tracks, without a bound, and this one is slower than the camera.
Fix: `relay.subscribe(camera, buffered=False)`, or a reader that is as fast as the camera.
"""

import asyncio
import sys

import numpy as np
from aiortc import MediaStreamTrack
from aiortc.contrib.media import MediaRelay
from av import VideoFrame


class GateCamera(MediaStreamTrack):
    kind = "video"

    def __init__(self):
        super().__init__()
        self.number = 0
        self.picture = np.random.default_rng(8).integers(0, 255, (540, 640), dtype=np.uint8)

    async def recv(self) -> VideoFrame:
        await asyncio.sleep(0.05)
        self.number += 1
        frame = VideoFrame.from_ndarray(np.roll(self.picture, self.number, axis=1), format="yuv420p")  # <- or here
        frame.pts = self.number
        return frame


class Preview:
    def __init__(self, track: MediaStreamTrack):
        self.track = track
        self.shown = 0

    async def run(self) -> None:
        while True:
            await self.track.recv()
            self.shown += 1


class PlateReader:
    def __init__(self, track: MediaStreamTrack):
        self.track = track
        self.read = 0

    async def run(self) -> None:
        while True:
            frame = await self.track.recv()  # <- or here
            grey = frame.to_ndarray()[:360]
            self.read += int(grey.mean() > 0)
            await asyncio.sleep(0.3)  # <- or here


async def read_plates(seconds):
    relay = MediaRelay()
    camera = GateCamera()
    preview = Preview(relay.subscribe(camera))
    reader = PlateReader(relay.subscribe(camera))  # <- here
    tasks = [asyncio.create_task(preview.run()), asyncio.create_task(reader.run())]
    for _ in range(seconds // 2):
        await asyncio.sleep(2)
        print(f"{preview.shown} shown, {reader.read} read", flush=True)
    for task in tasks:
        task.cancel()
    camera.stop()


def main(seconds: int) -> None:
    asyncio.run(read_plates(seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
