"""A world: environments of several agents each, which write observations into the arrays that they are given.

Axes: E environments, A agents in each. An observation is [*obs] for one agent: tokens [K, 3], or a vector [N].

No world resets itself. Whoever steps it looks at `terminated` and `truncated`, uses the last observation, and calls
`begin_` for the environments that are over, with seeds of its own. So an environment's state follows from the seed of
its episode and the actions since, and a run that was interrupted in an episode plays it again up to that step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch

from flatwater.nets.observation import Part, Parts, count_numbers
from flatwater_watch.errors import RunError, require
from flatwater_watch.phrases import count_phrase

Array = np.ndarray[Any, Any]


class UnseededError(RunError):
    """An environment cannot be reset alone with a seed, so no episode can be played again; the message says why."""


PADDING = 255
"""Position that marks a token as padding."""


@dataclass(frozen=True)
class AgentKind:
    """Agents of a world that have the same spaces, and a policy of their own, where others have other spaces."""

    name: str
    agents: tuple[str, ...]
    """Names of its agents."""
    places: tuple[int, ...]
    """Their positions among the agents of an environment."""
    spaces: "Spaces"
    """Spaces of these agents alone."""
    observation: Any
    """The environment's space of their observations, one of Gymnasium's."""
    action: Any
    form: Any
    """Form of their observations, as in `WrappedConfig.form`."""


@dataclass(frozen=True)
class Spaces:
    """Observations and actions of the agents of a world."""

    envs: int
    """Number of environments, E."""
    agents: int
    """Number of agents in each environment, A."""
    form: Literal["tokens", "vector", "image"]
    """`tokens`: uint8 [K, 3], each a packed position, a feature and a value. `vector`: float32 [N]. `image`: uint8, an
    image [H, W, C], or bytes with several images or numbers next to them, as `parts` says."""
    obs: tuple[int, ...]
    """Shape of one agent's observation."""
    actions: tuple[str, ...]
    """Names. An action is a position among them; with `bounds` it is a number for each of them, and with
    `choices` a position in a list of its own."""
    steps: int
    """Steps after which an episode is truncated, at the latest."""
    bounds: tuple[tuple[float, float], ...] | None = None
    """Lowest and highest value of each number of an action; None if actions are chosen."""
    choices: tuple[int, ...] | None = None
    """Lengths of the lists that an action chooses from at once; None if there is one list."""
    masked: bool = False
    """Whether some actions can be illegal; the world is then a `MaskedWorld`."""
    measures: tuple[int, ...] = ()
    """Positions of a vector's numbers that are quantities on a scale of their own, such as a speed. The others are
    places that are 0 or 1, or counts."""
    kept: int = 0
    """Most bytes of the state that the world keeps over episodes: then it has `state_dict` and `load_state_dict`, and
    goes on from there after a resume. 0 if it keeps nothing, or has no such methods."""
    parts: Parts = ()
    """Parts of an observation; left out, a single part of the shape `obs`, the channels of an image last."""
    kinds: tuple[AgentKind, ...] = ()
    """Kinds of agents, where their spaces differ: all other fields are then those of `envs.kinds.join_kinds`."""

    def __post_init__(self) -> None:
        """Fill in `parts` where it was left out; refuse masks of numeric actions, and wrong positions in `measures`."""
        require(not self.masked or self.bounds is None, "masked", self.masked, "false where actions are numbers")
        if not self.parts:
            # Channels are the last of three axes; an image of two has none.
            pixels = Part(shape=self.obs, channels=tuple(range(2, len(self.obs))), low=(0.0,), high=(255.0,))
            single_part = pixels if self.form == "image" else Part(shape=self.obs)
            # By `object`, as the class is frozen.
            object.__setattr__(self, "parts", (single_part,))
        # Tokens are labels, without a scale that could be measured.
        indices = range(0 if self.form == "tokens" else count_numbers(self.parts))
        are_valid = all(number in indices for number in self.measures) and len({*self.measures}) == len(self.measures)
        require(are_valid, "measures", self.measures, f"positions among the {len(indices)} of a vector, each once")

    @property
    def obs_type(self) -> type[np.uint8 | np.float32]:
        """Type of the numbers of an observation."""
        return np.float32 if self.form == "vector" else np.uint8

    @property
    def action_type(self) -> type[np.int64 | np.float32]:
        """NumPy's type of the numbers of an action."""
        return np.int64 if self.bounds is None else np.float32

    @property
    def lists(self) -> tuple[int, ...]:
        """Lengths of the lists that an action chooses from."""
        return self.choices or (len(self.actions),)

    @property
    def agent_bounds(self) -> Array:
        """Lowest and highest value of each number of each agent's action, float32 [2, A, D]; 0 where it has none."""
        low_high = np.zeros((2, self.agents, len(self.actions)), np.float32)
        # Without kinds all agents have these spaces.
        spaces_by_places = {kind.places: kind.spaces for kind in self.kinds} or {tuple(range(self.agents)): self}
        for places, spaces in spaces_by_places.items():
            # Bounds as [2, 1, D]: the same for all agents in these places.
            low_high[:, [*places], : len(spaces.actions)] = np.array(spaces.bounds, np.float32).T[:, None]
        return low_high

    @property
    def legal(self) -> int:
        """Length R of an agent's mask, which has an entry for each action of each list; 0 without masks."""
        return sum(self.lists) if self.masked else 0

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one agent's action."""
        return () if self.bounds is None and self.choices is None else (len(self.actions),)

    @property
    def action_dtype(self) -> torch.dtype:
        """Torch's type of the array of actions that a world is given; NumPy's is `action_type`."""
        return torch.int64 if self.bounds is None else torch.float32


Outcome = tuple[Array, Array, Array]
"""Arrays that a world writes besides observations: reward, terminated, truncated, [E, A] each."""


def build_outcome(envs: int, agents: int) -> Outcome:
    """Return new arrays for the outcome of a step."""
    shape = (envs, agents)
    return np.zeros(shape, np.float32), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)


def build_masks(spaces: Spaces) -> tuple[Array, ...]:
    """Return the further argument of a world with masks, a new array of masks, all true; none for other worlds."""
    return (np.ones((spaces.envs, spaces.agents, spaces.legal), np.bool_),) if spaces.masked else ()


class World(Protocol):
    """The environments that a trainer steps."""

    @property
    def spaces(self) -> Spaces:
        """Observations and actions of the agents."""

    def begin_(self, env_mask: Array, seeds: Array, obs: Array) -> None:
        """Start an episode in some environments; leave the rows of the others as they are.

        Args:
            env_mask: bool [E], environments in which an episode begins.
            seeds: int64 [E]; only those of `env_mask` are read. An episode follows from its seed, whatever came before.
            obs: [E, A, *obs], to be written.
        """

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        """Step every environment.

        An agent that is over gets padding and reward 0 until all agents of its environment are over.

        Args:
            actions: int64 [E, A] or [E, A, H], or float32 [E, A, D] within the bounds.
            obs: [E, A, *obs], to be written: the next observation; at an episode's end, its last one.
            reward: float32 [E, A], to be written.
            terminated: bool [E, A], to be written: nothing follows for the agent.
            truncated: bool [E, A], to be written: the time is over, and the world would go on.
        """

    def close(self) -> None:
        """Release the world's resources outside of Python."""


class MaskedWorld(Protocol):
    """A `World` that also writes masks of legal actions, `legal`: bool [E, A, R], R the lengths of all lists together.

    At least one action of each list is legal. Every action is legal for an agent whose episode is over, unless it was
    truncated: then the mask may be that of its last observation. `step_` is never given an illegal action.
    """

    def begin_(self, env_mask: Array, seeds: Array, obs: Array, legal: Array) -> None:
        """Start an episode in some environments, as a `World` does; leave the rows of the others in `legal` as well.

        `legal`, bool [E, A, R], is to be written: the mask of the first step.
        """

    def step_(  # noqa: PLR0917  (those of a `World`, and one more)
        self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array, legal: Array
    ) -> None:
        """Step every environment, as a `World` does, with actions that are choices, all of them legal.

        `legal`, bool [E, A, R], is to be written: the mask of the next step.
        """


class Teacher(Protocol):
    """A policy that shows the agents their actions. It has a state for each environment, until an episode begins.

    In a `MaskedWorld` its `step_batch` is called with `legal` as a third argument; its actions must be legal.
    """

    def begin_(self, env_mask: Array) -> None:
        """Forget the environments of `env_mask`, bool [E]; called after their world has begun an episode."""

    def step_batch(self, obs: Array, actions_out: Array) -> None:
        """Write an action for every agent.

        Args:
            obs: [E, A, *obs].
            actions_out: int64 [E, A] or [E, A, H], or float32 [E, A, D]; the caller poisons it, and refuses values that
                were not written.
        """


def split_legal(spaces: Spaces, legal: Array) -> list[Array]:
    """Return the mask of each action list, bool [..., size], from masks of all lists in a row, bool [..., R]."""
    return np.split(legal, np.cumsum(spaces.lists)[:-1], axis=-1)


def first_legal_actions(spaces: Spaces, legal: Array) -> Array:
    """Return the first legal action of each agent, int64 [E, A] or [E, A, H]; `legal` is bool [E, A, R]."""
    # `argmax` of flags is the position of the first that is True.
    choices = [mask.argmax(-1) for mask in split_legal(spaces, legal)]
    return choices[0] if spaces.choices is None else np.stack(choices, -1)


def check_legal(spaces: Spaces, legal: Array) -> None:
    """Refuse masks, bool [E, A, R], that leave an agent no action in one of the lists.

    Raises:
        RunError: the message names the environment, the agent and the list.
    """
    for number, mask in enumerate(split_legal(spaces, legal)):
        has_choice = mask.any(-1)
        if not has_choice.all():
            env, agent = np.argwhere(~has_choice)[0]
            raise RunError(
                f"the world's masks leave agent {agent} of environment {env} nothing to choose from list {number}: "
                "expected a legal action in each list, and every action where the agent's episode is over"
            )


def check_actions(spaces: Spaces, legal: Array, actions: Array, *, source: str) -> None:
    """Refuse actions that the masks of this step mark as illegal.

    Args:
        spaces: spaces of the world; an action is a choice from each of its `lists`.
        legal: bool [E, A, R], the masks of this step.
        actions: int64 [E, A], or [E, A, H] with H choices.
        source: who chose them, as the beginning of the message: `the policy`.

    Raises:
        RunError: the message names the environment, the agent and the action.
    """
    choices = actions.reshape(*legal.shape[:2], -1)
    for number, mask in enumerate(split_legal(spaces, legal)):
        # The flag of each agent's choice, bool [E, A].
        is_legal = np.take_along_axis(mask, choices[..., number, None], -1)[..., 0]
        if not is_legal.all():
            env, agent = np.argwhere(~is_legal)[0]
            raise RunError(
                f"{source} chose {int(choices[env, agent, number])} from list {number} for agent {agent} of "
                f"environment {env}, which is illegal there"
            )


def describe_spaces(spaces: Spaces) -> str:
    """Return one line about a world: `4 environments of 1 agent, vectors of 4, 2 actions (0, 1)`."""
    envs, agents = count_phrase(spaces.envs, "environment"), count_phrase(spaces.agents, "agent")
    kinds = [
        f"{kind.name} ({count_phrase(len(kind.places), 'agent')}, {describe_agent(kind.spaces)})"
        for kind in spaces.kinds
    ]
    description = f"in {len(kinds)} kinds: {'; '.join(kinds)}" if kinds else describe_agent(spaces)
    return f"{envs} of {agents}, {description}"


def describe_agent(spaces: Spaces) -> str:
    """Return an agent's observations and actions: `vectors of 4, 2 actions (0, 1)`."""
    observations = f"{spaces.obs[0]} tokens" if spaces.form == "tokens" else f"vectors of {spaces.obs[0]}"
    if spaces.form == "image":
        observations = _list_parts(spaces.parts)
    actions = _action_list(spaces.actions)
    if spaces.bounds is not None:
        actions = f"actions of {count_phrase(len(spaces.actions), 'number')}"
    elif spaces.choices is not None:
        actions = f"actions of {count_phrase(len(spaces.choices), 'choice')} ({_first_five(map(str, spaces.choices))})"
    actions += " with masks" if spaces.masked else ""
    return f"{observations}, {actions}"


def _list_parts(parts: Parts) -> str:
    """Return the parts of an observation as text: `images of 84 x 84 x 4 and 2 numbers`."""
    images = [f"images of {' x '.join(map(str, part.shape))}" for part in parts if part.is_image]
    numbers = count_numbers(parts)
    texts = [*images, count_phrase(numbers, "number")] if numbers else images
    return " and ".join(texts)


def _action_list(actions: Sequence[str]) -> str:
    """Return the number of actions and their first names: `2 actions (0, 1)`."""
    return f"{len(actions)} actions ({_first_five(actions)})"


def _first_five(names: Iterable[str]) -> str:
    """Return the names as text, of more than five the first five and `...`."""
    all_names = list(names)
    return ", ".join(all_names[:5]) + (", ..." if len(all_names) > 5 else "")  # noqa: PLR2004  (more would make the message too long)
