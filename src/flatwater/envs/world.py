"""A world: environments of several agents each, which write what they see into the arrays that they are given.

Axes: E environments, A agents in each. An observation is [*obs] for one agent: tokens [K, 3], or a vector [N].

No world resets itself. Whoever steps it looks at `terminated` and `truncated`, takes from the last observation what it
needs, and calls `begin_` for the environments that are over, with seeds of its own. So an environment's state follows
from the seed of its episode and the actions since, and a run that was interrupted in an episode plays it again up to
there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch

Array = np.ndarray[Any, Any]

PADDING = 255
"""Position of a token that is none."""


@dataclass(frozen=True)
class Spaces:
    """What the agents of a world see and do."""

    envs: int
    """E."""
    agents: int
    """A."""
    form: Literal["tokens", "vector"]
    """`tokens`: uint8 [K, 3], each a packed position, a feature and a value. `vector`: float32 [N]."""
    obs: tuple[int, ...]
    """Shape of one agent's observation."""
    actions: tuple[str, ...]
    """Names. An action is a position in them; with `bounds` it is a number for each of them, and with
    `choices` a position in a list of its own."""
    steps: int
    """An episode is truncated after so many, at the latest."""
    bounds: tuple[tuple[float, float], ...] | None = None
    """Lowest and highest of each number of an action; None where actions are chosen."""
    choices: tuple[int, ...] | None = None
    """Lengths of the lists that an action chooses from at once; None where there is one list."""

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one agent's action."""
        return () if self.bounds is None and self.choices is None else (len(self.actions),)

    @property
    def action_dtype(self) -> torch.dtype:
        """Of the array of actions that a world is given."""
        return torch.int64 if self.bounds is None else torch.float32


class World(Protocol):
    """What a trainer steps."""

    @property
    def spaces(self) -> Spaces:
        """What the agents see and do."""
        ...

    def begin_(self, which: Array, seeds: Array, obs: Array) -> None:
        """Start an episode in some environments; the rows of the others are left alone.

        Args:
            which: bool [E].
            seeds: int64 [E]; only those of `which` are read. The episode follows from its seed, whatever came before.
            obs: [E, A, *obs], to be written.
        """
        ...

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        """One step of every environment. An agent that is over sees padding and is paid 0 until its episode is.

        Args:
            actions: int64 [E, A] or [E, A, H], or float32 [E, A, D] within the bounds.
            obs: [E, A, *obs], to be written: what follows, of an episode that ends its last.
            reward: float32 [E, A], to be written.
            terminated: bool [E, A], to be written: nothing follows for the agent.
            truncated: bool [E, A], to be written: the time is over, and the world would go on.
        """
        ...

    def close(self) -> None:
        """Give back what the world holds outside of Python."""
        ...


class Teacher(Protocol):
    """What shows the agents what to do. One state for each environment, forgotten where an episode begins."""

    def begin_(self, which: Array) -> None:
        """Forget the environments of `which`, bool [E]; called after their world has begun an episode."""
        ...

    def step_batch(self, obs: Array, actions_out: Array) -> None:
        """Write an action for every agent.

        Args:
            obs: [E, A, *obs].
            actions_out: int64 [E, A] or [E, A, H], or float32 [E, A, D]; the caller poisons it, and refuses what was
                not written.
        """
        ...


def described(spaces: Spaces) -> str:
    """One line: environments, agents, what they see, what they can do."""
    seen = f"{spaces.obs[0]} tokens" if spaces.form == "tokens" else f"vectors of {spaces.obs[0]}"
    done = _listed(spaces.actions)
    if spaces.bounds is not None:
        done = f"actions of {len(spaces.actions)} numbers"
    elif spaces.choices is not None:
        done = f"actions of {len(spaces.choices)} choices ({_few(map(str, spaces.choices))})"
    agents = "1 agent" if spaces.agents == 1 else f"{spaces.agents} agents"
    return f"{spaces.envs} environments of {agents}, {seen}, {done}"


def _listed(actions: Sequence[str]) -> str:
    return f"{len(actions)} actions ({_few(actions)})"


def _few(names: Iterable[str]) -> str:
    """The first five."""
    every = list(names)
    return ", ".join(every[:5]) + (", ..." if len(every) > 5 else "")  # noqa: PLR2004
