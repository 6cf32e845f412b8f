"""The owners of growth: between two censuses, the deepest containers that explain what their holders gained.

A census is a snapshot of the containers that a program can reach. For each path, such as `train.AGENTS[*].history`, it
has a `Holding`: the bytes, the mean length and the number (`instances`) of the containers on that path. A holder is an
object that refers to another one; a root, such as a global or a local variable, has none.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot
from typing import Any

from flatwater_watch.diagnose.code_names import NO_NAME, CodeName, container_name, holder_names
from flatwater_watch.diagnose.code_use import UserCode
from flatwater_watch.diagnose.container_calls import removing_call
from flatwater_watch.diagnose.contents import MAXIMUM_LEAVES, Contents, describe_contents
from flatwater_watch.diagnose.declared_bounds import declared_bound
from flatwater_watch.diagnose.holder_text import describe_holders
from flatwater_watch.diagnose.hops import ITEM, chain_of_holdings, split_path
from flatwater_watch.diagnose.item_growth import BLOCK_KINDS, ITEM_KINDS
from flatwater_watch.diagnose.newest_items import newest_items
from flatwater_watch.diagnose.redundancy import describe_redundancy
from flatwater_watch.diagnose.releasing_calls import LibraryTable, library_table
from flatwater_watch.diagnose.rules import find_rule
from flatwater_watch.heap.census import Census, Holding
from flatwater_watch.heap.raw import class_name, count_values, full_name, mro
from flatwater_watch.heap.roots import Roots, user_modules
from flatwater_watch.thresholds import OWNING


@dataclass(frozen=True, eq=False, repr=False)
class Owner:
    """A container of the user's program that grew."""

    path: str
    """Path under which its growth is reported; `holding` may lie below it."""
    holding: Holding
    """Holding of the container that grew, at the later census."""
    contents: Contents
    """What it holds, judged by its newest items. Strong references."""
    holders: tuple[str, ...]
    """Readable chain, root first: ("train.py, global HALL", "list of 120", "Tensor with its autograd graph")."""
    hops: tuple[str, ...]
    """The root, and the hop from each holder to the next: ("train.AGENTS", "[*]", ".history")."""
    steps: int
    """Steps of the program between the two censuses that saw it."""
    length_before: int
    bytes_grown: int
    item_bytes: int
    """Mean bytes of one item; times the capacity it is the size at which a bounded container ends."""
    redundancy: str | None
    """A sentence on data that is stored more than once."""
    container: Any
    """The container itself, or the longest of several. A strong reference."""
    code_name: CodeName = NO_NAME
    """Its name in the code of the program."""
    rule_advice: str = ""
    """The advice of the rule for containers of this kind in a library; empty if there is none."""
    table: LibraryTable | None = None
    """The library whose table it is; None for a container of the user's own."""
    outside_python: bool = False
    """Whether the bytes lie outside of Python, behind handles in its items."""
    calls: int = 1
    """Number of waiting calls that each have this container as a variable, if there are more than before; else 1."""
    resource_item: Any = None
    """An item of the most frequent class, or the newest leaf if that lies in a mapped file. A strong reference."""
    in_more_items: bool = False
    """Whether more of its holders, which are as many as before, have one: each keeps its own from some time on."""


def find_owners(earlier_census: Census, later_census: Census) -> list[Owner]:
    """Return the containers that grew between two censuses (snapshots of all containers), most bytes per step first.

    A container that grew only because of a container below it is left out.
    """
    growth_by_path = {
        path: _growth_of_path(earlier_census.holdings.get(path), holding)
        for path, holding in later_census.holdings.items()
    }
    # By path: bytes that no container below explains. Only paths of both censuses are in it, as a new container counts
    # as growth of its holder.
    gains = _unexplained_gains(earlier_census, later_census, growth_by_path)
    # Each path has its own number of steps, as new containers are compared with a later census than the others.
    steps_between = {path: later_census.holdings[path].step - earlier_census.holdings[path].step for path in gains}
    minimum_bytes = OWNING.least_share * sum(gains.values())
    large_paths = [path for path in gains if gains[path] >= minimum_bytes]
    owners: dict[str, Owner] = {}
    user_code = UserCode()
    for path in sorted(large_paths, key=lambda path: -gains[path] / max(1, steps_between[path])):
        in_more_items = _is_in_more_holders(earlier_census, later_census, path)
        owner = describe_owner(
            earlier_census.holdings[path], later_census, path, gains[path], user_code, in_more_items=in_more_items
        )
        # Columns of a table are reported by the path of the table: their gains are summed.
        same_table = owners.get(owner.path)
        if same_table is None:
            owners[owner.path] = owner
        else:
            owners[owner.path] = replace(same_table, bytes_grown=same_table.bytes_grown + owner.bytes_grown)
    return list(owners.values())


def census_with_new_containers(earlier_census: Census, later_census: Census) -> Census:
    """Return the earlier census (snapshot of all containers), to which new containers of the later one are added.

    New are paths that the earlier census has not, and containers that were empty and got their first item. The next
    comparison shows whether they grow: they may be in use for a moment only, or be filled from now on.
    """
    new_holdings = {
        path: holding
        for path, holding in later_census.holdings.items()
        if path not in earlier_census.holdings or _has_first_item(earlier_census.holdings[path], holding)
    }
    return earlier_census._replace(holdings={**earlier_census.holdings, **new_holdings}, containers={})


def _has_first_item(earlier: Holding, later: Holding) -> bool:
    """Return whether the only container on a path was empty at the earlier census, and has one item at the later."""
    is_single_container = later.instances == 1 and later.kind in ITEM_KINDS
    return is_single_container and earlier.length == 0 and later.length == 1


def _growth_of_path(earlier: Holding | None, later: Holding) -> float:
    """Return the bytes that the containers on a path gained between two censuses, corrected for sampling errors.

    Bytes of large containers are estimated from a sample of their items. If the number of new items is known, the gain
    is limited to what so many items can have: each at least the mean without the largest item, at most the mean of all.

    Args:
        earlier: holding of the path at the earlier census; None for a new path.
        later: holding of the path at the later census.
    """
    if earlier is None:
        return later.bytes
    new_bytes, new_items = later.bytes - earlier.bytes, later.items - earlier.items
    error = OWNING.maximum_sampling_errors * hypot(earlier.bytes_error, later.bytes_error)
    if error == 0 or new_items <= 0:  # nothing was sampled, or there is no new item to judge by
        return new_bytes
    new_share = new_items / later.items
    least_bytes, most_bytes = new_share * later.usual_bytes, new_share * later.bytes
    if new_bytes > most_bytes + error:  # the items themselves grow
        return new_bytes
    return max(least_bytes, min(new_bytes, most_bytes))


def _unexplained_gains(
    earlier_census: Census, later_census: Census, growth_by_path: Mapping[str, float]
) -> dict[str, float]:
    """Return the bytes that each container gained itself, by path, without containers that gained next to nothing.

    Its own gain is its growth without the bytes that containers below it explain.

    Args:
        earlier_census: earlier census.
        later_census: later census.
        growth_by_path: bytes that each path of the later census gained, with all that lies below it.
    """
    children: dict[str, list[str]] = {}
    for path, holding in later_census.holdings.items():
        if holding.parent is not None:
            children.setdefault(holding.parent, []).append(path)
    gains: dict[str, float] = {}
    explained_bytes: dict[str, float] = {}  # by path: what the owners on the path and below it gained
    # Backwards, so that children come before their parents, which a census has first.
    for path in reversed(list(later_census.holdings)):
        nested_bytes = sum(explained_bytes.get(child, 0) for child in children.get(path, ()))
        own_bytes = _container_growth(earlier_census, later_census, path, growth_by_path[path])
        open_bytes = own_bytes - nested_bytes
        if open_bytes >= OWNING.least_bytes and open_bytes > (1 - OWNING.explained_share) * own_bytes:
            gains[path] = open_bytes
            nested_bytes += open_bytes
        explained_bytes[path] = nested_bytes
    return gains


def _is_in_more_holders(earlier_census: Census, later_census: Census, path: str) -> bool:
    """Return whether more items of an unchanged holder have a container on this path than at the earlier census.

    Example: a list of 100 agents stays as long as it is, but each agent keeps an array from its first use on.
    """
    earlier, later = earlier_census.holdings.get(path), later_census.holdings[path]
    if earlier is None or later.parent is None:
        return False
    # Numbers of items are estimates, which only samples of one size make comparable.
    if earlier_census.sampled_items != later_census.sampled_items:
        return False
    earlier_holder, later_holder = earlier_census.holdings.get(later.parent), later_census.holdings[later.parent]
    if earlier_holder is None:
        return False
    # If the holders became more or longer, the growth is theirs.
    if later_holder.instances != earlier_holder.instances or later_holder.items > earlier_holder.items:
        return False
    return later.instances > earlier.instances


def _container_growth(earlier_census: Census, later_census: Census, path: str, growth: float) -> float:
    """Return the part of a path's growth, in bytes, that its containers explain; their holders explain the rest.

    All of the growth, if the containers became longer, or if there are more of them though no holder grew; a part, if
    there are more of them and they are longer; 0, if there are only more of them, as the holder that got them grew.

    Args:
        earlier_census: earlier census.
        later_census: later census.
        path: path of one container, or of several, as `train.AGENTS[*].history` is; their length is then the mean.
        growth: bytes that the path gained between the censuses.
    """
    earlier, later = earlier_census.holdings.get(path), later_census.holdings[path]
    if earlier is None or growth <= 0 or _has_first_item(earlier, later):
        return 0  # a new container did not grow: its holder did; and one item may be there for a moment
    # A root with more instances than before is a local variable of a function of which more calls wait.
    is_in_more_calls = later.parent is None and later.instances > earlier.instances
    if is_in_more_calls or _is_in_more_holders(earlier_census, later_census, path):
        return growth
    if later.instances == earlier.instances:
        # One container of many that becomes longer hardly changes the mean length, but the number of all items shows
        # it, if both censuses sampled as many. Arrays and texts (blocks) are left out: their number is an estimate, and
        # one more of them has many more elements.
        is_comparable = earlier_census.sampled_items == later_census.sampled_items and later.kind not in BLOCK_KINDS
        has_more_items = is_comparable and later.items > earlier.items
        return growth if later.length > earlier.length or has_more_items else 0
    return _growth_by_length(earlier, later, growth)


def _growth_by_length(earlier: Holding, later: Holding, growth: float) -> float:
    """Return the part of a path's growth, in bytes, that comes from longer containers; their number changed as well.

    All of it if there are fewer containers than before, a part if there are more; 0 if the mean length rose by no more
    than the sampling error.
    """
    # Other containers on the path have another mean, by chance.
    error = OWNING.maximum_sampling_errors * hypot(earlier.length_error, later.length_error)
    if later.length - earlier.length <= error:
        return 0
    if later.instances < earlier.instances:
        return growth
    # There are more containers, and longer ones. Of as many as there were before, the new items have this many bytes;
    # they count only if they are most of the growth.
    bytes_of_old_number = later.bytes * (earlier.instances / later.instances)
    longer_bytes = bytes_of_old_number * (1 - earlier.length / later.length)
    return longer_bytes if longer_bytes >= OWNING.explained_share * growth else 0


def describe_owner(
    earlier: Holding, census: Census, path: str, gain: float, user_code: UserCode, *, in_more_items: bool = False
) -> Owner:
    """Describe a container that grew: what its newest items are, who holds it, and how its items can be removed.

    Args:
        earlier: its holding at the earlier census.
        census: the later census, with references to its containers.
        path: its path.
        gain: bytes that it gained between the two censuses.
        user_code: the code of the user's program.
        in_more_items: whether more items of its unchanged holder have such a container than before.
    """
    holding, modules = census.holdings[path], user_code.modules
    if holding.capacity is None:
        holding = holding._replace(capacity=declared_bound(census, holding))
    display_path = holding.path if in_more_items else _display_path(census, holding, modules)
    # An autograd graph is no object of the program's: the tensor that it belongs to stands for it.
    container_path = holding.parent if holding.kind == "graph" and holding.parent else path
    container = census.containers[container_path]
    newest = newest_items(container, holding.kind, min(max(holding.length - earlier.length, 1), MAXIMUM_LEAVES))
    contents = describe_contents(holding, newest)
    table = library_table(census, path, user_code, newest[-1] if newest else None)
    # An array or a text (block) may be reported by its table.
    displayed_holding = census.holdings[display_path] if holding.kind in BLOCK_KINDS else holding
    # A local variable of more waiting calls than before.
    is_in_more_calls = holding.parent is None and holding.instances > earlier.instances
    return Owner(
        path=display_path,
        holding=holding,
        contents=contents,
        holders=describe_holders(census, displayed_holding, contents, modules),
        hops=split_path(census, path),
        steps=holding.step - earlier.step,
        length_before=earlier.length,
        bytes_grown=round(gain),
        item_bytes=round(holding.bytes / max(holding.length * holding.instances, 1)),
        redundancy=describe_redundancy(contents.arrays),
        container=container,
        code_name=container_name(census, display_path, modules),
        rule_advice=_rule_advice(census, holding, newest, modules, is_of_library=table is not None),
        table=table,
        calls=holding.instances if is_in_more_calls else 1,
        resource_item=_resource_item(contents, newest),
        in_more_items=in_more_items,
    )


def _resource_item(contents: Contents, newest: Sequence[Any]) -> Any:
    """Return the object by whose class the advice names a call that ends the resource of the items, such as `close()`.

    This is an item of the most frequent class, or None without items; for mapped files, the newest array in one.
    """
    if contents.resource == "mapped file":
        return contents.leaves[-1]
    class_counts = count_values(id(type(item)) for item in newest)
    return max(newest, key=lambda item: class_counts[id(type(item))], default=None)


def _display_path(census: Census, holding: Holding, modules: Container[str]) -> str:
    """Return the path under which the growth of a container is reported: its own, or that of what it is a part of.

    An autograd graph is reported by its tensor. An array inside a table of a library, such as a column of a DataFrame,
    is reported by the variable or the attribute that holds the table.
    """
    if holding.kind == "graph" and holding.parent is not None:
        return holding.parent
    if holding.kind not in BLOCK_KINDS:
        return holding.path
    holdings = chain_of_holdings(census, holding.path)
    for outer, inner in reversed(list(pairwise(holdings))):
        hop = inner.path.removeprefix(outer.path)
        # Hops that no user writes: a part that only a census names (`.<dict>`), the base of a view, or an item of a
        # tuple, such as a block of a DataFrame.
        is_nameless = hop.startswith(".<") or hop == ".base" or (hop == ITEM and outer.kind == "tuple")
        outer_module, _ = full_name(type(census.containers[outer.path]))
        is_private = hop.startswith("._") and outer_module not in modules  # of a library's object
        if not (is_nameless or is_private):
            return inner.path
    return holdings[0].path


def _rule_advice(
    census: Census, holding: Holding, newest: Sequence[Any], modules: Container[str], *, is_of_library: bool
) -> str:
    """Return the advice of the rule on a well-known library's container, with the program's own names; empty without.

    Args:
        census: census with references to its containers.
        holding: entry of the container in the census.
        newest: its newest items.
        modules: names of the user's modules.
        is_of_library: whether the container is one that a library keeps.
    """
    path = holding.path
    container, holdings = census.containers[path], chain_of_holdings(census, path)
    hops = [(census.containers[outer.path], inner.path.removeprefix(outer.path)) for outer, inner in pairwise(holdings)]
    rule = find_rule(holdings[0].path, [*hops, (container, "")], newest)  # from the container no hop leads on
    if rule is None:
        return ""
    # Texts for the placeholders of the remedy (`Rule.fix`), such as `{Session:session}`.
    texts: dict[str, str] = {}
    # The user must take nothing out of a library's container, so it gets no name here, and without one no call.
    name = NO_NAME if is_of_library else container_name(census, path, modules)
    call = removing_call(holding.kind, container, name)
    if call:
        texts["drop"] = f"drop it (`{call}`)"
    method = {"set": ".discard", "list": ".remove", "deque": ".remove"}.get(holding.kind)
    if call and method:  # a function that takes one item out, for a callback
        texts["remove"] = f"{name.text}{method}"
    names = holder_names(census, path, modules)
    for (holder, _), holder_name in zip(hops, names, strict=False):  # `names` ends with that of the container itself
        if holder_name.text and not holder_name.container_name:  # a name of its own, and not `item`
            for owner in mro(type(holder)):
                texts.setdefault(class_name(owner), holder_name.text)
    return rule.advice(texts)


def current_contents(census: Census, path: str) -> tuple[tuple[str, ...], Contents] | None:
    """Return the holders in words, root first (as `Owner.holders`), and the contents of the container on a path.

    None if the census has no container there, or a tensor with an autograd graph, whose contents are not the tensor's.
    """
    holding = census.holdings.get(path)
    if holding is None or f"{path}.<graph>" in census.holdings:
        return None
    contents = describe_contents(holding, newest_items(census.containers[path], holding.kind, MAXIMUM_LEAVES))
    return describe_holders(census, holding, contents, user_modules(Roots())), contents
