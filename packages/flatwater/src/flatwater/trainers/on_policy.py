"""The phases of on-policy training: play baselines once, collect a block, update from it, evaluate now and then.

`ppo` and `teach` collect in worlds, `grow` in a pool of networks; each brings its own state, collector, evaluator and
further numbers. `trainers/loop.py` runs the phases.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.learner import Learner, read_learner_
from flatwater.algorithms.on_policy import advance_state_, compute_targets_, last_numbers, make_update
from flatwater.algorithms.on_policy_algorithm import OnPolicyAlgorithm, find_on_policy_algorithm
from flatwater.algorithms.schedules import scheduled_numbers
from flatwater.nets.actor_critic import ActorCritic
from flatwater.nets.policy import update_running_stats_
from flatwater.rollouts.block import Rollout
from flatwater.trainers.loop import Phase, Progress


class LearningState(Protocol):
    """A policy in a state tree, and the block that it learns from."""

    @property
    def progress(self) -> Progress:
        """Place of the run in its rounds."""

    @property
    def learner(self) -> Learner:
        """Weights of the policy, and moments."""

    @property
    def rollout(self) -> Rollout:
        """The block that is learned from."""

    @property
    def begun(self) -> Float[Tensor, "C 2 B M"]:
        """Memory before the first step of each of the block's sequences."""


@dataclass(frozen=True)
class OnPolicySetup:
    """Constants of a run, which are not state: configuration, and the policy as functions."""

    config: Any
    """Settings, with the tables `learner` (an `OnPolicyConfig`) and `evaluation` (with `every`)."""
    device: torch.device
    """Device of the network."""

    @cached_property
    def algorithm(self) -> OnPolicyAlgorithm:
        """The algorithm that the settings choose."""
        return find_on_policy_algorithm(self.config.learner)

    @cached_property
    def network(self) -> ActorCritic:
        """The network, for the environment's observations and actions."""
        raise NotImplementedError


class Evaluator(Protocol):
    """A player of episodes that nothing is learned from."""

    @property
    def players(self) -> Iterable[str]:
        """Names of the players: the trained player first, then those that play once, before training."""

    @property
    def steps(self) -> int:
        """Steps of one player's episodes."""

    @property
    def scores(self) -> Mapping[str, Tensor]:
        """Returns by player, of each player's last episodes."""

    def play_(self, name: str, number: int) -> None:
        """Take step `number` of a player's episodes."""

    def next_step(self, number: int) -> int:
        """Return the number of the step to take after `number`; each player has `steps`, one after the other."""


def on_policy_phases(
    setup: OnPolicySetup,
    progress: Progress,
    evaluator: Evaluator,
    *,
    steps: int,
    policies: int = 1,
    collect_: Callable[[int], None],
    learn_: Callable[[int], None],
) -> tuple[Phase, ...]:
    """Return the phases of a round: baselines (first round only), collect, update, evaluate (every n-th round).

    Args:
        setup: constants of the run.
        progress: place of the run in its rounds.
        evaluator: plays the held-out episodes.
        steps: steps of a block.
        policies: number of policies, which learn one after the other.
        collect_: takes a step of the block, and records it.
        learn_: takes an update; see `bind_learning`.
    """
    settings, evaluation_interval = setup.config.learner.own, setup.config.evaluation.every
    trained_player, *baselines = evaluator.players  # baselines do not learn, so they play once

    def baseline_steps() -> int:
        """Return the number of steps of all baselines' episodes; 0 after the first round, in which they are played."""
        return len(baselines) * evaluator.steps if progress.round == 0 else 0

    def play_baselines_(number: int) -> None:
        """Take step `number` of the baselines' episodes, which are played one baseline after the other."""
        index, step = divmod(number, evaluator.steps)
        evaluator.play_(baselines[index], step)

    def evaluation_steps() -> int:
        """Return the number of steps of this round's evaluation; 0 in rounds without an evaluation."""
        return evaluator.steps if (progress.round + 1) % evaluation_interval == 0 else 0

    return (
        Phase("baselines", steps=baseline_steps, step_=play_baselines_, next_step=evaluator.next_step),
        Phase("collect", steps=lambda: steps, step_=collect_),
        Phase("update", steps=lambda: policies * settings.epochs * settings.minibatches, step_=learn_),
        Phase(
            "evaluate",
            steps=evaluation_steps,
            step_=lambda number: evaluator.play_(trained_player, number),
            next_step=evaluator.next_step,
        ),
    )


def bind_learning(
    setup: OnPolicySetup,
    run: LearningState,
    *,
    observation_chunks: int = 1,
    weights: Mapping[str, Float[Tensor, ""]] = MappingProxyType({}),
    set_weights_: Callable[[], None] = lambda: None,
    read_rewards_: Callable[[], Float[Tensor, "T B"] | None] = lambda: None,
) -> Callable[[int], None]:
    """Return the function that takes update number n of a round.

    Args:
        setup: constants of the run.
        run: state tree of the run: the rollout is read, the learner updated.
        observation_chunks: number of parts in which the block's observations are merged into their statistics.
        weights: weights of the loss's terms, by name, besides those that have a schedule.
        set_weights_: sets these weights, in place, before each update.
        read_rewards_: returns the rewards to learn from; None for the block's own.
    """
    config, rollout, network = setup.config.learner, run.rollout, setup.network
    updates = config.own.epochs * config.own.minibatches
    update_ = make_update(
        config,
        setup.algorithm,
        network,
        run.learner,
        rollout=rollout,
        initial_memory=run.begun,
        weights=weights,
        progress=lambda: config.progress(run.progress.round),
    )

    def learn_(number: int) -> None:
        """Take update `number`: compute targets before a round's first, update state and statistics after its last."""
        if number == 0:
            compute_targets_(setup.algorithm, config, run.learner, rollout, reward=read_rewards_())
        set_weights_()
        update_(number)
        # Not between updates: other statistics would change the policy that acted.
        if number < updates - 1:
            return
        advance_state_(setup.algorithm, config, run.learner, rollout)
        if network.measures:  # some numbers of observations are scaled by running statistics
            _merge_observations_(network, run.learner, rollout, observation_chunks)

    return learn_


def _merge_observations_(network: ActorCritic, learner: Learner, rollout: Rollout, chunks: int) -> None:
    """Merge a block's observations into their running statistics, in parts that take no more memory than an update.

    Observations after the end of an agent's episode, and those with NaN or infinity, are left out.

    Args:
        network: says which numbers of an observation have statistics.
        learner: its statistics are updated.
        rollout: the block.
        chunks: number of parts.
    """
    obs_chunks = rollout["obs"].flatten(0, 1).chunk(chunks)
    alive_chunks = rollout["alive"].flatten(0, 1).chunk(chunks)
    for rows, is_alive in zip(obs_chunks, alive_chunks, strict=True):
        obs = network.read_numbers(rows)  # without pixels and tokens
        is_usable = is_alive & obs.isfinite().all(1)
        # A plan on the meta device does not know how many rows are usable, and takes all of them.
        usable = obs.clone() if obs.is_meta else obs[is_usable]
        update_running_stats_(learner.statistics, network.scale_for_statistics(usable.to(network.device)))


def read_updates_(setup: OnPolicySetup, run: LearningState) -> dict[str, float]:
    """Return the metrics of the last round's updates, by name, and clear the learner's sums."""
    round_, config, algorithm = run.progress.round, setup.config, setup.algorithm
    # Rounds are counted from 0, so the number of the last one is `round_ - 1`.
    numbers = read_learner_(run.learner, algorithm.metrics) | scheduled_numbers(config.learner, round_ - 1)
    state = run.learner.algorithm_state  # what the algorithm keeps from round to round; single numbers are metrics
    numbers |= {f"train/{name}": float(tensor) for name, tensor in state.items() if tensor.dim() == 0}
    numbers["critic/explained"] = _explained_variance(run.rollout)
    if is_evaluated(setup, run.progress):  # not in each round, because it takes as long as a part of an update
        numbers |= last_numbers(
            config.learner,
            algorithm,
            setup.network,
            run.learner,
            rollout=run.rollout,
            initial_memory=run.begun,
            round_=round_ - 1,
        )
    return numbers


def is_evaluated(setup: OnPolicySetup, progress: Progress) -> bool:
    """Return whether the round that was completed last had an evaluation."""
    return bool(progress.round % setup.config.evaluation.every == 0)


def present_scores(setup: OnPolicySetup, progress: Progress, evaluator: Evaluator) -> dict[str, Tensor]:
    """Return the episodes' returns, [number of episodes], by player.

    They are those of the baselines, and of the trained player if the last complete round had an evaluation.
    """
    trained_player, *_ = evaluator.players
    was_evaluated = is_evaluated(setup, progress)
    return {name: returns for name, returns in evaluator.scores.items() if name != trained_player or was_evaluated}


def read_numbers_(setup: OnPolicySetup, run: LearningState, evaluator: Evaluator) -> dict[str, float]:
    """Return the metrics of the round that was completed last, by name, and clear the learner's sums."""
    scores = present_scores(setup, run.progress, evaluator)
    return read_updates_(setup, run) | {
        f"evaluation/{name}": float(returns.double().mean()) for name, returns in scores.items()
    }


def _explained_variance(rollout: Rollout) -> float:
    """Return the critic's explained variance, 1 - Var(return - value) / Var(return).

    It is 1 for a perfect critic, and 0 for a critic that gives a constant.
    """
    target = rollout["returns"].double()
    residual = (rollout["returns"] - rollout["value"]).double()
    # Clamped, because the variance is 0 while all returns are equal.
    return 1 - float(residual.var(correction=0) / target.var(correction=0).clamp(min=1e-12))
