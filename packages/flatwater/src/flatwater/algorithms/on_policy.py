"""Learning from a block of steps, in place, by any algorithm that gives a loss: the shipped PPO, or a user's.

An algorithm is a value (`on_policy_algorithm.py`): a pure function from a minibatch to a loss, and one from a block to
its advantages and returns. All else is here and in `learner.py`: minibatches of each epoch, gradients, the optimiser,
schedules, the early stop.

Axes: T steps of a block, B agents of all environments, C sequences of U steps in a block, b sequences of a minibatch.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.algorithms.adam import bind_step
from flatwater.algorithms.compilation import compile_graph
from flatwater.algorithms.early_stop import EarlyStop
from flatwater.algorithms.learner import Learner, weight_views
from flatwater.algorithms.on_policy_algorithm import LOSS, UPDATE_COLUMNS, MinibatchNumbers, OnPolicyAlgorithm
from flatwater.algorithms.on_policy_config import OnPolicyConfig
from flatwater.algorithms.schedules import ScheduledSettings, scheduled_weights
from flatwater.nets.actor_critic import ActorCritic
from flatwater.nets.policy import PolicyOutput
from flatwater.nets.stack import views
from flatwater.rollouts.block import Rollout
from flatwater.rollouts.sequences import INITIAL_MEMORY, bind_sequences
from flatwater_watch.errors import require


def compute_targets_(
    algorithm: OnPolicyAlgorithm,
    config: OnPolicyConfig,
    learner: Learner,
    rollout: Rollout,
    *,
    reward: Float[Tensor, "T B"] | None = None,
) -> None:
    """Write the block's advantages and returns, which the algorithm's `targets` computes.

    Args:
        algorithm: algorithm whose targets they are.
        config: settings of the learner.
        learner: learner, with the state of the algorithm.
        rollout: the block; its columns `advantage` and `returns` are written.
        reward: scaled rewards to learn from; None for the block's own.
    """
    block = rollout.columns if reward is None else {**rollout.columns, "reward": reward}
    block_device = rollout["reward"].device
    state = {name: tensor.to(block_device) for name, tensor in learner.algorithm_state.items()}
    advantage, returns = algorithm.targets(config.own, block | state)
    rollout["advantage"].copy_(advantage)
    rollout["returns"].copy_(returns)


@torch.no_grad()
def advance_state_(algorithm: OnPolicyAlgorithm, config: OnPolicyConfig, learner: Learner, rollout: Rollout) -> None:
    """Write the algorithm's state of the next round, after the round's last update.

    Args:
        algorithm: algorithm; one without a state leaves everything as it is.
        config: settings of the learner.
        learner: learner, whose sums are those of this round's updates.
        rollout: the block that was learned from.
    """
    if algorithm.next_state is None:
        return
    # Computed on the block's device, like the targets. The copy of the sums is the only wait here for the network's.
    block_device = rollout["reward"].device
    # The first sums are those of the loss's metrics. The early stop may leave a round without an update.
    values = learner.sums[: len(algorithm.metrics)] / max(1, learner.updates - learner.updates_read)
    means = dict(zip(algorithm.metrics, values.to(block_device), strict=True))
    state = {name: tensor.to(block_device) for name, tensor in learner.algorithm_state.items()}
    for name, tensor in algorithm.next_state(config.own, state, rollout.columns, means).items():
        learner.algorithm_state[name].copy_(tensor)


def make_update(
    config: OnPolicyConfig,
    algorithm: OnPolicyAlgorithm,
    network: ActorCritic,
    learner: Learner,
    *,
    rollout: Rollout,
    initial_memory: Float[Tensor, "C 2 B M"],
    weights: Mapping[str, Float[Tensor, ""]],
    progress: Callable[[], float] = lambda: 0.0,
) -> Callable[[int], None]:
    """Return the function `update_(number)`, which makes one update of a round, counted from 0, in place.

    Args:
        config: settings of the learner.
        algorithm: algorithm whose loss is differentiated.
        network: the policy's network.
        learner: weights, moments and sums, which are updated.
        rollout: a block after `compute_targets_`.
        initial_memory: memory before the first step of each sequence.
        weights: weights of the loss's terms by name, read at each update; they are given to the loss.
        progress: returns the progress of the schedules, 0 to 1, at each update.
    """
    minibatches = _count_minibatches(config, learner)
    schedule = ScheduledSettings(config, progress, learner.block.device)
    early_stop = EarlyStop(learner.early_stop, config.target_kl)
    loss_weights = {**weights, **schedule.weights, **learner.algorithm_state}
    loss_gradients = _bind_gradients(
        config, algorithm, network, learner, rollout=rollout, initial_memory=initial_memory, loss_weights=loss_weights
    )
    step_ = bind_step(
        learner.block, learner.adam, lr=lambda: schedule.rate(learner.updates), weight_decay=0.0, clip=config.grad_clip
    )

    def update_(number: int) -> None:
        """Learn from minibatch `number % minibatches`, and add its metrics to the sums, unless the round is stopped."""
        if early_stop.is_stopped_(first_update=number == 0):
            return
        schedule.update_weights_()
        if number % minibatches == 0:
            _shuffle_sequences_(learner)
        metrics, grad = loss_gradients(learner.order.view(minibatches, -1)[number % minibatches])
        if config.target_kl and early_stop.check_divergence_(kl=metrics[algorithm.metrics.index("kl")]):
            return
        learner.adam.grad[0].copy_(grad)
        norm, finite = step_()  # clips the gradient, and leaves out a step whose norm is not finite
        learner.sums.add_(torch.cat([metrics, norm, ~finite]))  # in the sums' order; `~finite` counts skipped steps
        learner.updates += 1

    return update_


def _count_minibatches(config: OnPolicyConfig, learner: Learner) -> int:
    """Return the number of minibatches in an epoch; refuse one that does not divide the number of sequences."""
    sequences, minibatches = len(learner.order), config.own.minibatches
    expected = f"a divisor of {sequences} sequences"
    require(sequences % minibatches == 0, f"{config.table}.minibatches", minibatches, expected)
    return int(minibatches)


def _shuffle_sequences_(learner: Learner) -> None:
    """Draw a new epoch's order, from a generator that checkpoints keep: a resumed run has the same minibatches."""
    torch.randperm(len(learner.order), generator=learner.rng, out=learner.order)


def _bind_gradients(
    config: OnPolicyConfig,
    algorithm: OnPolicyAlgorithm,
    network: ActorCritic,
    learner: Learner,
    *,
    rollout: Rollout,
    initial_memory: Float[Tensor, "C 2 B M"],
    loss_weights: Mapping[str, Tensor],
) -> Callable[[Int[Tensor, "b"]], tuple[Tensor, ...]]:
    """Return a function from sequence indexes [b] to a minibatch's metrics [k] and gradient [n].

    The function is compiled if the configuration says so.

    Args:
        config: settings of the learner.
        algorithm: algorithm whose loss is differentiated.
        network: the policy's network.
        learner: weights of the network, read at each call.
        rollout: the block from which sequences are gathered.
        initial_memory: memory before the first step of each sequence.
        loss_weights: 0-d tensors that the loss is given besides the minibatch, by name.
    """
    # Autograd's leaves, which share the storage of the block that the optimiser writes. `w[0]`: a population of one.
    leaves = {name: w[0].detach().requires_grad_() for name, w in views(learner.block, network.layout).items()}
    columns = {name: rollout[name].flatten(0, 1) for name in UPDATE_COLUMNS if name in rollout.columns}
    gather_sequences = bind_sequences(rollout, initial_memory, list(columns))
    named_inputs = columns | {INITIAL_MEMORY: initial_memory} | dict(loss_weights) | learner.statistics

    def gradients(sequence_indexes: Int[Tensor, "b"], *values: Tensor) -> tuple[Tensor, ...]:
        """Return the minibatch's metrics [k], and the loss's gradient [n] in the order of the weights."""
        # Tensors are arguments, and not read from the closure: the compiled graph would keep a closure's as constants.
        # The first values are the weights, the others the inputs.
        params = dict(zip(leaves, values, strict=False))
        inputs = dict(zip(named_inputs, values[len(leaves) :], strict=True))
        batch, memory = gather_sequences(inputs, sequence_indexes)
        output = network(inputs | params, batch["obs"], memory, batch["starts"], learning=True)
        loss_terms = minibatch_numbers(
            algorithm.loss, config, network, output, batch | {name: inputs[name] for name in loss_weights}
        )
        # A user's network may leave some of its weights unused.
        grads = torch.autograd.grad(loss_terms[LOSS], list(params.values()), allow_unused=True, materialize_grads=True)
        metrics = torch.stack([loss_terms[name].detach() for name in algorithm.metrics])
        return metrics, torch.cat([grad.flatten() for grad in grads])

    is_compiled = bool(config.compile) and not learner.block.is_meta  # a plan does not wait for the compiler
    graph = compile_graph(gradients, enabled=is_compiled)
    return lambda sequences: graph(sequences, *leaves.values(), *named_inputs.values())


def minibatch_numbers(
    function: MinibatchNumbers,
    config: OnPolicyConfig,
    network: ActorCritic,
    outputs: PolicyOutput,
    batch: Mapping[str, Tensor],
) -> Mapping[str, Tensor]:
    """Return the named tensors that an algorithm's function computes from the network's outputs on a minibatch.

    Args:
        function: the algorithm's `loss`, or its `numbers`.
        config: settings of the learner.
        network: the policy's network.
        outputs: logits and values at each step of the minibatch.
        batch: columns [U, b, ...] of the minibatch, and scheduled settings.
    """
    policy = network.actions.distribution(outputs.logits, batch.get("legal"))
    return function(config.own, policy, outputs.value, batch)


@torch.no_grad()
def last_numbers(
    config: OnPolicyConfig,
    algorithm: OnPolicyAlgorithm,
    network: ActorCritic,
    learner: Learner,
    *,
    rollout: Rollout,
    initial_memory: Float[Tensor, "C 2 B M"],
    round_: int,
) -> dict[str, float]:
    """Return the algorithm's `numbers` of the last minibatch, by the names of metrics; empty if it has none.

    They are computed from the state after the round's last update, so a resumed run has the same numbers.

    Args:
        config: settings of the learner.
        algorithm: algorithm whose numbers they are.
        network: the policy's network.
        learner: weights, and the order in which the last epoch took the sequences.
        rollout: the block that was learned from.
        initial_memory: memory before the first step of each sequence.
        round_: the round, counted from 0, whose scheduled settings are given to the function.
    """
    if algorithm.numbers is None:
        return {}
    columns = {name: rollout[name].flatten(0, 1) for name in UPDATE_COLUMNS if name in rollout.columns}
    minibatch_size = len(learner.order) // config.own.minibatches
    last_minibatch = learner.order[-minibatch_size:]
    gather_sequences = bind_sequences(rollout, initial_memory, list(columns))
    batch, memory = gather_sequences(columns | {INITIAL_MEMORY: initial_memory}, last_minibatch)
    # `learning`: a module is in training mode, as in an update.
    output = network(weight_views(network, learner), batch["obs"], memory, batch["starts"], learning=True)
    scheduled_numbers = {
        name: torch.full((), value, device=learner.block.device)
        for name, value in scheduled_weights(config, round_).items()
    }
    inputs = batch | scheduled_numbers | learner.algorithm_state
    numbers = minibatch_numbers(algorithm.numbers, config, network, output, inputs)
    return {f"train/{name}": float(number) for name, number in numbers.items()}
