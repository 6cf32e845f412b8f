"""Modules that a service lists the names of, each parsed once.

Thread: https://github.com/davidhalter/jedi/issues/1340
Looks like: memory climbs with the modules that were ever asked about, by the whole syntax tree of each.
Fix: `parso.cache.parser_cache.clear()` after each batch, or a worker that is replaced now and then.
"""

import sys
import time

import jedi


def module(number: int) -> str:
    """The text of a module that somebody wrote."""
    functions = (f"def step_{n}(value):\n    return value * {number} + {n}\n\n\n" for n in range(220))
    return "".join(functions)


def main(rounds: int) -> None:
    names = 0
    for number in range(rounds):
        for part in range(2):
            script = jedi.Script(module(number), path=f"/srv/code/project_{number}/part_{part}.py")  # <- here
            names += len(script.get_names())
        time.sleep(0.07)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
