"""The growth of containers by items: which kinds grow so, how long a container is, and what it has gained."""

from collections.abc import Iterable
from typing import Any

from flatwater_watch.diagnose.contents import describe_contents
from flatwater_watch.diagnose.newest_items import newest_items
from flatwater_watch.heap.census import Holding
from flatwater_watch.heap.children import open_object
from flatwater_watch.heap.containers import item_count
from flatwater_watch.heap.view import Walk

ITEM_KINDS = frozenset({"list", "deque", "dict", "set", "queue", "cache", "figures", "hooks"})
"""Kinds of containers that grow by single items."""
NEWEST_ITEMS = 6
"""Maximum items that are opened while allocations are traced, as opening takes several times as long then."""
BLOCK_KINDS = frozenset({"array", "text", "bytes"})
"""Kinds of holdings that grow by being replaced by a larger one."""
TRACEABLE_KINDS = ITEM_KINDS | BLOCK_KINDS | {"object"}
"""Kinds of containers whose new items are seen without a census."""


def container_lengths(containers: Iterable[Any]) -> list[int]:
    """Return the number of items of each container; not only of builtin ones, for which `len` would do."""
    walk = Walk(sampled_items=1, is_user_class=lambda _: False, maximum_objects=1)  # only lengths are wanted
    # `item_count` is negative for a container that is not builtin: this must be opened.
    counted_containers = [(container, item_count(container)) for container in containers]
    return [count if count >= 0 else open_object(container, walk).length for container, count in counted_containers]


def added_leaves(container: Any, length: int, earlier: Holding, content_class: type | None = None) -> tuple[Any, ...]:
    """Return the main contents, such as arrays, of the items that a container has gained; empty if it gained none.

    Args:
        container: the container that lies on the path now.
        length: its length now.
        earlier: entry of the path in an earlier census.
        content_class: class of the main content. An object of C has children of several classes; those of this class
            are preferred.
    """
    if earlier.kind in BLOCK_KINDS:  # an array or text that grows is replaced by a larger one, so all of it is new
        return describe_contents(earlier, [container]).leaves
    if length <= earlier.length:
        return ()
    newest = newest_items(container, earlier.kind, min(length - earlier.length, NEWEST_ITEMS))
    preferred_items = []
    if earlier.kind not in ITEM_KINDS:
        preferred_items = [item for item in newest if type(item) is content_class]
    return describe_contents(earlier._replace(length=length), preferred_items or newest).leaves
