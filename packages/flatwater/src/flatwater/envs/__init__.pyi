from flatwater.envs import growing as growing
from flatwater.envs.foraging.config import ForagingConfig as ForagingConfig
from flatwater.envs.foraging.world import ForagingWorld as ForagingWorld
from flatwater.envs.world import Array as Array
from flatwater.envs.world import MaskedWorld as MaskedWorld
from flatwater.envs.world import Spaces as Spaces
from flatwater.envs.world import Teacher as Teacher
from flatwater.envs.world import World as World
