from flatwater.evolution.config import EvolutionConfig as EvolutionConfig
from flatwater.evolution.generation import cross_ as cross_
from flatwater.evolution.selection import select_parents as select_parents
