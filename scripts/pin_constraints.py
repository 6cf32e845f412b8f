"""Print the exact version of every package that `.[train,teach,dev]` and `.[compare]` pull in, as installed here.

What else lies in the environment is left out, so the list is complete and no longer than it must be.
"""

import sys
from importlib.metadata import PackageNotFoundError, distribution, requires, version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("train", "teach", "dev", "compare")
HEADER = "# Exact versions for `pip install -c constraints.txt -e .[train,teach,dev]`. Written by `make constraints`."


def needed() -> set[str]:
    """Names of all packages that the project's extras need, directly or through others, and that are installed."""
    found: set[str] = set()
    waiting = [(canonicalize_name("flatwater"), frozenset(EXTRAS))]
    done = set()
    while waiting:
        package, extras = waiting.pop()
        if (package, extras) in done:
            continue
        done.add((package, extras))
        for text in requires(package) or ():
            asked = Requirement(text)
            name = canonicalize_name(asked.name)
            applies = asked.marker is None or any(asked.marker.evaluate({"extra": extra}) for extra in (*extras, ""))
            if not applies or name == "flatwater":
                continue
            try:
                distribution(name)
            except PackageNotFoundError:
                print(f"{name} is not installed, so it is not pinned", file=sys.stderr)
                continue
            found.add(name)
            waiting.append((name, frozenset(asked.extras)))
    return found


def main() -> None:
    """Print the pins, sorted. A build tag such as torch's `+cpu` is dropped: each machine takes the build it wants."""
    print(HEADER)
    for name in sorted(needed()):
        print(f"{name}=={version(name).split('+', maxsplit=1)[0]}")


if __name__ == "__main__":
    main()
