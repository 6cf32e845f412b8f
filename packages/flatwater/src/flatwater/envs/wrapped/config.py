"""Settings of an environment that comes from elsewhere."""

from typing import Literal

from flatwater_watch.options.bounds import OptionalNumber
from flatwater_watch.options.declare import config


@config(table="wrapped")
class WrappedConfig:
    """Copies of an environment that Gymnasium or PettingZoo names."""

    steps: OptionalNumber = 256
    """Steps after which an episode is truncated, if the environment has not ended it before. 0 takes the limit that
    Gymnasium knows of the environment, or 1000."""
    form: Literal["auto", "tokens", "image", "vector"] = "auto"
    """Form of observations. tokens: uint8 [K, 3], each a position, a feature and a value, as they are. image:
    uint8 [H, W] or [H, W, C], a token for each channel of each pixel. vector: all numbers in a row. auto: an image of
    small numbers as one, everything else as a vector."""
