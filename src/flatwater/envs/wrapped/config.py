"""What is asked of an environment that comes from elsewhere."""

from flatwater.config.bounds import Number
from flatwater.config.declare import config


@config(table="wrapped")
class WrappedConfig:
    """Copies of an environment that Gymnasium or PettingZoo names."""

    steps: Number = 256
    """Steps after which an episode is truncated, if the environment has not ended it before."""
