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
    """Return the lengths of containers, as a census counts them."""
    walk = Walk(sampled_items=1, is_user_class=lambda _: False, maximum_objects=1)  # only lengths are wanted
    counted_containers = [(container, item_count(container)) for container in containers]
    # A negative count: the container is not builtin, and must be opened.
    return [items if items >= 0 else open_object(container, walk).length for container, items in counted_containers]


def added_leaves(container: Any, length: int, earlier: Holding, content_class: type | None = None) -> tuple[Any, ...]:
    """Return the leaves, such as arrays, of the items that a container has gained; empty if it has gained none.

    Args:
        container: container of that holding, or the container in its place now.
        length: length of the container now.
        earlier: holding at the earlier census.
        content_class: class of the main content; children of an object of C have several classes, and those of this
            class are preferred.
    """
    if earlier.kind in BLOCK_KINDS:  # a block that grows is replaced by a larger one, so all of it is new
        return describe_contents(earlier, [container]).leaves
    if length <= earlier.length:
        return ()
    newest = newest_items(container, earlier.kind, min(length - earlier.length, NEWEST_ITEMS))
    # Children of an object, and not items of a container, may be of other classes than the content.
    preferred_items = [item for item in newest if type(item) is content_class] if earlier.kind not in ITEM_KINDS else []
    return describe_contents(earlier._replace(length=length), preferred_items or newest).leaves
