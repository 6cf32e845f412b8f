"""What a learner needs of the networks: pure functions of stacked weights."""

from typing import Any, Protocol

from jaxtyping import Float
from torch import Tensor

from flatwater.nets.stack import Layout, Params


class Actor(Protocol):
    """The policies of all members."""

    @property
    def layout(self) -> Layout:
        """The weights of one member."""
        ...

    def __call__(self, params: Params, obs: Any) -> Float[Tensor, "P B *action"]:  # noqa: ANN401  (any agent's)
        """Actions in [-1, 1]; member p acts on obs[p]."""
        ...


class Critic(Protocol):
    """The action values of all members."""

    @property
    def layout(self) -> Layout:
        """The weights of one member."""
        ...

    def __call__(self, params: Params, obs: Any, action: Float[Tensor, "P B *action"]) -> Float[Tensor, "P B"]:  # noqa: ANN401
        """Q of each observation and action."""
        ...
