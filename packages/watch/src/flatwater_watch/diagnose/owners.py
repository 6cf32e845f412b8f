"""The owners of growth: between two censuses, the deepest containers that explain what their holders gained."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import hypot
from typing import Any

from flatwater_watch.diagnose.contents import (
    MAXIMUM_LEAVES,
    Contents,
    describe_container,
    describe_contents,
    describe_redundancy,
    newest_items,
)
from flatwater_watch.diagnose.declared_bounds import declared_bound
from flatwater_watch.diagnose.releasing_calls import LibraryTable, library_table
from flatwater_watch.diagnose.rules import Rule, find_rule
from flatwater_watch.heap.census import Census, Holding
from flatwater_watch.heap.children import item_count, open_object
from flatwater_watch.heap.raw import class_name, full_name, module_namespace, plain_text, read_stable
from flatwater_watch.heap.roots import Roots, display_module_name, root_tiers, user_modules
from flatwater_watch.heap.view import Named, Walk
from flatwater_watch.paths import file_name
from flatwater_watch.thresholds import SHIPPED

OWNING = SHIPPED.owning
ITEM, KEY, CALL = "[*]", "[key]", "[call]"
"""Hops of a way that stand for any item of a container, for any key, and for any of several waiting calls of the
function whose variable is the root."""


@dataclass(frozen=True, eq=False, repr=False)
class Owner:
    """A container of the user's program that grew."""

    path: str
    kind: str
    holders: tuple[str, ...]
    """Readable chain, root first: ("train.py, global HALL", "list of 120", "Tensor with its autograd graph")."""
    steps: int
    """Steps of the program between the two censuses that saw it."""
    length_before: int
    length: int
    capacity: int | None
    """Length at which it stops growing; None if nothing bounds it."""
    bytes_grown: int
    bytes: int
    count: int
    """Number of objects of the main content, such as tensors."""
    content_words: str
    """The main content: "120 × float32[64, 504]"."""
    item_bytes: int
    """Mean bytes of one item; times `capacity` it is the size at which a bounded container ends."""
    holds_graph: bool
    """Whether the content carries autograd graphs; `bytes` includes the tensors that they save."""
    holds_base: bool
    """Whether the content are views that keep larger bases alive; `bytes` includes the bases."""
    redundancy: str | None
    """A sentence on data that is stored more than once."""
    newest_items: tuple[Any, ...]
    """Up to 24 leaves of the newest items, for finding the line that made them. Strong references."""
    container: Any
    """The container itself, or the longest of several. A strong reference."""
    holding: Holding
    """Holding of the container that grew, which may lie below `path`."""
    hops: tuple[str, ...]
    """The root, and the hop from each holder to the next: ("train.AGENTS", "[*]", ".history")."""
    rule: Rule | None = None
    """The rule for containers of this kind in a library."""
    table: LibraryTable | None = None
    """The library whose table it is; None for a container of the user's own."""
    outside_python: bool = False
    """Whether the bytes lie outside of Python, behind handles in its items."""
    calls: int = 1
    """Number of waiting calls that each have this container as a variable, if there are more than before; else 1."""


def find_owners(before: Census, after: Census) -> list[Owner]:
    """The containers that grew between two censuses, most bytes first.

    A container that grew only because of a container below it is left out.

    Args:
        before: earlier census, with or without its containers.
        after: later census, with its containers.
    """
    growth = {path: _gained_bytes(before.holdings.get(path), holding) for path, holding in after.holdings.items()}
    children: dict[str, list[str]] = {}
    for path, holding in after.holdings.items():
        if holding.parent is not None:
            children.setdefault(holding.parent, []).append(path)
    gains = _unexplained_gains(before, after, growth, children)
    minimum_bytes = OWNING.least_share * sum(gains.values())
    # By bytes per step, as a container may be compared with a later census than others (`extended_baseline`).
    paths = sorted(
        (path for path in gains if gains[path] >= minimum_bytes),
        key=lambda path: -gains[path] / max(1, after.holdings[path].step - before.holdings[path].step),
    )
    owners: dict[str, Owner] = {}
    for path in paths:
        owner = describe_owner(before.holdings[path], after, path, gains[path])
        same_table = owners.get(owner.path)  # another column of this table has a larger gain
        if same_table is None:
            owners[owner.path] = owner
        else:
            owners[owner.path] = replace(same_table, bytes_grown=same_table.bytes_grown + owner.bytes_grown)
    return list(owners.values())


def extended_baseline(before: Census, after: Census) -> Census:
    """The earlier census with the holdings of the later one that had nothing to be compared with.

    These are new paths, and containers that got their first item. Whether they grow is seen at the next comparison:
    they may be in use for a moment, or made late by a program that fills them from then on.
    """
    first_seen = {
        path: holding
        for path, holding in after.holdings.items()
        if path not in before.holdings or _has_first_item(before.holdings[path], holding)
    }
    return before._replace(holdings={**before.holdings, **first_seen}, live={})


def _has_first_item(before: Holding, after: Holding) -> bool:
    """Whether the only container on a path was empty, and has one item now."""
    return before.length == 0 and after.length == after.instances == 1 and after.kind in ITEM_KINDS


def _gained_bytes(before: Holding | None, after: Holding) -> float:
    """Bytes that a path gained; where a sample may be that far off, those that its new items are likely to have.

    Items of unlike size make two samples differ by more than the growth. A new item has at least the bytes of a usual
    one, and at most the mean with the largest, as what is large may be shared by all.
    """
    if before is None:
        return after.bytes
    gained, new_items = after.bytes - before.bytes, after.items - before.items
    error = OWNING.maximum_sampling_errors * hypot(before.bytes_error, after.bytes_error)
    if error == 0 or new_items <= 0:
        return gained
    least, most = (new_items / after.items * size for size in (after.usual_bytes, after.bytes))
    if gained > most + error:  # the items themselves grow
        return gained
    return max(least, min(gained, most))


def _unexplained_gains(
    before: Census, after: Census, growth: Mapping[str, float], children: Mapping[str, list[str]]
) -> dict[str, float]:
    """Bytes that each owner gained itself, by path.

    A container is an owner if its gain, without the bytes that owners below it explain, is more than noise.

    Args:
        before: earlier census.
        after: later census.
        growth: bytes that each path of the later census gained.
        children: paths of the children by the path of their holder.
    """
    # Backwards, from the leaves up, as children come after their parents in a census.
    gained: dict[str, float] = {}
    explained: dict[str, float] = {}
    same_sample = before.draw == after.draw
    for path in reversed(list(after.holdings)):
        explained_below = sum(explained.get(child, 0) for child in children.get(path, ()))
        own_bytes = _container_growth(
            before.holdings.get(path), after.holdings[path], growth[path], same_sample=same_sample
        )
        open_bytes = own_bytes - explained_below
        if open_bytes >= OWNING.least_bytes and open_bytes > (1 - OWNING.explained_share) * own_bytes:
            gained[path] = open_bytes
            explained_below += open_bytes
        explained[path] = explained_below
    return gained


def _container_growth(before: Holding | None, after: Holding, growth: float, *, same_sample: bool) -> float:
    """Bytes of the growth on a path that come from its containers becoming longer.

    Several containers may lie on one path, such as all `train.AGENTS[*].history`; its length is then their mean.

    Args:
        before: holding of the path in the earlier census; None if it had none.
        after: holding of the path in the later census.
        growth: bytes that the path gained.
        same_sample: whether both censuses sampled as many items, so that their estimates of all items can be compared.
    """
    if before is None or growth <= 0 or _has_first_item(before, after):
        return 0  # a new container did not grow: its holder did; and one item may be there for a moment
    if after.instances == before.instances:
        # One container of many that becomes longer hardly changes the mean, but the number of items shows it.
        has_more_items = same_sample and after.items > before.items
        return growth if after.length > before.length or has_more_items else 0
    if after.parent is None and after.instances > before.instances:
        return growth  # a variable of calls, of which more wait: it has no holder that grew
    # Other containers on the path have another mean, by chance.
    error = OWNING.maximum_sampling_errors * hypot(before.length_error, after.length_error)
    if after.length - before.length <= error:
        return 0
    if after.instances < before.instances:
        return growth
    # There are more containers, and longer ones. The length counts for as many as there were before, by the share of
    # items that they did not have, and only if that is most of the growth.
    longer_bytes = after.bytes * (before.instances / after.instances) * (1 - before.length / after.length)
    return longer_bytes if longer_bytes >= OWNING.explained_share * growth else 0


def describe_owner(before: Holding, after: Census, path: str, gained: float) -> Owner:
    """Describe a container that grew, by its newest items.

    Args:
        before: holding in the earlier census.
        after: later census, with references to its containers.
        path: path of the container.
        gained: bytes that the container gained.
    """
    holding = after.holdings[path]
    if holding.capacity is None:
        holding = holding._replace(capacity=declared_bound(after, holding))
    display_path, hops = _display_path(after, holding), _split_path(after, path)
    # An autograd graph is described by its tensor.
    container_path = holding.parent if holding.kind == "graph" and holding.parent is not None else path
    container = after.live[container_path]
    item_gain = max(holding.length - before.length, 1)
    newest = newest_items(container, holding.kind, min(item_gain, MAXIMUM_LEAVES))
    contents = describe_contents(holding, newest)
    displayed = after.holdings[display_path] if holding.kind in _BLOCK_KINDS else holding
    return Owner(
        path=display_path,
        kind=holding.kind,
        holders=_describe_holders(after, displayed, contents),
        steps=holding.step - before.step,
        length_before=before.length,
        length=holding.length,
        capacity=holding.capacity,
        bytes_grown=round(gained),
        bytes=holding.bytes,
        count=contents.count,
        content_words=contents.what,
        item_bytes=round(holding.bytes / max(holding.length * holding.instances, 1)),
        holds_graph=contents.graph,
        holds_base=contents.base,
        redundancy=describe_redundancy(contents.arrays),
        newest_items=contents.leaves,
        container=container,
        holding=holding,
        hops=hops,
        rule=_find_rule(after, path, newest),
        table=library_table(after, path),
        calls=holding.instances if holding.parent is None and holding.instances > before.instances else 1,
    )


_BLOCK_KINDS = frozenset({"array", "text", "bytes"})
"""Kinds of holdings that grow by being replaced by a larger one."""


def _display_path(census: Census, holding: Holding) -> str:
    """The path under which the growth of a holding is reported.

    An autograd graph is reported by its tensor. An array inside a table of a library, such as a column of a DataFrame,
    is reported by the variable or the attribute that holds the table.
    """
    if holding.kind == "graph" and holding.parent is not None:
        return holding.parent
    if holding.kind not in _BLOCK_KINDS:
        return holding.path
    named = holding
    while named.parent is not None:
        parent = census.holdings[named.parent]
        hop = named.path.removeprefix(parent.path)
        is_nameless = hop.startswith(".<") or hop == ".base" or (hop == ITEM and parent.kind == "tuple")
        is_private = hop.startswith("._") and not _is_user_class(type(census.live[parent.path]))
        if not (is_nameless or is_private):
            break
        named = parent
    return named.path


def _is_user_class(kind: type) -> bool:
    """Whether a class belongs to one of the user's modules."""
    return full_name(kind)[0] in user_modules(Roots())


def _split_path(census: Census, path: str) -> tuple[str, ...]:
    """The root of a path, and each hop from there: ("train.AGENTS", "[*]", ".history")."""
    names: list[str] = []
    current = census.holdings[path]
    while current.parent is not None:
        names.append(current.path.removeprefix(current.parent))
        current = census.holdings[current.parent]
    return (current.path, *([CALL] if current.instances > 1 else []), *reversed(names))


def _find_rule(census: Census, path: str, newest: Sequence[Any]) -> Rule | None:
    """The library rule for the container on a path, by its holders and newest items; None if there is none."""
    hops: list[tuple[Any, str]] = [(census.live[path], "")]
    current = census.holdings[path]
    while current.parent is not None:
        hops.append((census.live[current.parent], current.path.removeprefix(current.parent)))
        current = census.holdings[current.parent]
    return find_rule(current.path, hops[::-1], newest)


def resolve_hops(roots: Roots, way: tuple[str, ...]) -> Any:
    """Follow hops from a root, as in `Owner.hops`, to the object that lies there now; None if nothing does.

    Where a hop matches several objects, the newest is taken. The result need not be the container that a census saw: a
    program may copy tables when they grow, and dicts that several threads read.
    """
    return next(iter(resolve_all_ways(roots, way, 1)), None)


def resolve_all_ways(roots: Roots, way: tuple[str, ...], maximum: int) -> list[Any]:
    """Return all containers to which a way leads now; where a hop matches more than `maximum`, the newest are followed.

    Args:
        roots: choice of roots.
        way: root and hops, as in `Owner.hops`.
        maximum: maximum number of containers.
    """
    modules = user_modules(roots)
    root_objects = (value for tier in root_tiers(roots, modules) for path, value in tier if path == way[0])
    # The first root ends the search, if one is enough: a later tier looks for tasks in the whole heap.
    objects = list(islice(root_objects, None if CALL in way else 1))[-maximum:]
    walk = Walk(MAXIMUM_LEAVES, lambda cls: full_name(cls)[0] in modules, MAXIMUM_LEAVES)
    for hop in way[1:]:
        if hop != CALL:
            children = [child for obj in objects for child in _follow_hop(obj, hop, maximum, walk)]
            objects = children[-maximum:]
    return objects


def _follow_hop(obj: Any, hop: str, maximum: int, walk: Walk) -> list[Any]:
    """The children of an object to which a hop leads: its newest items, its newest keys, or the attribute of a name."""
    opened = open_object(obj, walk)
    if hop == ITEM:
        return newest_items(obj, opened.kind, maximum)
    if hop == KEY:
        return _newest_keys(obj, opened.parts, maximum)
    return [child for name, child in opened.parts if name == hop][:maximum]


def leads_to_several(way: tuple[str, ...]) -> bool:
    """Whether a way may end at several containers: through any item or key, or through any of several calls."""
    return ITEM in way or KEY in way or CALL in way


def _newest_dict_keys(container: dict[Any, Any], maximum: int) -> list[Any]:
    """The keys of a dict that were added last, oldest first; called by `read_stable`."""
    return list(islice(reversed(dict.keys(container)), maximum))[::-1]


def _newest_keys(container: Any, parts: Sequence[Named], maximum: int) -> list[Any]:
    """The keys of a dict that were added last, at most `maximum`, oldest first; any keys of another container."""
    if issubclass(type(container), dict):
        return read_stable(_newest_dict_keys, container, maximum)
    return [child for name, child in parts if name == KEY][-maximum:]


def current_contents(census: Census, path: str) -> tuple[tuple[str, ...], Contents] | None:
    """The chain of holders of a container, and its contents.

    None if a census has no container on that path, or if it is a tensor whose autograd graph grows.

    Args:
        census: census with references to its containers.
        path: path of the container.
    """
    holding = census.holdings.get(path)
    if holding is None or f"{path}.<graph>" in census.holdings:
        return None
    contents = describe_contents(holding, newest_items(census.live[path], holding.kind, MAXIMUM_LEAVES))
    return _describe_holders(census, holding, contents), contents


ITEM_KINDS = frozenset({"list", "deque", "dict", "set", "queue", "cache", "figures", "hooks"})
"""Kinds of containers that grow by single items."""
MAXIMUM_WAY_CONTAINERS = 64
"""Maximum containers at the end of a way that are checked for new items, the newest first; each takes 30 µs."""
NEWEST_ITEMS = 6
"""Maximum items that are opened while allocations are traced, as opening takes several times as long then."""
TRACEABLE_KINDS = ITEM_KINDS | _BLOCK_KINDS | {"object"}
"""Kinds of containers whose new items are seen without a census."""


def container_lengths(containers: Iterable[Any]) -> list[int]:
    """Lengths of containers, as a census counts them."""
    walk = Walk(1, lambda _: False, 1)
    counted = [(container, item_count(container)) for container in containers]
    # A negative count: the container is not builtin, and must be opened.
    return [items if items >= 0 else open_object(container, walk).length for container, items in counted]


def added_leaves(container: Any, length: int, before: Holding, content_class: type | None = None) -> tuple[Any, ...]:
    """Leaves, such as arrays, of the items that a container has gained; empty if it has gained none.

    Args:
        container: container of the earlier holding, or the container in its place now.
        length: length of the container now.
        before: earlier holding.
        content_class: class of the main content; children of an object of C have several classes, and those of this
            class are preferred.
    """
    if before.kind in _BLOCK_KINDS:  # a block that grows is replaced by a larger one, so all of it is new
        return describe_contents(before, [container]).leaves
    if length <= before.length:
        return ()
    newest = newest_items(container, before.kind, min(length - before.length, NEWEST_ITEMS))
    preferred = [item for item in newest if type(item) is content_class] if before.kind not in ITEM_KINDS else []
    return describe_contents(before._replace(length=length), preferred or newest).leaves


def _describe_holders(census: Census, holding: Holding, contents: Contents) -> tuple[str, ...]:
    """The chain from the root to the content, with a few words for each hop, as in `Owner.holders`."""
    hops: list[str] = []
    current = holding
    while current.parent is not None:
        parent = census.holdings[current.parent]
        hops.append(_describe_hop(current.path.removeprefix(parent.path), census.live[parent.path], parent))
        current = parent
    container_words = describe_container(census.live[holding.path], holding)
    return (
        _describe_root(current.path, current.instances),
        *[hop for hop in reversed(hops) if hop],
        container_words,
        *([] if contents.item == container_words else [contents.item]),  # a text that is added to is its own item
    )


def _describe_hop(name: str, holder: Any, holding: Holding) -> str:
    """A hop in words: an attribute, an item, a variable of a closure; empty for a hop to an autograd graph.

    Args:
        name: part of the path: `.memory`, `[*]`, `['best']`, `.<closure of on_step>.optimizer`.
        holder: object from which the hop leads.
        holding: holding of this object.
    """
    if name == ITEM:
        return f"an item of {describe_container(holder, holding)}"
    if name.startswith("['"):
        return f"entry {name[1:-1]} of {describe_container(holder, holding)}"
    if name == ".<graph>":
        return ""
    if name.startswith(".<") and ">." in name:
        scope, _, variable = name[2:].partition(">.")
        return f"{variable}, in the {scope}"
    if name.startswith(".<"):
        return name[2:-1]
    owner_class = holder if holding.kind == "class" else type(holder)
    return f"attribute {name[1:]} of {class_name(owner_class)}"


def _describe_root(path: str, calls: int) -> str:
    """A root in words: "train.py, global HALL", "train.py, local agent of main()"; a registry has its own name.

    Args:
        path: path of the root: "train.HALL", or "main() in train.py: agent" for a local variable.
        calls: number of calls that wait at the same time, each with the root as a variable.
    """
    place, separator, name = path.partition(": ")
    if separator:
        function, _, file = place.rpartition(" in ")
        return f"{file}, local {name} of {f'{calls} calls of ' if calls > 1 else ''}{function}"
    module, _, name = path.rpartition(".")
    namespace = module_namespace(module) or _named_namespace(module)
    if namespace is None:  # a registry, such as pyplot's figures
        return path
    file = file_name(plain_text(namespace.get("__file__"), "the main program"))
    kind = "class" if issubclass(type(namespace.get(name)), type) else "global"
    return f"{file}, {kind} {name}"


def _named_namespace(module: str) -> dict[str, Any] | None:
    """The namespace of the module that has a name in paths, such as the main program's; None if there is none."""
    spaces = user_modules(Roots()).items()
    return next((names for name, names in spaces if display_module_name(name, names) == module), None)
