"""Settings of actor-critic networks, of PPO and its students."""

from typing import Annotated, Literal

from flatwater.config.code import Code
from flatwater_watch.errors import require
from flatwater_watch.options.bounds import Bounds
from flatwater_watch.options.declare import config


@config(table="policy")
class ActorCriticConfig:
    """Policy and critic of all agents: a table of tokens, an encoder, an LSTM, and two heads."""

    rows: Annotated[int, Bounds(2, 1 << 30)] = 16_384
    """Rows of the table in which tokens are looked up by their hash; a power of two. More rows, fewer tokens that share
    one. Worlds that show vectors have no table."""
    width: Annotated[int, Bounds(1, 1 << 16)] = 128
    """Numbers of a row; an observation is the sum of its tokens' rows."""
    hidden: Annotated[int, Bounds(1, 1 << 16)] = 128
    """Width of the layer that reads this sum."""
    memory: Annotated[int, Bounds(0, 1 << 16)] = 128
    """Cells of the LSTM. 0 takes no LSTM: actor and critic are networks of `layers`, side by side."""
    layers: tuple[Annotated[int, Bounds(1, 1 << 16)], ...] = (64, 64)
    """Widths of the layers of both where there is no LSTM."""
    network: Annotated[str, Code()] = "nature"
    """What reads images: nature or impala. package.module:Class is your nn.Module, made with the observation space; it
    reads every observation, and returns features [B, F] for the layers or the LSTM behind it."""
    activation: Literal["tanh", "relu", "silu", "elu", "gelu"] = "tanh"
    """Function behind each of the layers."""
    heads: Literal["separate", "shared"] = "separate"
    """Where there is no LSTM. separate: actor and critic have layers of their own. shared: both read the last layer of
    the same layers."""
    deviation: Annotated[float, Bounds(0.01, 7)] = 1.0
    """Where actions are numbers and there is no LSTM: deviation of the first policy's actions, in units of half of each
    number's range."""
    observations: Literal["plain", "logs", "stretched", "normalised"] = "logs"
    """Reading of numbers. plain: as they are. logs: each as sign(x) log(1 + |x|). stretched: the same; what the
    environment measures, such as a speed, is then stretched about its mean so far where it hardly differs. normalised:
    each in deviations from its mean so far, at most 5. A network of your own reads them as they are, or normalised."""

    def __post_init__(self) -> None:
        """Refuse a number of rows that is not a power of two, and a deviation that nobody reads."""
        # A row is a number of bits of a hash.
        require(self.rows.bit_count() == 1, "policy.rows", self.rows, "a power of two, such as 16384")
        is_read = not self.memory or self.deviation == 1  # 1, the default, counts as not given
        expected = f"1 with policy.memory = {self.memory}, whose deviations follow from observations"
        require(is_read, "policy.deviation", self.deviation, expected)
