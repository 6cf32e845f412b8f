"""The trained policy of PPO or of teaching: it acts on observations, is exported, and is rebuilt from .safetensors.

Axes: B agents, K tokens, N numbers of a vector, R logits, M LSTM cells. Memory is [2, B, M]: the LSTM's output, and its
cells.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from flatwater.algorithms.ppo import bound_weights, forward_step
from flatwater.config.toml import from_mapping, to_mapping
from flatwater.envs.world import Array, Spaces
from flatwater.nets.config import StudentConfig
from flatwater.nets.policy import COUNT, MEAN, MEASURED, VARIANCE, Weights, build_statistics
from flatwater.nets.stack import Layout, Weight, join_weights, views
from flatwater.nets.student import Student, token_rows
from flatwater.recipes.ppo.run import BlocksRun
from flatwater.rundir.layout import RunFolder
from flatwater.runs.portable import Portable, observation_rows
from flatwater.trainers.blocks.state import build_student
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.content import convert_to


def make_trained_policy(run: BlocksRun, _folder: RunFolder | None = None) -> "TrainedPolicy":
    """Return the policy of a restored run; it keeps a copy of the weights, and nothing else of the run."""
    setup = run.trainer.setup
    weights = bound_weights(setup.student, run.trainer.run.learner)
    # Copies: the run, with its rollout and moments, can be freed.
    return TrainedPolicy(setup.student, setup.spaces, {name: weight.clone() for name, weight in weights.items()})


class PolicyModule(nn.Module):
    """The policy as a module: observations and memory in; likeliest actions, their logits and the memory out."""

    def __init__(self, student: Student, spaces: Spaces, weights: Weights) -> None:
        """Hold weights and bounds as buffers, so that an export has them."""
        super().__init__()
        self._student, self._names = student, tuple(weights)
        for index, name in enumerate(self._names):
            self.register_buffer(f"weight_{index}", weights[name])
        # Called once now: it caches middle and half width of the bounds, which an export must not trace.
        student.actions.distribution(torch.zeros(1, student.actions.outputs))
        self._bounded = spaces.bounds is not None
        low, high = torch.tensor(spaces.bounds or [(0.0, 0.0)], dtype=torch.float32).T
        self.register_buffer("low", low.contiguous())
        self.register_buffer("high", high.contiguous())

    def forward(self, obs: Tensor, memory: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return actions [B, *action], then the logits [B, R] of a list, then the memory [2, B, M] after the step."""
        weights = {name: self.get_buffer(f"weight_{index}") for index, name in enumerate(self._names)}
        before = torch.zeros(2, obs.shape[0], 0) if memory is None else memory
        starts = torch.zeros(obs.shape[0], dtype=torch.bool)
        choice = self._student.choose_read(weights, self._read(weights, obs), before, starts)
        action, after = self._student.actions.distribution(choice.logits).mode(), (choice.memory,)
        memory_after = after if memory is not None else ()
        if self._bounded:
            low, high = self.get_buffer("low"), self.get_buffer("high")
            return torch.minimum(torch.maximum(action, low), high), *memory_after
        return action, choice.logits, *memory_after

    def _read(self, weights: Weights, obs: Tensor) -> Tensor:
        """Return the network's input [1, B, O]; tokens are summed in operations that an exported program can hold."""
        student = self._student
        if not student.sees_tokens:
            return student.embed_observation(weights, obs.unsqueeze(0))
        rows = token_rows(obs, student.config.rows, student.padding)
        # The product leaves out padding, which `embedding_bag` does by its `padding_idx`.
        row_sums = (weights["tokens"][rows] * (rows != student.config.rows).unsqueeze(-1)).sum(1)
        return layer_norm(row_sums, row_sums.shape[-1:]).relu().unsqueeze(0)


class TrainedPolicy:
    """The policy of a run, with its likeliest actions. It remembers each agent where it was trained with a memory.

    Observations are as the environment gives them: tokens [K, 3], or a vector [N]; of one agent, or [B, ...] of several
    agents side by side.
    """

    def __init__(self, student: Student, spaces: Spaces, weights: Weights) -> None:
        self._student, self._spaces = student, spaces
        self._weights = {name: weight for name, weight in weights.items() if name != COUNT}  # nothing is absorbed here
        self._device = student.device
        self._memory = torch.zeros(2, 0, student.policy.cells, device=self._device)

    def begin(self, which: Array | None = None) -> None:
        """Forget all agents, or those of `which`, bool [B]. Call it where an episode begins."""
        if which is None or not self._memory.shape[1]:
            # No agents at all: the next observations say how many there are.
            self._memory = self._memory[:, :0]
        else:
            self._memory[:, torch.from_numpy(np.asarray(which, np.bool_))] = 0

    def act(self, obs: Array, legal: Array | None = None) -> Array:
        """Return the action on each observation: a position in the list, one of each list, or numbers within bounds.

        Args:
            obs: observation of one agent, or [B, ...] of several.
            legal: mask of legal actions, where there are masks: [R], or [B, R]. By default everything is legal.

        Raises:
            ConfigError: an observation has another shape than in training, or there are other agents than before.
        """
        rows, is_single = observation_rows(obs, self._spaces.obs, "several agents")
        if self._memory.shape[1] == 0:
            self._memory = self._memory.new_zeros(2, len(rows), self._memory.shape[2])
        if self._memory.shape[1] != len(rows):
            raise ConfigError(
                f"obs has {len(rows)} agents, the policy remembers {self._memory.shape[1]}. Call begin() first"
            )
        # The type of training: Gymnasium gives float64 where its space says so.
        kind = np.uint8 if self._spaces.form == "tokens" else np.float32
        batch = torch.from_numpy(np.ascontiguousarray(rows, kind)).to(self._device)
        starts = torch.zeros(len(rows), dtype=torch.bool, device=self._device)
        output = forward_step(self._student, self._weights, obs=batch, memory=self._memory, starts=starts)
        self._memory = output.memory
        action = self._student.actions.distribution(output.logits[0], self._mask(legal, len(rows))).mode().cpu().numpy()
        if self._spaces.bounds is not None:
            action = np.clip(action, *np.array(self._spaces.bounds, np.float32).T)
        result: Array = action[0] if is_single else action
        return result

    def _mask(self, legal: Array | None, rows: int) -> Tensor | None:
        """Return the mask of legal actions, [B, R].

        Raises:
            ConfigError: the mask has another size, or actions are numbers within bounds, which have no mask.
        """
        if legal is None:
            return None
        mask, expected = np.asarray(legal, np.bool_), (rows, self._student.actions.outputs)
        if mask.size != expected[0] * expected[1] or self._spaces.bounds is not None:
            raise ConfigError(
                f"legal = an array {list(mask.shape)}: expected {list(expected)}, where actions are choices"
            )
        return torch.from_numpy(mask.reshape(expected)).to(self._device)

    def portable(self) -> Portable:
        """Return the policy without its run, to be exported.

        Raises:
            ConfigError: the policy's actions have masks, which no exported program is given.
        """
        if self._spaces.masked:
            raise ConfigError(
                "the policy needs `legal`, which an exported program does not take. Use "
                "flatwater.load(RUN).act(obs, legal)"
            )
        cpu, spaces, config = torch.device("cpu"), self._spaces, self._student.config
        student = build_student(spaces, config, cpu)
        # Contiguous, as .safetensors takes no other tensors.
        weights = {name: weight.cpu().contiguous() for name, weight in self._weights.items()}
        cells, tokens = student.policy.cells, spaces.form == "tokens"
        shape = [*spaces.obs]
        memory = {
            "memory": f"float32 [2, rows, {cells}]: zeros where an episode begins, then the output of the step before"
        }
        is_choice = spaces.bounds is None
        logits = {"logits": f"float32 [rows, {student.actions.outputs}]"} if is_choice else {}
        action = "int64 [rows]: a position in actions" if is_choice else f"float32 [rows, {len(spaces.actions)}]"
        if spaces.choices is not None:
            action = f"int64 [rows, {len(spaces.choices)}]: a position in each list"
        return Portable(
            recipe="ppo",
            module=PolicyModule(student, spaces, weights),
            example=lambda rows: _example(spaces, cells, rows),
            axes=(0, 1) if cells else (0,),
            inputs={"obs": f"{'uint8' if tokens else 'float32'} {['rows', *shape]}"} | (memory if cells else {}),
            outputs={"action": action} | logits | ({"memory_after": memory["memory"]} if cells else {}),
            meaning={"actions": list(spaces.actions), "bounds": spaces.bounds, "choices": spaces.choices},
            header={
                "form": spaces.form,
                "obs": shape,
                "actions": list(spaces.actions),
                "bounds": spaces.bounds,
                "choices": spaces.choices,
                "measures": student.measures,
                "student": to_mapping(config),
            },
            tensors={name: weight for name, weight in weights.items() if name != MEASURED},  # the header says it
        )


def _example(spaces: Spaces, cells: int, rows: int) -> tuple[Tensor, ...]:
    """Return random inputs of the module for `rows` agents: observations, and the memory where the policy has one.

    Returns:
        uint8 or float32 [rows, *obs]; with `cells` also the memory [2, rows, cells].
    """
    rng = torch.Generator().manual_seed(0)
    shape = (rows, *spaces.obs)
    tokens = spaces.form == "tokens"
    obs = (
        torch.randint(0, 256, shape, generator=rng, dtype=torch.uint8) if tokens else torch.randn(shape, generator=rng)
    )
    return (obs, torch.rand(2, rows, cells, generator=rng) - 0.5) if cells else (obs,)


@dataclass(frozen=True)
class _PolicyHeader:
    """Facts of an exported policy besides its weights."""

    form: Literal["tokens", "vector"]
    obs: tuple[int, ...]
    actions: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...] | None
    student: dict[str, Any]
    choices: tuple[int, ...] | None = None
    measures: tuple[int, ...] = ()


def rebuild_policy(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> TrainedPolicy:
    """Return the policy of a .safetensors file."""
    values = convert_to(dict(header), _PolicyHeader)
    config = from_mapping(StudentConfig, values.student, "student")
    action_fields = (values.actions, 1, values.bounds, values.choices)
    spaces = Spaces(1, 1, values.form, values.obs, *action_fields, measures=values.measures)
    student = build_student(spaces, config, torch.device("cpu"))
    statistics = build_statistics(spaces.obs[0], student.measures, torch.device("cpu")) if student.measures else {}
    # Mean and variance are in the file beside the weights; the count is not, as nothing is merged any more.
    moments = {name: Weight(spaces.obs, 0) for name in (MEAN, VARIANCE) if statistics}
    layout = Layout(dict(student.layout.weights) | moments)
    weights = views(join_weights(tensors, layout), layout)
    return TrainedPolicy(student, spaces, statistics | {name: weight[0] for name, weight in weights.items()})
