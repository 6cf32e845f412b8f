"""The numbers of a round, read from the device once, when the round is settled."""

from math import nan

from flatwater.algorithms.config import TeachingConfig
from flatwater.algorithms.ppo import read_learner_
from flatwater.trainers.blocks.state import Blocks, Setup
from flatwater.trainers.profile import Profile

PARTS = ("env", "teacher", "student", "store", "update")
"""Of a step, in the order in which the profile shows them."""


def read_numbers_(setup: Setup, run: Blocks, profile: Profile) -> dict[str, float]:
    """Named numbers of the round that is complete. Clears what the run sums up over a round."""
    config = setup.config
    episodes, paid, led = run.ended.tolist()
    run.ended.zero_()
    numbers = read_learner_(run.learner, taught=setup.taught) | {"agent_steps": float(run.agent_steps)}
    if isinstance(config.learner, TeachingConfig):
        numbers |= {
            "lead/share": led / (config.block * setup.agents),
            "weight/supervision": config.learner.supervision.at(run.agent_steps),
            "weight/reinforcement": config.learner.reinforcement.at(run.agent_steps),
        }
    numbers["critic/explained"] = _explained(run)
    if episodes:
        numbers["return/mean"] = paid / episodes
    for player in setup.players[1:]:
        numbers[f"evaluation/{player}"] = float(run.held_out.scores[player].double().mean())
    if run.progress.round % config.evaluation.every == 0:
        trained = setup.players[0]
        numbers[f"evaluation/{trained}"] = float(run.held_out.scores[trained].double().mean())
    return numbers | _profile(profile, config.block * setup.agents)


def _explained(run: Blocks) -> float:
    rollout = run.rollout
    target, missed = rollout["returns"].double(), (rollout["returns"] - rollout["value"]).double()
    return 1 - float(missed.var(correction=0) / target.var(correction=0).clamp(min=1e-12))


def _profile(profile: Profile, steps: int) -> dict[str, float]:
    """Microseconds of an agent's step, by part, and agent steps per second: of a block that was taken here whole."""
    if profile.steps < steps:
        return {"train/sps": nan}
    numbers = {f"profile/{part}_us": 1e6 * seconds / steps for part, seconds in profile.wall.items()}
    return numbers | {"train/sps": steps / sum(profile.wall.values())}
