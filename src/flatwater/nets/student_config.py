"""The shape of a student."""

from flatwater.config.declare import config
from flatwater.errors import require


@config
class StudentConfig:
    """Student and critic of all agents: a table of tokens, an encoder, an LSTM, and two heads."""

    rows: int = 16_384
    """Rows of the table in which tokens are looked up by their hash; a power of two. More rows, fewer tokens that share
    one. Worlds that show vectors have no table."""
    width: int = 128
    """Numbers of a row; an observation is the sum of its tokens' rows."""
    hidden: int = 128
    """Width of the layer that reads this sum."""
    memory: int = 128
    """Cells of the LSTM."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("width", "hidden", "memory"):
            require(getattr(self, name) >= 1, f"student.{name}", getattr(self, name), "1 or more")
        power = self.rows >= 2 and self.rows.bit_count() == 1  # noqa: PLR2004
        require(power, "student.rows", self.rows, "a power of two, such as 16384")
