"""Who owns what grows behind each kind of holder: kinds by their names in, owners of each group of kinds out, as JSON.

A program of its own, as the tests' process has frozen most of its objects, of which the collector knows nothing then.
"""

import json
import sys

import holdinglib

from flatwater_watch.diagnose.owners import find_owners
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.libraries import grown_holders, heap_lengths
from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.view import strong_object

FIRST, MORE = 6, 24
"""Items of each holder when the first census is taken, and before each further one."""


def add(kinds: list[str], count: int) -> None:
    for kind in kinds * count:
        holdinglib.add(kind, f"{next(holdinglib.numbers):02000d}")


def owner_paths(kinds: list[str]) -> list[str]:
    """As the finder asks: the user's roots first, and then what holds what became longer."""
    add(kinds, FIRST)
    lengths, first = heap_lengths(), take_census(Roots()).without_objects()
    add(kinds, MORE)
    second = take_census(Roots())
    of_user = [owner.path for owner in find_owners(first, second)]
    reached = {id(container) for path, container in second.containers.items() if path in first.holdings}
    del second  # nothing else may refer to the containers
    holders, must_open_ids = grown_holders(lengths, Roots(), reached)
    roots = Roots((), (), tuple((path, strong_object(holder)) for path, holder in holders.items()), must_open_ids)
    holders.clear()  # no variable of this program may be an owner
    first = take_census(roots).without_objects()
    add(kinds, MORE)
    return [*of_user, *(owner.path for owner in find_owners(first, take_census(roots)))]


if __name__ == "__main__":
    holdinglib.install()
    sys.stdout.write(json.dumps([owner_paths(group) for group in json.loads(sys.argv[1])]))
    holdinglib.remove()
