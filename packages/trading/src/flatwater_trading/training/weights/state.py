"""State of a run that learns target weights: everything that it keeps between rounds, and its build."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Adam, Span
from flatwater.algorithms.api import Setting, UpdateSums
from flatwater.nets.stack import Layout
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state
from flatwater.trainers.loop import Progress
from flatwater_trading.market.config import CostConfig
from flatwater_trading.market.costs import CostRates, Costs
from flatwater_trading.panel.splits import Days, Splits
from flatwater_trading.training.weights.blocks import cut_blocks
from flatwater_trading.training.weights.config import WeightsConfig
from flatwater_trading.training.weights.weigher import build_weigher

BLOCK_BYTES = 32 << 20
"""Bytes of hidden units that are computed at a time: members learn, and days are weighed, in groups of this size."""


@state
class SignalMarket:
    """Signals that a policy sees, and returns that the account earns, on all T days; never written."""

    own: Float[Tensor, "T K F"] = derived_field()
    shared: Float[Tensor, "T G"] = derived_field()
    following: Float[Tensor, "T K"] = derived_field()
    """Returns up to the next day's close."""
    tradable: Bool[Tensor, "T K"] = derived_field()
    share_rate: Float[Tensor, "R K"] = derived_field()
    """Commission of a value of 1 by the number of its shares; R is 0 if all costs are in proportion to the value, else
    T."""
    impact_rate: Float[Tensor, "R K"] = derived_field()
    """Impact of an order of value 1, as a part of it."""

    def costs(self, config: CostConfig, days: Int[Tensor, "*B"] | slice) -> Costs:
        """Return the costs of trades on some days, with an axis of instruments behind theirs."""
        if config.is_proportional:
            return Costs(config)
        return Costs(config, CostRates(self.share_rate[days], self.impact_rate[days]))


@state
class Judgement:
    """Growth of the learned weights on days that they were not learned from, and the part of them that is held."""

    growth: Float[Tensor, ""]
    """Mean daily log growth of the learned weights, held whole."""
    resting: Float[Tensor, ""]
    """Mean daily log growth of the weights that need no learning: equal weights or cash."""
    lead: Float[Tensor, ""]
    """Mean daily log growth of the learned weights, held whole, less `resting`."""
    deviation: Float[Tensor, ""]
    """Deviation of the mean `lead`."""
    held: Float[Tensor, ""]
    """Part of the learned weights that is held, 0 to 1; the rest is equal weights or cash."""
    invested: Float[Tensor, ""]
    """1 if the rest is equal weights, 0 if it is cash."""


@state
class WeightsState:
    """The root of the state tree."""

    progress: Progress
    weights: Float[Tensor, "P n"]
    """Members in training."""
    adam: Adam
    tally: UpdateSums
    newest: Judgement
    """Judgement of the members after this round."""
    best: Judgement
    """Judgement of the best round so far, whose members are `champion`."""
    champion: Float[Tensor, "P n"]
    """Members of the best round."""
    crowned: Bool[Tensor, ""]
    """True if this round is the best so far."""
    unseen: Float[Tensor, "D K"] = derived_field()
    """Weights on the training and validation days, for each day from members that did not learn from it."""
    market: SignalMarket


@dataclass(frozen=True)
class WeightsSetup:
    """The parts of a run that never change and are not part of the state."""

    config: WeightsConfig
    layout: Layout
    splits: Splits
    blocks: tuple[Days, ...]
    """Rows that each member leaves out."""
    stretch_days: int
    """Days of the stretches that members learn from."""
    device: torch.device
    instruments: int

    @property
    def judged_days(self) -> Days:
        """Training and validation days."""
        return Days(self.splits.train.first, self.splits.validation.stop)

    @property
    def groups(self) -> tuple[Span, ...]:
        """Spans of members that learn at the same time, so that their hidden units fit into `BLOCK_BYTES`."""
        learner, members = self.config.learner, self.config.members.size
        days_per_call = find_days_per_call(self.config, self.instruments)
        # An update weighs all days of a member's stretches together.
        size = min(members, max(1, days_per_call // (learner.stretches * self.stretch_days)))
        return tuple((low, min(members, low + size)) for low in range(0, members, size))


def find_days_per_call(config: WeightsConfig, instruments: int) -> int:
    """Return the number of days that one member weighs at a time, so that its hidden units fit into `BLOCK_BYTES`."""
    day_bytes = 4 * instruments * config.members.hidden  # float32
    return max(1, BLOCK_BYTES // day_bytes)


def build_setup(config: WeightsConfig, market: SignalMarket, device: torch.device) -> WeightsSetup:
    """Split the days of a market, cut the training days into blocks, and build the network for the market's shape."""
    days, instruments, own_signals = market.own.shape
    splits = config.split(days)
    return WeightsSetup(
        config=config,
        layout=build_weigher(own_signals, market.shared.shape[1], config.members.hidden),
        splits=splits,
        blocks=cut_blocks(splits.train, config.members.size),
        stretch_days=config.stretch_days(splits.train),
        device=device,
        instruments=instruments,
    )


def build_weights(setup: WeightsSetup, market: SignalMarket) -> WeightsState:
    """Allocate everything that a run keeps between rounds; on the meta device, for its plan."""
    config, device = setup.config, setup.device
    # Without extra rows: the champion has a tensor of its own.
    setting = Setting(members=config.members.size, seed=config.seed, device=device, extra=0)
    size = setup.layout.size
    return WeightsState(
        progress=Progress(),
        weights=setting.rows("target weights", setup.layout),
        adam=setting.adam(size),
        tally=setting.tally("growth", "grad_norm"),
        newest=_initial_judgement(device),
        best=_initial_judgement(device),
        champion=filled_tensor(0, config.members.size, size, device=device),
        crowned=filled_tensor(0, dtype=torch.bool, device=device),
        unseen=filled_tensor(0, len(setup.judged_days), setup.instruments, device=device),
        market=market,
    )


def _initial_judgement(device: torch.device) -> Judgement:
    """Allocate the judgement before the first round: any growth exceeds it, and nothing learned is held."""
    return Judgement(
        growth=filled_tensor(-torch.inf, device=device),
        resting=filled_tensor(0, device=device),
        lead=filled_tensor(0, device=device),
        deviation=filled_tensor(0, device=device),
        held=filled_tensor(0, device=device),
        invested=filled_tensor(0, device=device),
    )
