"""Kinds of agents side by side in the arrays of one world, where agents have different spaces.

The arrays are as wide as the widest kind needs. An agent's observation is at the beginning of its row, with zeros
behind it; rows are bytes unless all kinds have vectors. Its action is at the beginning of its row as well, and masks
forbid all choices that its own lists do not have. So whoever steps a world, records its episodes or plays them again
needs to know nothing of kinds; only policies do, which read and write rows by `KindRows`.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from math import prod

import numpy as np

from flatwater.envs.world import AgentKind, Array, Spaces
from flatwater.nets.observation import whole_float_bytes
from flatwater_watch.errors import ConfigError


def name_kinds(groups: Sequence[Sequence[str]]) -> list[str]:
    """Return a name for each group of agents: what their names have before the number, wolf for wolf_0 and wolf_1.

    A group is named after its first agent if its agents' names differ in more than the number, or if another group
    would get the same name.
    """
    # The names of each group's agents without their numbers: wolf_0, wolf-0 and wolf0 become wolf.
    stems_by_group = [{re.sub(r"[_-]?\d+$", "", agent) for agent in agents} for agents in groups]
    names = list[str]()
    for agents, stems in zip(groups, stems_by_group, strict=True):
        # All agents of this group have one stem, and no other group has it.
        is_unique = len(stems) == 1 and stems != {""} and stems_by_group.count(stems) == 1
        # A name stands in paths of the state tree, whose parts are joined by dots.
        full_name = next(iter(stems)) if is_unique else agents[0]
        name = re.sub(r"[^\w-]", "_", full_name)
        # Two names may still be equal, as after a replacement of characters.
        names.append(f"{name}_{len(names)}" if name in names else name)
    return names


def join_kinds(kinds: Sequence[AgentKind], name: str) -> Spaces:
    """Return the spaces of a world that has agents of all these kinds: wide enough for the observations of each kind.

    Args:
        kinds: two kinds or more; the spaces of each have the world's numbers of environments and steps.
        name: name of the environment, for the message.

    Raises:
        ConfigError: some kinds choose their actions from lists, and the actions of others are numbers.
    """
    first = kinds[0].spaces
    bounds = [kind.spaces.bounds for kind in kinds if kind.spaces.bounds is not None]
    if bounds and len(bounds) < len(kinds):
        choosers = " and ".join(kind.name for kind in kinds if kind.spaces.bounds is None)
        others = " and ".join(kind.name for kind in kinds if kind.spaces.bounds is not None)
        raise ConfigError(
            f"{name}: expected actions of all agents to be choices, or of all to be numbers, got choices of {choosers} "
            f"and numbers of {others}. Wrap the environment so that both have actions of one kind"
        )
    # Each action list is as long as the longest of any kind; a kind that lacks the list has a single choice in it.
    lists = tuple(map(max, zip_longest(*(kind.spaces.lists for kind in kinds), fillvalue=1)))
    has_vectors = all(kind.spaces.form == "vector" for kind in kinds)
    # For each number of an action, the bounds of the kinds that have such a number: their lowest and their highest.
    bounds_by_number = [[pair for pair in column if pair] for column in zip_longest(*bounds)]
    joined_bounds = tuple((min(low for low, _ in pairs), max(high for _, high in pairs)) for pairs in bounds_by_number)
    has_lists = any(kind.spaces.choices is not None for kind in kinds)
    # Without lists, the names of the kind that has the most actions.
    actions = max((kind.spaces.actions for kind in kinds), key=len)
    return Spaces(
        envs=first.envs,
        agents=sum(len(kind.places) for kind in kinds),
        form="vector" if has_vectors else "image",
        obs=(max(_row_items(kind.spaces, has_vectors=has_vectors) for kind in kinds),),
        actions=tuple(map(str, range(len(lists)))) if has_lists else actions,
        steps=first.steps,
        bounds=joined_bounds or None,
        choices=lists if has_lists else None,
        # A kind that lacks some of the choices needs masks, too.
        masked=not bounds and any(kind.spaces.masked or kind.spaces.lists != lists for kind in kinds),
        kept=first.kept,
        kinds=tuple(kinds),
    )


def agent_rows(spaces: Spaces) -> Iterator[tuple[str, list[int]]]:
    """Yield (name, positions of agents) for each kind, and for each single agent of a kind that has several."""
    for kind in spaces.kinds:
        yield kind.name, [*kind.places]
        if len(kind.places) > 1:
            yield from ((agent, [place]) for agent, place in zip(kind.agents, kind.places, strict=True))


def _row_items(spaces: Spaces, *, has_vectors: bool) -> int:
    """Return how many items of a row an observation takes: its numbers if `has_vectors`, else its bytes.

    Bytes are rounded up to whole floats, of four bytes each.
    """
    size = prod(spaces.obs)
    if has_vectors:
        return size
    byte_count = size * np.dtype(spaces.obs_type).itemsize
    return whole_float_bytes(byte_count)


class KindRows:
    """Reads and writes a kind's part of a world's arrays."""

    def __init__(self, kind: AgentKind, world: Spaces) -> None:
        """Find the kind's places in the arrays of a world, whose spaces are those of `join_kinds`."""
        self.kind, self._obs_type = kind, kind.spaces.obs_type
        self._places = [*kind.places]
        own_bytes = prod(kind.spaces.obs) * np.dtype(self._obs_type).itemsize
        self._width = own_bytes // np.dtype(world.obs_type).itemsize
        """Length of an observation of the kind, in items of the world's rows."""
        # In a row of masks the world's lists follow one another, each from `start` on; the kind's own list is the
        # beginning of the world's.
        flags, start = list[int](), 0
        for size, own_size in zip_longest(world.lists, kind.spaces.lists, fillvalue=0):
            flags += range(start, start + own_size)
            start += size
        self._flags = np.array(flags)
        """Positions of the own lists' flags in a row of masks."""
        # Each list begins where the lists before it end; -1 leaves out the end of the last.
        self._other_lists = np.cumsum((0, *world.lists))[len(kind.spaces.lists) : -1]
        """Positions of the single legal choice of each list that the kind lacks."""

    def pick(self, rows: Array) -> Array:
        """Return the rows of the kind's agents, [E, A of the kind, ...], from those of all agents."""
        return rows[:, self._places]

    def read_obs(self, rows: Array) -> Array:
        """Return the observations of the kind's agents, from rows [E, A, W] of all agents."""
        picked_obs = np.ascontiguousarray(rows[:, self._places, : self._width]).view(self._obs_type)
        return picked_obs.reshape(*picked_obs.shape[:2], *self.kind.spaces.obs)

    def clear_obs_row_(self, row: Array) -> Array:
        """Write zeros behind an agent's part of its row [W]; return the part, which the caller writes."""
        row[self._width :] = 0
        return row[: self._width].view(self._obs_type).reshape(self.kind.spaces.obs)

    def read_legal(self, legal: Array) -> Array:
        """Return the masks of the kind's agents, from masks [E, A, R] of all agents."""
        return legal[:, self._places][..., self._flags]

    def write_legal_row_(self, row: Array, own_flags: Array) -> None:
        """Write an agent's flags into its row of masks [R], in which all other choices become illegal.

        Of a list that the kind lacks, the first choice is legal, as each list must have a legal one.
        """
        row[:] = False
        row[self._other_lists] = True
        row[self._flags] = own_flags

    def read_actions(self, actions: Array) -> Array:
        """Return the actions of the kind's agents, from actions [E, A] or [E, A, D] of all agents."""
        shape = self.kind.spaces.action_shape
        # `prod(())` is 1: an action that is a single choice has one column.
        own_actions = actions.reshape(*actions.shape[:2], -1)[:, self._places, : prod(shape)]
        return own_actions.reshape(*own_actions.shape[:2], *shape)

    def write_actions_(self, actions: Array, own_actions: Array) -> None:
        """Write the actions of the kind's agents, [E, A of the kind, *action], into those of all agents."""
        columns = own_actions.reshape(*own_actions.shape[:2], -1)
        actions.reshape(*actions.shape[:2], -1)[:, self._places, : columns.shape[2]] = columns
