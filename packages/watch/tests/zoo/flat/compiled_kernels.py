"""A compiler that keeps what it makes of each signature: once for each, in the first part of the run.

Looks like: memory climbs in steps while kernels meet new types, and then stays. Nothing to fix.
"""

import ctypes
import sys
import time
from collections import defaultdict

malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
SIGNATURES = 4


class Dispatcher:
    """Compiles a function for each type that it is called with, as Numba's does: symbols in Python, code in C."""

    def __init__(self) -> None:
        self.symbols = defaultdict[str, list[bytes]](list)
        self.sources: dict[str, str] = {}
        self.overloads: dict[str, int] = {}

    def __call__(self, kind: str) -> int:
        if kind not in self.overloads:
            self.overloads[kind] = self.compile(kind)
        return self.overloads[kind]

    def compile(self, kind: str) -> int:
        for n in range(60):
            self.symbols[f"{kind}.{n % 6}"].append(bytes([n]) * 9000)
            address = malloc(120_000)
            ctypes.memset(address, 1, 120_000)
            time.sleep(0.005)
        self.sources[kind] = f"define {kind}\n" * 10_000
        return len(self.sources)


kernel = Dispatcher()


def main(rounds: int) -> None:
    for n in range(20 * rounds):
        kernel(f"kind {min(SIGNATURES - 1, n * 3 * SIGNATURES // (20 * rounds))}")
        time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
