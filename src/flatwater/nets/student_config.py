"""The shape of a student."""

from typing import Annotated

from flatwater.config.bounds import Bounds
from flatwater.config.declare import config
from flatwater.errors import require


@config(table="student")
class StudentConfig:
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

    def __post_init__(self) -> None:
        """A hash is cut to a row by its last bits."""
        require(self.rows.bit_count() == 1, "student.rows", self.rows, "a power of two, such as 16384")
