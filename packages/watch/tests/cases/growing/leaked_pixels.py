"""An extension that decodes pictures with a library and forgets one reference to the pixels of each.

Thread: https://github.com/python-pillow/Pillow/issues/7935
Looks like: memory grows by the size of a picture, and no image is alive.
Fix: in the extension: `Py_DECREF` what was borrowed for the call.
"""

import ctypes
import io
import sys
import time

from PIL import Image

own = ctypes.pythonapi.Py_IncRef
own.argtypes = [ctypes.py_object]


def thumbnail(encoded: bytes) -> int:
    image = Image.open(io.BytesIO(encoded))
    image.load()  # <- here
    own(image.im)
    return image.resize((8, 8)).getpixel((0, 0))


def main(rounds: int) -> None:
    source = io.BytesIO()
    Image.new("L", (1600, 1200), 7).save(source, "PNG")
    for _ in range(rounds):
        thumbnail(source.getvalue())
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
