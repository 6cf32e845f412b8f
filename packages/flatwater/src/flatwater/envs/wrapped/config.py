"""Settings of a world of copies of an environment, of Gymnasium, of PettingZoo or of the user's."""

from typing import Annotated, Literal

from flatwater.config.code import Code
from flatwater_watch.options.bounds import OptionalNumber
from flatwater_watch.options.declare import config


@config(table="wrapped")
class WrappedConfig:
    """Copies of an environment that Gymnasium or PettingZoo names."""

    steps: OptionalNumber = 256
    """Steps after which an episode is truncated, if the environment has not ended it before. 0 takes the limit that
    Gymnasium knows of the environment, or 1000."""
    wrappers: tuple[Annotated[str, Code()], ...] = ()
    """Wrappers around each environment, the innermost first: a name of gymnasium.wrappers, or package.module:Name of a
    class or function, both with arguments if wanted: "FrameStackObservation(stack_size=4)"."""
    form: Literal["auto", "tokens", "image", "vector"] = "auto"
    """Form of observations. auto: images of uint8 or bool as images, with the other numbers of a Dict; all else as a
    vector. image: the same, also where each row has three bytes. vector: all numbers in a row. tokens: uint8 [K, 3], a
    position, a feature and a value each; of an image of at most 254 pixels, one for each channel of each pixel."""
