"""A thread that loads blocks with C's `malloc`, which nobody frees, while the main code waits for it.

Looks like: the main code is in `Event.wait` all the time, and nothing of Python grows.
Fix: `libc.free(block)` when the block has been used.
"""

import ctypes
import sys
import threading
import time

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
loaded = threading.Event()


def load(blocks: int) -> None:
    for _ in range(blocks):
        block = libc.malloc(ctypes.c_size_t(240_000))
        ctypes.memset(block, 1, 240_000)  # <- here
        time.sleep(0.01)
    loaded.set()


def main(rounds: int) -> None:
    threading.Thread(target=load, args=(90 * rounds,)).start()
    loaded.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
