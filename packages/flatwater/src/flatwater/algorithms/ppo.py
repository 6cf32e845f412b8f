"""Proximal policy optimisation (Schulman et al. 2017), in place, with a teacher or without: `grow`, `ppo` and `teach`.

It learns from a block of consecutive steps, cut into sequences: some steps of one agent, from the memory that it had
before the first of them, where the gradient is cut. A policy without a memory learns from sequences of one step; where
a block is one episode of every agent, an episode is one sequence. A teacher adds the cross-entropy on its actions to
the loss.

The file has, in this order: the state, its construction, acting, advantages, and the update with its loss. The settings
are in `config.py`, because the command line reads them without torch.

Axes: T steps of a block, B agents of all environments, C sequences of U steps in a block, R outputs of the policy,
M cells.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.algorithms.adam import Adam, bind_step, build_adam
from flatwater.algorithms.config import PPOConfig
from flatwater.algorithms.early_stop import EarlyStop, build_early_stop, read_early_stop
from flatwater.algorithms.graph import compile_graph
from flatwater.algorithms.returns import clipped_loss, clipped_value_loss, gae
from flatwater.algorithms.schedules import ScheduledSettings
from flatwater.nets.actor_critic import ActorCritic
from flatwater.nets.policy import PolicyOutput, Weights, build_statistics
from flatwater.nets.stack import init_, views
from flatwater.rollouts.block import ColumnSpec, Rollout
from flatwater.rollouts.sequences import INITIAL_MEMORY, bind_sequences
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state
from flatwater_watch.errors import require

TEACHER_METRICS = ("imitation_loss", "agreement")
"""Metrics with a teacher: agreement is the share of steps on which the policy's likeliest action is the teacher's."""
METRICS = ("policy_loss", "value_loss", "entropy", "kl", "grad_norm", "skipped")
"""Metrics of all runs: kl estimates the divergence from the policy that acted by E[ratio - 1 - log ratio]."""
DEVIATION_EPSILON = 1e-8
"""Added to the deviation of advantages before it divides: equal advantages become 0."""


@state
class Learner:
    """Network, moments and counters, allocated whole by `build`; updates write in place."""

    block: Float[Tensor, "1 n"]
    """The policy's weights: a population of one."""
    adam: Adam
    order: Int[Tensor, "C*B"]
    """Numbers of the sequences in this epoch's random order, which minibatches are consecutive parts of."""
    rng: torch.Generator
    """Generator of the initial weights, and then of `order`."""
    sums: Float[Tensor, "S"]
    """Sum of each metric over the updates since the last reading, in the order of `metric_names`."""
    early_stop: dict[str, Float[Tensor, ""]]
    """State of the early stop (`early_stop.py`); empty without a `target_kl`."""
    statistics: dict[str, Tensor]
    """Running statistics of observations, if the network uses them (`ActorCritic.measures`), and the buffers of its
    module, if it has one."""
    updates: int = 0
    """Updates since the run began."""
    updates_read: int = 0
    """`updates` when the sums were last read."""

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """Weights and statistics of observations: leaves that another run may begin with."""
        return (self.block, *self.statistics.values())


def build(
    network: ActorCritic,
    *,
    sequences: int,
    rng: torch.Generator,
    device: torch.device,
    has_teacher: bool = False,
    target_kl: float = 0.0,
) -> Learner:
    """Return a learner with initial weights and moments of 0; on the meta device its tensors have no numbers.

    Args:
        network: network whose layout is allocated.
        sequences: number of sequences in a block, C times B.
        rng: generator on the device, which the learner keeps.
        device: device of the network.
        has_teacher: whether the loss has a teacher's terms.
        target_kl: divergence at which a round's updates stop; 0 for no early stop.
    """
    block = filled_tensor(0, 1, network.layout.size, device=device)
    init_(block, network.layout, rng)
    statistics = build_statistics(network.number_count, network.measures, device) if network.measures else {}
    if network.encoder is not None:
        statistics |= network.encoder.build_buffers(device)
        network.encoder.draw_(named_weights(network, block) | statistics, rng)
    return Learner(
        block=block,
        adam=build_adam(1, network.layout.size, block.dtype, device),
        order=torch.arange(sequences).to(device),  # on the meta device `arange` would import the compiler
        rng=rng,
        sums=filled_tensor(0, len(metric_names(has_teacher=has_teacher)), device=device),
        early_stop=build_early_stop(target_kl, device),
        statistics=statistics,
    )


def metric_names(*, has_teacher: bool) -> tuple[str, ...]:
    """Return the names of `Learner.sums`, in order."""
    return (*(TEACHER_METRICS if has_teacher else ()), *METRICS)


def step_columns(action: ColumnSpec, *, legal: int = 0, has_teacher: bool = False) -> dict[str, ColumnSpec]:
    """Return the rollout's columns that the learner adds to the world's `obs`, `reward`, `terminated`, `truncated`.

    Args:
        action: form of one action.
        legal: length of a mask of legal actions; 0 if every action is legal.
        has_teacher: whether a teacher's actions are recorded.
    """
    flag = ColumnSpec((), torch.bool)
    teacher = {
        "taught": action,  # the teacher's action
        "led": flag,  # whether the teacher's action was executed in place of the policy's
    }
    mask = {"legal": ColumnSpec((legal,), torch.bool)}
    return (teacher if has_teacher else {}) | (mask if legal else {}) | {
        "action": action,  # the executed action
        "alive": flag,  # whether the agent was in its episode before the step
        "starts": flag,  # whether an episode began with the step
        "log_prob": ColumnSpec(),
        "value": ColumnSpec(),
        "next_value": ColumnSpec(),
        "advantage": ColumnSpec(),  # this and the next are written by `compute_advantages_`
        "returns": ColumnSpec(),
    }  # fmt: skip


class ActingPolicy(Protocol):
    """A policy that acts: a learner, or a copy of its weights."""

    block: Float[Tensor, "1 n"]
    statistics: dict[str, Tensor]


def bound_weights(network: ActorCritic, learner: ActingPolicy) -> Weights:
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
        weights: weights by name, from `bound_weights`.
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
    config: PPOConfig, network: ActorCritic, learner: ActingPolicy, *, masked: bool = False, has_teacher: bool = False
) -> Callable[..., ActingStep]:
    """Return the function `act(obs=..., memory=..., ...)`, which takes `STEP_INPUTS` and draws each agent's action.

    Args:
        config: settings that say whether to compile it.
        network: the policy's network.
        learner: weights of the network, which later updates change in place.
        masked: whether actions have masks: `act` then takes `legal`.
        has_teacher: whether there is a teacher: `act` then takes `led` and `taught`.
    """
    weights = bound_weights(network, learner)
    input_names = (*STEP_INPUTS, *(("legal",) if masked else ()), *(("led", "taught") if has_teacher else ()))

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
        # The first tensors are the weights, the others the step's inputs.
        inputs = dict(zip(input_names, tensors[len(weights) :], strict=True))
        return step(dict(zip(weights, tensors, strict=False)), inputs)

    graph, weight_tensors = compile_graph(traced_step, enabled=True), tuple(weights.values())
    return lambda **inputs: ActingStep(*graph(*weight_tensors, *(inputs[name] for name in input_names)))


def bind_evaluation(
    config: PPOConfig, network: ActorCritic, learner: Learner, *, rollout: Rollout, pieces: int
) -> Callable[[], None]:
    """Return a function that writes a block's `log_prob` and `value` after the block, for a policy without memory.

    Args:
        config: settings that say whether to compile it.
        network: the policy's network.
        learner: weights of the network, with which the block was acted.
        rollout: the block: `obs`, `action` and, if there are masks, `legal` are read.
        pieces: number of equal pieces in which the block is computed, so that it takes no more memory than an update.
    """
    weights, device = bound_weights(network, learner), learner.block.device
    piece_rows = rollout["obs"].shape[:2].numel() // pieces

    def split_columns(*names: str) -> list[tuple[Tensor, ...]]:
        """Return these columns of each piece, as views: writing to a piece writes to the rollout."""
        columns = [rollout[name].flatten(0, 1) for name in names if name in rollout.columns]
        return list(zip(*(torch.split(column, piece_rows) for column in columns), strict=True))

    input_pieces, output_pieces = split_columns("obs", "action", "legal"), split_columns("log_prob", "value")

    def evaluate_piece(*tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the log-probabilities [n] of a piece's actions, and the values [n] of its observations."""
        # The first tensors are the weights, the others the piece's columns.
        params, (obs, action, *legal) = dict(zip(weights, tensors, strict=False)), tensors[len(weights) :]
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


def policy_steps(columns: Mapping[str, Tensor]) -> Bool[Tensor, "*N"]:
    """Return a mask of the steps whose action the policy chose: of agents in their episode, not led by the teacher."""
    return columns["alive"] & ~columns["led"] if "led" in columns else columns["alive"]


def compute_advantages_(rollout: Rollout, config: PPOConfig, *, reward: Float[Tensor, "T B"] | None = None) -> None:
    """Write the block's returns, and its advantages, standardised to mean 0 and deviation 1.

    Mean and deviation are those of the whole block's steps that the policy chose: a minibatch may have too few.

    Args:
        rollout: the block; its columns `advantage` and `returns` are written.
        config: discount and lambda.
        reward: scaled rewards to learn from; None for the block's own.
    """
    value, advantage, terminated = rollout["value"], rollout["advantage"], rollout["terminated"]
    estimate = gae(
        reward=rollout["reward"] if reward is None else reward,
        discount=torch.where(terminated, 0.0, config.gamma),
        value=value,
        next_value=rollout["next_value"],
        continues=~(terminated | rollout["truncated"]),
        lam=config.lam,
    )
    torch.add(estimate, value, out=rollout["returns"])
    policy_mask = policy_steps(rollout.columns)
    # At least 1: a block that the teacher led throughout has no such step, and must not give 0 / 0.
    count = policy_mask.sum().clamp(min=1)
    mean = (estimate * policy_mask).sum() / count
    deviation = (((estimate - mean) * policy_mask).square().sum() / count).sqrt()
    torch.div(estimate - mean, deviation + DEVIATION_EPSILON, out=advantage)


@dataclass
class LossWeights:
    """The weights of the loss's parts in this round: 0-d, on the network's device."""

    # Tensors, because a Python number would become a constant of compiled code.
    supervision: Float[Tensor, ""]
    reinforcement: Float[Tensor, ""]
    clip: Float[Tensor, ""] | None = None
    """Clip range, where it has a schedule."""
    entropy: Float[Tensor, ""] | None = None
    """Weight of the entropy, where it has a schedule."""


def initial_loss_weights(device: torch.device, *, supervision: float = 0.0, reinforcement: float = 1.0) -> LossWeights:
    """Return loss weights on a device; the defaults are those of a run without a teacher."""
    return LossWeights(*(torch.full((), weight, device=device) for weight in (supervision, reinforcement)))


UPDATE_COLUMNS = (
    "obs", "taught", "legal", "action", "led", "alive", "starts", "log_prob", "value", "advantage", "returns",
)  # fmt: skip
"""Columns of a rollout that an update reads, as far as the rollout has them."""


def make_update(
    config: PPOConfig,
    network: ActorCritic,
    learner: Learner,
    *,
    rollout: Rollout,
    initial_memory: Float[Tensor, "C 2 B M"],
    loss_weights: LossWeights,
    progress: Callable[[], float] = lambda: 0.0,
) -> Callable[[int], None]:
    """Return the function `update_(number)`, which makes one update of a round, counted from 0, in place.

    Args:
        config: settings of the learner.
        network: the policy's network.
        learner: weights, moments and sums, which are updated.
        rollout: a block after `compute_advantages_`.
        initial_memory: memory before the first step of each sequence.
        loss_weights: weights of the loss's terms, read at each update.
        progress: returns the progress of the schedules, 0 to 1, at each update.
    """
    sequences, minibatches = len(learner.order), config.minibatches
    require(sequences % minibatches == 0, "learner.minibatches", minibatches, f"a divisor of {sequences} sequences")
    scheduled = ScheduledSettings(config, progress, learner.block.device)
    early_stop = EarlyStop(learner.early_stop, config.target_kl)
    inputs = {INITIAL_MEMORY: initial_memory, "supervision": loss_weights.supervision}
    inputs |= {"reinforcement": loss_weights.reinforcement} | learner.statistics | scheduled.weights
    loss_gradients = _bind_gradients(config, network, learner, rollout, inputs)
    step_ = bind_step(
        learner.block, learner.adam, lr=lambda: scheduled.rate(learner.updates), weight_decay=0.0, clip=config.grad_clip
    )

    def update_(number: int) -> None:
        """Learn from minibatch `number % minibatches`, and add its metrics to the sums, unless the round is stopped."""
        if early_stop.is_stopped_(first_update=number == 0):
            return
        scheduled.update_weights_()
        minibatch = number % minibatches
        if minibatch == 0:
            # A new epoch's order, from a generator that checkpoints keep: a resumed run has the same minibatches.
            torch.randperm(sequences, generator=learner.rng, out=learner.order)
        loss_terms, grad = loss_gradients(learner.order.view(minibatches, -1)[minibatch])
        if early_stop.check_divergence_(kl=loss_terms[-1]):
            return
        learner.adam.grad[0].copy_(grad)
        norm, finite = step_()
        learner.sums.add_(torch.cat([loss_terms, norm, ~finite]))
        learner.updates += 1

    return update_


def _bind_gradients(
    config: PPOConfig, network: ActorCritic, learner: Learner, rollout: Rollout, tensors: Mapping[str, Tensor]
) -> Callable[[Int[Tensor, "b"]], tuple[Tensor, ...]]:
    """Return a function from numbers of sequences to the loss's terms [k] and gradient [n], compiled if so configured.

    Args:
        config: settings of the learner.
        network: the policy's network.
        learner: weights of the network.
        rollout: the block.
        tensors: other inputs by name: memory before each sequence, the loss's weights, statistics.
    """
    # Autograd's leaves, which share the storage of the block that the optimiser writes.
    weights = {name: w[0].detach().requires_grad_() for name, w in views(learner.block, network.layout).items()}
    columns = {name: rollout[name].flatten(0, 1) for name in UPDATE_COLUMNS if name in rollout.columns}
    gather_sequences = bind_sequences(rollout, tensors[INITIAL_MEMORY], list(columns))
    named_inputs = columns | dict(tensors)

    def gradients(sequences: Int[Tensor, "b"], *values: Tensor) -> tuple[Tensor, ...]:
        """Return the minibatch's loss terms [k], and the loss's gradient [n] in the order of the weights."""
        # The first values are the weights, the others the inputs.
        params = dict(zip(weights, values, strict=False))
        inputs = dict(zip(named_inputs, values[len(weights) :], strict=True))
        batch, memory = gather_sequences(inputs, sequences)
        output = network(inputs | params, batch["obs"], memory, batch["starts"], learning=True)
        loss_weights = LossWeights(
            inputs["supervision"], inputs["reinforcement"], inputs.get("clip"), inputs.get("entropy_weight")
        )
        loss, loss_terms = ppo_loss(config, network, output, batch, loss_weights)
        # A user's network may leave some of its weights unused.
        grads = torch.autograd.grad(loss, list(params.values()), allow_unused=True, materialize_grads=True)
        return torch.stack(list(loss_terms)), torch.cat([grad.flatten() for grad in grads])

    is_compiled = bool(config.compile) and not learner.block.is_meta  # a plan does not wait for the compiler
    graph = compile_graph(gradients, enabled=is_compiled)
    return lambda sequences: graph(sequences, *weights.values(), *named_inputs.values())


def ppo_loss(
    config: PPOConfig,
    network: ActorCritic,
    outputs: PolicyOutput,
    batch: Mapping[str, Tensor],
    loss_weights: LossWeights,
) -> tuple[Float[Tensor, ""], list[Tensor]]:
    """Return a minibatch's loss, and its metrics in the order of `metric_names`, of which `kl` is the last one here.

    The loss is PPO's clipped loss, less the weighted entropy, plus the weighted value loss; a teacher adds the
    cross-entropy to its actions. Policy loss and `kl` leave out steps that the teacher led; all other terms have them.

    Args:
        config: clip range and weights of entropy and value.
        network: network that gives the distribution of actions.
        outputs: logits and values of the minibatch, [U, b, ...] of U steps of b sequences.
        batch: columns [U, b, ...] by name.
        loss_weights: weights of imitation and reinforcement, and the scheduled clip range and entropy weight.
    """
    alive = batch["alive"].float()
    policy_mask = policy_steps(batch).float()
    policy = network.actions.distribution(outputs.logits, batch.get("legal"))
    log_ratio = (policy.log_prob(batch["action"]) - batch["log_prob"]) * policy_mask
    clip = config.clip if loss_weights.clip is None else loss_weights.clip
    entropy_weight = config.entropy_weight if loss_weights.entropy is None else loss_weights.entropy
    policy_loss = _masked_mean(clipped_loss(log_ratio, batch["advantage"], clip), policy_mask)
    value_loss = _masked_mean(_value_loss(config, outputs.value, batch), alive)
    entropy = _masked_mean(policy.entropy(), alive)
    with torch.no_grad():
        # E[r - 1 - log r] is never negative, unlike samples of -log r (Schulman 2020, "Approximating KL Divergence").
        kl = _masked_mean(log_ratio.expm1() - log_ratio, policy_mask)
        loss_terms = [x.detach() for x in (policy_loss, value_loss, entropy, kl)]
    reinforcement_loss = policy_loss - entropy_weight * entropy
    total = loss_weights.reinforcement * reinforcement_loss
    if "taught" in batch:
        imitation_loss = _masked_mean(-policy.log_prob(batch["taught"]), alive)
        agreement = _masked_mean((policy.mode() == batch["taught"]).float(), alive)
        total = loss_weights.supervision * imitation_loss + total
        loss_terms = [imitation_loss.detach(), agreement, *loss_terms]
    return total + config.value_weight * value_loss, loss_terms


def _value_loss(config: PPOConfig, value: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Return half of each step's squared value error; with `value_clip`, of the clipped error if that is larger."""
    if config.value_clip:
        return clipped_value_loss(value, batch["value"], batch["returns"], config.value_clip)
    return (value - batch["returns"]).square() / 2


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values where `mask` is 1; 0 if it is 0 everywhere."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def read_learner_(learner: Learner, *, has_teacher: bool = False) -> dict[str, float]:
    """Return means over the updates since the last reading, by metric name, and zero the sums.

    `skipped` is a count and not a mean. The result is empty if there was no update.
    """
    updates = learner.updates - learner.updates_read
    learner.updates_read = learner.updates
    # `tolist` waits for the device, once a round.
    sums = dict(zip(metric_names(has_teacher=has_teacher), learner.sums.tolist(), strict=True))
    learner.sums.zero_()
    if not updates:
        return {}
    means = {f"train/{name}": value / updates for name, value in sums.items() if name != "skipped"}
    counts = {"train/skipped": sums["skipped"]}
    return means | counts | read_early_stop(learner.early_stop, updates)
