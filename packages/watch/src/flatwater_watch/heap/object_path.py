"""The path of one object from the roots, for an object that was met in running code."""

from math import inf

from flatwater_watch.heap.roots import Roots
from flatwater_watch.heap.walk import begin_walk, continue_walk_

SAMPLED_ITEMS, MAXIMUM_OBJECTS = 8, 3000
"""Sampled items of a big container, and maximum objects, of the walk: it takes 30 ms, and is not taken in slices."""


def find_path(roots: Roots, object_id: int, kind: type) -> str:
    """Return the path of an object, by its id and class; empty if it is not among those near the roots."""
    # Runs no code of the watched program.
    roots = roots._replace(must_open_ids=frozenset({object_id}))
    heap_walk = begin_walk(roots, sampled_items=SAMPLED_ITEMS, maximum=MAXIMUM_OBJECTS)
    continue_walk_(heap_walk, inf)
    # The class too, as the object may have gone since it was met, and another may have its id.
    rows = zip(heap_walk.objects, heap_walk.path_records, strict=True)
    return next((record.path for obj, record in rows if id(obj) == object_id and type(obj) is kind), "")
