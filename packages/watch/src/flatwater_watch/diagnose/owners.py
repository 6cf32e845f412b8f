"""The owners of growth: between two censuses, the deepest containers that explain what their holders gained."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
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
"""Hops of a way that stand for any item of a container, or any key; or for any of several calls of the root's function,
which wait at the same time."""


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
    """The root, and the hop of each holder from there."""
    rule: Rule | None = None
    """The rule for containers of this kind in a library."""
    table: LibraryTable | None = None
    """The library whose table it is; None for a container of the user's own."""
    outside_python: bool = False
    """Whether the bytes lie outside of Python, behind handles in its items."""
    calls: int = 1
    """Number of calls that wait at the same time, each with this container as a variable, if there are more of them
    than before; else 1."""


def find_owners(before: Census, after: Census) -> list[Owner]:
    """The containers that grew between two censuses, most bytes first.

    Several that grew on their own are all found; a container that grew only because of an owner below it is not.

    Args:
        before: earlier census, with or without its containers.
        after: later census, with its containers.
    """
    growth = {path: h.bytes - _subtree_bytes(before, path) for path, h in after.holdings.items()}
    below: dict[str, list[str]] = {}
    for path, holding in after.holdings.items():
        if holding.parent is not None:
            below.setdefault(holding.parent, []).append(path)
    gained = _unexplained_gains(before, after, growth, below)
    minimum_bytes = OWNING.least_share * sum(gained.values())
    paths = sorted((path for path in gained if gained[path] >= minimum_bytes), key=lambda path: -gained[path])
    owners: dict[str, Owner] = {}
    for path in paths:
        owner = describe_owner(before.holdings[path], after, path, gained[path])
        known_owner = owners.get(owner.path)  # another column of the same table
        owners[owner.path] = (
            owner
            if known_owner is None
            else replace(known_owner, bytes_grown=known_owner.bytes_grown + owner.bytes_grown)
        )
    return list(owners.values())


def _subtree_bytes(census: Census, path: str) -> int:
    """Bytes below a path; 0 if the census has nothing there."""
    holding = census.holdings.get(path)
    return 0 if holding is None else holding.bytes


def _unexplained_gains(
    before: Census, after: Census, growth: Mapping[str, int], below: Mapping[str, list[str]]
) -> dict[str, float]:
    """Bytes that each owner explains, by path.

    A container is an owner if what it gained is more than noise after what the owners below it explain.

    Args:
        before: earlier census.
        after: later census.
        growth: bytes that each path of the later census gained.
        below: paths of the children by the path of their holder.
    """
    # From the leaves up: in a census children come after their parents.
    gained: dict[str, float] = {}
    explained: dict[str, float] = {}
    same_sample = before.draw == after.draw
    for path in reversed(list(after.holdings)):
        explained_below = sum(explained.get(child, 0) for child in below.get(path, ()))
        own_bytes = _container_growth(
            before.holdings.get(path), after.holdings[path], growth[path], same_sample=same_sample
        )
        open_bytes = own_bytes - explained_below
        if open_bytes >= OWNING.least_bytes and open_bytes > (1 - OWNING.explained_share) * own_bytes:
            gained[path] = open_bytes
            explained_below += open_bytes
        explained[path] = explained_below
    return gained


def _container_growth(before: Holding | None, after: Holding, growth: int, *, same_sample: bool) -> float:
    """Bytes of the growth below a path that come from its containers becoming longer.

    A container that was not there before did not grow: its holder did. Several containers on one path may become longer
    one after the other, as the pages of a document that is read. If there are more containers, and they are longer,
    they are owners only if their length explains most of the growth; but variables of calls have no holder: of these
    there are more because more calls wait.

    Args:
        before: holding in the earlier census; None if it had none.
        after: holding in the later census.
        growth: bytes gained below the path.
        same_sample: whether both censuses sampled as many items, so that their estimates of all items can be compared.
    """
    if before is None or growth <= 0:
        return 0
    if after.instances <= before.instances:
        longer_items = same_sample and after.items > before.items
        return growth if after.length > before.length or longer_items else 0
    if after.parent is None:
        return growth
    if after.length <= before.length:
        return 0
    # Bytes of as many containers as there were before, and of them the share of items that they did not have.
    longer_bytes = after.bytes * (before.instances / after.instances) * (1 - before.length / after.length)
    return longer_bytes if longer_bytes >= OWNING.explained_share * growth else 0


def describe_owner(before: Holding, after: Census, path: str, gained: float) -> Owner:
    """Describe a container that grew.

    Args:
        before: holding in the earlier census.
        after: later census, with references to its containers.
        path: path of the container.
        gained: bytes that it explains.
    """
    holding = after.holdings[path]
    if holding.capacity is None:
        holding = holding._replace(capacity=declared_bound(after, holding))
    display_path, hops = _display_path(after, holding), _split_path(after, path)
    container = after.live[holding.parent if holding.kind == "graph" and holding.parent is not None else path]
    item_gain = max(holding.length - before.length, 1)
    newest = newest_items(container, holding.kind, min(item_gain, MAXIMUM_LEAVES))
    contents = describe_contents(holding, newest)
    return Owner(
        path=display_path,
        kind=holding.kind,
        holders=_describe_holders(
            after, after.holdings[display_path] if holding.kind in _BLOCK_KINDS else holding, contents
        ),
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

    A graph goes by its tensor. A table keeps its columns in an array without a name, within an object of its library:
    it goes by the variable, or the attribute, that holds the table.
    """
    if holding.kind == "graph" and holding.parent is not None:
        return holding.parent
    named = holding
    while holding.kind in _BLOCK_KINDS and named.parent is not None:
        above = census.holdings[named.parent]
        name = named.path.removeprefix(above.path)
        # A hop without a name, or a private attribute of a library's object, says nothing to the user.
        nameless = name.startswith(".<") or name == ".base" or (name == ITEM and above.kind == "tuple")
        if not nameless and not (name.startswith("._") and not _is_users(type(census.live[above.path]))):
            break
        named = above
    return named.path


def _is_users(kind: type) -> bool:
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
    """The rule of a library for the container on a path, by its holders and newest items; None if there is none."""
    hops: list[tuple[Any, str]] = [(census.live[path], "")]
    current = census.holdings[path]
    while current.parent is not None:
        hops.append((census.live[current.parent], current.path.removeprefix(current.parent)))
        current = census.holdings[current.parent]
    return find_rule(current.path, hops[::-1], newest)


def resolve_way(roots: Roots, way: tuple[str, ...]) -> Any:
    """The object at the end of a way now, by the newest of several items; None if the way leads nowhere.

    The program may have replaced the container that a census saw: tables are copied when they grow, and so are dicts
    that several threads read.
    """
    return next(iter(resolve_all_ways(roots, way, 1)), None)


def resolve_all_ways(roots: Roots, way: tuple[str, ...], maximum: int) -> list[Any]:
    """The containers at the end of a way now, at most `maximum`, by the newest items: any of them may grow.

    Args:
        roots: choice of roots.
        way: root and hops, as in `Owner.hops`.
        maximum: maximum number of containers; of several at one hop the newest are followed.
    """
    modules = user_modules(roots)
    # Not all roots: tasks and coroutines are looked for in the whole heap.
    root_objects = (value for tier in root_tiers(roots, modules) for path, value in tier if path == way[0])
    objects = list(islice(root_objects, None if CALL in way else 1))[-maximum:]
    walk = Walk(MAXIMUM_LEAVES, lambda cls: full_name(cls)[0] in modules, MAXIMUM_LEAVES)
    for name in [hop for hop in way[1:] if hop != CALL]:
        children: list[Any] = []
        for obj in objects:
            opened = open_object(obj, walk)
            if name == ITEM:
                children += newest_items(obj, opened.kind, maximum)
            elif name == KEY:
                children += _newest_keys(obj, opened.parts, maximum)
            else:
                children += [child for called, child in opened.parts if called == name][:maximum]
        objects = children[-maximum:]
    return objects


def leads_to_several(way: tuple[str, ...]) -> bool:
    """Whether a way goes on from any item or key of a container, or from any of several calls."""
    return ITEM in way or KEY in way or CALL in way


def _newest_dict_keys(place: dict[Any, Any], maximum: int) -> list[Any]:
    """The keys of a dict that were added last, oldest first; called by `read_stable`."""
    return list(islice(reversed(dict.keys(place)), maximum))[::-1]


def _newest_keys(place: Any, parts: Sequence[Named], maximum: int) -> list[Any]:
    """The keys of a container that were added last, at most `maximum`, oldest first; any keys of other containers."""
    if issubclass(type(place), dict):
        return read_stable(_newest_dict_keys, place, maximum)
    return [child for called, child in parts if called == KEY][-maximum:]


def current_contents(census: Census, path: str) -> tuple[tuple[str, ...], Contents] | None:
    """The chain of holders of a container, and its contents; None if a census has no container on that path.

    Args:
        census: census with references to its containers.
        path: path of a container; None is returned for one with an autograd graph, which goes by its tensor.
    """
    holding = census.holdings.get(path)
    if holding is None or f"{path}.<graph>" in census.holdings:
        return None
    contents = describe_contents(holding, newest_items(census.live[path], holding.kind, MAXIMUM_LEAVES))
    return _describe_holders(census, holding, contents), contents


ITEM_KINDS = frozenset({"list", "deque", "dict", "set", "queue", "cache", "figures", "hooks"})
"""Kinds of containers that grow by single items."""
MAXIMUM_WAY_CONTAINERS = 64
"""Maximum containers at the end of a way that are checked for new items, the newest first: 30 us each."""
NEWEST_ITEMS = 6
"""Maximum items that are opened while allocations are traced, as that takes several times as long."""
TRACEABLE_KINDS = ITEM_KINDS | _BLOCK_KINDS | {"object"}
"""Kinds of containers whose new items are seen without a census."""


def container_lengths(containers: Iterable[Any]) -> list[int]:
    """Lengths of containers, as a census counts them; a container that is not builtin is opened for it."""
    walk = Walk(1, lambda _: False, 1)
    counted = [(container, item_count(container)) for container in containers]
    return [items if items >= 0 else open_object(container, walk).length for container, items in counted]


def added_leaves(container: Any, length: int, holding: Holding, content: type | None = None) -> tuple[Any, ...]:
    """Leaves of the newest items of a container since an earlier holding; empty if there are none.

    Args:
        container: container of the holding, or the container in its place now.
        length: length now.
        holding: earlier holding.
        content: class of the main content, which children of an object of C must have, if there are such.
    """
    if holding.kind in _BLOCK_KINDS:  # it was replaced by a larger one, or has not grown
        return describe_contents(holding, [container]).leaves
    if length <= holding.length:
        return ()
    newest = newest_items(container, holding.kind, min(length - holding.length, NEWEST_ITEMS))
    same = [item for item in newest if type(item) is content] if holding.kind not in ITEM_KINDS else []
    return describe_contents(holding._replace(length=length), same or newest).leaves


def _describe_holders(census: Census, holding: Holding, contents: Contents) -> tuple[str, ...]:
    """The chain from the root to the content, a few words for each hop: `Owner.holders`."""
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


def _describe_hop(name: str, holder: Any, above: Holding) -> str:
    """A hop in words: an attribute, an item, a variable of a closure; empty for a hop to an autograd graph.

    Args:
        name: part of the path: `.memory`, `[*]`, `['best']`, `.<closure of on_step>.optimizer`.
        holder: object in which it is.
        above: holding of this object.
    """
    if name == ITEM:
        return f"an item of {describe_container(holder, above)}"
    if name.startswith("['"):
        return f"entry {name[1:-1]} of {describe_container(holder, above)}"
    if name == ".<graph>":
        return ""
    if name.startswith(".<") and ">." in name:
        scope, _, variable = name[2:].partition(">.")
        return f"{variable}, in the {scope}"
    if name.startswith(".<"):
        return name[2:-1]
    owner_class = holder if above.kind == "class" else type(holder)
    return f"attribute {name[1:]} of {class_name(owner_class)}"


def _describe_root(path: str, calls: int) -> str:
    """A root in words: "train.py, global HALL", "train.py, local agent of main()"; a registry has its own name.

    Args:
        path: path of the root.
        calls: number of calls that wait at the same time, each with the root as a variable.
    """
    place, separator, name = path.partition(": ")
    if separator:
        function, _, file = place.rpartition(" in ")
        return f"{file}, local {name} of {f'{calls} calls of ' if calls > 1 else ''}{function}"
    module, _, name = path.rpartition(".")
    space = module_namespace(module) or _named_namespace(module)
    if space is None:
        return path
    file = file_name(plain_text(space.get("__file__"), "the main program"))
    kind = "class" if issubclass(type(space.get(name)), type) else "global"
    return f"{file}, {kind} {name}"


def _named_namespace(module: str) -> dict[str, Any] | None:
    """The namespace with that name in paths, such as the main program's; None if there is none."""
    spaces = user_modules(Roots()).items()
    return next((names for name, names in spaces if display_module_name(name, names) == module), None)
