"""On-policy training in worlds, with a teacher or without: the trainer, its updates and the numbers of a round."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from flatwater.algorithms.on_policy_algorithm import require_finite_update
from flatwater.algorithms.on_policy_config import TeachingConfig
from flatwater.envs.kinds import agent_rows
from flatwater.envs.world import Teacher, World
from flatwater.trainers import on_policy
from flatwater.trainers.blocks.collect import BlockCollector
from flatwater.trainers.blocks.held_out_evaluator import build_evaluator
from flatwater.trainers.blocks.opponents import EARLIER, bind_opponents_
from flatwater.trainers.blocks.rewards import scale_rewards_
from flatwater.trainers.blocks.state import BlocksSetup, BlocksState, KindsState, PolicyPart, policy_parts
from flatwater.trainers.evaluator import EpisodeEvaluator
from flatwater.trainers.profile import Profile
from flatwater.trainers.world_trainer import Worlds, WorldTrainer

BlocksTrainer = WorldTrainer[BlocksSetup, BlocksState]
PARTS = ("env", "teacher", "policy", "store", "update")
"""Parts of a step, in the order in which the profile shows them."""


def build_trainer(
    setup: BlocksSetup, run: BlocksState, worlds: Worlds, teacher: Teacher | None, other_players: Mapping[str, Teacher]
) -> BlocksTrainer:
    """Return the trainer of a run, whose phases write into the state tree.

    Args:
        setup: constants of the run.
        run: state tree of the run.
        worlds: the training world and the held-out world.
        teacher: the teacher of each training step; None without one.
        other_players: players of held-out episodes by name, besides the policy.
    """
    for world in (worlds.training, worlds.held_out):
        bind_earlier_(world, setup, run)  # opponents, if these are games in turns
    profile = Profile([part for part in PARTS if part != "teacher" or setup.has_teacher])
    collector = BlockCollector(setup, run, worlds.training, teacher, profile)
    evaluator = build_evaluator(setup, run, worlds.held_out, other_players)
    parts = policy_parts(setup, run)
    updates_ = [make_policy_update(part, run) for part in parts]  # a function for each policy
    settings = setup.config.learner.own

    def learn_(number: int) -> None:
        """Take one update of a policy, one policy after the other, its time counted as the profile's part `update`."""
        profile.begin_()
        policy, update = divmod(number, settings.epochs * settings.minibatches)
        updates_[policy](update)
        profile.end_part_("update")

    phases = on_policy.on_policy_phases(
        setup,
        run.progress,
        evaluator,
        steps=setup.config.block,
        policies=len(updates_),
        collect_=collector.step_,
        learn_=learn_,
    )
    return WorldTrainer(
        setup,
        run,
        phases,
        settle_=lambda: read_numbers_(setup, run, parts, evaluator, profile),
        collector=collector,
        evaluator=evaluator,
        profile=profile,
    )


def bind_earlier_(world: World, setup: BlocksSetup, run: BlocksState) -> World:
    """Let a run's earlier policies play the other sides if the world is a game in turns; return the world."""
    if EARLIER in run.opponents:  # then agents are of one kind, so `setup.network` is the network of all policies
        bind_opponents_(world, setup.network, run.opponents[EARLIER])
    return world


def make_policy_update(part: PolicyPart, run: BlocksState) -> Callable[[int], None]:
    """Return a function that performs update n of a round, n from 0, on one policy.

    Rewards are normalised, and the weights of the loss follow their schedules, as the settings say.
    """
    setup = part.setup
    config = setup.config.learner
    # How the weights of imitation and reinforcement change over the run's steps; none without a teacher.
    ramps = (
        {"supervision": config.supervision, "reinforcement": config.reinforcement}
        if isinstance(config, TeachingConfig)
        else {}
    )
    weights = {name: torch.full((), 0.0, device=setup.device) for name in ramps}  # written by `set_weights_`

    def set_weights_() -> None:
        """Write the present weights of imitation and reinforcement, if there is a teacher."""
        for name, ramp in ramps.items():
            # In place, because the update is bound to these tensors.
            weights[name].fill_(ramp.scheduled_value(run.agent_steps))

    def read_rewards_() -> Tensor | None:
        """Return the block's normalised rewards, or None to learn from its rewards as they are."""
        return scale_rewards_(part.reward_scale, part.rollout, config.own.gamma) if part.reward_scale else None

    return on_policy.bind_learning(
        setup,
        part,
        observation_chunks=config.own.minibatches,
        weights=weights,
        set_weights_=set_weights_,
        read_rewards_=read_rewards_,
    )


def read_numbers_(
    setup: BlocksSetup, run: BlocksState, parts: Sequence[PolicyPart], evaluator: EpisodeEvaluator, profile: Profile
) -> dict[str, float]:
    """Return the metrics of the round that was completed last, by name, and clear its sums."""
    learner = setup.config.learner
    steps = setup.config.block * setup.agents  # of all agents in a block
    # `counted_steps` are those that the teacher led, or without a teacher those of the ended episodes.
    episodes, total_return, counted_steps = run.ended.tolist()
    run.ended.zero_()
    numbers = _policy_numbers_(setup, parts) | _evaluation_numbers(setup, run, evaluator)
    numbers["agent_steps"] = float(run.agent_steps)
    if isinstance(learner, TeachingConfig):
        numbers |= {
            "lead/share": counted_steps / steps,
            "weight/supervision": learner.supervision.scheduled_value(run.agent_steps),
            "weight/reinforcement": learner.reinforcement.scheduled_value(run.agent_steps),
        }
    if episodes:
        numbers["return/mean"] = total_return / episodes
        if isinstance(run, KindsState):
            # `episodes` counts each agent's episode, and all agents have as many.
            by_agent = run.agent_returns.numpy() / (episodes / setup.spaces.agents)
            numbers |= {f"return/{name}": float(by_agent[places].mean()) for name, places in agent_rows(setup.spaces)}
            run.agent_returns.zero_()
        if not setup.has_teacher:
            numbers["episode/length"] = counted_steps / episodes
    if profile.steps >= steps:  # not of a block whose first steps were taken before this process resumed the run
        numbers |= profile.microseconds(steps) | {"train/sps": steps / sum(profile.wall.values())}
    return numbers


def _policy_numbers_(setup: BlocksSetup, parts: Sequence[PolicyPart]) -> dict[str, float]:
    """Return the metrics of the last round's updates; of several policies those of `join_numbers`."""
    numbers_by_kind = dict[str, dict[str, float]]()
    for part in parts:
        # Before `read_updates_`, which counts them as read.
        updates = part.learner.updates - part.learner.updates_read
        numbers = on_policy.read_updates_(part.setup, part)
        numbers_by_kind[part.name] = numbers
        if not setup.config.allow_nan:
            skipped_updates = int(numbers.get("train/skipped", 0))
            require_finite_update(setup.config.learner, updates=updates, skipped_updates=skipped_updates)
    return join_numbers(numbers_by_kind) if setup.spaces.kinds else numbers  # those of the only policy


def join_numbers(numbers_by_kind: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return each metric, `group/metric`, as the mean over the kinds of agents, and as `group/kind/metric` for each.

    `train/skipped` is not a mean but the sum of their counts. A kind may lack metrics, as the user's own may differ.
    """
    joined_numbers = dict[str, float]()
    for name in dict.fromkeys(name for numbers in numbers_by_kind.values() for name in numbers):
        # Of the kinds that have this metric.
        values = {kind: kind_numbers[name] for kind, kind_numbers in numbers_by_kind.items() if name in kind_numbers}
        divisor = 1 if name == "train/skipped" else len(values)
        joined_numbers[name] = sum(values.values()) / divisor
        group, _, metric = name.partition("/")
        joined_numbers |= {f"{group}/{kind}/{metric}": value for kind, value in values.items()}
    return joined_numbers


def _evaluation_numbers(setup: BlocksSetup, run: BlocksState, evaluator: EpisodeEvaluator) -> dict[str, float]:
    """Return the mean returns of the players' held-out episodes; with several kinds of agents also of each of them."""
    numbers, spaces = dict[str, float](), setup.held_out
    for player, returns in on_policy.present_scores(setup, run.progress, evaluator).items():
        numbers[f"evaluation/{player}"] = float(returns.double().mean())
        # `name` is a kind, or an agent of a kind of several; there is none where all agents have the same spaces.
        for name, places in agent_rows(spaces):
            by_agent = returns.double().view(spaces.envs, -1).mean(0)
            numbers[f"evaluation/{player}/{name}"] = float(by_agent[places].mean())
    return numbers
