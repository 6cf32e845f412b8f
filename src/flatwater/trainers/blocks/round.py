"""One round: let those play that do not learn (once), collect a block, update, evaluate (now and then)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flatwater.algorithms.config import TeachingConfig
from flatwater.algorithms.ppo import assess_, make_update, weigh
from flatwater.trainers.blocks.collect import Collector
from flatwater.trainers.blocks.held_out import Stage
from flatwater.trainers.blocks.numbers import read_numbers_
from flatwater.trainers.blocks.state import Blocks, Setup
from flatwater.trainers.loop import Phase, Progress
from flatwater.trainers.profile import Profile


@dataclass(frozen=True)
class BlocksTrainer:
    """The phases of a round over a run's state; what the loop drives."""

    setup: Setup
    run: Blocks
    collector: Collector
    stage: Stage
    profile: Profile
    phases: Sequence[Phase]

    @property
    def progress(self) -> Progress:
        """Where the run is."""
        return self.run.progress

    def settle_(self) -> dict[str, float]:
        """The round's numbers."""
        return read_numbers_(self.setup, self.run, self.profile)


def build_trainer(setup: Setup, run: Blocks, collector: Collector, stage: Stage, profile: Profile) -> BlocksTrainer:
    """Bind the phases to the state."""
    config, steps = setup.config, setup.held_out.steps
    update_ = bind_learning(setup, run)
    trained, *others = setup.players  # the others do not learn, so they are evaluated once
    updates = config.learner.epochs * config.learner.minibatches

    def compare_(number: int) -> None:
        who, step = divmod(number, steps)
        stage.play_(others[who], step)

    def learn_(number: int) -> None:
        profile.begin_()
        update_(number)
        profile.mark_("update")

    def evaluation_due() -> int:
        return steps if (run.progress.round + 1) % config.evaluation.every == 0 else 0

    phases = (
        Phase("baselines", lambda: len(others) * steps if run.progress.round == 0 else 0, compare_),
        Phase("collect", lambda: config.block, collector.step_),
        Phase("update", lambda: updates, learn_),
        Phase("evaluate", evaluation_due, lambda number: stage.play_(trained, number)),
    )
    return BlocksTrainer(setup, run, collector, stage, profile, phases)


def bind_learning(setup: Setup, run: Blocks) -> Callable[[int], None]:
    """The update by its number in the round; the first one assesses the block."""
    config, rollout = setup.config.learner, run.rollout
    weighing = weigh(setup.device)
    update_ = make_update(config, setup.student, run.learner, rollout=rollout, begun=run.begun, weighing=weighing)

    def learn_(number: int) -> None:
        if number == 0:
            assess_(rollout, config)
        if isinstance(config, TeachingConfig):
            weighing.supervision.fill_(config.supervision.at(run.agent_steps))
            weighing.reinforcement.fill_(config.reinforcement.at(run.agent_steps))
        update_(number)

    return learn_
