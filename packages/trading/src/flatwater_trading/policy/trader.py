"""The networks of a trader: an actor that gives every instrument a coefficient and a sale target, and its critic.

Axes: P members, M observations (windows, or slices times days), N columns, K investable columns, W token width.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import relu

from flatwater.nets.stack import Layout, Params, Weight, apply_linear, linear
from flatwater_trading.policy.config import TraderNetConfig
from flatwater_trading.policy.encoders import Encoder, build_encoder

MISSING = -1e9
"""Attention score of a column without data. Finite, so that a day on which every column is missing gives no NaN."""


def attention_weights(name: str, width: int, heads: int, columns: int = 0) -> dict[str, Weight]:
    """Return the weights of attention scores: a linear layer from [width] to the heads, and scores per column and head.

    Without scores per column, attention depends on the numbers of a column alone, so other columns can be attended to.

    Args:
        name: prefix of the weights' names.
        width: width W of a column's summary.
        heads: number H of heads.
        columns: number N of columns with scores of their own; 0 for none.
    """
    # All 0 at first, so columns start equal and learning separates them.
    column_weights = {f"{name}.column": Weight((columns, heads), fan_in=0)} if columns else {}
    return linear(name, width, heads) | column_weights


def attend_columns(
    params: Params, name: str, tokens: Float[Tensor, "P M N W"], missing: Bool[Tensor, "P M N"]
) -> tuple[Float[Tensor, "P M HW"], Float[Tensor, "P M H N"]]:
    """Summarise the columns by attention; a missing column gets no weight.

    Args:
        params: parameters, with a row of weights for each of the P members.
        name: prefix of the weights' names, as in `attention_weights`.
        tokens: summaries of width W of N columns, for M days.
        missing: mask of the columns without data.

    Returns:
        Weighted means of the tokens, for the H heads side by side [P, M, H W]; and the weights [P, M, H, N], whose sum
        over the columns is 1, or 0 if every column is missing.
    """
    bias = params[f"{name}.bias"][:, None, None]  # [P, 1, 1, H]
    if (column_scores := params.get(f"{name}.column")) is not None:
        bias = bias + column_scores[:, None]
    scores = torch.matmul(tokens, params[f"{name}.weight"].unsqueeze(1)) + bias
    is_missing = missing.unsqueeze(-2)
    # Masked twice: MISSING keeps the softmax finite; the second fill removes all weight if every column is missing.
    weights = torch.softmax(scores.transpose(-1, -2).masked_fill(is_missing, MISSING), dim=-1)
    weights = weights.masked_fill(is_missing, 0.0)
    return torch.matmul(weights, tokens).flatten(-2), weights


ACTION_PARTS = 2
"""Numbers of an action: coefficient and sale target, both in [-1, 1] here; the environment's bounds scale them."""
ACCOUNT_PARTS = 3
"""Numbers of the optional account block: open, days held, unrealised gain."""
SELECTION_SHARPNESS = 30.0
"""The critic weighs instruments by softmax(30 x coefficient) and by an equally steep sigmoid around the buying
threshold: close to the environment's choice, with a gradient. Coefficients of instruments differ by a few hundredths,
so a softer choice would not tell the critic which instrument was bought."""


@dataclass(frozen=True)
class MarketObs:
    """Observations of traders."""

    windows: Float[Tensor, "P B N C F"]
    """The normalised panel's last C days; missing cells are 0."""
    account: Float[Tensor, "P B K A"] | None = None
    """The account block; None if it is not part of the observation."""


@dataclass(frozen=True)
class Embedding:
    """The market on M days, encoded for a trader's heads."""

    tokens: Float[Tensor, "P M K W"]
    """Summary of each investable instrument."""
    market: Float[Tensor, "P M HW"]
    """The attention's summary of all columns, then the summary of the columns that cannot be bought, if any."""
    attention: Float[Tensor, "P M H N"]
    """The weight of each column in each head of the attention over all columns. The attention over the columns that
    cannot be bought is left out: a single such column always has all the weight."""
    missing: Bool[Tensor, "P M K"]
    """Mask of the instruments without data on the day: they cannot be bought."""


@dataclass(frozen=True)
class Trunk:
    """Encoder and attention: actor and critic have the same structure, each with its own weights."""

    encoder: Encoder
    heads: int
    """Number H of heads: weighted means of the columns that the attention gives."""
    investable: Tensor
    """Numbers [K] of the columns that can be bought."""
    context: Tensor
    """Numbers [C] of the columns that cannot be bought, such as an index or an interest rate. There are few of them and
    each differs in kind, so they have an attention of their own, with a score for each column."""

    def embed(self, params: Params, tokens: Float[Tensor, "P M N W"], today: Float[Tensor, "P M N F"]) -> Embedding:
        """Attend over the columns of each day. A column is missing on a day on which all its features are exactly 0.

        Args:
            params: parameters, with a row of weights for each of the P members.
            tokens: the encoder's summary of each column, for M days.
            today: features of each column on the day itself.
        """
        # Exactly 0 in all features stands for no data; occlusion writes 1e-6 for "nothing to say".
        missing = (today == 0).all(-1).expand(tokens.shape[:-1])
        market, attention = attend_columns(params, "attention", tokens, missing)
        # Columns that cannot be bought have an attention of their own besides.
        if len(self.context):
            summary, _ = attend_columns(
                params, "context", tokens.index_select(2, self.context), missing.index_select(2, self.context)
            )
            market = torch.cat([market, summary], dim=-1)
        return Embedding(
            tokens=tokens.index_select(2, self.investable),
            market=market,
            attention=attention,
            missing=missing.index_select(2, self.investable),
        )

    def embed_windows(self, params: Params, windows: Float[Tensor, "P B N C F"]) -> Embedding:
        """Embed the last day of each window."""
        return self.embed(params, self.encoder.windows(params, windows), windows[:, :, :, -1])

    def embed_days(self, params: Params, x: Float[Tensor, "Q S N L F"]) -> Embedding:
        """Embed every day of each slice that has its whole context in the slice: M = S * D, the slice varying slowest.

        Q is P if each member has its own slices, or 1 if all members have the same.
        """
        tokens = self.encoder.days(params, x)
        today = x[:, :, :, -tokens.shape[2] :].transpose(2, 3)  # of the D days that have tokens
        return self.embed(params, tokens.flatten(1, 2), today.flatten(1, 2))


@dataclass(frozen=True)
class TraderActor:
    """The actor: for each instrument the same head with the same weights, coefficient and sale target in [-1, 1]."""

    trunk: Trunk
    layout: Layout

    def __call__(self, params: Params, obs: MarketObs) -> Float[Tensor, "P B K 2"]:
        """Return the action on the last day of each window."""
        embedding = self.trunk.embed_windows(params, obs.windows)
        return self.head(params, self.hidden_features(params, embedding), embedding.missing, obs.account)

    def over_days(self, params: Params, x: Float[Tensor, "Q S N L F"]) -> Float[Tensor, "P M K 2"]:
        """Return the action on every day that has its whole context in its slice; only without account observations."""
        embedding = self.trunk.embed_days(params, x)
        return self.head(params, self.hidden_features(params, embedding), embedding.missing, account=None)

    def hidden_features(self, params: Params, embedding: Embedding) -> Float[Tensor, "P M K H"]:
        """Return the head's hidden layer before the account is added."""
        return instrument_features(params, embedding)

    def head(
        self,
        params: Params,
        hidden: Float[Tensor, "P M K H"],
        missing: Bool[Tensor, "P M K"],
        account: Float[Tensor, "P M K A"] | None,
    ) -> Float[Tensor, "P M K 2"]:
        """Return the action on days that are embedded already. A missing instrument gets the lowest coefficient.

        The environment buys at most the instrument with the largest coefficient, and refuses an instrument without a
        price: if a missing instrument had the largest coefficient, nothing would be bought that day.

        Args:
            params: parameters, with a row of weights for each of the P members.
            hidden: output of `hidden_features`, for M days and K instruments.
            missing: mask of the instruments without data.
            account: account block, A numbers for each instrument; None if it is not observed.

        Returns:
            Coefficient and sale target in [-1, 1].
        """
        # In one expression: the features have no name, so their memory is free as soon as the action is computed.
        coefficient, target = torch.tanh(
            apply_rowwise(params, "action", relu(_add_account(params, hidden, account)))
        ).unbind(-1)
        return torch.stack([coefficient.masked_fill(missing, -1.0), target], dim=-1)

    def gaussian(self, params: Params, obs: MarketObs) -> tuple[Tensor, Tensor]:
        """Return the distribution of actions: mean and log-deviation [P, B, K, 2], before they are squashed."""
        embedding = self.trunk.embed_windows(params, obs.windows)
        return self.gaussian_head(params, self.hidden_features(params, embedding), embedding.missing, obs.account)

    def gaussian_head(
        self,
        params: Params,
        hidden: Float[Tensor, "P M K H"],
        missing: Bool[Tensor, "P M K"],
        account: Float[Tensor, "P M K A"] | None,
    ) -> tuple[Float[Tensor, "P M K 2"], Float[Tensor, "P M K 2"]]:
        """Return the distribution of actions on embedded days; nothing is drawn for a missing instrument (-inf).

        Args:
            params: parameters, with a row of weights for each of the P members.
            hidden: output of `hidden_features`, for M days and K instruments.
            missing: mask of the instruments without data.
            account: account block, A numbers for each instrument; None if it is not observed.

        Returns:
            Mean and log-deviation of coefficient and target, before tanh. For a missing instrument the coefficient's
            mean is -inf, and so are both log-deviations.
        """
        top_features = relu(_add_account(params, hidden, account))
        coefficient, target = apply_rowwise(params, "action", top_features).unbind(-1)
        mean = torch.stack([coefficient.masked_fill(missing, -torch.inf), target], dim=-1)
        log_deviation = apply_rowwise(params, "deviation", top_features)
        return mean, log_deviation.masked_fill(missing.unsqueeze(-1), -torch.inf)


@dataclass(frozen=True)
class TraderCritic:
    """The critic: value of an observation and an action."""

    trunk: Trunk
    layout: Layout
    threshold: float
    """Coefficient in [-1, 1] from which the environment buys."""

    def __call__(self, params: Params, obs: MarketObs, action: Float[Tensor, "P B K 2"]) -> Float[Tensor, "P B"]:
        """Return Q of each observation and action.

        Q = sum over instruments of bought * worth, plus the value of the day without a purchase: the form of the
        reward, which is the bought instrument's gain. The critic learns the worth of each instrument and of the day.
        """
        embedding = self.trunk.embed_windows(params, obs.windows)
        hidden = instrument_features(params, embedding) + apply_rowwise(params, "bought", action)
        if obs.account is not None:
            hidden = hidden + apply_rowwise(params, "account", obs.account)
        worth = apply_rowwise(params, "worth", relu(hidden)).squeeze(-1)
        coefficient = action[..., 0]
        # The environment buys the best instrument if it reaches the threshold. Softmax and sigmoid stand for the two
        # hard choices, which have no gradient.
        purchase_weight = torch.softmax(SELECTION_SHARPNESS * coefficient, dim=-1)
        purchase_weight = purchase_weight * torch.sigmoid(SELECTION_SHARPNESS * (coefficient - self.threshold))
        day_value = apply_linear(params, "day", relu(apply_linear(params, "days", embedding.market))).squeeze(-1)
        return (purchase_weight * worth).sum(-1) + day_value


def _add_account(
    params: Params, hidden: Float[Tensor, "P M K H"], account: Float[Tensor, "P M K A"] | None
) -> Float[Tensor, "P M K H"]:
    return hidden if account is None else hidden + apply_rowwise(params, "account", account)


def apply_rowwise(params: Params, name: str, x: Tensor) -> Tensor:
    """Apply each member's linear layer `name` over the last axis of x, [P, ..., in] -> [P, ..., out]."""
    return apply_linear(params, name, x.flatten(1, -2)).view(*x.shape[:-1], -1)


def instrument_features(params: Params, embedding: Embedding) -> Float[Tensor, "P M K H"]:
    """Return a hidden layer for each instrument: its token times a gate of the market, plus a layer of the market.

    The product lets the market determine the sign of a token: at times its trend pays, at other times its reversal. A
    sum alone learns this only after many more updates.
    """
    # The gate is around 1, so that a token passes unchanged where the market says nothing.
    gate = 1 + apply_rowwise(params, "gate", embedding.market).unsqueeze(2)
    market = apply_rowwise(params, "market", embedding.market).unsqueeze(2)
    return apply_rowwise(params, "token", embedding.tokens) * gate + market


def build_trader(
    config: TraderNetConfig,
    *,
    context: int,
    features: int,
    columns: int,
    investable: Tensor,
    sees_account: bool,
    threshold: float = 0.0,
    is_gaussian: bool = False,
    chunk_factor: int = 1,
) -> tuple[TraderActor, TraderCritic]:
    """Build actor and critic for a panel.

    Args:
        config: widths and the kind of encoder.
        context: number of days in an observation.
        features: number of features of a column on a day.
        columns: number of columns of the panel.
        investable: numbers [K] of the columns that can be bought.
        sees_account: whether the observation has the account block.
        threshold: coefficient, in [-1, 1], from which the environment buys.
        is_gaussian: whether actions can be drawn from the actor.
        chunk_factor: multiple of a CPU's chunks of days that may be encoded at a time.
    """
    encoder = build_encoder(config, context=context, features=features, chunk_factor=chunk_factor)
    heads, width, hidden = config.attention_heads, encoder.width, config.hidden
    is_investable = torch.zeros(columns, device=investable.device).index_fill(0, investable, 1)
    # A stable sort puts the columns that cannot be bought first. It waits for no device and works on meta.
    context_columns = is_investable.argsort(stable=True)[: columns - len(investable)]
    trunk = Trunk(encoder, heads, investable, context_columns)
    summary_width = heads * width  # of `Embedding.market`
    attention = attention_weights("attention", width, heads)
    if len(context_columns):
        summary_width *= 2  # the summaries of both attentions, side by side
        attention |= attention_weights("context", width, heads, len(context_columns))
    common_weights = (
        encoder.weights
        | attention
        | linear("token", width, hidden)
        | linear("market", summary_width, hidden)
        | linear("gate", summary_width, hidden)
    )
    if sees_account:
        common_weights |= linear("account", ACCOUNT_PARTS, hidden)
    deviation_weights = linear("deviation", hidden, ACTION_PARTS) if is_gaussian else {}
    actor_layout = Layout(common_weights | linear("action", hidden, ACTION_PARTS) | deviation_weights)
    value_weights = linear("worth", hidden, 1) | linear("days", summary_width, hidden) | linear("day", hidden, 1)
    critic_layout = Layout(common_weights | linear("bought", ACTION_PARTS, hidden) | value_weights)
    return TraderActor(trunk, actor_layout), TraderCritic(trunk, critic_layout, threshold)
