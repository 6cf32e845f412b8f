"""Setups: the parts of a run that never change, which are configuration, networks as functions, and days."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import Algorithm, Networks, find_algorithm
from flatwater.cluster.work_division import split_spans
from flatwater_trading.market.market import Market
from flatwater_trading.panel.splits import Splits
from flatwater_trading.policy.trader import TraderActor, TraderCritic, build_trader
from flatwater_trading.training.batch_sizes import CACHE_BYTES, GROUP_SIZE_FACTOR, usual_tile, window_bytes
from flatwater_trading.training.config import ErlConfig


@dataclass(frozen=True)
class ErlSetup:
    """The parts of a run that never change and are not part of the state: configuration, networks, days."""

    config: ErlConfig
    actor: TraderActor
    critic: TraderCritic
    algorithm: Algorithm
    splits: Splits
    device: torch.device
    share: Span
    """Members of the population that are computed here: all, or those of one worker."""
    tile: int
    """Members that are computed at once."""
    device_type: str
    """Device type of the run, such as "cuda". If `device` is meta, the type of the planned device."""

    @property
    def members(self) -> int:
        """Number of members that are computed here."""
        low, high = self.share
        return high - low

    @property
    def tiles(self) -> list[Span]:
        """Tiles of the whole population, in their order."""
        return split_spans(self.config.population.size, self.tile)

    @property
    def nets(self) -> Networks:
        """Actor and critic."""
        return Networks(self.actor, self.critic)

    def members_at_once(self, market: Market) -> int:
        """Return how many of a tile's members may have the observations of a micro-batch in memory; at least 1."""
        allowed_bytes = CACHE_BYTES * GROUP_SIZE_FACTOR[self.device_type]
        return min(self.tile, max(1, allowed_bytes // window_bytes(self.config, market)))


def build_networks(
    config: ErlConfig, columns: int, investable: Int[Tensor, "K"], *, chunk_factor: int = 1
) -> tuple[TraderActor, TraderCritic]:
    """Build actor and critic for a panel, as functions without weights.

    Args:
        config: configuration of the trainer.
        columns: number of columns of the panel.
        investable: numbers of the columns that can be bought.
        chunk_factor: multiple of the days that a CPU encodes at a time, for devices without a small cache.
    """
    env = config.env
    return build_trader(
        config.net,
        context=env.episode.context,
        features=len(config.observation_features),
        columns=columns,
        investable=investable,
        sees_account=env.account_observation,
        # The threshold in the networks' range [-1, 1]: the inverse of `to_orders`.
        threshold=2 * env.trade.buy_threshold / env.trade.coefficient_max - 1,
        is_gaussian=find_algorithm(config.learner).gaussian,
        chunk_factor=chunk_factor,
    )


def build_setup(
    config: ErlConfig,
    market: Market,
    splits: Splits,
    device: torch.device,
    *,
    share: Span | None = None,
    device_type: str | None = None,
) -> ErlSetup:
    """Build the networks for a market's shape, and determine the size of a tile.

    Args:
        config: configuration of the trainer.
        market: market, of which only the shape is read.
        splits: days to train, to validate and to hold out.
        device: device of all tensors.
        share: members [low, high) that are computed here; None for all.
        device_type: type of the device that a plan is for; None for that of `device`.
    """
    device_type = device_type or device.type
    algorithm = find_algorithm(config.learner)
    actor, critic = build_networks(
        config, len(market.observations), market.investable, chunk_factor=GROUP_SIZE_FACTOR[device_type]
    )
    size = config.population.size
    # 0 leaves the members of a tile to `usual_tile`.
    tile = min(size, config.population.tile or usual_tile(config, market, device_type))
    return ErlSetup(
        config, actor, critic, algorithm, splits, device, share=share or (0, size), tile=tile, device_type=device_type
    )
