"""After the leaves are restored: worlds and teachers are brought to where they were."""

import torch

from flatwater.envs.world import Array, Teacher, World
from flatwater.trainers.blocks.round import BlocksTrainer
from flatwater.trainers.blocks.state import TEACHER
from flatwater.trainers.episodes import Episodes, bring_


def rebuild_(trainer: BlocksTrainer) -> None:
    """Play the episodes again that are under way, in worlds that were just built."""
    run, collector, stage = trainer.run, trainer.collector, trainer.stage
    if run.agent_steps:
        rng = run.generators["teacher"]
        _bring_(collector.world, collector.teacher, run.episodes, collector.seen_now, rng)
    progress = run.progress
    playing = trainer.phases[progress.phase].name if progress.phase < len(trainer.phases) else ""
    if playing in {"baselines", "evaluate"} and progress.step:
        # The baselines play one after the other, the teacher first.
        asked = playing == "baselines" and progress.step < trainer.setup.held_out.steps
        teacher = stage.teachers[TEACHER] if asked and trainer.setup.taught else None
        _bring_(stage.world, teacher, run.held_out.episodes, stage.obs, run.generators["held out teacher"])


def _bring_(world: World, teacher: Teacher | None, episodes: Episodes, saved: Array, rng: torch.Generator) -> None:
    """Arrive where `saved` is what is seen. A teacher that draws has drawn already what it draws on the way."""
    drawn = rng.get_state()
    bring_(world, teacher, episodes, saved)
    rng.set_state(drawn)
