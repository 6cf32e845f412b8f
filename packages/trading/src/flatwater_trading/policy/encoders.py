"""Encoders: summaries of each column's history, for one day or for every day of an episode.

Axes: P members, S slices (episodes), D days, B windows, N columns, C context days, F features, W token width.
"""

from collections.abc import Callable
from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from flatwater.nets.stack import Params, Weight
from flatwater_trading.policy.config import TraderNetConfig
from flatwater_watch.errors import ConfigError

MAXIMUM_KERNEL = 16


class Encoder(Protocol):
    """Summaries of columns. A column's summary of day t depends on its own rows t-C+1 ... t alone."""

    @property
    def width(self) -> int:
        """Number W of values that describe a column on a day: the summary, then the day's features."""

    @property
    def weights(self) -> dict[str, Weight]:
        """The named weights of a member."""

    def windows(self, params: Params, x: Float[Tensor, "P B N C F"]) -> Float[Tensor, "P B N W"]:
        """Summarise the last day of each window."""

    def days(self, params: Params, x: Float[Tensor, "Q S N L F"]) -> Float[Tensor, "P S D N W"]:
        """Summarise every day of each slice that has its whole history in the slice: D = L - C + 1.

        Q is P if each member has its own slices, or 1 if all members have the same.
        """


def kernels(context: int) -> tuple[int, ...]:
    """Return kernel sizes whose product is `context`, largest first, as few and as even as possible.

    With dilations 1, k1, k1 k2, ... the stack of these kernels sees exactly `context` days, each through one path. So a
    window alone and the same day within a longer series give equal numbers.

    Raises:
        ConfigError: `context` has a prime factor above 16; the message names the nearest lengths that work.
    """
    factors = _fewest_factors(context)
    if factors is None:
        # Within 60 days on either side there are two such lengths, at least for windows of up to 9,900 days.
        lengths = [c for c in range(max(1, context - 60), context + 61) if _fewest_factors(c) is not None]
        nearest, second = sorted(lengths, key=lambda c: abs(c - context))[:2]
        raise ConfigError(
            f"env.episode.context = {context}: expected a product of numbers up to {MAXIMUM_KERNEL}, because the "
            f"encoder's kernels multiply to the window's length. The nearest are {nearest} and {second}."
        )
    return factors


def _fewest_factors(context: int) -> tuple[int, ...] | None:
    """Return `context` as the fewest factors up to `MAXIMUM_KERNEL`, largest first; None if it has no such factors."""
    # Few factors are better, as each is a level that passes over the whole series. 11 are enough: any two of the fewest
    # multiply to more than 16 (else one factor would do), so 12 of them would be a context of 17^6 days or more.
    for count in range(1, 12):
        best_factors = _split_factors(context, count, MAXIMUM_KERNEL)
        if best_factors is not None:
            return best_factors
    return None


def _split_factors(number: int, count: int, largest: int) -> tuple[int, ...] | None:
    """Return `number` as `count` factors up to `largest`, as even as possible, largest first; None if impossible."""
    if count == 1:
        return (number,) if 1 <= number <= largest else None
    options = (
        (factor, *rest)
        for factor in range(min(largest, number), 1, -1)
        if number % factor == 0 and (rest := _split_factors(number // factor, count - 1, factor)) is not None
    )
    # The most even split has the least difference of its largest and its smallest factor.
    return min(options, key=lambda split: split[0] - split[-1], default=None)


def build_encoder(config: TraderNetConfig, *, context: int, features: int, chunk_factor: int = 1) -> Encoder:
    """Build the encoder that `config.encoder` names.

    Args:
        config: kind and width of the encoder.
        context: number C of days of a window.
        features: number F of features of a column on a day.
        chunk_factor: multiple of a CPU's chunks that may be computed at a time.
    """
    from flatwater_trading.policy.lstm import LstmEncoder  # noqa: PLC0415  (each encoder imports this module's kernels)
    from flatwater_trading.policy.tcn import TcnEncoder  # noqa: PLC0415  (see above)

    encoders: dict[str, Callable[..., Encoder]] = {"tcn": TcnEncoder, "lstm": LstmEncoder}
    return encoders[config.encoder](
        kernels=kernels(context), features=features, channels=config.channels, chunk_factor=chunk_factor
    )
