from flatwater.checkpoints.catalogue import list_checkpoints as list_checkpoints
from flatwater.checkpoints.catalogue import newest_intact as newest_intact
