"""On-policy training in worlds, with a teacher or without: the trainer, its updates and the numbers of a round."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from flatwater.algorithms.on_policy_algorithm import require_finite_update
from flatwater.algorithms.on_policy_config import TeachingConfig
from flatwater.envs.world import Teacher, World
from flatwater.trainers import on_policy
from flatwater.trainers.blocks.collect import BlockCollector
from flatwater.trainers.blocks.held_out import build_evaluator
from flatwater.trainers.blocks.opponents import EARLIER, bind_opponents_
from flatwater.trainers.blocks.rewards import scale_rewards_
from flatwater.trainers.blocks.state import BlocksSetup, BlocksState
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
        bind_earlier_(world, setup, run)
    profile = Profile([part for part in PARTS if part != "teacher" or setup.has_teacher])
    collector = BlockCollector(setup, run, worlds.training, teacher, profile)
    evaluator, update_ = build_evaluator(setup, run, worlds.held_out, other_players), bind_learning(setup, run)

    def learn_(number: int) -> None:
        """Take one update, its time counted as the profile's part `update`."""
        profile.begin_()
        update_(number)
        profile.end_part_("update")

    phases = on_policy.on_policy_phases(
        setup, run, evaluator, steps=setup.config.block, collect_=collector.step_, learn_=learn_
    )
    return WorldTrainer(
        setup, run, phases, lambda: read_numbers_(setup, run, evaluator, profile), collector, evaluator, profile
    )


def bind_earlier_(world: World, setup: BlocksSetup, run: BlocksState) -> World:
    """Let a run's earlier policies play the other sides of a world's games, if it has games; return the world."""
    if EARLIER in run.opponents:
        bind_opponents_(world, setup.network, run.opponents[EARLIER])
    return world


def bind_learning(setup: BlocksSetup, run: BlocksState) -> Callable[[int], None]:
    """Return the function that takes update number n of a round, with normalised rewards and scheduled loss weights."""
    config = setup.config.learner
    ramps = (
        {"supervision": config.supervision, "reinforcement": config.reinforcement}
        if isinstance(config, TeachingConfig)
        else {}
    )
    weights = {name: torch.full((), 0.0, device=setup.device) for name in ramps}

    def set_weights_() -> None:
        """Write the present weights of imitation and reinforcement, if there is a teacher."""
        for name, ramp in ramps.items():
            # In place, because the update is bound to these tensors.
            weights[name].fill_(ramp.scheduled_value(run.agent_steps))

    def read_rewards_() -> Tensor | None:
        """Return the block's normalised rewards, or None to learn from its rewards as they are."""
        return scale_rewards_(run.reward_scale, run.rollout, config.own.gamma) if run.reward_scale else None

    return on_policy.bind_learning(
        setup,
        run,
        observation_chunks=config.own.minibatches,
        weights=weights,
        set_weights_=set_weights_,
        read_rewards_=read_rewards_,
    )


def read_numbers_(
    setup: BlocksSetup, run: BlocksState, evaluator: EpisodeEvaluator, profile: Profile
) -> dict[str, float]:
    """Return the metrics of the round that was completed last, by name, and clear its sums."""
    learner, steps = setup.config.learner, setup.config.block * setup.agents
    # `counted_steps` are those that the teacher led, or without a teacher those of the ended episodes.
    episodes, total_return, counted_steps = run.ended.tolist()
    run.ended.zero_()
    updates = run.learner.updates - run.learner.updates_read
    numbers = on_policy.read_numbers_(setup, run, evaluator)
    if not setup.config.allow_nan:
        require_finite_update(learner, updates=updates, skipped=int(numbers.get("train/skipped", 0)))
    numbers["agent_steps"] = float(run.agent_steps)
    if isinstance(learner, TeachingConfig):
        numbers |= {
            "lead/share": counted_steps / steps,
            "weight/supervision": learner.supervision.scheduled_value(run.agent_steps),
            "weight/reinforcement": learner.reinforcement.scheduled_value(run.agent_steps),
        }
    if episodes:
        numbers["return/mean"] = total_return / episodes
        if not setup.has_teacher:
            numbers["episode/length"] = counted_steps / episodes
    if profile.steps >= steps:  # not of a block whose first steps were taken before this process resumed the run
        numbers |= profile.microseconds(steps) | {"train/sps": steps / sum(profile.wall.values())}
    return numbers
