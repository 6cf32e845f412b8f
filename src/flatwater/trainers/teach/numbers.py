"""The numbers of a round, read from the device once, when the round is settled."""

from math import nan

from flatwater.learners.teaching import read_teaching_
from flatwater.trainers.teach.profile import Profile
from flatwater.trainers.teach.state import RANDOM, STUDENT, TEACHER, Recipe, Teach

PARTS = ("env", "teacher", "student", "store", "update")
"""Of a step, in the order in which the profile shows them."""


def read_numbers_(recipe: Recipe, run: Teach, profile: Profile) -> dict[str, float]:
    """Named numbers of the round that is complete. Clears what the run sums up over a round."""
    config = recipe.config
    episodes, paid, led = run.ended.tolist()
    run.ended.zero_()
    numbers = read_teaching_(run.learner) | {
        "agent_steps": float(run.agent_steps),
        "lead/share": led / (config.block * recipe.agents),
        "weight/supervision": config.learner.supervision.at(run.agent_steps),
        "weight/reinforcement": config.learner.reinforcement.at(run.agent_steps),
        "critic/explained": _explained(run),
    }
    if episodes:
        numbers["return/mean"] = paid / episodes
    for player in (TEACHER, RANDOM):
        numbers[f"evaluation/{player}"] = float(run.held_out.scores[player].double().mean())
    if run.progress.round % config.evaluation.every == 0:
        numbers[f"evaluation/{STUDENT}"] = float(run.held_out.scores[STUDENT].double().mean())
    return numbers | _profile(profile, config.block * recipe.agents)


def _explained(run: Teach) -> float:
    rollout = run.rollout
    target, missed = rollout["returns"].double(), (rollout["returns"] - rollout["value"]).double()
    return 1 - float(missed.var(correction=0) / target.var(correction=0).clamp(min=1e-12))


def _profile(profile: Profile, steps: int) -> dict[str, float]:
    """Microseconds of an agent's step, by part, and agent steps per second: of a block that was taken here whole."""
    if profile.steps < steps:
        return {"train/sps": nan}
    numbers = {f"profile/{part}_us": 1e6 * seconds / steps for part, seconds in profile.wall.items()}
    return numbers | {"train/sps": steps / sum(profile.wall.values())}
