"""A teacher for the foraging game: a wave from each agent's target, through the cells in sight, back to the agent.

All agents' waves run together, one array operation for a step of all of them. An agent whose target is out of sight
heads for the mine or depot that it saw last, or, while it knows none, for a place to explore. Everything is read from
observations, also whether the agent moved, so it does not matter whose action was executed.

Axes: N agents, E x A in order; C cells of the window with a border around it, row by row.
"""

from typing import NamedTuple

import numpy as np

from flatwater.envs.foraging.world import ForagingWorld
from flatwater.envs.world import PADDING, Array

ELSEWHERE, WALL, MINE, DEPOT, AGENT = range(5)
"""Contents of a cell; the first is nothing."""
NEIGHBOUR_OFFSETS = np.array([(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)], np.int16)
"""Rows and columns of a step in each direction of exploring, clockwise from north."""
DICE_CONSTANTS = (np.uint64(6364136223846793005), np.uint64(1442695040888963407))
"""Factor and summand of each agent's random numbers (Knuth's MMIX). Which way to explore is drawn, or agents circle."""
MOVE_TOWARDS = np.array((0, 0, 3, 3, 1, 1, 2, 2))
"""Side to step to, of `MOVE_OFFSETS`, for each of these directions."""
MOVE_OFFSETS = {"move_north": (-1, 0), "move_south": (1, 0), "move_west": (0, -1), "move_east": (0, 1)}
NO_PLACE = np.int16(2**14)


class AgentView(NamedTuple):
    """Observations of agents in one step."""

    cells: Array
    """Content of each cell, uint8 [N, C]."""
    carries: Array
    """Whether the agent has ore, bool [N]."""
    shift: Array
    """Rows and columns that the agent has moved since the last step, int16 [N, 2]."""


class SearchTeacher:
    """A `Teacher` that takes the shortest way in sight; it remembers two places, a goal and a heading per agent."""

    def __init__(self, world: ForagingWorld) -> None:
        """Allocate each agent's memory, N = envs * agents; cells are numbered row by row, border included."""
        self._spaces = world.spaces
        agents = self._spaces.envs * self._spaces.agents
        self._eyes = _TokenReader(world)
        self._side = world.window + 2
        self._middle = (self._side // 2) * (self._side + 1)
        """The cell of the agent itself."""
        names = list(MOVE_OFFSETS)
        self._move = np.array([self._spaces.actions.index(name) for name in names])
        self._beside = self._middle + np.array([row * self._side + column for row, column in MOVE_OFFSETS.values()])
        """The cells around the agent, one for each move."""
        offset = np.arange(self._side, dtype=np.int16) - self._side // 2
        self._row, self._column = np.repeat(offset, self._side), np.tile(offset, self._side)
        self._reach = (world.window // 2 + 1, 2 * world.window)
        """Cells to a goal: the least, which is out of sight, and an upper bound that is not reached."""
        number = np.arange(agents) % self._spaces.agents
        self._prefers = np.where(number[:, None] % 2, (4, 3, 2, 1), (1, 2, 3, 4))
        """int [N, 4]: the largest of equal numbers is taken. Neighbours differ, or they would bar each other's way."""
        self._starts = number.astype(np.uint64)
        self._dice = self._starts.copy()
        self._heading = np.zeros(agents, np.int64)
        self._goal = np.zeros((agents, 2), np.int16)
        """Rows and columns to the place that the agent explores, int16 [N, 2]."""
        self._longest = 3 * world.window
        self._patience = np.zeros(agents, np.int64)
        """Steps for which an agent still heads for a target out of sight."""
        self._place = np.zeros((agents, 2, 2), np.int16)
        """Rows and columns to the mine and the depot that the agent saw last, int16 [N, 2, 2]."""
        self._knows = np.zeros((agents, 2), np.bool_)

    def begin_(self, which: Array) -> None:
        """Forget places, and explore from the start: the first turns of an agent are the same in each episode."""
        agents = np.repeat(which, self._spaces.agents)
        self._knows[agents] = False
        self._dice[agents] = self._starts[agents]
        self._explore_elsewhere_(np.flatnonzero(agents))

    def step_batch(self, obs: Array, actions_out: Array) -> None:
        """Write the first move of each agent's way."""
        view = self._eyes.read_tokens(obs.reshape(len(self._heading), *self._spaces.obs))
        self._remember_(view)
        target_kind = np.where(view.carries, DEPOT, MINE)[:, None]
        targets = view.cells == target_kind
        is_blind = ~targets.any(1)
        self._head_for_(targets, is_blind, view)
        side = first_cell_reached(targets, view.cells == ELSEWHERE, self._beside, self._prefers, self._side)
        lost_agents = np.flatnonzero(side < 0)
        self._explore_elsewhere_(lost_agents)
        side[lost_agents] = MOVE_TOWARDS[self._heading[lost_agents]]
        actions_out[...] = self._move[side].reshape(actions_out.shape)

    def _remember_(self, view: AgentView) -> None:
        """Shift places and goals by the agent's move, and take up the nearest mine and depot in sight."""
        # Places are relative to the agent, so that its own move is taken off them.
        self._place -= view.shift[:, None]
        self._goal -= view.shift
        distances = np.abs(self._row) + np.abs(self._column)
        for number, kind in enumerate((MINE, DEPOT)):
            distance = np.where(view.cells == kind, distances, NO_PLACE)
            nearest = distance.argmin(1)
            in_sight = distance[np.arange(len(nearest)), nearest] < NO_PLACE
            self._place[in_sight, number, 0] = self._row[nearest[in_sight]]
            self._place[in_sight, number, 1] = self._column[nearest[in_sight]]
            self._knows[in_sight, number] = True

    def _head_for_(self, targets: Array, blind: Array, seen: AgentView) -> None:
        """Give agents without a target in sight the cell within reach that is nearest to its known place, or to a goal.

        Where no cell is nearer than the agent itself, or it has gone to and fro behind a wall for longer than a way
        takes, it forgets the place and explores elsewhere.
        """
        self._patience[~blind] = self._longest
        if not blind.any():
            return
        agents = np.flatnonzero(blind)
        target = seen.carries[blind].astype(np.int64)
        is_known = self._knows[agents, target]
        goal = np.where(is_known[:, None], self._place[agents, target], self._goal[agents])
        distance = np.abs(self._row - goal[:, :1]) + np.abs(self._column - goal[:, 1:])
        distance[~reachable_cells(seen.cells[agents] == ELSEWHERE, self._middle, self._side)] = NO_PLACE
        nearest = distance.argmin(1)
        targets[agents, nearest] = True
        is_nearer = distance[np.arange(len(agents)), nearest] < np.abs(goal).sum(1)
        self._patience[agents] -= 1
        gives_up = ~is_nearer | (self._patience[agents] < 0)
        self._knows[agents[gives_up], target[gives_up]] = False
        self._explore_elsewhere_(agents[gives_up])

    def _explore_elsewhere_(self, which: Array) -> None:
        """Send agents, of these numbers, to another place: the last place leads no further."""
        if not len(which):
            return
        self._patience[which] = self._longest
        # uint64 wraps on purpose: the generator is taken modulo 2^64.
        self._dice[which] = self._dice[which] * DICE_CONSTANTS[0] + DICE_CONSTANTS[1]
        # The upper half: the low bits of such a generator repeat soon.
        number = (self._dice[which] >> 32).astype(np.int64)
        self._heading[which] = number % len(NEIGHBOUR_OFFSETS)
        far = self._reach[0] + number // len(NEIGHBOUR_OFFSETS) % (self._reach[1] - self._reach[0])
        self._goal[which] = NEIGHBOUR_OFFSETS[self._heading[which]] * far[:, None]


class _TokenReader:
    """A reader of cells, ore and movement from tokens."""

    def __init__(self, world: ForagingWorld) -> None:
        """Build look-up tables from a token's bytes to cells and kinds; a view has a border of one cell around it."""
        side, spaces = world.window + 2, world.spaces
        self._features = world.features
        self._cell = np.zeros(PADDING + 1, np.int64)
        """Cell of a packed position (the upper four bits are its row, the lower four its column); the corner, which
        nobody reaches, for every byte that is not a position."""
        for row in range(world.window):
            for column in range(world.window):
                self._cell[row << 4 | column] = (row + 1) * side + column + 1
        self._middle = (world.window // 2) * (16 + 1)
        self._kind = np.zeros(PADDING + 1, np.uint8)
        for kind, name in ((WALL, "wall"), (MINE, "mine"), (DEPOT, "depot"), (AGENT, "agent")):
            self._kind[world.tags[name]] = kind
        border = np.full((side, side), WALL, np.uint8)
        border[1:-1, 1:-1] = ELSEWHERE
        self._empty = border.ravel()
        self._steps = np.array([MOVE_OFFSETS.get(name, (0, 0)) for name in spaces.actions], np.int16)
        self._agents = np.arange(spaces.envs * spaces.agents)

    def read_tokens(self, tokens: Array) -> AgentView:
        """Return the view in tokens, uint8 [N, K, 3], each (packed position, feature, value)."""
        position, feature, value = np.ascontiguousarray(np.moveaxis(tokens, 2, 0))
        is_tag = feature == self._features["tag"]
        cells = np.tile(self._empty, (len(tokens), 1))
        # Tokens that are not tags are all written to the corner, which is a wall again below: one write without a mask.
        cells[self._agents[:, None], self._cell[position] * is_tag] = self._kind[value]
        cells[:, 0] = WALL
        has_ore = (feature == self._features["inv:ore"]) & (position == self._middle) & (value > 0)
        action = np.where(feature == self._features["last_action"], value, 0).max(1)
        has_moved = ((feature == self._features["last_action_move"]) & (value == 1)).any(1)
        return AgentView(cells, has_ore.any(1), self._steps[action] * has_moved[:, None])


def first_cell_reached(targets: Array, free: Array, neighbours: Array, prefers: Array, side: int) -> Array:
    """Return the cell next to an agent that a wave from its targets reaches first.

    Args:
        targets: bool [N, C]: where the waves start; none at the border.
        free: bool [N, C]: where they pass; no cell of the border.
        neighbours: int [4]: the cells next to the agents.
        prefers: int [N, 4], 1 to 4: of cells that the wave comes to together, the largest is taken.
        side: cells of a row.

    Returns:
        int [N], 0 to 3, or -1 where it comes to no such cell.
    """
    rows = _reached_by_step(targets, free, side)
    agents, cells = targets.shape
    # Positions of the bits of these cells, int [N, 4]: bit n C + c, in byte (n C + c) // 8.
    bit = (np.arange(agents) * cells)[:, None] + neighbours
    packed_rows = _pack_bits(rows, targets.size)
    # A wave never recedes: the rows in which a cell's bit is set tell when it was reached.
    steps = len(rows) - (packed_rows[:, bit >> 3] >> (bit & 7) & 1).sum(0, dtype=np.int64)
    # Preferences are 1 to 4, so that they decide between equal steps alone.
    nearest = (steps * 8 - prefers).argmin(1)
    return np.where(steps.min(1) < len(rows), nearest, -1)


def reachable_cells(free: Array, middle: int, side: int) -> Array:
    """Return the cells of `free` that agents in the cell `middle` can reach, bool [N, C].

    Args:
        free: bool [N, C]: where agents can be; no cell of the border.
        middle: number of the cell that every agent is in, 0 to C - 1, free or not.
        side: cells of a row.
    """
    start = np.zeros_like(free)
    start[:, middle] = True
    reached_bits = _pack_bits(_reached_by_step(start, free, side)[-1:], free.size)[0]
    # The middle itself may not be free.
    return np.unpackbits(reached_bits, count=free.size, bitorder="little").reshape(free.shape).view(np.bool_) & free


def _reached_by_step(start: Array, free: Array, side: int) -> list[int]:
    """Return the cells that waves have reached after each step, until they stand still.

    A breadth-first search. All cells of all agents are bits of one integer, bit n C + c for cell c of agent n, so a
    step of all waves is four shifts of it.

    Args:
        start: bool [N, C]: where the waves start; no cell of the border.
        free: bool [N, C]: where they pass; no cell of the border.
        side: cells of a row.

    Returns:
        The cells reached after 0, 1, 2, ... steps, at least one integer; the last step that reached a new cell is last.
    """
    rows: list[int] = []
    front, passable = _flags_to_integer(start), _flags_to_integer(start | free)
    while not rows or front != rows[-1]:
        rows.append(front)
        # The border is not passable, so no shift carries a bit into the next row, or to another agent.
        front = (front | front << 1 | front >> 1 | front << side | front >> side) & passable
    return rows


def _flags_to_integer(cells: Array) -> int:
    """Return flags, bool [N, C], as one integer: flag c of row n is bit n C + c, from the lowest on."""
    return int.from_bytes(np.packbits(cells, bitorder="little").tobytes(), "little")


def _pack_bits(rows: list[int], count: int) -> Array:
    """Return the rows' `count` bits as uint8 [rows, bytes]: bit b is bit b % 8 of byte b // 8."""
    size = -(-count // 8)
    return np.frombuffer(b"".join(row.to_bytes(size, "little") for row in rows), np.uint8).reshape(len(rows), size)
