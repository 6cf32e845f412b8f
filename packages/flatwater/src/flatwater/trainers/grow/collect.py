"""The collecting phase: one episode of every environment, step by step, into the rollout.

Episodes that nothing is learned from are played here too: those of hosts left alone, and held-out episodes. The latter
have the same env seeds for the policy, whenever it is evaluated, and for each baseline, once. All are played in the
pool of the training episodes, in turns of as many as it has environments, between two rounds: nothing of a round's
episodes is left in it that the next one needs.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.envs.growing.baselines import BASELINES, DRAWS, draw_noise
from flatwater.envs.growing.reward import note_alone_
from flatwater.envs.growing.spaces import head_sizes
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.rollouts.block import write_step_
from flatwater.trainers.grow.executor import EXPLORED, EXPLORER, POLICY, GroupExecutor
from flatwater.trainers.grow.state import GrowSetup, GrowState


def collect_(setup: GrowSetup, run: GrowState, executor: GroupExecutor, t: int) -> None:
    """Take step `t` of this round's episodes: the policy acts, with its floor, and the step goes to row `t`.

    An episode ends with step T - 1 because its time is over. The observation shows the time, so the critic knows that
    nothing follows: the last step terminates, and is not truncated.

    Args:
        setup: constants of the run.
        run: state tree; the rollout's row `t` and, at step 0, the seeds are overwritten.
        executor: computes the pool of hosts; begins new episodes at step 0.
        t: number of the step, 0 ... T - 1.
    """
    config, actions = setup.config, setup.network.actions
    if t == 0:
        rng = run.generators["env seeds"]
        torch.randint(HELD_OUT, (config.envs,), generator=rng, out=run.seeds)
        executor.begin_(run.seeds)
    # Drawn for all environments at once and dealt by rows: groups and workers do not change the numbers.
    noise = actions.noise_(run.memory.new_empty(config.envs, actions.noise), run.generators["actions"])
    columns = executor.step_(EXPLORER, noise)
    rollout, is_last = run.rollout, t == config.env.steps - 1
    write_step_(rollout, t, **{name: columns[name] for name in EXPLORED})
    rollout["starts"][t].fill_(t == 0)
    rollout["alive"][t].fill_(1)
    rollout["terminated"][t].fill_(is_last)
    # Observed one step later: the value of an observation is the next value of the step before.
    if t > 0:
        rollout["next_value"][t - 1].copy_(rollout["value"][t])
    if is_last:
        rollout["next_value"][t].fill_(0)


def player_noise(setup: GrowSetup, run: GrowState, player: str) -> Float[Tensor, "E N"] | None:
    """Return a player's random numbers for a step of held-out episodes; None if it draws nothing."""
    if player not in DRAWS:
        return None
    choices = head_sizes(setup.config.env.lifecycle, len(setup.net.seeds))
    return draw_noise(setup.config.envs, choices, run.generators["held out"], setup.device)


ALONE = "alone"
"""Name by which hosts are left alone: they play before the baselines, as the reward of every later episode compares a
host with them."""


class PoolEvaluator:
    """Episodes that nothing is learned from, in turns of as many as the pool has environments."""

    def __init__(self, setup: GrowSetup, run: GrowState, executor: GroupExecutor) -> None:
        """Bind the state.

        Args:
            setup: constants of the run.
            run: state tree; scores and the record of hosts left alone are written by later steps.
            executor: computes the pool of hosts.
        """
        self._setup, self._run, self._executor = setup, run, executor
        self.players = (POLICY, ALONE, *BASELINES)
        self.scores: Mapping[str, Tensor] = {POLICY: run.scores.policy} | run.scores.baselines

    @property
    def steps(self) -> int:
        """Steps of the pool for one player's episodes."""
        return self._setup.config.evaluation_passes * self._setup.config.env.steps

    def play_(self, name: str, number: int) -> None:
        """Take a step of a player's episodes: `POLICY`, `ALONE` or the name of a baseline.

        Hosts left alone have the first training seeds, all others the held-out seeds.

        Args:
            name: the player.
            number: step, counted through all turns: a turn's steps follow those of the turn before.
        """
        run, executor, envs = self._run, self._executor, self._setup.config.envs
        turn, t = divmod(number, self._setup.config.env.steps)
        first, seed = turn * envs, 0 if name == ALONE else HELD_OUT
        if t == 0:
            executor.begin_(torch.arange(seed + first, seed + first + envs, device=self._setup.device))
        if name == ALONE:
            columns = executor.step_("wait", None)
            step = torch.full((envs,), t + 1, dtype=torch.int64, device=self._setup.device)
            note_alone_(run.envs.alone, columns["accuracy"], impaired=columns["impaired"], step=step)
            return
        # A view: adding to it adds to the scores in the state tree.
        returns = self.scores[name][first : first + envs]
        if t == 0:
            returns.zero_()
        returns.add_(executor.step_(name, player_noise(self._setup, run, name))["reward"])
