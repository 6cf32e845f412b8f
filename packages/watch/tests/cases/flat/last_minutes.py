"""The last ninety pictures of a camera, read by PyAV from files that are closed."""

import sys
import tempfile
import time
from collections import deque
from pathlib import Path

import av
import numpy as np

WIDTH, HEIGHT = 480, 270


def record_segment(path: Path, seed: int) -> None:
    picture = np.random.default_rng(seed).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for shift in range(10):
            frame = av.VideoFrame.from_ndarray(np.roll(picture, shift * 4, axis=1), format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode())


class Doorbell:
    def __init__(self) -> None:
        self.pictures: deque[np.ndarray] = deque(maxlen=90)

    def add_segment(self, path: Path) -> None:
        with av.open(str(path)) as video:
            for frame in video.decode(video=0):
                self.pictures.append(frame.to_ndarray(format="rgb24"))

    def mean_brightness(self) -> float:
        return float(np.mean([picture.mean() for picture in self.pictures]))


def main(segments: int) -> None:
    bell = Doorbell()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(segments):
            path = Path(folder) / f"segment{number % 6}.mp4"
            record_segment(path, number)
            bell.add_segment(path)
            if number % 10 == 0:
                sys.stdout.write(f"{len(bell.pictures)} pictures, brightness {bell.mean_brightness():.1f}\n")
            time.sleep(0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 53)
