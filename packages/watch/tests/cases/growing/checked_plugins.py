"""Whether a plugin is one of a kind is asked of abstract classes, which remember each class that they were asked of.

Thread: https://github.com/python/cpython/issues/92810
Looks like: memory grows by far more than the classes: all subclasses of an abstract class note each of them too.
Fix: make the classes once; ask for a name or a method instead of `issubclass`.
"""

import sys
import time
from abc import ABC

KINDS = [type(f"Kind{n}", (ABC,), {}) for n in range(400)]
PLUGINS: list[type] = []


def load(n: int) -> bool:
    plugin = type(f"Plugin{n}", (), {})
    PLUGINS.append(plugin)
    return issubclass(plugin, ABC)  # <- here


def main(rounds: int) -> None:
    for n in range(rounds):
        for k in range(30):
            load(30 * n + k)
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
