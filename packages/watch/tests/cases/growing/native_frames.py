"""Frames of a C library that are never given back to it.

Thread: https://github.com/opencv/opencv/issues/13255
Looks like: memory grows, and no Python object does.
Fix: call the library's `release` for each frame.
"""

import ctypes
import sys
import time

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]


def decode(size: int) -> int:
    frame = libc.malloc(size)  # <- here
    ctypes.memset(frame, 1, size)
    return ctypes.c_ubyte.from_address(frame).value


def main(rounds: int) -> None:
    total = 0
    for n in range(rounds):
        total += decode(2_000_000 + n)
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
