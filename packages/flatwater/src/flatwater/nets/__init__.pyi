from flatwater.nets.mlp import MLPActor as MLPActor
from flatwater.nets.mlp import MLPCritic as MLPCritic
