"""Occlusion (Zeiler & Fergus 2014): the effect of parts of an observation on a trader's decisions.

A part of the observation is replaced by its mean, and the coefficients are computed again. The weights of attention are
not enough: columns that cannot be bought have a separate attention, which gives a single column all of the weight.
Occlusion measures every column in the same way.

Columns are encoded independently. So a hidden column changes one token of the day, and a day is encoded a few times,
not once for each column: memory does not grow with the number of hidden parts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.nets.stack import Params, views
from flatwater_trading.market.config import TradeConfig
from flatwater_trading.market.market import Market
from flatwater_trading.panel.splits import Days
from flatwater_trading.policy.trader import ACCOUNT_PARTS, TraderActor
from flatwater_trading.training.play import to_orders
from flatwater_trading.training.row_replay import gather_windows
from flatwater_trading.training.setup import ErlSetup
from flatwater_watch.progress import count_steps

BLANK_VALUE = 1e-6
"""A normalised value without information, practically the mean 0. Exactly 0 would mean a missing day."""
MAXIMUM_DAYS = 24
"""Most of the days, evenly spaced, on which every feature and every column is replaced once."""
MAXIMUM_TOKEN_BYTES = 8 << 20
"""Most bytes of tokens that the actor is given in one call."""


@dataclass(frozen=True)
class OcclusionDay:
    """A trader's observation of a day, for decisions in which parts of it are hidden."""

    actor: TraderActor
    params: Params
    trade: TradeConfig
    """Bounds of the actions, to which coefficients are scaled."""
    window: Float[Tensor, "N C F"]
    """Normalised features of N columns on the C days up to this day; 0 if missing."""
    account: Float[Tensor, "1 1 K 3"] | None
    """The open positions of the day; None if the trader does not observe them."""

    @cached_property
    def _blank_window(self) -> Float[Tensor, "N C F"]:
        """The window with every column at its mean over its known days; missing values stay missing."""
        has_data: Bool[Tensor, "N C 1"] = (self.window != 0).any(-1, keepdim=True)
        return (BLANK_VALUE * has_data).expand_as(self.window)

    @cached_property
    def _tokens(self) -> Float[Tensor, "N W"]:
        return self._encode_window(self.window)

    def all_coefficients(self) -> Float[Tensor, "K"]:
        """Return the coefficients of the whole observation."""
        return self._compute_coefficients(self._tokens[None])[0]

    def without_features(self) -> Iterator[Float[Tensor, "K"]]:
        """Yield the coefficients of all instruments with one feature hidden in all columns, for one feature at a time.

        A hidden feature has its mean on all days of the window.
        """
        window = self.window.clone()
        for feature in range(window.shape[-1]):
            window[..., feature] = self._blank_window[..., feature]
            # [None] and [0]: one version of the observation.
            yield self._compute_coefficients(self._encode_window(window)[None])[0]
            # Restored in place, so that one copy of the window is enough for all features.
            window[..., feature] = self.window[..., feature]

    def without_own_features(self, column: int) -> Float[Tensor, "F K"]:
        """Return the coefficients with one feature of `column` hidden: row f is without feature f of that column."""
        features = self.window.shape[-1]
        # The column's window, once for each feature: [F, C, F].
        windows = self.window[column : column + 1].repeat(features, 1, 1)
        for feature in range(features):
            windows[feature, :, feature] = self._blank_window[column, :, feature]
        return torch.cat([*self._swapped_coefficients([column] * features, self._encode_window(windows))])

    def without_columns(self, columns: Sequence[int]) -> Iterator[Float[Tensor, "M K"]]:
        """Yield the coefficients without each column, in their order, some columns at a time."""
        return self._swapped_coefficients(columns, self._encode_window(self._blank_window)[list(columns)])

    def _swapped_coefficients(
        self, columns: Sequence[int], tokens: Float[Tensor, "M W"]
    ) -> Iterator[Float[Tensor, "m K"]]:
        """Yield the coefficients with the token of a column replaced, for M pairs of column and token, m at a time.

        A token is the encoding of one column on the day.
        """
        own_tokens = self._tokens
        at_once = min(len(columns), max(1, MAXIMUM_TOKEN_BYTES // own_tokens.nbytes))
        swapped_tokens = own_tokens.repeat(at_once, 1, 1)
        for first in range(0, len(columns), at_once):
            swapped_columns = torch.tensor(columns[first : first + at_once], device=own_tokens.device)
            rows = torch.arange(len(swapped_columns), device=own_tokens.device)
            swapped_tokens[rows, swapped_columns] = tokens[first : first + at_once]
            # A column's encoding does not depend on other columns, so replacing its token hides the column.
            yield self._compute_coefficients(swapped_tokens[: len(swapped_columns)])
            # Restored in place, so that `swapped_tokens` is allocated once.
            swapped_tokens[rows, swapped_columns] = own_tokens[swapped_columns]

    def _encode_window(self, window: Float[Tensor, "n C F"]) -> Float[Tensor, "n W"]:
        with torch.no_grad():
            # Member, slice and day, one of each: the window is one slice, whose last day alone has a whole context.
            return self.actor.trunk.encoder.days(self.params, window[None, None])[0, 0, 0]

    def _compute_coefficients(self, tokens: Float[Tensor, "M N W"]) -> Float[Tensor, "M K"]:
        """Run the actor on M versions of the day's tokens; return its coefficients, in the environment's units."""
        account = None if self.account is None else self.account.expand(1, len(tokens), -1, -1)
        # Unchanged even if a part is hidden: the same columns must be missing as in the whole observation.
        today = self.window[None, None, :, -1].expand(1, len(tokens), -1, -1)
        with torch.no_grad():
            embedding = self.actor.trunk.embed(self.params, tokens[None], today)
            action = self.actor.head(
                self.params, self.actor.hidden_features(self.params, embedding), embedding.missing, account
            )
        # The first axis counts members, here one. An order is a coefficient and a sale target.
        return to_orders(self.trade, action[0])[..., 0]


def find_effects(
    setup: ErlSetup, market: Market, actor: Float[Tensor, "1 n"], days: Days
) -> tuple[Float[Tensor, "F"], Float[Tensor, "N"]]:
    """Measure the effects of features and columns on the coefficients of some days, for an account without positions.

    The effect of a part of the observation is the mean absolute change of a coefficient if the part is blanked.

    Args:
        setup: configuration and networks.
        market: market with the observations.
        actor: weights of the trader.
        days: days, of which at most `MAXIMUM_DAYS` are used.

    Returns:
        Effect of each feature, hidden in all columns; and of each column, also of those that cannot be bought.
    """
    # Evenly spaced instead of drawn: every call uses the same days.
    rows = torch.linspace(days.first, days.stop - 1, min(MAXIMUM_DAYS, len(days))).long().tolist()
    columns, _, features = market.observations.shape
    account = None
    if setup.config.env.account_observation:
        # Zeros: nothing is held.
        account = torch.zeros(1, 1, len(market.investable), ACCOUNT_PARTS, device=setup.device)
    feature_effects = torch.zeros(features, device=setup.device)
    column_effects = torch.zeros(columns, device=setup.device)
    params = views(actor, setup.actor.layout)
    for row in count_steps("what decisions follow from", rows):
        # One member and one window, named by its last row.
        last_row = torch.tensor([[row]], device=setup.device)
        window = gather_windows(market.observations, last_row, setup.config.env.episode.context)[0, 0]
        occlusion = OcclusionDay(setup.actor, params, setup.config.env.trade, window, account)
        all_coefficients = occlusion.all_coefficients()
        feature_changes = [(changed - all_coefficients).abs().mean() for changed in occlusion.without_features()]
        feature_effects += torch.stack(feature_changes) / len(rows)
        column_changes = [
            # Several columns at a time: a row of coefficients for each.
            (changed - all_coefficients).abs().mean(1)
            for changed in occlusion.without_columns(range(columns))
        ]
        column_effects += torch.cat(column_changes) / len(rows)
    return feature_effects, column_effects
