"""The result of a run of PPO on blocks, as in result.json."""

from typing import Any

from flatwater.envs.split_seeds import NOTES
from flatwater.metrics.figures import finite
from flatwater.recipes.ppo.config import BlocksRunConfig
from flatwater.recipes.ppo.score import Score
from flatwater.runs.fingerprint import versions
from flatwater.trainers.blocks.round import BlocksTrainer


def as_json(config: BlocksRunConfig, trainer: BlocksTrainer, score: Score, split: str) -> dict[str, Any]:
    """The score as plain values, with what is needed to judge it. None stands for what is no finite number."""
    spaces = trainer.setup.held_out
    rows = score.rows()
    return {
        "trainer": config.trainer,
        "split": split,
        config.place: config.env_name,
        "first_seed": score.first_seed,
        "episodes": spaces.envs,
        "agents": spaces.agents,
        "steps": spaces.steps,
        "players": {name: {key: finite(value) for key, value in row.items()} for name, row in rows.items()},
        "blocks": trainer.progress.round,
        "agent_steps": trainer.run.agent_steps,
        "seed": config.seed,
        "threads": config.threads,
        "versions": versions(),
        "note": NOTES[split],
    }
