"""A trained policy in the field's forms: `act`, `value`, `predict` and an ordinary module.

It takes what `env.reset()` gives and returns what `env.step()` takes, for one observation or any number of them.

Axes: B observations; memory is [2, B, M] with M cells of an LSTM, 0 of them where nothing is remembered.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from flatwater.envs.world import Array, Spaces
from flatwater.envs.wrapped.native import NativeSpaces, Rows, split_axes, to_array
from flatwater.envs.wrapped.turns_world import split_mask
from flatwater.runs.policy_export import PolicyExport
from flatwater_watch.errors import ConfigError


class PolicyNetwork(Protocol):
    """A recipe's network, as a module: from a world's rows to a world's actions."""

    cells: int
    """Cells of its memory, M."""

    def act(
        self, obs: Tensor, memory: Tensor, *, legal: Tensor | None = None, rng: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return an action for each row, and the memory after the step.

        Args:
            obs: rows [B, *obs].
            memory: memory before the step, [2, B, M].
            legal: mask of legal actions, bool [B, R]; None if everything is.
            rng: a CPU generator from which actions are drawn; None for the likeliest.
        """

    def value(self, obs: Tensor, memory: Tensor) -> Tensor:
        """Return the value of each state, [B].

        Raises:
            ConfigError: no critic was trained, or the file has none.
        """


class _AgentRows(NamedTuple):
    """Observations as rows, and the agent of each."""

    rows: Rows
    names: Sequence[Any]
    """Name of each row's agent: its number, or the key under which its observation was given."""
    keyed: bool
    """Whether observations came by agent, as PettingZoo gives them; so do the results then."""


class TrainedPolicy:
    """The policy of a run. It remembers each agent where it was trained with a memory."""

    def __init__(
        self, network: PolicyNetwork, spaces: Spaces, native: NativeSpaces | None, describe: Callable[[], PolicyExport]
    ) -> None:
        """Hold the network and the spaces.

        Args:
            network: an `nn.Module`.
            spaces: spaces of the world that it was trained in.
            native: spaces of the environment in that world; None if the world's arrays are all that there is.
            describe: returns the policy to be exported.
        """
        self._network, self._spaces, self._native, self._describe = network, spaces, native, describe
        self.generator = torch.Generator().manual_seed(0)
        """Generator from which actions are drawn: `policy.generator.manual_seed(7)` draws others."""
        self._memory, self._names = torch.zeros(2, 0, network.cells), list[Any]()

    @property
    def module(self) -> nn.Module:
        """The network: a module with parameters by name, which `act` uses as it is, wherever it is moved to."""
        assert isinstance(self._network, nn.Module)  # noqa: S101  (for the type checker: a Protocol cannot say it)
        return self._network

    @property
    def observation_space(self) -> Any:  # noqa: ANN401  (a space of Gymnasium's)
        """Space of an observation; None in a world of the user's own arrays."""
        return None if self._native is None else self._native.observation

    @property
    def action_space(self) -> Any:  # noqa: ANN401  (a space of Gymnasium's)
        """Space of an action; None in a world of the user's own arrays."""
        return None if self._native is None else self._native.action

    def begin(self, which: Array | None = None) -> None:
        """Forget all agents, or those of `which`, bool [B]. Call it where an episode begins."""
        if which is None or not self._names:
            # No agents at all: the next observations say how many there are.
            self._memory, self._names = self._memory[:, :0], []
        else:
            self._memory[:, torch.from_numpy(np.asarray(which, np.bool_).ravel())] = 0

    def act(
        self,
        obs: Any,  # noqa: ANN401  (whatever the space holds)
        legal: Array | None = None,
        *,
        deterministic: bool = True,
        generator: torch.Generator | None = None,
    ) -> Any:  # noqa: ANN401  (whatever the environment takes)
        """Return the action on an observation, or on each of several.

        Args:
            obs: an observation as `env.reset()` gives it: an array, a tensor, a number, or a dict or tuple of these; or
                several side by side with axes in front, as a vector environment gives them; or a dict by agent of
                PettingZoo's. In its games in turns, what `env.last()` gives, with the mask inside.
            legal: mask of legal actions, where there are masks: [R], or [B, R]. By default everything is legal.
            deterministic: return the likeliest action, or draw one.
            generator: a CPU generator to draw from; left out, the policy's own.

        Raises:
            ConfigError: an observation is not of the space of training, or there are other agents than before.
        """
        obs, legal = self._split_mask(obs, legal)
        agents = self._split_by_agent(obs)
        places = self._recall(agents)
        rng = None if deterministic else generator or self.generator
        action, after = self._step(agents.rows.obs, self._memory[:, places], legal, rng)
        self._memory[:, places] = after
        return self._answer(agents, action)

    def value(self, obs: Any) -> Any:  # noqa: ANN401  (numbers in the form of the observations)
        """Return the value of the state of an observation, or of each of several; arguments as of `act`.

        A policy with a memory tells it with what it remembers, and remembers nothing new.

        Raises:
            ConfigError: an observation is not of the space of training, or the recipe trains no values.
        """
        agents = self._split_by_agent(self._split_mask(obs)[0])
        places = self._recall(agents)
        with torch.no_grad():
            values = self._network.value(self._to_device(agents.rows.obs), self._to_device(self._memory[:, places]))
        return self._restore_form(agents, values.cpu().numpy())

    def predict(
        self,
        observation: Any,  # noqa: ANN401  (whatever the space holds)
        state: tuple[Array, ...] | None = None,
        episode_start: Array | None = None,
        deterministic: bool = False,  # noqa: FBT001, FBT002  (Stable-Baselines3's signature)
        action_masks: Array | None = None,
    ) -> tuple[Any, tuple[Array, ...] | None]:
        """Return actions and the state after them, as Stable-Baselines3's algorithms do: nothing is remembered here.

        Args:
            observation: observation, as in `act`.
            state: result of the last call; None at the beginning, or without a memory.
            episode_start: bool [B], where the state is to be forgotten.
            deterministic: return the likeliest action, or draw one from `generator`.
            action_masks: mask of legal actions; see `act`.
        """
        observation, action_masks = self._split_mask(observation, action_masks)
        agents = self._split_by_agent(observation)
        count = len(agents.rows.obs)
        cells = self._network.cells
        memory = torch.zeros(2, count, cells) if state is None or not cells else torch.from_numpy(np.stack(state))
        if episode_start is not None:
            memory[:, torch.from_numpy(np.asarray(episode_start, np.bool_).ravel())] = 0
        action, after = self._step(agents.rows.obs, memory, action_masks, None if deterministic else self.generator)
        return self._answer(agents, action), tuple(after.numpy()) if cells else state

    def on_rows(self) -> "TrainedPolicy":
        """Return the same policy for the rows of its world, with a memory of its own."""
        return TrainedPolicy(self._network, self._spaces, None, self._describe)

    def to_export(self) -> PolicyExport:
        """Return the policy without its run, to be exported.

        Raises:
            ConfigError: the policy's actions have masks, which no exported program is given.
        """
        if self._spaces.masked:
            raise ConfigError(
                "the policy needs `legal`, which an exported program does not take. Use "
                "flatwater.load(RUN).act(obs, legal)"
            )
        return self._describe()

    def _split_mask(self, obs: Any, legal: Array | None = None) -> tuple[Any, Array | None]:  # noqa: ANN401  (whatever the space holds)
        """Return an observation without the mask next to it, and that mask where none is given."""
        seen, mask = split_mask(obs, {}) if self._spaces.masked else (obs, None)
        return seen, mask if legal is None else legal

    def _split_by_agent(self, obs: Any) -> _AgentRows:  # noqa: ANN401  (whatever the space holds)
        """Return observations as rows, and the agent of each.

        Raises:
            ConfigError: the observations are not of the agents of training.
        """
        if isinstance(obs, Mapping) and not self._is_observation(obs):
            if not obs:
                return _AgentRows(Rows(np.zeros((0, *self._spaces.obs), self._spaces.obs_type), (0,)), (), keyed=True)
            by_agent = [self._rows(each).obs for each in obs.values()]
            if any(len(each) != 1 for each in by_agent):
                raise ConfigError(f"obs is a dict by {[*obs]}: expected one observation of each agent")
            return _AgentRows(Rows(np.concatenate(by_agent), (len(by_agent),)), [*obs], keyed=True)
        rows = self._rows(obs)
        return _AgentRows(rows, range(len(rows.obs)), keyed=False)

    def _is_observation(self, obs: Mapping[Any, Any]) -> bool:
        """Return whether a mapping is an observation of a Dict space, and not one for each agent."""
        return self._native is not None and not self._native.keys.isdisjoint(obs)

    def _rows(self, obs: Any) -> Rows:  # noqa: ANN401  (whatever the space holds)
        """Return one observation, or a batch, as rows of a world; and the axes before those of one observation.

        Raises:
            ConfigError: the observation is not of the space of training.
        """
        if self._native is not None:
            return self._native.rows(obs)
        shape, kind = self._spaces.obs, self._spaces.obs_type
        try:
            array = to_array(obs)
            axes = split_axes(array, shape, "obs")
        except ValueError as fault:
            raise ConfigError(str(fault)) from fault
        return Rows(np.ascontiguousarray(array.reshape(prod(axes), *shape), kind), axes)

    def _recall(self, agents: _AgentRows) -> Any:  # noqa: ANN401  (an index)
        """Return the places of agents in the memory, which is begun where there is none.

        Raises:
            ConfigError: other agents are remembered.
        """
        names = [*agents.names]
        if not self._network.cells or not self._names:
            # Without cells there is nothing to remember, and each call may bring another number of observations.
            self._memory, self._names = torch.zeros(2, len(names), self._network.cells), names
        if self._names == names:
            return slice(None)
        # By agent some may have left; rows without names must be as many as they were.
        if not (agents.keyed and {*names} <= {*self._names}):
            raise ConfigError(
                f"obs has {len(names)} agents, the policy remembers {len(self._names)}. Call begin() first"
            )
        return [self._names.index(name) for name in names]

    def _step(
        self, obs: Array, memory: Tensor, legal: Array | None, rng: torch.Generator | None
    ) -> tuple[Array, Tensor]:
        """Return the actions of rows, as a world takes them, and the memory after them, on the CPU."""
        mask = self._mask(legal, len(obs))
        with torch.no_grad():
            action, after = self._network.act(
                self._to_device(obs),
                self._to_device(memory),
                legal=None if mask is None else self._to_device(mask),
                rng=rng,
            )
        return action.cpu().numpy(), after.cpu()

    def _to_device(self, values: Array | Tensor) -> Tensor:
        # Asked each time: the user may have moved the module.
        device = next(self.module.parameters()).device
        return torch.as_tensor(values).to(device)

    def _mask(self, legal: Array | None, rows: int) -> Array | None:
        """Return the mask of legal actions, [B, R].

        Raises:
            ConfigError: the mask has another size, or actions are numbers within bounds, which have no mask.
        """
        if legal is None:
            return None
        mask = np.asarray(legal, np.bool_)
        expected = (rows, sum(self._spaces.lists))
        if mask.size != expected[0] * expected[1] or self._spaces.bounds is not None:
            raise ConfigError(
                f"legal = an array {list(mask.shape)}: expected {list(expected)}, where actions are choices"
            )
        return mask.reshape(expected)

    def _answer(self, agents: _AgentRows, action: Array) -> Any:  # noqa: ANN401  (whatever the environment takes)
        """Return actions as the environment takes them, in the form of the observations."""
        return self._restore_form(agents, action if self._native is None else self._native.to_env(action))

    @staticmethod
    def _restore_form(agents: _AgentRows, results: Array) -> Any:  # noqa: ANN401  (whatever the environment takes)
        if agents.keyed:
            return dict(zip(agents.names, results, strict=True))
        # `[()]` gives a number where there is one alone.
        return results.reshape((*agents.rows.axes, *results.shape[1:]))[()]
