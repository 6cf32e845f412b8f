"""The learner of a policy that acts in blocks of steps: its state, its construction, and how it acts.

It learns from a block of consecutive steps, cut into sequences: some steps of one agent, from the memory that it had
before the first of them, where the gradient is cut. A policy without a memory learns from sequences of one step; where
a block is one episode of every agent, an episode is one sequence. How it learns is in `on_policy.py`.

Axes: T steps of a block, B agents of all environments, C sequences of U steps in a block, R outputs of the policy,
M cells.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Adam, build_adam
from flatwater.algorithms.compilation import compile_graph
from flatwater.algorithms.early_stop import build_early_stop, read_early_stop
from flatwater.algorithms.on_policy_config import OnPolicyConfig
from flatwater.nets.actor_critic import ActorCritic
from flatwater.nets.policy import PolicyOutput, Weights, build_statistics
from flatwater.nets.stack import init_, views
from flatwater.rollouts.block import ColumnSpec, Rollout
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state

STEP_METRICS = ("grad_norm", "skipped")
"""Metrics of a step, whatever the algorithm: the gradient's norm, and whether it was left out as that is not finite."""


@state
class Learner:
    """Network, moments and counters, allocated whole by `build_learner`; updates write in place."""

    block: Float[Tensor, "1 n"]
    """The policy's weights: a population of one."""
    adam: Adam
    order: Int[Tensor, "C*B"]
    """Numbers of the sequences in this epoch's random order, which minibatches are consecutive parts of."""
    rng: torch.Generator
    """Generator of the initial weights, and then of `order`."""
    sums: Float[Tensor, "S"]
    """Sum of each metric over the updates since the last reading: those of the loss, and `STEP_METRICS`."""
    early_stop: dict[str, Float[Tensor, ""]]
    """State of the early stop (`early_stop.py`); empty without a `target_kl`."""
    statistics: dict[str, Tensor]
    """Running statistics of observations, if the network uses them (`ActorCritic.measures`), and the buffers of its
    module, if it has one."""
    algorithm_state: dict[str, Float[Tensor, "..."]]
    """What the algorithm keeps from round to round (`OnPolicyAlgorithm.state`); empty for one without a state."""
    updates: int = 0
    """Updates since the run began."""
    updates_read: int = 0
    """`updates` when the sums were last read."""

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """Weights and statistics of observations: leaves that another run may begin with."""
        return (self.block, *self.statistics.values())


def build_learner(
    network: ActorCritic,
    *,
    sequences: int,
    rng: torch.Generator,
    device: torch.device,
    metrics: Sequence[str] = (),
    target_kl: float = 0.0,
    algorithm_state: Mapping[str, Tensor] = MappingProxyType({}),
) -> Learner:
    """Return a learner with initial weights and moments of 0; on the meta device its tensors have no numbers.

    Args:
        network: network whose weights are allocated.
        sequences: number of sequences in a block, C times B.
        rng: generator on the device, which the learner keeps.
        device: device of the network.
        metrics: names of the loss's metrics, of which sums are kept.
        target_kl: divergence at which a round's updates stop; 0 for no early stop.
        algorithm_state: what the algorithm keeps, as it begins.
    """
    block = filled_tensor(0, 1, network.layout.size, device=device)  # zeros [1, n], which `init_` overwrites
    init_(block, network.layout, rng)
    statistics = build_statistics(network.number_count, network.measures, device) if network.measures else {}
    if network.encoder is not None:
        statistics |= network.encoder.build_buffers(device)
        # The module's own initial weights take the place of those that `init_` drew for it.
        network.encoder.draw_(named_weights(network, block) | statistics, rng)
    return Learner(
        block=block,
        adam=build_adam(1, network.layout.size, block.dtype, device),
        order=torch.arange(sequences).to(device),  # on the meta device `arange` would import the compiler
        rng=rng,
        sums=filled_tensor(0, len((*metrics, *STEP_METRICS)), device=device),
        early_stop=build_early_stop(target_kl, device),
        statistics=statistics,
        algorithm_state={name: tensor.to(device, copy=True) for name, tensor in algorithm_state.items()},
    )


def step_columns(action: ColumnSpec, *, legal: int = 0, has_teacher: bool = False) -> dict[str, ColumnSpec]:
    """Return the rollout's columns that the learner adds to the world's `obs`, `reward`, `terminated`, `truncated`.

    Args:
        action: form of one action.
        legal: length of a mask of legal actions; 0 if every action is legal.
        has_teacher: whether a teacher's actions are recorded.
    """
    flag = ColumnSpec((), torch.bool)
    columns = dict[str, ColumnSpec]()
    if has_teacher:
        columns["taught"] = action  # the teacher's action
        columns["led"] = flag  # whether the teacher's action was executed in place of the policy's
    if legal:
        columns["legal"] = ColumnSpec((legal,), torch.bool)
    return columns | {
        "action": action,  # the executed action
        "alive": flag,  # whether the agent was in its episode before the step
        "starts": flag,  # whether an episode began with the step
        "log_prob": ColumnSpec(),
        "value": ColumnSpec(),
        "next_value": ColumnSpec(),
        "advantage": ColumnSpec(),  # this and the next are written by `on_policy.compute_targets_`
        "returns": ColumnSpec(),
    }


class ActingPolicy(Protocol):
    """A policy that acts: a learner, or a copy of its weights."""

    block: Float[Tensor, "1 n"]
    statistics: dict[str, Tensor]


def weight_views(network: ActorCritic, learner: ActingPolicy) -> Weights:
    """Return the policy's weights and statistics by name, as views that share the learner's storage."""
    return named_weights(network, learner.block) | learner.statistics


def named_weights(network: ActorCritic, block: Float[Tensor, "1 n"]) -> dict[str, Tensor]:
    """Return the policy's weights by name, as views that share the storage of `block`."""
    return {name: view[0] for name, view in views(block, network.layout).items()}


@torch.no_grad()
def forward_step(
    network: ActorCritic,
    weights: Weights,
    *,
    obs: Tensor,
    memory: Float[Tensor, "2 B M"],
    starts: Bool[Tensor, "B"],
) -> PolicyOutput:
    """Return the policy's output on one observation of each of B agents, with its memory before the step.

    Args:
        network: the policy's network.
        weights: weights by name, from `weight_views`.
        obs: observations [B, *obs].
        memory: memory before the step.
        starts: whether an episode begins with the step.

    Returns:
        logits [1, B, R] and value [1, B] of the one step, and the memory [2, B, M] after it.
    """
    return network(weights, obs.unsqueeze(0), memory, starts.unsqueeze(0))


class ActingStep(NamedTuple):
    """One step of each agent."""

    action: Tensor
    """[B, *action]."""
    memory: Float[Tensor, "2 B M"]
    """Memory after the step."""
    log_prob: Float[Tensor, "B"] | None = None
    """Log-probability of the action; None, as is the value, where `bind_evaluation` writes both after the block."""
    value: Float[Tensor, "B"] | None = None


STEP_INPUTS = ("obs", "memory", "starts", "noise")
"""Inputs of an acting step: observations [B, *obs], memory before them [2, B, M], whether an episode begins [B], and
random numbers from the actions' `noise_`. After them come `legal` [B, R], if actions have masks, and with a teacher
`led` [B], whether its action is executed, and `taught` [B, *action], its actions."""


def make_act(
    config: OnPolicyConfig,
    network: ActorCritic,
    learner: ActingPolicy,
    *,
    masked: bool = False,
    has_teacher: bool = False,
) -> Callable[..., ActingStep]:
    """Return the function `act(obs=..., memory=..., ...)`, which takes `STEP_INPUTS` and draws each agent's action.

    Args:
        config: settings that say whether to compile it.
        network: the policy's network.
        learner: weights of the network, which later updates change in place.
        masked: whether actions have masks: `act` then takes `legal`.
        has_teacher: whether there is a teacher: `act` then takes `led` and `taught`.
    """
    weights = weight_views(network, learner)
    input_names = list(STEP_INPUTS)
    input_names += ["legal"] if masked else []
    input_names += ["led", "taught"] if has_teacher else []

    @torch.no_grad()
    def step(params: Weights, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Return the fields of an `ActingStep`; `log_prob` and `value` only if the network gives values in a step."""
        output = network.run_step(params, inputs["obs"], inputs["memory"], inputs["starts"])
        policy = network.actions.distribution(output.logits, inputs.get("legal"))
        action = policy.sample(inputs["noise"])
        if has_teacher:
            action = torch.where(inputs["led"], inputs["taught"], action)
        log_prob_and_value = () if output.value is None else (policy.log_prob(action), output.value)
        return action, output.memory, *log_prob_and_value

    if not config.compile:
        return lambda **inputs: ActingStep(*step(weights, inputs))

    def traced_step(*tensors: Tensor) -> tuple[Tensor, ...]:
        """Take a step with weights and inputs by position, as compiled code takes its tensors."""
        # The first tensors are the weights, the others the step's inputs.
        inputs = dict(zip(input_names, tensors[len(weights) :], strict=True))
        return step(dict(zip(weights, tensors, strict=False)), inputs)

    graph, weight_tensors = compile_graph(traced_step, enabled=True), tuple(weights.values())

    def act(**inputs: Tensor) -> ActingStep:
        """Run the compiled step, which takes its tensors by position."""
        return ActingStep(*graph(*weight_tensors, *(inputs[name] for name in input_names)))

    return act


def bind_evaluation(
    config: OnPolicyConfig, network: ActorCritic, learner: Learner, *, rollout: Rollout, pieces: int
) -> Callable[[], None]:
    """Return a function that writes a block's `log_prob` and `value` after the block, for a policy without memory.

    Args:
        config: settings that say whether to compile it.
        network: the policy's network.
        learner: weights of the network, with which the block was acted.
        rollout: the block: `obs`, `action` and, if there are masks, `legal` are read.
        pieces: number of equal pieces in which the block is computed, so that it takes no more memory than an update.
    """
    weights, device = weight_views(network, learner), learner.block.device
    piece_rows = rollout["obs"].shape[:2].numel() // pieces

    def split_columns(*names: str) -> list[tuple[Tensor, ...]]:
        """Return these columns of each piece, as views: writing to a piece writes to the rollout."""
        columns = [rollout[name].flatten(0, 1) for name in names if name in rollout.columns]
        pieces_of_columns = [torch.split(column, piece_rows) for column in columns]
        return list(zip(*pieces_of_columns, strict=True))

    input_pieces, output_pieces = split_columns("obs", "action", "legal"), split_columns("log_prob", "value")

    def evaluate_piece(*tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the log-probabilities [n] of a piece's actions, and the values [n] of its observations."""
        # The first tensors are the weights, the others the piece's columns; `legal` is empty without masks.
        params = dict(zip(weights, tensors, strict=False))
        obs, action, *legal = tensors[len(weights) :]
        memory = torch.zeros(2, len(obs), 0, device=device)  # of 0 cells
        starts = torch.zeros(1, len(obs), dtype=torch.bool, device=device)
        output = network(params, obs.unsqueeze(0), memory, starts)
        return network.actions.distribution(output.logits[0], *legal).log_prob(action), output.value[0]

    graph = compile_graph(torch.no_grad()(evaluate_piece), enabled=bool(config.compile))

    def evaluate_() -> None:
        """Evaluate piece by piece, and write the results into the rollout."""
        for inputs, outputs in zip(input_pieces, output_pieces, strict=True):
            results = graph(*weights.values(), *(column.to(device) for column in inputs))
            for column, result in zip(outputs, results, strict=True):
                column.copy_(result)

    return evaluate_


def read_learner_(learner: Learner, metrics: Sequence[str]) -> dict[str, float]:
    """Return means over the updates since the last reading, by metric name, and zero the sums.

    `skipped` is a count and not a mean. The result is empty if there was no update.

    Args:
        learner: the learner, whose sums are zeroed.
        metrics: names of the loss's metrics, with which it was built.
    """
    updates = learner.updates - learner.updates_read
    learner.updates_read = learner.updates
    # `tolist` waits for the device, once a round.
    sums = dict(zip((*metrics, *STEP_METRICS), learner.sums.tolist(), strict=True))
    learner.sums.zero_()
    if not updates:
        return {}
    means = {f"train/{name}": value / updates for name, value in sums.items() if name != "skipped"}
    counts = {"train/skipped": sums["skipped"]}
    return means | counts | read_early_stop(learner.early_stop, updates)
