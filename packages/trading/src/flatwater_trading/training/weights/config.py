"""Settings of a run that learns target weights, apart from its data and its machine."""

from dataclasses import field
from typing import Annotated

from flatwater_trading.market.config import PortfolioConfig
from flatwater_trading.panel.config import SplitConfig
from flatwater_trading.panel.splits import Days, Splits, split_days
from flatwater_trading.training.weights.blocks import cut_blocks, longest_stretch
from flatwater_watch.errors import ConfigError
from flatwater_watch.options.bounds import Bounds, Count, Rate, Seed, Weight
from flatwater_watch.options.declare import config

USUAL_STRETCH, MINIMUM_STRETCH = 128, 20
"""Days of a stretch if `learner.days` is left out, and the fewest days that it may then have."""


@config(table="members")
class EnsembleConfig:
    """The members whose mean weights are held."""

    size: Annotated[int, Bounds(2, 1 << 10)] = 4
    """Members. The training days are cut into as many blocks, and each member leaves another one out: on all blocks
    together it shows what the weights are worth on days that they were not learned from."""
    hidden: Annotated[int, Bounds(1, 1 << 12)] = 32
    """Width of a member's small network, besides its linear path."""


@config(table="learner")
class WeightsLearnerConfig:
    """Learning of members: by the gradient of the account's log growth after costs, over stretches of days."""

    updates: Count = 30
    """Updates of a round."""
    stretches: Count = 2
    """Stretches of days that a member learns from in one update."""
    days: Annotated[int, Bounds(2, 1 << 16)] | None = None
    """Days of a stretch. Left out: 128, or as many as the training days beside a block hold, 20 at least."""
    lr: Rate = 1e-2
    """Learning rate of the first round; in round n it is this over the root of n."""
    weight_decay: Weight = 1e-2
    """Part of each weight that is taken off, times the learning rate, at each update."""
    grad_clip: Annotated[float, Bounds(0, 1e6)] = 10.0
    """Largest norm of a member's gradient. 0 clips nothing."""


@config(table="judgement")
class JudgementConfig:
    """The part of the learned weights that is held."""

    caution: Annotated[float, Bounds(0, 10)] = 1.64
    """Deviations of its mean by which the learned weights' lead over equal weight, or cash, is lowered before it is
    judged: 1.64 asks for a lead that chance would show in one of 20 markets without a signal. 0 takes it as it is."""


@config
class WeightsConfig:
    """Target weights on a panel."""

    seed: Seed = 0
    """Every random number of the run follows from it."""
    benchmark: str | None = None
    """Instrument of the panel that results are also compared with: bought on the first day and held. It need not be
    tradable. Left out: no benchmark."""
    history: Count = 120
    """Rows before the first training day: signals remember up to 128 of them."""
    splits: SplitConfig = field(default_factory=SplitConfig)
    account: PortfolioConfig = field(default_factory=PortfolioConfig)
    members: EnsembleConfig = field(default_factory=EnsembleConfig)
    learner: WeightsLearnerConfig = field(default_factory=WeightsLearnerConfig)
    judgement: JudgementConfig = field(default_factory=JudgementConfig)

    def split(self, rows: int) -> Splits:
        """Split the first `rows` rows of a panel into days to train, to validate and to hold out.

        Raises:
            ConfigError: no training day is left, or too few for the members' stretches.
        """
        splits = split_days(rows, context=self.history, config=self.splits, context_name="history")
        self.stretch_days(splits.train)  # for its check
        return splits

    def stretch_days(self, train: Days) -> int:
        """Return the number of days in the stretches that members learn from, for these training days.

        Raises:
            ConfigError: the days outside of a block are too few for a stretch.
        """
        blocks = cut_blocks(train, self.members.size)
        configured_days = self.learner.days
        # Of the member with the fewest days, so that all stretches are equally long.
        longest = min(longest_stretch(train, block) for block in blocks)
        least_days = MINIMUM_STRETCH if configured_days is None else configured_days
        if longest < least_days:
            # A setting that is left out can neither be shown nor lowered.
            value, setting = ("", "") if configured_days is None else (f" = {configured_days}", "learner.days, ")
            raise ConfigError(
                f"learner.days{value}: the {len(train)} training days, less the {len(blocks[0])} that a member leaves "
                f"out, hold no stretch of {least_days}. Lower {setting}history ({self.history}) or "
                "splits.validation_days, or give a longer panel."
            )
        return min(longest, USUAL_STRETCH) if configured_days is None else configured_days
