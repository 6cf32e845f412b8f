"""The clips of the yard cameras, scored by how much moves in them.

Thread: https://github.com/PyAV-Org/PyAV/issues/1117, https://github.com/PyAV-Org/PyAV/issues/317
Looks like: a clip of a few kilobytes on the disk takes 1.7 MiB for good; no object of Python is that large.
Cause: each clip keeps its open container, with the decoder and its frames, outside of Python.
Fix: `with av.open(str(path)) as video`, or `video.close()`, and do not keep `video` in the clip.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

WIDTH, HEIGHT = 640, 360


@dataclass
class Clip:
    name: str
    video: av.container.InputContainer
    motion: float
    thumbnail: np.ndarray


def record_clip(path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    picture = draw.integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=12)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for shift in range(72):
            frame = av.VideoFrame.from_ndarray(np.roll(picture, shift * 3, axis=1), format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode())


class Yard:
    def __init__(self):
        self.clips: list[Clip] = []

    def add(self, name: str, path: Path) -> Clip:
        video = av.open(str(path))  # <- here
        previous, motion, thumbnail = None, 0.0, None
        for frame in video.decode(video=0):  # <- or here
            grey = frame.to_ndarray(format="gray").astype(np.float32)
            if previous is None:
                thumbnail = grey[::12, ::12].astype(np.uint8)
            else:
                motion += float(np.abs(grey - previous).mean())
            previous = grey
        clip = Clip(name, video, motion, thumbnail)  # <- or here
        self.clips.append(clip)  # <- or here
        return clip


def main(clips: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"camera{number}.mp4" for number in range(2)]
        for number, path in enumerate(paths):
            record_clip(path, number)
        yard = Yard()
        for number in range(clips):
            clip = yard.add(f"clip {number}", paths[number % 2])
            if number % 10 == 0:
                print(f"{clip.name}: motion {clip.motion:.0f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 76)
