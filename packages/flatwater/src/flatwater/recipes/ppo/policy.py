"""The trained policy of PPO or of teaching: it acts on observations, is exported, and is rebuilt from .safetensors.

Axes: B agents, K tokens, N numbers of a vector, R logits, M LSTM cells. Memory is [2, B, M]: the LSTM's output, and its
cells.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from flatwater.algorithms.learner import weight_views
from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.envs.world import Spaces
from flatwater.envs.wrapped.native_spaces import NativeSpaces, find_native_spaces, native_spaces, read_native
from flatwater.nets.actions import Actions, bound_tensors, clamp_to_bounds, mask_logits
from flatwater.nets.actor_critic import ActorCritic, ActorCriticStep, token_rows
from flatwater.nets.config import ActorCriticConfig
from flatwater.nets.named_weights import NamedWeights
from flatwater.nets.policy import COUNT, MEAN, MEASURED, VARIANCE, Weights, build_statistics
from flatwater.nets.stack import Layout, Weight, join_weights, views
from flatwater.recipes.ppo.run import BlocksRun
from flatwater.rundir.layout import RunFolder
from flatwater.runs.export_inputs import example_inputs, program_inputs
from flatwater.runs.kinds_policy import KindsPolicy
from flatwater.runs.policy_export import PolicyExport
from flatwater.runs.trained_policy import TrainedPolicy
from flatwater.trainers.blocks.state import build_actor_critic, policy_actions, policy_parts
from flatwater_watch.files.json_values import convert_to_type


def make_trained_policy(run: BlocksRun, _folder: RunFolder | None = None) -> TrainedPolicy | KindsPolicy:
    """Return the policy of a restored run; it keeps a copy of the weights, and nothing else of the run.

    The folder is passed to the `make_trained_policy` of every recipe; this one needs nothing from it.
    """
    setup, policies, allow_nan = run.trainer.setup, dict[str, TrainedPolicy](), run.config.allow_nan
    for part in policy_parts(setup, run.trainer.run):
        network, spaces = part.setup.network, part.setup.spaces
        # Copies: the run, with its rollout and moments, can be freed.
        copies = {name: weight.detach().clone() for name, weight in weight_views(network, part.learner).items()}
        if part.rows is None:  # all agents are of one kind, with one policy
            native = find_native_spaces(run.trainer.evaluator.world)
            return build_policy(network, spaces, native, copies, allow_nan=allow_nan)
        kind = part.rows.kind
        native = native_spaces(kind.observation, kind.action, kind.form, run.world_name)
        policies[kind.name] = build_policy(network, spaces, native, copies, allow_nan=allow_nan)
    return KindsPolicy(policies, setup.spaces)


def build_policy(
    network: ActorCritic,
    spaces: Spaces,
    native: NativeSpaces | None,
    weights: Weights,
    *,
    allow_nan: bool = False,
) -> TrainedPolicy:
    """Return a policy with these weights, which are not copied.

    Args:
        network: network of the policy as functions.
        spaces: spaces of the world that it was trained in.
        native: spaces of the environment in that world, if it has any.
        weights: weights and statistics by name.
        allow_nan: whether it was trained with NaN and infinities in observations.
    """
    module = _build_module(network, spaces, weights)
    build_export = partial(_build_export, module, native, allow_nan=allow_nan)
    return TrainedPolicy(module, spaces, native, build_export, allow_nan=allow_nan)


class PolicyModule(nn.Module):
    """The policy as a module: observations and memory in; likeliest actions, their logits and the memory out."""

    def __init__(self, network: ActorCritic, spaces: Spaces, weights: Weights) -> None:
        """Hold weights as parameters, and statistics and bounds as buffers, so that an export has them."""
        super().__init__()
        self.network, self.spaces, self.cells = network, spaces, network.policy.cells
        trained_weights = {name: weight for name, weight in weights.items() if name in network.layout.weights}
        # Without the count of observations: the statistics learn nothing more here.
        fixed = {name: weight for name, weight in weights.items() if name not in trained_weights and name != COUNT}
        self.net = NamedWeights(trained_weights, fixed)
        # Called now for its cache of the bounds' middle and half width, whose making an export must not trace.
        network.actions.distribution(torch.zeros(1, network.actions.outputs, device=network.device))
        low, high = bound_tensors(spaces.bounds, network.device)
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def forward(self, obs: Tensor, memory: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return actions [B, *action], their logits [B, R] if they are choices, and the new memory if one was given.

        The memory [2, B, M] may be left out for a policy without an LSTM.
        """
        return self.choose_likeliest(obs, memory, None)

    def choose_likeliest(self, obs: Tensor, memory: Tensor | None, legal: Tensor | None) -> tuple[Tensor, ...]:
        """Return what `forward` does; with a mask `legal`, bool [B, R], the logits of illegal choices are lowest."""
        step_memory = obs.new_zeros(2, obs.shape[0], 0, dtype=torch.float32) if memory is None else memory
        step = self._run_step(obs, step_memory)
        distribution = self._actions(obs.device).distribution(step.logits, legal)
        action = self._clamp_to_bounds(distribution.mode())
        logits = (mask_logits(step.logits, legal),) if self.spaces.bounds is None else ()
        return action, *logits, *(() if memory is None else (step.memory,))

    def act(
        self, obs: Tensor, memory: Tensor, *, legal: Tensor | None = None, rng: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return actions, drawn with `rng` or else the likeliest, and the memory after the step."""
        step, actions = self._run_step(obs, memory), self._actions(obs.device)
        distribution = actions.distribution(step.logits, legal)
        if rng is None:
            return self._clamp_to_bounds(distribution.mode()), step.memory
        noise = actions.noise_(torch.empty(len(obs), actions.noise), rng).to(obs.device)
        return self._clamp_to_bounds(distribution.sample(noise)), step.memory

    def value(self, obs: Tensor, memory: Tensor, *, legal: Tensor | None = None) -> Tensor:  # noqa: ARG002  (the critic reads observations alone)
        """Return the critic's value of each state, [B]."""
        weights = self.net.weights_by_name()
        starts = obs.new_zeros(1, obs.shape[0], dtype=torch.bool)  # within an episode
        output = self.network.policy(weights, self._embed(weights, obs), memory, starts)
        return output.value[0]  # of the only step

    def _run_step(self, obs: Tensor, memory: Tensor) -> ActorCriticStep:
        """Return logits, value and memory of one step, within an episode."""
        weights, starts = self.net.weights_by_name(), obs.new_zeros(obs.shape[0], dtype=torch.bool)
        return self.network.run_embedded_step(weights, self._embed(weights, obs), memory, starts)

    def _actions(self, device: torch.device) -> Actions:
        """Return the object that turns logits into actions on a device; it is built again if the module was moved."""
        return self.network.actions if device == self.network.device else policy_actions(self.spaces, device)

    def _clamp_to_bounds(self, action: Tensor) -> Tensor:
        """Return actions moved to the nearest bound where they are beyond it; choices as they are."""
        if self.spaces.bounds is None:
            return action
        return clamp_to_bounds(action, self.get_buffer("low"), self.get_buffer("high"))

    def _embed(self, weights: Weights, obs: Tensor) -> Tensor:
        """Return the network's input [1, B, O]; tokens are summed without `embedding_bag`, which cannot be exported."""
        network = self.network
        if not network.sees_tokens:
            return network.embed_observation(weights, obs.unsqueeze(0))
        padding_row = network.config.rows  # one past the table's last row: `token_rows` gives it to padding
        rows = token_rows(obs, padding_row, network.padding)
        # The product leaves out padding, which `embedding_bag` does by its `padding_idx`.
        row_sums = (weights["tokens"][rows] * (rows != padding_row).unsqueeze(-1)).sum(1)
        return layer_norm(row_sums, row_sums.shape[-1:]).relu().unsqueeze(0)


class MaskedPolicyModule(PolicyModule):
    """The same for actions with masks: `action_mask`, bool [B, R], stands before the memory."""

    def forward(  # type: ignore[override]  # the mask is the second input of an exported program
        self, obs: Tensor, action_mask: Tensor | None = None, memory: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the likeliest of the legal actions; without a mask every action is legal."""
        return self.choose_likeliest(obs, memory, action_mask)


def _build_module(network: ActorCritic, spaces: Spaces, weights: Weights) -> PolicyModule:
    """Return the policy as a module, which takes masks where the actions have some."""
    module_class = MaskedPolicyModule if spaces.masked else PolicyModule
    return module_class(network, spaces, weights)


def _build_export(module: PolicyModule, native: NativeSpaces | None, *, allow_nan: bool) -> PolicyExport:
    """Return the policy with its weights on the CPU, and the texts and numbers that an exported file needs."""
    spaces, config, cpu = module.spaces, module.network.config, torch.device("cpu")
    network = build_actor_critic(spaces, config, cpu)
    # Contiguous, as .safetensors takes no other tensors.
    weights = {name: weight.detach().cpu().contiguous() for name, weight in module.net.weights_by_name().items()}
    cells = module.cells
    memory_text = f"float32 [2, rows, {cells}]: zeros where an episode begins, then the output of the step before"
    memory_input = {"memory": memory_text} if cells else {}
    memory_output = {"memory_after": memory_text} if cells else {}
    is_choice = spaces.bounds is None
    logits = {"logits": f"float32 [rows, {network.actions.outputs}]"} if is_choice else {}
    action = "int64 [rows]: a position in actions" if is_choice else f"float32 [rows, {len(spaces.actions)}]"
    if spaces.choices is not None:
        action = f"int64 [rows, {len(spaces.choices)}]: a position in each list"
    return PolicyExport(
        recipe="ppo",
        module=_build_module(network, spaces, weights),
        example=lambda rows: _example_inputs(spaces, cells, rows),
        # Rows are axis 0 of the observations and masks, and axis 1 of the memory.
        axes=(0,) * (2 if spaces.masked else 1) + ((1,) if cells else ()),
        inputs=program_inputs(spaces) | memory_input,
        outputs={"action": action} | logits | memory_output,
        meaning={"actions": list(spaces.actions), "bounds": spaces.bounds, "choices": spaces.choices},
        header={
            "form": spaces.form,
            "obs": [*spaces.obs],
            "actions": list(spaces.actions),
            "bounds": spaces.bounds,
            "choices": spaces.choices,
            "masked": spaces.masked,
            "measures": network.measures,
            "allow_nan": allow_nan,
            "settings": {"policy": {"network": config.network}},
            "policy": to_mapping(config),
            "env": None if native is None else native.header(),
        },
        tensors={name: weight for name, weight in weights.items() if name != MEASURED},  # the header says it
    )


def _example_inputs(spaces: Spaces, cells: int, rows: int) -> tuple[Tensor, ...]:
    """Return random inputs of the module for `rows` agents: observations, and the memory where the policy has one.

    Returns:
        uint8 or float32 [rows, *obs]; with masks bool [rows, R]; with `cells` also the memory [2, rows, cells].
    """
    rng = torch.Generator().manual_seed(0)
    inputs = example_inputs(spaces, rows, rng)
    return *inputs, *((torch.rand(2, rows, cells, generator=rng) - 0.5,) if cells else ())


@dataclass(frozen=True)
class _PolicyHeader:
    """Facts of an exported policy besides its weights."""

    form: Literal["tokens", "vector", "image"]
    obs: tuple[int, ...]
    actions: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...] | None
    policy: dict[str, Any]
    choices: tuple[int, ...] | None = None
    masked: bool = False
    measures: tuple[int, ...] = ()
    allow_nan: bool = False
    env: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings that name code, so that a reader asks before it is imported."""


def rebuild_policy(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> TrainedPolicy:
    """Return the policy of a .safetensors file, from the file's header and its tensors by name."""
    header_fields = convert_to_type(dict(header), _PolicyHeader)
    config = from_mapping(ActorCriticConfig, header_fields.policy, "policy")
    native = None if header_fields.env is None else read_native(header_fields.env, header_fields.obs)
    parts = () if native is None else native.reader.parts
    spaces = Spaces(
        envs=1,
        agents=1,
        form=header_fields.form,
        obs=header_fields.obs,
        actions=header_fields.actions,
        steps=1,
        bounds=header_fields.bounds,
        choices=header_fields.choices,
        masked=header_fields.masked,
        measures=header_fields.measures,
        parts=parts,
    )
    network = build_actor_critic(spaces, config, torch.device("cpu"))
    statistics = (
        build_statistics(network.number_count, network.measures, torch.device("cpu")) if network.measures else {}
    )
    # The file has mean and variance next to the weights, and no count: the statistics learn nothing more.
    moments = {name: Weight((network.number_count,), fan_in=0) for name in (MEAN, VARIANCE) if statistics}
    layout = Layout(dict(network.layout.weights) | moments)
    weights = views(join_weights(tensors, layout), layout)
    buffers = {} if network.encoder is None else network.encoder.fill_buffers(tensors)
    one_member = {name: weight[0] for name, weight in weights.items()}
    all_weights = statistics | buffers | one_member
    return build_policy(network, spaces, native, all_weights, allow_nan=header_fields.allow_nan)
