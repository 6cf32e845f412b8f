"""What is asked of an environment that comes from elsewhere."""

from flatwater.config.declare import config
from flatwater.errors import require


@config
class WrappedConfig:
    """Copies of an environment that Gymnasium or PettingZoo names."""

    steps: int = 256
    """Steps after which an episode is truncated, if the environment has not ended it before."""

    def __post_init__(self) -> None:
        require(self.steps >= 1, "wrapped.steps", self.steps, "1 or more")
