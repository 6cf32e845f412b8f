"""Occlusion (Zeiler & Fergus 2014): what decisions follow from.

A part of what a trader sees is replaced by its mean, and the coefficients are asked for again. Attention says where a
network looks, and only where it has one: columns that cannot be bought have an attention of their own, which gives a
single column all of its weight, whatever it says. Occlusion says what decisions follow from, of every column alike.

Columns are encoded apart from each other. So a hidden column changes one token of the day, and a day is encoded a few
times, not once for each column: however many parts are hidden, the same bytes are held.
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
from flatwater_trading.training.rows import windows
from flatwater_trading.training.setup import ErlSetup
from flatwater_watch.progress import count_steps

BLANK_VALUE = 1e-6
"""A normalised value that says nothing: the mean. Not 0, which stands for a missing day."""
MAXIMUM_DAYS = 24
"""Days of the stretch, evenly spaced, on which every feature and every column is replaced once."""
ROOM_BYTES = 8 << 20
"""Bytes of the tokens that are asked about in one call."""


@dataclass(frozen=True)
class OcclusionDay:
    """One day as a trader sees it, to be decided again without a part of it."""

    actor: TraderActor
    params: Params
    trade: TradeConfig
    """Bounds of the actions, to which coefficients are scaled."""
    window: Float[Tensor, "N C F"]
    """What the trader sees: N columns on the C days up to this one, normalised; 0 where missing."""
    account: Float[Tensor, "1 1 K 3"] | None
    """The open positions of the day; None where the trader does not see them."""

    @cached_property
    def _blank_window(self) -> Float[Tensor, "N C F"]:
        """The window with every column at its mean over its known days; missing values stay missing."""
        has_data: Bool[Tensor, "N C 1"] = (self.window != 0).any(-1, keepdim=True)
        return (BLANK_VALUE * has_data).expand_as(self.window)

    @cached_property
    def _tokens(self) -> Float[Tensor, "N W"]:
        return self._encode_window(self.window)

    def all_coefficients(self) -> Float[Tensor, "K"]:
        """Return the coefficients with all that is seen."""
        return self._compute_coefficients(self._tokens[None])[0]

    def without_features(self) -> Iterator[Float[Tensor, "K"]]:
        """Yield the coefficients without each feature, of all columns at once."""
        window = self.window.clone()
        for feature in range(window.shape[-1]):
            window[..., feature] = self._blank_window[..., feature]
            yield self._compute_coefficients(self._encode_window(window)[None])[0]
            # Put back in place: one copy of the window serves all features.
            window[..., feature] = self.window[..., feature]

    def without_features_of(self, column: int) -> Float[Tensor, "F K"]:
        """Return the coefficients without each feature of one column."""
        column_slice, features = slice(column, column + 1), self.window.shape[-1]
        windows = self.window[column_slice].repeat(features, 1, 1)
        for feature in range(features):
            windows[feature, :, feature] = self._blank_window[column, :, feature]
        return torch.cat([*self._swapped_coefficients([column] * features, self._encode_window(windows))])

    def without_columns(self, columns: Sequence[int]) -> Iterator[Float[Tensor, "M K"]]:
        """Yield the coefficients without each column, in their order, some columns at a time."""
        return self._swapped_coefficients(columns, self._encode_window(self._blank_window)[list(columns)])

    def _swapped_coefficients(
        self, columns: Sequence[int], tokens: Float[Tensor, "M W"]
    ) -> Iterator[Float[Tensor, "m K"]]:
        """Yield the coefficients where the token of one column is another one, for each of M pairs."""
        own_tokens = self._tokens
        at_once = min(len(columns), max(1, ROOM_BYTES // own_tokens.nbytes))
        swapped = own_tokens.repeat(at_once, 1, 1)
        for first in range(0, len(columns), at_once):
            swapped_columns = torch.tensor(columns[first : first + at_once], device=own_tokens.device)
            rows = torch.arange(len(swapped_columns), device=own_tokens.device)
            swapped[rows, swapped_columns] = tokens[first : first + at_once]
            # A column's encoding depends on no other column, so exchanging its token hides it from the day.
            yield self._compute_coefficients(swapped[: len(swapped_columns)])
            # Put back in place: `swapped` is allocated once.
            swapped[rows, swapped_columns] = own_tokens[swapped_columns]

    def _encode_window(self, window: Float[Tensor, "n C F"]) -> Float[Tensor, "n W"]:
        with torch.no_grad():
            return self.actor.trunk.encoder.days(self.params, window[None, None])[0, 0, 0]

    def _compute_coefficients(self, tokens: Float[Tensor, "M N W"]) -> Float[Tensor, "M K"]:
        """Run the actor on M versions of the day's tokens; return its coefficients, in the environment's units."""
        # The newest day as it is, also where a part is hidden: the same columns are missing as with all that is seen.
        account = None if self.account is None else self.account.expand(1, len(tokens), -1, -1)
        today = self.window[None, None, :, -1].expand(1, len(tokens), -1, -1)
        with torch.no_grad():
            embedding = self.actor.trunk.embed(self.params, tokens[None], today)
            action = self.actor.head(
                self.params, self.actor.hidden_features(self.params, embedding), embedding.missing, account
            )
        return to_orders(self.trade, action[0])[..., 0]


@dataclass(frozen=True)
class OcclusionEffects:
    """Mean absolute change of a coefficient if a part of the observation is blanked."""

    features: Float[Tensor, "F"]
    """Effect of each feature, hidden in all columns at once."""
    columns: Float[Tensor, "N"]
    """Effect of each column, also of those that cannot be bought."""


def find_effects(setup: ErlSetup, market: Market, actor: Float[Tensor, "1 n"], days: Days) -> OcclusionEffects:
    """Find which features and columns decide the coefficients of a stretch of days. An account is taken as empty.

    Args:
        setup: configuration and networks.
        market: what is observed.
        actor: the weights.
        days: `MAXIMUM_DAYS` of them are looked at, or all where they are fewer.
    """
    # Evenly spaced and not drawn: asked again, the same days are looked at.
    rows = torch.linspace(days.first, days.stop - 1, min(MAXIMUM_DAYS, len(days))).long().tolist()
    columns, _, features = market.observations.shape
    account = None
    if setup.config.env.account_observation:
        account = torch.zeros(1, 1, len(market.investable), ACCOUNT_PARTS, device=setup.device)
    of_features, of_columns = (torch.zeros(count, device=setup.device) for count in (features, columns))
    for row in count_steps("what decisions follow from", rows):
        rows_asked = torch.tensor([[row]], device=setup.device)
        window = windows(market.observations, rows_asked, setup.config.env.episode.context)[0, 0]
        occlusion = OcclusionDay(setup.actor, views(actor, setup.actor.layout), setup.config.env.trade, window, account)
        all_seen = occlusion.all_coefficients()
        changed = [(found - all_seen).abs().mean() for found in occlusion.without_features()]
        of_features += torch.stack(changed) / len(rows)
        changed = [(found - all_seen).abs().mean(1) for found in occlusion.without_columns(range(columns))]
        of_columns += torch.cat(changed) / len(rows)
    return OcclusionEffects(of_features, of_columns)
