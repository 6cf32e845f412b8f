"""Bytes of numbers that a run and its workers exchange, by a formula of sizes alone.

E environments on N workers, episodes of T steps. One episode of every environment, in which nothing is lost, moves

    begin     N copies of the policy and of the accuracy of hosts left alone, E seeds of 8 bytes
    steps     T E random numbers out, and T E rows of actions and results home
    end       E rows of the pool: weights, those to go back to, moments, slots, measures, and memory

and some hundred bytes a message around them. A round collects one; one with an evaluation plays the held-out episodes
as well, and the first round those of the hosts left alone and of each baseline.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flatwater.cluster.share import Span
from flatwater.envs.growing.baselines import BASELINES, DRAWS
from flatwater.envs.growing.spaces import HEADS, head_sizes
from flatwater.trainers.grow.executor import EXPLORED
from flatwater.trainers.grow.state import GrowSetup, GrowState, env_rows

PLACE, NUMBER, FLAG = 8, 4, 1
"""Bytes of a position, a number and a flag."""


@dataclass(frozen=True)
class WireBytes:
    """The bytes on the wire between a run and its workers, both ways."""

    collected: int
    """Bytes in a round without an evaluation."""
    evaluated: int
    """Bytes that the policy's held-out episodes add."""
    compared: int
    """Bytes that the first round adds."""
    largest: int
    """Bytes of the largest message: a share of the pool, for a worker that takes another's place."""

    def round_bytes(self, round_: int, every: int) -> int:
        """Return the bytes in the round of that number, the first one being 1, with an evaluation in every n-th."""
        return self.collected + self.evaluated * (round_ % every == 0) + self.compared * (round_ == 1)


def measure_wire_bytes(setup: GrowSetup, run: GrowState, shares: Sequence[Span]) -> WireBytes:
    """Return the bytes on the wire; only sizes are read, so the run may be on the meta device.

    Args:
        setup: constants of the run.
        run: its state.
        shares: the environments of each worker.
    """
    config, slots = setup.config, len(setup.net.seeds)
    policy = run.learner.block.nbytes + sum(statistic.nbytes for statistic in run.learner.statistics.values())
    policy_bytes = policy + run.envs.alone.accuracy.nbytes + run.envs.alone.hosts.nbytes
    row = sum(leaf.nbytes for _, leaf in env_rows(run.envs, run.memory)) // config.envs
    # Of an episode apart from its steps: the policy and seeds on the way out, the environments' rows on the way home.
    begin_end_bytes = len(shares) * policy_bytes + config.envs * (PLACE + row)
    steps = config.envs * config.env.steps
    explored_bytes = NUMBER * setup.student.actions.noise * steps + sum(run.rollout[name].nbytes for name in EXPLORED)
    # Action, success and impaired, reward and accuracy, and of each slot stage and alpha.
    played_bytes = steps * (PLACE * len(HEADS) + 2 * FLAG + 2 * NUMBER + slots * (PLACE + NUMBER))
    draw_bytes = steps * NUMBER * sum(head_sizes(config.env.lifecycle, slots))
    turns, players = config.held_out_turns, 1 + len(BASELINES)
    return WireBytes(
        collected=begin_end_bytes + explored_bytes,
        evaluated=turns * (begin_end_bytes + played_bytes),
        # The first round plays the hosts left alone and each baseline, of which some are sent random numbers.
        compared=turns * (players * (begin_end_bytes + played_bytes) + len(DRAWS) * draw_bytes),
        largest=max(high - low for low, high in shares) * row + policy_bytes,
    )
