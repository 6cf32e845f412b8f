"""Proximal policy optimisation (Schulman et al. 2017), in place, with a teacher or without: `grow`, `ppo` and `teach`.

It learns from a block of consecutive steps, dealt into sequences: some steps of one agent, from the memory that it had
before the first of them, where the gradient is cut. A policy without a memory learns from sequences of one step; where
a block is one episode of every agent, an episode is one sequence. A teacher adds the cross-entropy on its actions to
the loss.

The file reads from top to bottom: what is kept, how it is built, how it acts, what a block was worth, how it learns.
The settings are in `config.py`, for the command line reads them without torch.

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
from flatwater.algorithms.schedules import Pace
from flatwater.nets.actor_critic import ActorCritic
from flatwater.nets.policy import PolicyOutput, Weights, build_statistics
from flatwater.nets.stack import init_, views
from flatwater.rollouts.block import ColumnSpec, Rollout
from flatwater.rollouts.sequences import bind_sequences
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state
from flatwater_watch.errors import require

TEACHING = ("imitation_loss", "agreement")
"""Rows of the sums that a teacher adds: agreement is the share of steps on which the policy's likeliest action is the
teacher's."""
METRICS = ("policy_loss", "value_loss", "entropy", "kl", "grad_norm", "skipped")
"""The other rows: kl estimates the divergence from the policy that acted by E[ratio - 1 - log ratio]."""
DEVIATION_EPSILON = 1e-8
"""Added to the deviation of advantages: where all are equal, there is nothing to learn, and nothing is learned."""


@state
class Learner:
    """Network, moments and counters, allocated whole by `build`; updates write in place."""

    block: Float[Tensor, "1 n"]
    """The policy's weights: a population of one."""
    adam: Adam
    order: Int[Tensor, "C*B"]
    """The sequences, as they are dealt into this epoch's minibatches."""
    rng: torch.Generator
    """Generator of the initial weights, and then of `order`."""
    sums: Float[Tensor, "S"]
    """Summed over updates since they were last read; rows as in METRICS, after TEACHING where there is a teacher."""
    early_stop: dict[str, Float[Tensor, ""]]
    """With a `target_kl`: whether this round's updates have ended, and the number of rounds that ended early."""
    statistics: dict[str, Tensor]
    """Running statistics of observations, where the policy reads them (`ActorCritic.measures`), and the buffers of a
    module that reads them; otherwise empty."""
    updates: int = 0
    """Updates since the run began."""
    updates_read: int = 0
    """`updates` when the sums were last read."""

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """The network, and the statistics of its observations: leaves that another run may begin with."""
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
    """Return initial weights and moments of zero. On the meta device this is the plan.

    Args:
        network: the network whose layout is allocated.
        sequences: number of sequences in a block, C times B.
        rng: a generator on the device.
        device: device of the network.
        has_teacher: whether there is a teacher.
        target_kl: divergence at which a round's updates end; 0 for no such bound.
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
    """Return the names of the sums' rows."""
    return (*(TEACHING if has_teacher else ()), *METRICS)


def step_columns(action: ColumnSpec, *, legal: int = 0, has_teacher: bool = False) -> dict[str, ColumnSpec]:
    """Return the columns of a rollout besides the world's `obs`, `reward`, `terminated` and `truncated`.

    `compute_advantages_` writes the last two, `advantage` and `returns`.

    Args:
        action: the form of one action.
        legal: numbers in a mask of legal actions; 0 if every action is legal.
        has_teacher: whether there is a teacher.
    """
    teacher = {
        "taught": action,  # what the teacher would do
        "led": ColumnSpec((), torch.bool),  # by the teacher
    }
    mask = {"legal": ColumnSpec((legal,), torch.bool)}
    return (teacher if has_teacher else {}) | (mask if legal else {}) | {
        "action": action,  # what was executed
        "alive": ColumnSpec((), torch.bool),  # the agent was not over before the step
        "starts": ColumnSpec((), torch.bool),  # an episode began with the step
        "log_prob": ColumnSpec(),
        "value": ColumnSpec(),
        "next_value": ColumnSpec(),
        "advantage": ColumnSpec(),
        "returns": ColumnSpec(),
    }  # fmt: skip


class ActingPolicy(Protocol):
    """A policy that acts: a learner, or a copy of its weights."""

    block: Float[Tensor, "1 n"]
    statistics: dict[str, Tensor]


def bound_weights(network: ActorCritic, learner: ActingPolicy) -> Weights:
    """Return the policy's weights by name, and its statistics: they share the learner's storage, which never moves."""
    return named_weights(network, learner.block) | learner.statistics


def named_weights(network: ActorCritic, block: Float[Tensor, "1 n"]) -> dict[str, Tensor]:
    """Return the policy's weights by name, sharing the storage of their block."""
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
        obs: [B, *obs].
        memory: before the step.
        starts: whether an episode begins with it.

    Returns:
        logits [1, B, R] and value [1, B], an axis of one step first; the memory after the step [2, B, M].
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


OF_A_STEP = ("obs", "memory", "starts", "noise")
"""Arguments of a step: observations [B, *obs], memory before them [2, B, M], where an episode begins [B], and the
numbers that the actions' `noise_` drew. After them come `legal` [B, R] where actions have masks, and with a teacher
`led` [B], whether it leads an agent, and `taught` [B, *action], its actions."""


def make_act(
    config: PPOConfig, network: ActorCritic, learner: ActingPolicy, *, masked: bool = False, has_teacher: bool = False
) -> Callable[..., ActingStep]:
    """Bind a step of each agent to the learner's weights: `act(obs=..., memory=..., ...)`, named as in `OF_A_STEP`.

    Args:
        config: whether to compile it.
        network: the policy's network.
        learner: weights of the network, which later updates change in place.
        masked: whether the actions have masks: `act` then wants `legal`.
        has_teacher: whether there is a teacher: `act` then wants `led` and `taught`.
    """
    weights = bound_weights(network, learner)
    names = (*OF_A_STEP, *(("legal",) if masked else ()), *(("led", "taught") if has_teacher else ()))

    @torch.no_grad()
    def step(params: Weights, given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Return each agent's action and memory after the step; with a value, also the action's log-probability."""
        choice = network.run_step(params, given["obs"], given["memory"], given["starts"])
        policy = network.actions.distribution(choice.logits, given.get("legal"))
        action = policy.sample(given["noise"])
        if has_teacher:
            action = torch.where(given["led"], given["taught"], action)
        log_prob_and_value = () if choice.value is None else (policy.log_prob(action), choice.value)
        return action, choice.memory, *log_prob_and_value

    if not config.compile:
        return lambda **given: ActingStep(*step(weights, given))

    def traced_step(*tensors: Tensor) -> tuple[Tensor, ...]:
        # Not strict: the weights come first among the tensors, the step's arguments after them.
        return step(dict(zip(weights, tensors, strict=False)), dict(zip(names, tensors[len(weights) :], strict=True)))

    graph, bound = compile_graph(traced_step, enabled=True), tuple(weights.values())
    return lambda **given: ActingStep(*graph(*bound, *(given[name] for name in names)))


def bind_evaluation(
    config: PPOConfig, network: ActorCritic, learner: Learner, *, rollout: Rollout, parts: int
) -> Callable[[], None]:
    """Bind the log-probabilities and values of a whole block, for a policy without memory.

    Args:
        config: whether it is compiled.
        network: the network.
        learner: weights of the network, with which the block was acted.
        rollout: the block: a call reads `obs`, `action` and, where there are masks, `legal`; it writes the results.
        parts: number of equal pieces of the block, so that it needs no more space than an update.
    """
    weights, device = bound_weights(network, learner), learner.block.device
    size = rollout["obs"].shape[:2].numel() // parts
    # `split` of `flatten` gives views: what the call writes into a piece is written into the rollout.
    pieces = {name: torch.split(column.flatten(0, 1), size) for name, column in rollout.columns.items()}
    input_names, output_names = ("obs", "action", "legal"), ("log_prob", "value")
    from_pieces, into_pieces = (
        list(zip(*(pieces[name] for name in names if name in pieces), strict=True))
        for names in (input_names, output_names)
    )

    def judge(*tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the log-probabilities [n] of the actions of one piece, and the values [n] of its observations."""
        params, (obs, action, *legal) = dict(zip(weights, tensors, strict=False)), tensors[len(weights) :]
        memory = torch.zeros(2, len(obs), 0, device=device)
        starts = torch.zeros(1, len(obs), dtype=torch.bool, device=device)
        output = network(params, obs.unsqueeze(0), memory, starts)
        return network.actions.distribution(output.logits[0], *legal).log_prob(action), output.value[0]

    graph = compile_graph(torch.no_grad()(judge), enabled=bool(config.compile))

    def judge_() -> None:
        """Evaluate piece by piece, and write the results into the rollout."""
        for part, row in zip(from_pieces, into_pieces, strict=True):
            columns = graph(*weights.values(), *(column.to(device) for column in part))
            for column, new in zip(row, columns, strict=True):
                column.copy_(new)

    return judge_


def policy_steps(columns: Mapping[str, Tensor]) -> Bool[Tensor, "*N"]:
    """Return a mask of the steps that the policy chose: agents in the episode whose action was not the teacher's."""
    return columns["alive"] & ~columns["led"] if "led" in columns else columns["alive"]


def compute_advantages_(rollout: Rollout, config: PPOConfig, *, reward: Float[Tensor, "T B"] | None = None) -> None:
    """Write the returns, and the advantages, with mean 0 and deviation 1 over the steps that the policy chose.

    They are standardised over the block and not over each minibatch: a few episodes are too few for a deviation.

    Args:
        rollout: the block, whose last two columns are written.
        config: discount and lambda.
        reward: rewards on another scale than the block's, to be learned from instead.
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
    # A block that the teacher led throughout has none: 0 / 1 then, and not NaN.
    count = policy_mask.sum().clamp(min=1)
    mean = (estimate * policy_mask).sum() / count
    deviation = (((estimate - mean) * policy_mask).square().sum() / count).sqrt()
    torch.div(estimate - mean, deviation + DEVIATION_EPSILON, out=advantage)


@dataclass
class LossWeights:
    """The weights of the loss's parts in this round: 0-d, on the network's device."""

    # Tensors, as a compiled graph would keep a Python number for ever.
    supervision: Float[Tensor, ""]
    reinforcement: Float[Tensor, ""]
    clip: Float[Tensor, ""] | None = None
    """Clip range, where it has a schedule."""
    entropy: Float[Tensor, ""] | None = None
    """Weight of the entropy, where it has a schedule."""


def initial_loss_weights(device: torch.device, *, supervision: float = 0.0, reinforcement: float = 1.0) -> LossWeights:
    """Return weights on a device; by default those of a policy that learns without a teacher."""
    return LossWeights(*(torch.full((), weight, device=device) for weight in (supervision, reinforcement)))


LEARNED_FROM = (
    "obs", "taught", "legal", "action", "led", "alive", "starts", "log_prob", "value", "advantage", "returns",
)  # fmt: skip
"""Columns of a rollout that an update reads, where it has them."""


def make_update(
    config: PPOConfig,
    network: ActorCritic,
    learner: Learner,
    *,
    rollout: Rollout,
    begun: Float[Tensor, "C 2 B M"],
    loss_weights: LossWeights,
    progress: Callable[[], float] = lambda: 0.0,
) -> Callable[[int], None]:
    """Bind an update to the learner's storage.

    Args:
        config: settings of the learner.
        network: the network.
        learner: weights of the network, and what belongs to their training.
        rollout: a block after `compute_advantages_`.
        begun: memory before the first step of each sequence.
        loss_weights: weights of the loss's parts, read at each update.
        progress: done share of the schedules, asked at each update.

    Returns:
        `update_(number)` learns from minibatch `number % minibatches`; the first of an epoch deals the sequences again.
    """
    whole, parts = len(learner.order), config.minibatches
    require(whole % parts == 0, "learner.minibatches", parts, f"a divisor of {whole} sequences")
    size, clip = whole // parts, config.grad_clip
    pace, limit = Pace(config, progress, learner.block.device), EarlyStop(learner.early_stop, config.target_kl)
    reads = {"begun": begun, "supervision": loss_weights.supervision, "reinforcement": loss_weights.reinforcement}
    learn = _bind_gradients(config, network, learner, rollout, reads | learner.statistics | pace.weights)
    step_ = bind_step(learner.block, learner.adam, lr=lambda: pace.rate(learner.updates), weight_decay=0.0, clip=clip)

    def update_(number: int) -> None:
        """Learn from minibatch `number % minibatches`, and add its numbers to the learner's sums."""
        part = number % parts
        if limit.has_ended_(begins=number == 0):
            return
        pace.set_()
        if part == 0:
            # In place, from a generator that checkpoints keep: a resumed run deals the same sequences.
            torch.randperm(whole, generator=learner.rng, out=learner.order)
        loss_terms, grad = learn(learner.order[part * size : (part + 1) * size])
        if limit.ends_(loss_terms[-1]):  # its divergence
            return
        learner.adam.grad[0].copy_(grad)
        norm, finite = step_()
        learner.sums.add_(torch.cat([loss_terms, norm, ~finite]))
        learner.updates += 1

    return update_


def _bind_gradients(
    config: PPOConfig, network: ActorCritic, learner: Learner, rollout: Rollout, reads: Mapping[str, Tensor]
) -> Callable[[Int[Tensor, "b"]], tuple[Tensor, ...]]:
    """Bind the function that returns the loss's parts and gradient for some sequences, by their numbers.

    Args:
        config: settings of the learner.
        network: the policy's network.
        learner: weights of the network, and what belongs to their training.
        rollout: the block.
        reads: other tensors by name: memory before each sequence, the loss's weights, statistics.
    """
    # Leaves that share the block's storage: the optimiser moves them, gradients are taken by them.
    weights = {name: w[0].detach().requires_grad_() for name, w in views(learner.block, network.layout).items()}
    columns = {name: rollout[name].flatten(0, 1) for name in LEARNED_FROM if name in rollout.columns}
    deal = bind_sequences(rollout, reads["begun"], list(columns))
    named = columns | dict(reads)

    def gradients(sequences: Int[Tensor, "b"], *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the minibatch's loss terms [k], and the loss's gradient [n] in the order of the weights."""
        params = dict(zip(weights, tensors, strict=False))
        inputs = dict(zip(named, tensors[len(weights) :], strict=True))
        batch, memory = deal(inputs, sequences)
        output = network(inputs | params, batch["obs"], memory, batch["starts"], learning=True)
        loss_weights = LossWeights(
            inputs["supervision"], inputs["reinforcement"], inputs.get("clip"), inputs.get("entropy_weight")
        )
        loss, loss_terms = ppo_loss(config, network, output, batch, loss_weights)
        # A network of the user's may leave out some of its weights.
        grads = torch.autograd.grad(loss, list(params.values()), allow_unused=True, materialize_grads=True)
        return torch.stack(list(loss_terms)), torch.cat([grad.flatten() for grad in grads])

    compile_it = bool(config.compile) and not learner.block.is_meta  # a plan does without the compiler
    graph = compile_graph(gradients, enabled=compile_it)
    return lambda sequences: graph(sequences, *weights.values(), *named.values())


def ppo_loss(
    config: PPOConfig,
    network: ActorCritic,
    outputs: PolicyOutput,
    batch: Mapping[str, Tensor],
    loss_weights: LossWeights,
) -> tuple[Float[Tensor, ""], list[Tensor]]:
    """Return the loss, and the numbers that `metric_names` names before the gradient's norm.

    It is PPO's clipped loss, less the weighed entropy, plus the critic's; with a teacher also the cross-entropy to its
    actions. Actions that the teacher led say nothing of the policy, so PPO leaves them out; the cross-entropy and the
    critic learn from all steps.

    Args:
        config: clip range and weights of entropy and value.
        network: gives the distribution of actions.
        outputs: logits and values of the minibatch, [U, b, ...] of U steps of b sequences.
        batch: columns [U, b, ...] by name.
        loss_weights: weights of imitation and reinforcement, each 0-d, and what has a schedule.
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
    """Return half the squared error of each step's value; with `value_clip` (0: none) the clipped error, if larger."""
    if config.value_clip:
        return clipped_value_loss(value, batch["value"], batch["returns"], config.value_clip)
    return (value - batch["returns"]).square() / 2


def _masked_mean(values: Tensor, counted: Tensor) -> Tensor:
    """Return the mean of the values where `counted` is 1, not 0; 0 if it is so nowhere."""
    return (values * counted).sum() / counted.sum().clamp(min=1)


def read_learner_(learner: Learner, *, has_teacher: bool = False) -> dict[str, float]:
    """Return means over the updates since the last reading, by metric name, and zero the sums.

    The learner waits for its device here alone: once a round. The result is empty if there was no update. `skipped`
    is a count, and no mean.
    """
    updates, learner.updates_read = learner.updates - learner.updates_read, learner.updates
    sums = dict(zip(metric_names(has_teacher=has_teacher), learner.sums.tolist(), strict=True))
    learner.sums.zero_()
    if not updates:
        return {}
    means = {f"train/{name}": value / updates for name, value in sums.items() if name != "skipped"}
    counts = {"train/skipped": sums["skipped"]}
    return means | counts | read_early_stop(learner.early_stop, updates)
