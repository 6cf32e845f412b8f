"""A C library that allocates a context for each call, and whose `free` is never called.

Looks like: memory climbs, every Python tool says that nothing grows, and `gc.collect()` changes nothing.
Fix: outside of Python. `memray run --native` names the C function; the library's documentation says what frees it.
"""

import ctypes
import sys
import time

import torch

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p
CONTEXT = 3 << 20


def decode(frame: int) -> float:
    context = ctypes.c_void_p(LIBC.malloc(ctypes.c_size_t(CONTEXT)))
    ctypes.memset(context, frame % 256, CONTEXT)
    return float(frame)


def main(rounds: int) -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for frame in range(2 * rounds):
        loss = model(torch.full((4, 1), decode(frame))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
