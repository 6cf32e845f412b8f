"""The foraging game as mettagrid's simulator plays it, and its maps. No other module imports mettagrid: a second."""

import numpy as np
from mettagrid.config.action_config import ActionsConfig, ChangeVibeActionConfig
from mettagrid.config.filter import actorHas, isNot
from mettagrid.config.game_value import InventoryValue
from mettagrid.config.handler_config import Handler
from mettagrid.config.mettagrid_c_config import convert_to_cpp_game_config
from mettagrid.config.mettagrid_config import AgentConfig, GameConfig, GridObjectConfig, WallConfig
from mettagrid.config.mutation import updateActor
from mettagrid.config.obs_config import GlobalObsConfig, ObsConfig
from mettagrid.config.reward_config import reward
from mettagrid.mettagrid_c import GameConfig as CompiledConfig
from mettagrid.mettagrid_c import MettaGrid

from flatwater.envs.foraging.config import ForagingConfig

ORE, DELIVERED = "ore", "delivered"
OWN_TOKENS = 4
"""Number of tokens about the observing agent's state: episode progress, last action, whether it moved, last reward."""
AGENT_TOKENS = 6
"""Most tokens about an agent in sight: kind, group, number, ore, and two bytes for its number of deliveries."""
EMPTY, WALL, MINE, DEPOT = "empty", "wall", "mine", "depot"


class Game:
    """A foraging game, compiled once; `begin` builds a simulator for each episode."""

    def __init__(self, config: ForagingConfig) -> None:
        """Compile the rules once; each episode shuffles the same objects over the cells inside the wall."""
        self.tokens = max(config.tokens, most_tokens(config))
        """Tokens of an observation in a simulator: enough for any view, as a simulator fails if one is too long."""
        rules = _game_rules(config, self.tokens)
        self._size = config.size
        self._compiled, agents = _compile_rules(rules)
        cells = (config.size - 2) ** 2
        counts = {MINE: config.mines, DEPOT: config.depots, WALL: config.walls}
        objects = [name for name, count in counts.items() for _ in range(count)] + agents
        # Contents of the cells inside the wall, in an order that each episode shuffles.
        self._cells = np.array(objects + [EMPTY] * (cells - len(objects)), dtype=object)
        self.actions = tuple(action.name for action in rules.actions.actions())
        ids = rules.id_map()
        self.features = {feature.name: int(feature.id) for feature in ids.features()}
        """Name of a feature -> its number in tokens."""
        self.tags = {name.removeprefix("type:"): number for number, name in enumerate(ids.tag_names())}
        """Name of an object -> its value of the feature `tag` in tokens."""

    def begin(self, seed: int) -> MettaGrid:
        """Return a simulator at the beginning of the episode of `seed`, which decides its map too."""
        # NumPy's generator takes no negative seed, and the simulator takes the lower 32 bits.
        seed %= 2**64
        return MettaGrid(self._compiled, self._shuffled_map(seed), seed % 2**32)

    def _shuffled_map(self, seed: int) -> list[list[str]]:
        """Return a map [size, size] of names of objects: a wall, and inside it all objects at random cells."""
        cells = np.full((self._size, self._size), WALL, dtype=object)
        inside = (self._size - 2, self._size - 2)
        cells[1:-1, 1:-1] = np.random.default_rng(seed).permutation(self._cells).reshape(inside)
        return cells.tolist()


def most_tokens(config: ForagingConfig) -> int:
    """Return the largest number of tokens that a view can have."""
    # A cell holds one object, and an agent has the most tokens: as many agents as possible are in sight.
    cells = config.window**2
    agents = min(config.agents, cells)
    others = config.mines + config.depots + config.walls + most_border_cells(config)
    return OWN_TOKENS + AGENT_TOKENS * agents + min(others, cells - agents)


def most_border_cells(config: ForagingConfig) -> int:
    """Return the largest number of cells of the wall around the map that an agent can see at once."""
    size, radius = config.size, config.window // 2
    # For each row of an agent: number of rows in sight, and of rows of wall among them. The same holds for columns.
    extents = []
    for row in range(1, size - 1):
        earlier_rows, later_rows = row, size - 1 - row
        in_sight = min(earlier_rows, radius) + 1 + min(later_rows, radius)
        wall_rows = (earlier_rows <= radius) + (later_rows <= radius)  # True counts as 1
        extents.append((in_sight, wall_rows))
    # Rows of wall times columns in sight, and columns of wall times rows in sight, less the corners, which are in both.
    return max(
        wall_rows * columns + wall_columns * rows - wall_rows * wall_columns
        for rows, wall_rows in extents
        for columns, wall_columns in extents
    )


def _game_rules(config: ForagingConfig, tokens: int) -> GameConfig:
    """Return mettagrid's configuration: agents carry one ore at a time from mines to depots, with a reward there."""
    return GameConfig(
        num_agents=config.agents,
        max_steps=config.steps,
        episode_truncates=True,
        resource_names=[ORE, DELIVERED],
        actions=ActionsConfig(change_vibe=ChangeVibeActionConfig(enabled=False)),
        obs=ObsConfig(
            width=config.window,
            height=config.window,
            num_tokens=tokens,
            global_obs=GlobalObsConfig(last_action_move=True),  # whether the last action has moved the agent
        ),
        protocol_details_obs=False,
        objects={
            WALL: WallConfig(),
            MINE: GridObjectConfig(
                name=MINE,
                on_use_handler=Handler(filters=[isNot(actorHas({ORE: 1}))], mutations=[updateActor({ORE: 1})]),
            ),
            DEPOT: GridObjectConfig(
                name=DEPOT,
                on_use_handler=Handler(filters=[actorHas({ORE: 1})], mutations=[updateActor({ORE: -1, DELIVERED: 1})]),
            ),
        },
        agent=AgentConfig(rewards={DELIVERED: reward(InventoryValue(item=DELIVERED), weight=config.price)}),
    )


def _compile_rules(rules: GameConfig) -> tuple[CompiledConfig, list[str]]:
    """Return the simulator's compiled configuration, and the name of each agent in maps."""
    compiled_rules, names = convert_to_cpp_game_config(rules)
    return compiled_rules, list(names.get("agent.agent", ["agent.agent"]))  # a single agent is not renamed
