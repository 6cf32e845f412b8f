"""One round: baselines play (once), collect a block, update, evaluate (now and then)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from flatwater.algorithms.config import TeachingConfig
from flatwater.algorithms.ppo import compute_advantages_, loss_weights, make_update, read_learner_
from flatwater.algorithms.schedules import scheduled_numbers
from flatwater.envs.world import Array, Teacher, World
from flatwater.nets.policy import update_running_stats_
from flatwater.trainers.blocks.collect import Collector
from flatwater.trainers.blocks.held_out import HeldOutEvaluator
from flatwater.trainers.blocks.rewards import scale_rewards_
from flatwater.trainers.blocks.state import TEACHER, BlocksSetup, BlocksState
from flatwater.trainers.episodes import Episodes, give_back_, is_begun, replay_episodes_, save_world_state_
from flatwater.trainers.loop import Phase, Progress
from flatwater.trainers.profile import Profile


@dataclass(frozen=True)
class BlocksTrainer:
    """The phases of a round over a run's state, as the loop drives them."""

    setup: BlocksSetup
    run: BlocksState
    collector: Collector
    stage: HeldOutEvaluator
    profile: Profile
    phases: Sequence[Phase]

    @property
    def progress(self) -> Progress:
        """Place of the run in its rounds."""
        return self.run.progress

    def settle_(self) -> dict[str, float]:
        """Return the round's numbers."""
        return read_numbers_(self.setup, self.run, self.profile)


def build_trainer(
    setup: BlocksSetup, run: BlocksState, collector: Collector, stage: HeldOutEvaluator, profile: Profile
) -> BlocksTrainer:
    """Bind the phases to the state: baselines (first round alone), collect, update, and evaluate every so many rounds.

    Args:
        setup: constants of the run.
        run: its state tree.
        collector: takes the steps of a block, and records them.
        stage: plays the held-out episodes.
        profile: takes the time of updates as its part `update`.
    """
    config, steps = setup.config, setup.held_out.steps
    update_ = bind_learning(setup, run)
    trainee, *others = setup.players  # the others do not learn, so they are evaluated once
    updates = config.learner.epochs * config.learner.minibatches

    def compare_(number: int) -> None:
        index, step = divmod(number, steps)
        stage.play_(others[index], step)

    def learn_(number: int) -> None:
        """Take one update, its time counted as the profile's part `update`."""
        profile.begin_()
        update_(number)
        profile.end_part_("update")

    def evaluation_due() -> int:
        return steps if (run.progress.round + 1) % config.evaluation.every == 0 else 0

    phases = (
        Phase("baselines", lambda: len(others) * steps if run.progress.round == 0 else 0, compare_),
        Phase("collect", lambda: config.block, collector.step_),
        Phase("update", lambda: updates, learn_),
        Phase("evaluate", evaluation_due, lambda number: stage.play_(trainee, number)),
    )
    return BlocksTrainer(setup, run, collector, stage, profile, phases)


def bind_learning(setup: BlocksSetup, run: BlocksState) -> Callable[[int], None]:
    """Return the update by its number in the round.

    The first update computes the block's advantages; after the last one, observations are merged into the statistics.
    """
    config, rollout = setup.config.learner, run.rollout
    weighing = loss_weights(setup.device)
    update_ = make_update(
        config,
        setup.student,
        run.learner,
        rollout=rollout,
        begun=run.begun,
        weighing=weighing,
        progress=lambda: config.progress(run.progress.round),
    )

    def learn_(number: int) -> None:
        """Take update `number`: the first of a round writes the advantages, the last merges the statistics."""
        if number == 0:
            scaled = scale_rewards_(run.reward_scale, rollout, config.gamma) if run.reward_scale else None
            compute_advantages_(rollout, config, reward=scaled)
        if isinstance(config, TeachingConfig):
            # In place: the bound update reads these very tensors.
            weighing.supervision.fill_(config.supervision.value_at(run.agent_steps))
            weighing.reinforcement.fill_(config.reinforcement.value_at(run.agent_steps))
        update_(number)
        # After the last update: other statistics in between would make another policy of the one that acted.
        if number == config.epochs * config.minibatches - 1 and setup.student.measures:
            parts = (rollout[name].flatten(0, 1).chunk(config.minibatches) for name in ("obs", "alive"))
            for rows, alive in zip(*parts, strict=True):  # no more room than an update takes
                obs = setup.student.read_numbers(rows)
                is_usable = alive & obs.isfinite().all(1)
                # On meta a plan cannot know how many rows are usable: all, at most.
                usable = obs.clone() if obs.is_meta else obs[is_usable]
                update_running_stats_(run.learner.statistics, setup.student.measured(usable.to(setup.device)))

    return learn_


PARTS = ("env", "teacher", "student", "store", "update")
"""Parts of a step, in the order in which the profile shows them."""


def read_numbers_(setup: BlocksSetup, run: BlocksState, profile: Profile) -> dict[str, float]:
    """Return named numbers of the round that is complete, and clear the sums of the round."""
    config = setup.config
    episodes, total_return, led_steps = run.ended.tolist()
    run.ended.zero_()
    numbers = read_learner_(run.learner, taught=setup.taught) | {"agent_steps": float(run.agent_steps)}
    if isinstance(config.learner, TeachingConfig):
        numbers |= {
            "lead/share": led_steps / (config.block * setup.agents),
            "weight/supervision": config.learner.supervision.value_at(run.agent_steps),
            "weight/reinforcement": config.learner.reinforcement.value_at(run.agent_steps),
        }
    numbers |= scheduled_numbers(config.learner, run.progress.round - 1)
    numbers["critic/explained"] = _explained_variance(run)
    if episodes:
        numbers["return/mean"] = total_return / episodes
    for player in setup.players[1:]:
        numbers[f"evaluation/{player}"] = float(run.held_out.scores[player].double().mean())
    if run.progress.round % config.evaluation.every == 0:
        trainee = setup.players[0]
        numbers[f"evaluation/{trainee}"] = float(run.held_out.scores[trainee].double().mean())
    return numbers | _profile(profile, config.block * setup.agents)


def _explained_variance(run: BlocksState) -> float:
    """Return 1 - Var(return - value) / Var(return): 1 for a perfect critic, 0 for a constant one."""
    rollout = run.rollout
    target, residual = rollout["returns"].double(), (rollout["returns"] - rollout["value"]).double()
    # 1e-12 where all returns are equal, as before anything is ever paid.
    return 1 - float(residual.var(correction=0) / target.var(correction=0).clamp(min=1e-12))


def _profile(profile: Profile, steps: int) -> dict[str, float]:
    """Return microseconds of an agent's step, by part, and agent steps per second, of a block taken whole here.

    Of any other block nothing is known: its update covers steps that another process took.
    """
    if profile.steps < steps:
        return {}
    numbers = {f"profile/{part}_us": 1e6 * seconds / steps for part, seconds in profile.wall.items()}
    return numbers | {"train/sps": steps / sum(profile.wall.values())}


def keep_worlds_(trainer: BlocksTrainer) -> str:
    """Write both worlds' states over episodes, before a checkpoint; return why that cannot be, or nothing."""
    run = trainer.run
    return save_world_state_(trainer.collector.world, run.episodes) or save_world_state_(
        trainer.stage.world, run.held_out.episodes
    )


def rebuild_(trainer: BlocksTrainer, *, exact: bool = True) -> str:
    """Play the running episodes again, in worlds that were just built.

    Args:
        trainer: a restored trainer.
        exact: whether they can be; otherwise, and where it turns out that they cannot, new ones begin.

    Returns:
        Why the run does not go on bit for bit, as the end of a sentence; empty where it does.
    """
    run, progress, collector, stage = trainer.run, trainer.progress, trainer.collector, trainer.stage
    steps, held_out = trainer.setup.held_out.steps, trainer.run.held_out.episodes
    reason = ""
    if run.agent_steps:
        if exact:
            episode_parts = collector.world, collector.teacher, run.episodes, collector.seen_now
            reason = _bring_(*episode_parts, run.generators["teacher"])
        # New episodes also where `exact` was wanted and a difference was found on the way.
        if reason or not exact:
            give_back_(collector.world, run.episodes)
            collector.restart_episodes_()
    phase_name = trainer.phases[progress.phase].name if progress.phase < len(trainer.phases) else ""
    is_between = progress.step == 0 or phase_name not in {"baselines", "evaluate"}
    if is_between and not is_begun(held_out):
        return reason
    exact = exact and not reason
    if exact:
        # The baselines play one after the other, the teacher first.
        teacher_plays = phase_name == "baselines" and progress.step < steps and trainer.setup.taught and not is_between
        teacher = stage.teachers[TEACHER] if teacher_plays else None
        reason = _bring_(stage.world, teacher, held_out, stage.obs, run.generators["held out teacher"])
    if reason or not exact:
        give_back_(stage.world, held_out)
        progress.step -= 0 if is_between else progress.step % steps  # whoever plays begins again
    return reason


def _bring_(world: World, teacher: Teacher | None, episodes: Episodes, saved: Array, rng: torch.Generator) -> str:
    """Play a world to where `saved` is the observation, and put the teacher's generator back to where it was saved.

    The saved generator has made the draws of these steps already.

    Args:
        world: the world to play.
        teacher: the teacher that was asked at each of the steps; None where there was none.
        episodes: the running episodes; not changed.
        saved: [E, A, *obs], the observations that must come out.
        rng: the teacher's generator.

    Returns:
        why the world is not where it was; empty where it is.
    """
    state = rng.get_state()
    reason = replay_episodes_(world, teacher, episodes, saved)
    rng.set_state(state)
    return reason
