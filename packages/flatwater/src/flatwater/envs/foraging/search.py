"""A teacher for the foraging game: breadth-first searches from targets, through the cells in sight, to the agents.

The searches of all agents run together, with one operation for a step of all. An agent whose target is out of sight
heads for the mine or depot that it saw last, or, while it knows none, for a place to explore. Everything is read from
observations, also whether the agent has moved, so it does not matter whose action was executed.

Axes: N agents, E x A in order; C cells of an agent's window with a border of one cell around it, row by row.
"""

from typing import NamedTuple

import numpy as np

from flatwater.envs.foraging.world import ForagingWorld
from flatwater.envs.world import PADDING, Array

OPEN, WALL, MINE, DEPOT, AGENT = range(5)
"""Contents of a cell; `OPEN` is nothing."""
NEIGHBOUR_OFFSETS = np.array([(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)], np.int16)
"""(rows, columns) of a step in each of eight directions, clockwise from north."""
RANDOM_CONSTANTS = (np.uint64(6364136223846793005), np.uint64(1442695040888963407))
"""Factor and summand of each agent's linear congruential generator (Knuth's MMIX), which draws where to explore."""
MOVE_TOWARDS = np.array((0, 0, 3, 3, 1, 1, 2, 2))
"""Index in `MOVE_OFFSETS` of the move for each of the eight directions."""
MOVE_OFFSETS = {"move_north": (-1, 0), "move_south": (1, 0), "move_west": (0, -1), "move_east": (0, 1)}
"""Name of an action -> (rows, columns) by which it moves an agent."""
FAR_AWAY = np.int16(2**14)
"""Distance in cells that stands for unreachable."""


class AgentView(NamedTuple):
    """The observations of all agents in one step, decoded from tokens."""

    cells: Array
    """Content of each cell, uint8 [N, C]."""
    carries: Array
    """Whether the agent has ore, bool [N]."""
    shift: Array
    """Rows and columns by which the agent has moved since the last step, int16 [N, 2]."""


class SearchTeacher:
    """A `Teacher` that takes the shortest way in sight. For each agent it remembers a mine, a depot and a goal."""

    def __init__(self, world: ForagingWorld) -> None:
        """Allocate the memory of N = envs * agents agents; cells are numbered row by row, border included."""
        self._spaces = world.spaces
        agents = self._spaces.envs * self._spaces.agents
        self._token_reader = _TokenReader(world)
        self._side = world.window + 2
        self._middle = (self._side // 2) * (self._side + 1)
        """Number of the cell that the agent itself is in."""
        names = list(MOVE_OFFSETS)
        self._action_by_move = np.array([self._spaces.actions.index(name) for name in names])
        self._neighbours = self._middle + np.array([row * self._side + column for row, column in MOVE_OFFSETS.values()])
        """Numbers of the four cells next to the agent, in the order of `MOVE_OFFSETS`."""
        offset = np.arange(self._side, dtype=np.int16) - self._side // 2
        # Row and column of each cell, int16 [C], counted from the agent in the middle of its window.
        self._row, self._column = np.repeat(offset, self._side), np.tile(offset, self._side)
        self._goal_distances = (world.window // 2 + 1, 2 * world.window)
        """Range of the distance of an exploration goal, in cells: from just out of sight to below twice the window."""
        number_in_env = np.arange(agents) % self._spaces.agents
        self._preferences = np.where(number_in_env[:, None] % 2, (4, 3, 2, 1), (1, 2, 3, 4))
        """Rank of each move, int [N, 4]: of equally short ways, that with the highest rank is taken. Agents of even and
        of odd numbers differ, as two agents that face each other would else block each other."""
        self._initial_random_state = number_in_env.astype(np.uint64)
        self._random_state = self._initial_random_state.copy()
        self._heading = np.zeros(agents, np.int64)
        """Direction in which each agent explores, an index in `NEIGHBOUR_OFFSETS`, int64 [N]."""
        self._exploration_goal = np.zeros((agents, 2), np.int16)
        """Rows and columns from the agent to the place that it explores, int16 [N, 2]."""
        self._maximum_patience = 3 * world.window
        self._patience = np.zeros(agents, np.int64)
        """Steps for which each agent still heads for its target out of sight, int64 [N]."""
        self._known_place = np.zeros((agents, 2, 2), np.int16)
        """Rows and columns from the agent to the mine and to the depot that it saw last, int16 [N, 2, 2]."""
        self._has_known_place = np.zeros((agents, 2), np.bool_)

    def begin_(self, env_mask: Array) -> None:
        """Forget known places in the environments of `env_mask`, bool [E]; draw goals from the initial random state."""
        agents = np.repeat(env_mask, self._spaces.agents)  # mask of their agents, bool [N]
        self._has_known_place[agents] = False
        # So that the draws of an episode do not depend on earlier episodes.
        self._random_state[agents] = self._initial_random_state[agents]
        self._draw_exploration_goal_(np.flatnonzero(agents))

    def step_batch(self, obs: Array, actions_out: Array) -> None:
        """Write each agent's move on the shortest way to a target; an agent without a way explores."""
        view = self._token_reader.read_tokens(obs.reshape(len(self._heading), *self._spaces.obs))
        self._update_known_places_(view)
        target_kind = np.where(view.carries, DEPOT, MINE)[:, None]
        targets = view.cells == target_kind
        sees_no_target = ~targets.any(1)
        self._set_targets_out_of_sight_(targets, sees_no_target, view)
        moves = first_reached_cell(targets, view.cells == OPEN, self._neighbours, self._preferences, self._side)
        lost_agents = np.flatnonzero(moves < 0)  # -1: no way to a target
        self._draw_exploration_goal_(lost_agents)
        moves[lost_agents] = MOVE_TOWARDS[self._heading[lost_agents]]
        actions_out[...] = self._action_by_move[moves].reshape(actions_out.shape)

    def _update_known_places_(self, view: AgentView) -> None:
        """Shift places and goals by the agent's move, and record the nearest mine and the nearest depot in sight."""
        # Places are relative to the agent, so its own move is subtracted.
        self._known_place -= view.shift[:, None]
        self._exploration_goal -= view.shift
        distances = np.abs(self._row) + np.abs(self._column)
        for place_index, kind in enumerate((MINE, DEPOT)):
            distance = np.where(view.cells == kind, distances, FAR_AWAY)
            nearest = distance.argmin(1)  # number of the nearest cell of this kind, for each agent
            in_sight = distance[np.arange(len(nearest)), nearest] < FAR_AWAY
            self._known_place[in_sight, place_index, 0] = self._row[nearest[in_sight]]
            self._known_place[in_sight, place_index, 1] = self._column[nearest[in_sight]]
            self._has_known_place[in_sight, place_index] = True

    def _set_targets_out_of_sight_(self, targets: Array, sees_no_target: Array, view: AgentView) -> None:
        """Point agents that see no target towards their known place or exploration goal; count down their patience.

        The target, set in `targets`, bool [N, C], is the reachable cell nearest to the place or goal. An agent forgets
        its known place and explores elsewhere if no reachable cell is nearer to the goal than itself, or if its
        patience is over, as it then goes to and fro behind a wall.
        """
        self._patience[~sees_no_target] = self._maximum_patience
        if not sees_no_target.any():
            return
        agents = np.flatnonzero(sees_no_target)
        place_index = view.carries[agents].astype(np.int64)  # 0 for the mine, 1 for the depot
        is_known = self._has_known_place[agents, place_index]
        # Relative to the agent, so that its own distance to the goal is the sum of |rows| and |columns|.
        goal = np.where(is_known[:, None], self._known_place[agents, place_index], self._exploration_goal[agents])
        distance = np.abs(self._row - goal[:, :1]) + np.abs(self._column - goal[:, 1:])
        distance[~reachable_cells(view.cells[agents] == OPEN, self._middle, self._side)] = FAR_AWAY
        nearest = distance.argmin(1)
        targets[agents, nearest] = True
        can_come_nearer = distance[np.arange(len(agents)), nearest] < np.abs(goal).sum(1)
        self._patience[agents] -= 1  # at the maximum again whenever an agent sees a target
        is_hopeless = ~can_come_nearer | (self._patience[agents] < 0)
        self._has_known_place[agents[is_hopeless], place_index[is_hopeless]] = False
        self._draw_exploration_goal_(agents[is_hopeless])

    def _draw_exploration_goal_(self, agents: Array) -> None:
        """Draw a random direction and distance to explore for each agent whose number is in `agents`."""
        if not len(agents):
            return
        self._patience[agents] = self._maximum_patience
        # uint64 wraps on purpose: the generator is modulo 2^64.
        self._random_state[agents] = self._random_state[agents] * RANDOM_CONSTANTS[0] + RANDOM_CONSTANTS[1]
        # The upper half, as the low bits of such a generator soon repeat.
        random_number = (self._random_state[agents] >> 32).astype(np.int64)
        self._heading[agents] = random_number % len(NEIGHBOUR_OFFSETS)
        nearest, end = self._goal_distances  # distances from `nearest` to `end` - 1, in cells
        # The quotient is independent of the remainder, which has drawn the direction.
        distance = nearest + random_number // len(NEIGHBOUR_OFFSETS) % (end - nearest)
        self._exploration_goal[agents] = NEIGHBOUR_OFFSETS[self._heading[agents]] * distance[:, None]


class _TokenReader:
    """A decoder of tokens: cells, ore and movement of all agents."""

    def __init__(self, world: ForagingWorld) -> None:
        """Build look-up tables from a token's bytes to cells and their contents."""
        side, spaces = world.window + 2, world.spaces
        self._features = world.features
        self._cell = np.zeros(PADDING + 1, np.int64)
        """Packed position (row in the upper four bits, column in the lower four) -> number of the cell. Other bytes ->
        0, a corner, which no agent reaches."""
        for row in range(world.window):
            for column in range(world.window):
                self._cell[row << 4 | column] = (row + 1) * side + column + 1
        self._middle = (world.window // 2) * (16 + 1)
        """Packed position of the agent itself: its row and its column are the same number."""
        self._kind = np.zeros(PADDING + 1, np.uint8)
        """Value of a token of the feature `tag` -> content of its cell."""
        for kind, name in ((WALL, "wall"), (MINE, "mine"), (DEPOT, "depot"), (AGENT, "agent")):
            self._kind[world.tags[name]] = kind
        border = np.full((side, side), WALL, np.uint8)
        border[1:-1, 1:-1] = OPEN
        self._empty = border.ravel()
        """Cells of a window without objects, with walls as its border, uint8 [C]."""
        self._steps = np.array([MOVE_OFFSETS.get(name, (0, 0)) for name in spaces.actions], np.int16)
        """Number of an action -> (rows, columns) of its move."""
        self._agents = np.arange(spaces.envs * spaces.agents)

    def read_tokens(self, tokens: Array) -> AgentView:
        """Return the view of each agent from tokens, uint8 [N, K, 3], each (packed position, feature, value)."""
        position, feature, value = np.ascontiguousarray(np.moveaxis(tokens, 2, 0))
        is_tag = feature == self._features["tag"]
        cells = np.tile(self._empty, (len(tokens), 1))
        # One write without a mask: tokens that are no tags (`is_tag` 0) go to cell 0, a corner, which is reset below.
        cells[self._agents[:, None], self._cell[position] * is_tag] = self._kind[value]
        cells[:, 0] = WALL
        has_ore = (feature == self._features["inv:ore"]) & (position == self._middle) & (value > 0)
        # The only token of this feature, among zeros for all other tokens.
        action = np.where(feature == self._features["last_action"], value, 0).max(1)
        has_moved = ((feature == self._features["last_action_move"]) & (value == 1)).any(1)
        return AgentView(cells, has_ore.any(1), self._steps[action] * has_moved[:, None])


def first_reached_cell(targets: Array, open_cells: Array, neighbours: Array, preferences: Array, side: int) -> Array:
    """Return for each agent which of the cells next to it a breadth-first search from its targets reaches first.

    Args:
        targets: bool [N, C]: the cells where the searches start; no cell of the border.
        open_cells: bool [N, C]: the cells that they pass; no cell of the border.
        neighbours: int [4]: numbers of the cells next to the agents.
        preferences: int [N, 4], 1 to 4: of cells that are reached in the same step, the cell with the largest is taken.
        side: number of cells of a row.

    Returns:
        int [N], an index in `neighbours`, or -1 where none of them is reached.
    """
    reached_by_step = _reached_by_step(targets, open_cells, side)
    agents, cells = targets.shape
    # Positions of the neighbours' bits, int [N, 4]: bit n C + c, in byte (n C + c) // 8.
    bit = (np.arange(agents) * cells)[:, None] + neighbours
    packed_bits = _pack_bits(reached_by_step, targets.size)
    # `bit >> 3` is the number of a bit's byte, `bit & 7` its position in the byte.
    # A cell that is reached stays reached, so the number of steps in which its bit is set tells when that was.
    steps = len(reached_by_step) - (packed_bits[:, bit >> 3] >> (bit & 7) & 1).sum(0, dtype=np.int64)
    # Preferences are below 8, so they decide only between equal steps.
    first = (steps * 8 - preferences).argmin(1)
    return np.where(steps.min(1) < len(reached_by_step), first, -1)


def reachable_cells(open_cells: Array, middle: int, side: int) -> Array:
    """Return the cells of `open_cells` that agents in the cell `middle` can reach, bool [N, C].

    Args:
        open_cells: bool [N, C]: the cells that agents can enter; no cell of the border.
        middle: number of the cell that every agent is in, 0 to C - 1, open or not.
        side: number of cells of a row.
    """
    start = np.zeros_like(open_cells)
    start[:, middle] = True
    reached_by_step = _reached_by_step(start, open_cells, side)
    # The cells reached after the last step.
    reached_bits = _pack_bits(reached_by_step[-1:], open_cells.size)[0]
    reached_cells = np.unpackbits(reached_bits, count=open_cells.size, bitorder="little").view(np.bool_)
    # `& open_cells`, as the middle itself may not be open.
    return reached_cells.reshape(open_cells.shape) & open_cells


def _reached_by_step(start: Array, open_cells: Array, side: int) -> list[int]:
    """Return the cells that breadth-first searches have reached after each step, until they reach no new cell.

    All cells of all agents are bits of one integer, bit n C + c for cell c of agent n. So a step of all searches is
    four shifts of that integer.

    Args:
        start: bool [N, C]: the cells where the searches start; no cell of the border.
        open_cells: bool [N, C]: the cells that they pass; no cell of the border.
        side: number of cells of a row.

    Returns:
        The cells reached after 0, 1, 2, ... steps, as integers; the last step that reached a new cell is last.
    """
    reached_by_step: list[int] = []
    reached_cells = _flags_to_integer(start)
    passable = _flags_to_integer(start | open_cells)  # a start, such as a mine, need not be open
    while not reached_by_step or reached_cells != reached_by_step[-1]:
        reached_by_step.append(reached_cells)
        # The border is not passable, so no shift carries a bit into the next row, or to another agent.
        reached_cells = (
            reached_cells | reached_cells << 1 | reached_cells >> 1 | reached_cells << side | reached_cells >> side
        ) & passable
    return reached_by_step


def _flags_to_integer(cells: Array) -> int:
    """Return flags, bool [N, C], as one integer: flag c of row n is bit n C + c, where bit 0 is the lowest."""
    return int.from_bytes(np.packbits(cells, bitorder="little").tobytes(), "little")


def _pack_bits(integers: list[int], count: int) -> Array:
    """Return the `count` lowest bits of each integer as uint8 [integers, bytes]: bit b is bit b % 8 of byte b // 8."""
    size = -(-count // 8)  # rounded up
    content = b"".join(integer.to_bytes(size, "little") for integer in integers)
    return np.frombuffer(content, np.uint8).reshape(len(integers), size)
