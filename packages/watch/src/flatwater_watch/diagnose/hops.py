"""Hops from a root to a container: the way on which a census saw it, followed again later to what lies there now.

A root is a global, a local variable or a registry. A way is a root and the hops from there: ("train.AGENTS", "[*]",
".history").
"""

from collections.abc import Sequence
from itertools import chain, islice, pairwise
from typing import Any

from flatwater_watch.diagnose.contents import MAXIMUM_LEAVES
from flatwater_watch.diagnose.newest_items import newest_items
from flatwater_watch.heap.census import Census, Holding
from flatwater_watch.heap.children import open_object
from flatwater_watch.heap.raw import full_name, read_stable
from flatwater_watch.heap.roots import Roots, root_groups, user_modules
from flatwater_watch.heap.view import Named, Walk, evenly_spaced_slice

ITEM, KEY, CALL = "[*]", "[key]", "[call]"
"""Hops of a way that stand for any item of a container, for any key, and for any of several waiting calls of the
function whose variable is the root."""
MAXIMUM_WAY_CONTAINERS = 64
"""Maximum containers at the end of a way that are checked for new items, the newest first; each takes 30 µs."""
SPREAD_WAY_CONTAINERS, MAXIMUM_SPREAD_ITEMS = 256, 100_000
"""That maximum where any of many items may have got the container that is sought, so that they are spread evenly over
the newest items; and the maximum of those."""


def chain_of_holdings(census: Census, path: str) -> list[Holding]:
    """Return the entries of a census for the objects on a path, from the root to the object at its end."""
    holdings = [census.holdings[path]]
    while (parent := holdings[-1].parent) is not None:
        holdings.append(census.holdings[parent])
    return holdings[::-1]


def split_path(census: Census, path: str) -> tuple[str, ...]:
    """Return a path in parts, its root and each hop from there: ("train.AGENTS", "[*]", ".history").

    The first hop is `[call]` if several calls wait with the root as a variable.
    """
    holdings = chain_of_holdings(census, path)
    root = holdings[0]
    names = [inner.path.removeprefix(outer.path) for outer, inner in pairwise(holdings)]
    return (root.path, *([CALL] if root.instances > 1 else []), *names)


def resolve_hops(roots: Roots, hops: tuple[str, ...]) -> Any:
    """Return the object to which a root and hops lead now; None if they lead to nothing.

    Where a hop matches several objects, the newest is taken. The result need not be the container that a census saw
    there: a program may have replaced it by a copy.

    Args:
        roots: choice of roots.
        hops: root and hops: ("train.AGENTS", "[*]", ".history").
    """
    return next(iter(resolve_all_ways(roots, hops, maximum=1)), None)


def resolve_all_ways(roots: Roots, way: tuple[str, ...], maximum: int, *, is_spread: bool = False) -> list[Any]:
    """Return the containers to which a root and hops (a way) lead now, at most `maximum`: the newest, or a sample.

    Args:
        roots: choice of roots.
        way: root and hops: ("train.AGENTS", "[*]", ".history") leads to the histories of all agents.
        maximum: maximum number of containers.
        is_spread: whether to take containers that are spread evenly over all, instead of the newest.
    """
    modules = user_modules(roots)
    root, *hops = way
    # A root's path is one object, unless several calls wait with that variable (`CALL`). The first one found ends the
    # search, as a later group of roots looks for tasks in the whole heap.
    groups = chain([roots.libraries], root_groups(roots, modules))
    root_objects = (value for group in groups for path, value in group if path == root)
    maximum_roots = None if CALL in way else 1
    objects = list(islice(root_objects, maximum_roots))[-maximum:]
    walk = Walk(
        sampled_items=MAXIMUM_LEAVES,
        is_user_class=lambda cls: full_name(cls)[0] in modules,
        maximum_objects=MAXIMUM_LEAVES,
    )
    for hop in hops:
        if hop != CALL:  # it only says that several calls have the root, and leads nowhere
            # To spread the choice over all items, all are needed.
            limit = MAXIMUM_SPREAD_ITEMS if is_spread else maximum
            children = [child for obj in objects for child in _follow_hop(obj, hop, limit, walk)]
            objects = children[evenly_spaced_slice(len(children), maximum)] if is_spread else children[-maximum:]
    return objects


def _follow_hop(obj: Any, hop: str, maximum: int, walk: Walk) -> list[Any]:
    """Return the objects to which a hop leads from `obj`, at most `maximum`.

    Args:
        obj: object with the hop.
        hop: `[*]` for the newest items, `[key]` for the newest keys, or an attribute such as `.history`.
        maximum: maximum number of objects.
        walk: record of the objects that were opened.
    """
    opened_object = open_object(obj, walk)
    if hop == ITEM:
        return newest_items(obj, opened_object.kind, maximum)
    if hop == KEY:
        return _newest_keys(obj, opened_object.parts, maximum)
    return [child for name, child in opened_object.parts if name == hop][:maximum]


def leads_to_several(way: tuple[str, ...]) -> bool:
    """Return whether a way may end at several containers, as one of its hops stands for any item, key or call."""
    return ITEM in way or KEY in way or CALL in way


def _newest_dict_keys(container: dict[Any, Any], maximum: int) -> list[Any]:
    """Return the keys of a dict that were added last, oldest first; called by `read_stable`."""
    # By `dict` itself: the container may be of a subclass of the program's.
    return list(islice(reversed(dict.keys(container)), maximum))[::-1]


def _newest_keys(container: Any, parts: Sequence[Named], maximum: int) -> list[Any]:
    """Return at most `maximum` keys of a dict that were added last, oldest first; any keys of another container."""
    if issubclass(type(container), dict):
        return read_stable(_newest_dict_keys, container, maximum)
    return [child for name, child in parts if name == KEY][-maximum:]
