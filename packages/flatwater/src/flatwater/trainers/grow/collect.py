"""The collecting phase: one episode of every environment, step by step, into the rollout.

Evaluation episodes are played here, too: those of hosts left alone, and held-out episodes, on the same seeds for the
policy and each baseline. They use the pool of the training episodes between two rounds, when it holds nothing that is
needed later, in turns of as many episodes as it has environments.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.envs.growing.baselines import BASELINES, DRAWS, draw_noise
from flatwater.envs.growing.reward import add_ungrown_accuracy_
from flatwater.envs.growing.spaces import head_sizes
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.rollouts.block import write_step_
from flatwater.trainers.grow.executor import EXPLORER, EXPLORER_COLUMNS, POLICY, GroupExecutor
from flatwater.trainers.grow.state import GrowSetup, GrowState
from flatwater.trainers.loop import next_number


def collect_(setup: GrowSetup, run: GrowState, executor: GroupExecutor, t: int) -> None:
    """Take step `t` of this round's episodes with the exploring policy, and write it into row `t` of the rollout.

    An episode terminates with step T - 1 and is not truncated: the observation shows the time, so the critic can know
    that nothing follows.

    Args:
        setup: constants of the run.
        run: state tree; the rollout's row `t` and, at step 0, the seeds are overwritten.
        executor: executor of the pool of hosts.
        t: number of the step, 0 ... T - 1.
    """
    config, actions = setup.config, setup.network.actions
    if t == 0:
        rng = run.generators["env seeds"]
        torch.randint(HELD_OUT, (config.envs,), generator=rng, out=run.seeds)
        executor.begin_(run.seeds)
    # Drawn for all environments at once, so that groups and workers do not change the numbers.
    noise = actions.noise_(run.memory.new_empty(config.envs, actions.noise), run.generators["actions"])
    columns = executor.step_(EXPLORER, noise)
    rollout, is_last = run.rollout, t == config.env.steps - 1
    write_step_(rollout, t, **{name: columns[name] for name in EXPLORER_COLUMNS})
    rollout["starts"][t].fill_(t == 0)
    rollout["alive"][t].fill_(1)  # all episodes have T steps
    rollout["terminated"][t].fill_(is_last)
    # The value of this observation is the next value of the step before.
    if t > 0:
        rollout["next_value"][t - 1].copy_(rollout["value"][t])
    if is_last:
        rollout["next_value"][t].fill_(0)


def player_noise(setup: GrowSetup, run: GrowState, player: str) -> Float[Tensor, "E N"] | None:
    """Return a player's random numbers for one step of held-out episodes; None if the player draws none.

    They are exponential, in each host's row one for each choice of every part of an action, N in all.
    """
    if player not in DRAWS:
        return None
    choices = head_sizes(setup.config.env.lifecycle, len(setup.net.seeds))  # for each part of an action their number
    return draw_noise(setup.config.envs, choices, run.generators["held out"], setup.device)


ALONE = "alone"
"""Player that leaves the hosts alone. It plays before the baselines, because the reward of every later episode compares
a host with hosts left alone."""


class PoolEvaluator:
    """The evaluator of a run: episodes in the pool, in turns of as many as it has environments."""

    next_step = staticmethod(next_number)
    """All episodes are of one length, so that no step is left out."""

    def __init__(self, setup: GrowSetup, run: GrowState, executor: GroupExecutor) -> None:
        """Keep the run and the executor; all players' scores are tensors of the state tree.

        Args:
            setup: constants of the run.
            run: state tree; steps write scores and the record of hosts left alone.
            executor: executor of the pool of hosts.
        """
        self._setup, self._run, self._executor = setup, run, executor
        self.players = (POLICY, ALONE, *BASELINES)
        self.scores: Mapping[str, Tensor] = {POLICY: run.scores.policy} | run.scores.baselines

    @property
    def steps(self) -> int:
        """Number of the pool's steps for one player's episodes."""
        return self._setup.config.evaluation_passes * self._setup.config.env.steps

    def play_(self, name: str, number: int) -> None:
        """Take step `number` of a player's episodes.

        Args:
            name: `POLICY`, `ALONE` or the name of a baseline.
            number: number of the step, counted through all turns.
        """
        run, executor, envs = self._run, self._executor, self._setup.config.envs
        # In a turn the pool plays one episode in each environment.
        turn, t = divmod(number, self._setup.config.env.steps)
        first_episode = turn * envs
        if t == 0:
            # Hosts left alone have the first training seeds, all other players the held-out seeds.
            first_seed = first_episode + (0 if name == ALONE else HELD_OUT)
            executor.begin_(torch.arange(first_seed, first_seed + envs, device=self._setup.device))
        if name == ALONE:
            columns = executor.step_("wait", None)  # the baseline that never grows a host
            step = torch.full((envs,), t + 1, dtype=torch.int64, device=self._setup.device)
            # Rewards of later episodes compare with the accuracies that are added here.
            add_ungrown_accuracy_(run.envs.alone, columns["accuracy"], is_impaired=columns["impaired"], step=step)
            return
        # A view of the scores in the state tree, which the additions below write.
        returns = self.scores[name][first_episode : first_episode + envs]
        if t == 0:
            returns.zero_()
        returns.add_(executor.step_(name, player_noise(self._setup, run, name))["reward"])
