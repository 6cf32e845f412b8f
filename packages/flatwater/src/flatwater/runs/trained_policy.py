"""A trained policy for use: `act`, `value`, Stable-Baselines3's `predict`, and the network as a module.

It takes observations as `env.reset()` returns them and returns actions as `env.step()` takes them, one or several.

Axes: B observations; memory is [2, B, M] with M cells of an LSTM. M is 0 for a policy without a memory.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from flatwater.envs.world import Array, Spaces, split_legal
from flatwater.envs.wrapped.checks import find_not_finite
from flatwater.envs.wrapped.masks import split_mask
from flatwater.envs.wrapped.native_spaces import NativeSpaces, Rows, split_axes, to_array
from flatwater.runs.policy_export import PolicyExport
from flatwater_watch.errors import ConfigError


class PolicyNetwork(Protocol):
    """A recipe's network as an `nn.Module`, from observations as rows to actions as a world takes them."""

    cells: int
    """Number of cells of the memory, M; 0 without a memory."""

    def act(
        self, obs: Tensor, memory: Tensor, *, legal: Tensor | None = None, rng: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return an action for each row, and the memory after the step.

        Args:
            obs: rows [B, *obs].
            memory: memory before the step, [2, B, M].
            legal: mask of legal actions, bool [B, R]; None if all actions are legal.
            rng: a CPU generator from which actions are drawn; None for the likeliest actions.
        """

    def value(self, obs: Tensor, memory: Tensor, *, legal: Tensor | None = None) -> Tensor:
        """Return the value of each state, [B], where the actions of the mask are legal.

        Raises:
            ConfigError: no critic was trained, or the file has none.
        """


class _AgentRows(NamedTuple):
    """Observations as rows, and the name of each row's agent."""

    rows: Rows
    names: Sequence[Any]
    """For each row, the number of its agent, or the key of its observation in a dict."""
    is_by_agent: bool
    """Whether observations came as a dict by agent, as in PettingZoo; results are then returned as such a dict."""


class TrainedPolicy:
    """The policy of a run; a recurrent policy keeps a memory of each agent between calls of `act`."""

    def __init__(
        self,
        network: PolicyNetwork,
        spaces: Spaces,
        native: NativeSpaces | None,
        build_export: Callable[[], PolicyExport],
        *,
        allow_nan: bool = False,
    ) -> None:
        """Keep the network and the spaces; the memory is empty.

        Args:
            network: an `nn.Module`.
            spaces: spaces of the world in which the policy was trained.
            native: spaces of the environment in that world; None if users give the world's own arrays.
            build_export: returns the policy without its run, for an export.
            allow_nan: whether it was trained with NaN and infinities in observations, and takes them.
        """
        self._network, self._build_export = network, build_export
        self._spaces, self._native, self._allow_nan = spaces, native, allow_nan
        can_be_nan = spaces.form == "vector" if native is None else bool(native.reader.measures)
        self._checks_numbers = can_be_nan and not allow_nan
        self.generator = torch.Generator().manual_seed(0)
        """Generator from which actions are drawn: `policy.generator.manual_seed(7)` draws others."""
        self._memory = torch.zeros(2, 0, network.cells, device="cpu")  # of no agents
        self._remembered_names = list[Any]()
        """Name of each agent in the memory, in its order."""

    @property
    def module(self) -> nn.Module:
        """The network that `act` calls; it may be moved to another device."""
        assert isinstance(self._network, nn.Module)  # noqa: S101  (for the type checker: a Protocol has no base class)
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
        """Clear the memory of all agents, or of those where `which`, bool [B], is true, as their episodes begin."""
        if which is None or not self._remembered_names:
            # A memory [2, 0, M] of no agents: the next observations may be of any number of agents.
            self._memory = self._memory[:, :0]
            self._remembered_names = []
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
                PettingZoo's. Where the mask of legal actions is in the environment's observation, it is read there.
            legal: mask of legal actions, where there are masks: [R], or [B, R]. By default everything is legal.
            deterministic: return the likeliest action, or draw one.
            generator: a CPU generator to draw from; left out, the policy's own.

        Raises:
            ConfigError: an observation is not of the space of training or has NaN or infinities, which the training
                had not, or there are other agents than before.
        """
        obs, legal = self._split_mask(obs, legal)
        agents = self._split_by_agent(obs)
        columns = self._memory_columns_(agents)  # of the memory [2, B, M], along B
        rng = None if deterministic else (generator or self.generator)
        action, next_memory = self._act_on_rows(agents.rows.obs, self._memory[:, columns], legal, rng)
        self._memory[:, columns] = next_memory
        return self._to_env_actions(agents, action)

    def value(self, obs: Any, legal: Array | None = None) -> Any:  # noqa: ANN401  (numbers in the form of the observations)
        """Return the critic's value of an observation, or of each of several, in the form of the observations.

        A recurrent policy uses its memory of the agents, and does not change it.

        Args:
            obs: observation, as in `act`.
            legal: mask of legal actions, as in `act`; the values of `dqn` and `sac` depend on it.

        Raises:
            ConfigError: an observation is not of the space of training, or the recipe trains no values.
        """
        obs, legal = self._split_mask(obs, legal)
        agents = self._split_by_agent(obs)
        columns = self._memory_columns_(agents)  # before the memory is read, as it may begin anew
        rows, memory = agents.rows.obs, self._memory[:, columns]
        mask = self._mask(legal, len(rows))
        with torch.no_grad():
            values = self._network.value(self._to_device(rows), self._to_device(memory), legal=mask)
        return self._restore_form(agents, values.cpu().numpy())

    def predict(
        self,
        observation: Any,  # noqa: ANN401  (whatever the space holds)
        state: tuple[Array, ...] | None = None,
        episode_start: Array | None = None,
        deterministic: bool = False,  # noqa: FBT001, FBT002  (Stable-Baselines3's signature)
        action_masks: Array | None = None,
    ) -> tuple[Any, tuple[Array, ...] | None]:
        """Return actions and the memory after them, as Stable-Baselines3's `predict`; the caller keeps the memory.

        Args:
            observation: observation, as in `act`.
            state: memory that the last call returned; None at the beginning, or without a memory.
            episode_start: bool [B], where an episode begins and the memory is cleared.
            deterministic: return the likeliest action, or draw one from `generator`.
            action_masks: mask of legal actions; see `act`.
        """
        observation, action_masks = self._split_mask(observation, action_masks)
        agents = self._split_by_agent(observation)
        count = len(agents.rows.obs)
        cells = self._network.cells  # 0: the policy has no memory, and `state` is returned as it came
        memory = (
            torch.zeros(2, count, cells, device="cpu")
            if state is None or not cells
            else torch.from_numpy(np.stack(state))
        )
        if episode_start is not None:
            memory[:, torch.from_numpy(np.asarray(episode_start, np.bool_).ravel())] = 0
        rng = None if deterministic else self.generator
        action, next_memory = self._act_on_rows(agents.rows.obs, memory, action_masks, rng)
        return self._to_env_actions(agents, action), tuple(next_memory.numpy()) if cells else state

    def fresh(self) -> "TrainedPolicy":
        """Return a policy with the same network that remembers nothing yet."""
        return TrainedPolicy(self._network, self._spaces, self._native, self._build_export, allow_nan=self._allow_nan)

    def on_rows(self) -> "TrainedPolicy":
        """Return a policy with the same network that takes and returns the world's arrays, with its own memory."""
        return TrainedPolicy(self._network, self._spaces, None, self._build_export, allow_nan=self._allow_nan)

    def to_export(self) -> PolicyExport:
        """Return the policy without its run, to be exported."""
        return self._build_export()

    def _split_mask(self, obs: Any, legal: Array | None = None) -> tuple[Any, Array | None]:  # noqa: ANN401  (whatever the space holds)
        """Return the observation without the mask that it contains, and the mask; `legal` wins over a contained mask.

        For a dict by agent: a dict of observations, and the agents' masks joined along the first axis.
        """
        if not self._spaces.masked:
            return obs, legal
        # A dict by agent, if each agent's observation is a dict with a mask; else one observation, or a batch.
        if isinstance(obs, Mapping) and obs and all(isinstance(part, Mapping) for part in obs.values()):
            parts = {agent: split_mask(agent_obs) for agent, agent_obs in obs.items()}
            if all(mask is not None for _, mask in parts.values()):
                mask: Any = np.concatenate([self._mask_row(mask) for _, mask in parts.values()])
                return {agent: bare_obs for agent, (bare_obs, _) in parts.items()}, mask if legal is None else legal
        bare_obs, contained_mask = split_mask(obs)
        return bare_obs, contained_mask if legal is None else legal

    def _mask_row(self, mask: Any) -> Array:  # noqa: ANN401  (an array, or one for each list)
        """Return a mask as one array, with the flags of all lists in a row."""
        # For several lists of choices, Gymnasium's mask is a tuple with an array for each list.
        is_by_list = isinstance(mask, tuple) and self._spaces.choices is not None
        return np.concatenate([np.asarray(part) for part in mask], -1) if is_by_list else np.asarray(mask)

    def _split_by_agent(self, obs: Any) -> _AgentRows:  # noqa: ANN401  (whatever the space holds)
        """Return observations as rows, with the name of each row's agent.

        Raises:
            ConfigError: a dict by agent has more than one observation of an agent.
        """
        if isinstance(obs, Mapping) and not self._is_observation(obs):
            if not obs:  # no agent is left in the game
                no_rows = Rows(np.zeros((0, *self._spaces.obs), self._spaces.obs_type), (0,))
                return _AgentRows(no_rows, (), is_by_agent=True)
            by_agent = [self._world_rows(agent_obs, f"obs[{agent!r}]").obs for agent, agent_obs in obs.items()]
            if any(len(agent_rows) != 1 for agent_rows in by_agent):
                raise ConfigError(f"obs is a dict by {[*obs]}: expected one observation of each agent")
            return _AgentRows(Rows(np.concatenate(by_agent), (len(by_agent),)), [*obs], is_by_agent=True)
        rows = self._world_rows(obs)
        return _AgentRows(rows, range(len(rows.obs)), is_by_agent=False)

    def _is_observation(self, obs: Mapping[Any, Any]) -> bool:
        """Return whether a mapping is one observation of a Dict space, rather than a dict by agent."""
        # By the keys of the space: a dict by agent has names of agents, and none of these keys.
        return self._native is not None and not self._native.keys.isdisjoint(obs)

    def _world_rows(self, obs: Any, name: str = "obs") -> Rows:  # noqa: ANN401  (whatever the space holds)
        """Return one or several observations as the world's rows, [B, *obs], with their leading axes.

        Args:
            obs: the observations.
            name: their name in messages.

        Raises:
            ConfigError: the observation is not of the space of training, or has a number that is not finite.
        """
        rows = self._array_rows(obs) if self._native is None else self._native.rows(obs)
        if self._checks_numbers:
            self._require_finite(rows.obs, name)
        return rows

    def _require_finite(self, rows: Array, name: str) -> None:
        """Refuse NaN and infinities in observations: a network would answer them with any action.

        Raises:
            ConfigError: a number is not finite; the message has its place.
        """
        numbers = rows if self._native is None else self._native.reader.numbers(rows)
        if (index := find_not_finite(numbers)) is None:
            return
        row, *place = index
        part = f"{name}{place}" if self._native is None else f"{name}{self._native.reader.part_access(*place)}"
        row_phrase = f", in observation {row + 1} of {len(rows)}" if len(rows) > 1 else ""
        raise ConfigError(
            f"{part} is {numbers[index]}{row_phrase}: expected a finite number. Correct the observation, or train with "
            "--allow-nan"
        )

    def _array_rows(self, obs: Any) -> Rows:  # noqa: ANN401  (an array of the world's)
        """Return one or several of the world's own arrays as rows.

        Raises:
            ConfigError: they have another shape.
        """
        shape, dtype = self._spaces.obs, self._spaces.obs_type
        try:
            array = to_array(obs)
            batch_shape = split_axes(array, shape, "obs")
        except ValueError as fault:
            raise ConfigError(str(fault)) from fault
        return Rows(np.ascontiguousarray(array.reshape(prod(batch_shape), *shape), dtype), batch_shape)

    def _memory_columns_(self, agents: _AgentRows) -> Any:  # noqa: ANN401  (an index)
        """Return the index of the agents in axis B of the memory [2, B, M]; a memory of no agents is begun for these.

        Raises:
            ConfigError: the memory is of other agents.
        """
        names = [*agents.names]
        if not self._network.cells or not self._remembered_names:
            # Without cells the memory begins anew in each call, so that the number of observations may change.
            self._memory = torch.zeros(2, len(names), self._network.cells, device="cpu")
            self._remembered_names = names
        if self._remembered_names == names:
            return slice(None)  # all agents, in their order
        # Of agents with names some may have left the game; the number of rows without names must stay the same.
        if not (agents.is_by_agent and {*names} <= {*self._remembered_names}):
            raise ConfigError(
                f"obs has {len(names)} agents, the policy remembers {len(self._remembered_names)}. Call begin() first"
            )
        return [self._remembered_names.index(name) for name in names]

    def _act_on_rows(
        self, obs: Array, memory: Tensor, legal: Array | None, rng: torch.Generator | None
    ) -> tuple[Array, Tensor]:
        """Return a world's actions for rows of observations, and the memory after them, both on the CPU."""
        mask = self._mask(legal, len(obs))
        with torch.no_grad():
            action, next_memory = self._network.act(self._to_device(obs), self._to_device(memory), legal=mask, rng=rng)
        return action.cpu().numpy(), next_memory.cpu()

    def _to_device(self, values: Array | Tensor) -> Tensor:
        # Looked up in each call, as the user may have moved the module.
        device = next(self.module.parameters()).device
        return torch.as_tensor(values, device=device)

    def _mask(self, legal: Array | None, rows: int) -> Tensor | None:
        """Return the mask of legal actions on the device, as bool [B, R] with `rows` as B; None without a mask.

        Raises:
            ConfigError: the mask has another size, or actions are continuous and have no mask.
        """
        if legal is None:
            return None
        mask = self._mask_row(legal).astype(np.bool_)
        shape = (rows, sum(self._spaces.lists))  # a flag for each choice of each list
        # With `bounds`, actions are continuous.
        if mask.size != prod(shape) or self._spaces.bounds is not None:
            raise ConfigError(f"legal = an array {list(mask.shape)}: expected {list(shape)}, where actions are choices")
        rows_legal = mask.reshape(shape)
        # A mask without any legal action is that of an agent whose game is over, which takes none.
        playing_rows = rows_legal[rows_legal.any(-1)]
        if not all(flags.any(-1).all() for flags in split_legal(self._spaces, playing_rows)):
            raise ConfigError("legal has no legal choice in one of the lists: expected at least one in each")
        return self._to_device(rows_legal)

    def _to_env_actions(self, agents: _AgentRows, action: Array) -> Any:  # noqa: ANN401  (whatever the environment takes)
        """Return a world's actions as the environment takes them: for one observation, a batch, or a dict by agent."""
        return self._restore_form(agents, action if self._native is None else self._native.to_env(action))

    @staticmethod
    def _restore_form(agents: _AgentRows, results: Array) -> Any:  # noqa: ANN401  (whatever the environment takes)
        """Return the rows' results in the form the observations had: a single one, a batch, or a dict by agent."""
        if agents.is_by_agent:
            return dict(zip(agents.names, results, strict=True))
        batch_shape, result_shape = agents.rows.axes, results.shape[1:]
        return results.reshape((*batch_shape, *result_shape))[()]  # `[()]` turns an array without axes into a number
