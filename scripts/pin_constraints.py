"""Print the exact version of every package that the distributions and the requirements pull in, as installed here.

What else lies in the environment is left out, so the list is complete and no longer than it must be.
"""

import sys
from importlib.metadata import PackageNotFoundError, distribution, metadata, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
OURS = ("flatwater-watch", "flatwater", "flatwater-trading")
LISTS = ("requirements.txt", "benchmarks/requirements.txt")
HEADER = "# Exact versions of what `make` installs, and of rivals. Written by `make constraints`."


def needed_packages() -> set[str]:
    """Find all packages that are needed, directly or through others, and that are installed."""
    found: set[str] = set()
    # Our own with all their extras: `make` installs them so.
    waiting = [(name, frozenset(metadata(name).get_all("Provides-Extra") or ())) for name in OURS]
    for text in (line.partition("#")[0].strip() for each in LISTS for line in (ROOT / each).read_text().splitlines()):
        if text and is_installed(name := canonicalize_name(Requirement(text).name)):
            found.add(name)
            waiting.append((name, frozenset(Requirement(text).extras)))
    done = set()
    while waiting:
        package, extras = waiting.pop()
        if (package, extras) in done:
            continue
        done.add((package, extras))
        for text in requires(package) or ():
            asked = Requirement(text)
            name = canonicalize_name(asked.name)
            # "" besides the extras: a marker may speak of the system or of Python alone.
            applies = asked.marker is None or any(asked.marker.evaluate({"extra": extra}) for extra in (*extras, ""))
            if not applies or name in OURS:
                continue
            if is_installed(name):
                found.add(name)
                waiting.append((name, frozenset(asked.extras)))
    return found


def is_installed(name: str) -> bool:
    """Return whether a package is installed here, and print a note where it is not."""
    try:
        distribution(name)
    except PackageNotFoundError:
        print(f"{name} is not installed, so it is not pinned", file=sys.stderr)
        return False
    return True


def main() -> None:
    """Print the pins, sorted. A build tag such as torch's `+cpu` is dropped: each machine takes the build it wants."""
    print(HEADER)
    for name in sorted(needed_packages()):
        print(f"{name}=={version(name).split('+', maxsplit=1)[0]}")


if __name__ == "__main__":
    main()
