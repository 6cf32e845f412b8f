"""The collecting phase: one episode of every environment, step by step, into the rollout.

Episodes that nothing is learned from are played here too: those of hosts left alone, and held-out ones. The latter have
the same env seeds for the policy, whenever it is evaluated, and for each baseline, once. All are played in the pool of
the training episodes, in turns of as many as it has environments, between two rounds: nothing of a round's episodes is
left in it that the next one needs.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.envs.growing.baselines import DRAWS, draw_noise
from flatwater.envs.growing.reward import note_alone_
from flatwater.envs.growing.spaces import head_sizes
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.rollouts.block import write_step_
from flatwater.trainers.grow.executor import EXPLORED, EXPLORER, POLICY, GroupExecutor
from flatwater.trainers.grow.state import GrowSetup, GrowState


def collect_(setup: GrowSetup, run: GrowState, crew: GroupExecutor, t: int) -> None:
    """Take step `t` of this round's episodes: the policy acts, with its floor, and the step goes to row `t`.

    An episode ends with step T - 1 because its time is over. The observation shows the time, so the critic knows that
    nothing follows: the last step terminates, and is not truncated.

    Args:
        setup: constants of the run.
        run: state tree; the rollout's row `t` and, at step 0, the seeds are overwritten.
        crew: computes the pool of hosts; begins new episodes at step 0.
        t: number of the step, 0 ... T - 1.
    """
    config, actions = setup.config, setup.student.actions
    if t == 0:
        rng = run.generators["env seeds"]
        torch.randint(HELD_OUT, (config.envs,), generator=rng, out=run.seeds)
        crew.begin_(run.seeds)
    # Drawn for all environments at once and dealt by rows: groups and workers do not change the numbers.
    noise = actions.noise_(run.memory.new_empty(config.envs, actions.noise), run.generators["actions"])
    columns = crew.step_(EXPLORER, noise)
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


def noise_for(setup: GrowSetup, run: GrowState, player: str) -> Float[Tensor, "E N"] | None:
    """Return a player's random numbers for a step of held-out episodes; None where it draws nothing."""
    if player not in DRAWS:
        return None
    choices = head_sizes(setup.config.env.lifecycle, len(setup.net.seeds))
    return draw_noise(setup.config.envs, choices, run.generators["held out"], setup.device)


def steps_of_all(setup: GrowSetup) -> int:
    """Return the number of steps of the pool for one player's held-out episodes."""
    return setup.config.held_out_turns * setup.config.env.steps


def play_held_out_(setup: GrowSetup, run: GrowState, crew: GroupExecutor, player: str, number: int) -> None:
    """Take step `number` of a player's held-out episodes; its rewards are added to their returns.

    The episodes are played in turns of E environments: a turn's steps follow those of the turn before.

    Args:
        setup: constants of the run.
        run: state tree; the player's returns [held-out episodes] are updated.
        crew: computes the pool of hosts; begins episodes at a turn's first step.
        player: `POLICY` or the name of a baseline.
        number: step, counted through all turns.
    """
    returns = run.scores.policy if player == POLICY else run.scores.baselines[player]
    turn, t = divmod(number, setup.config.env.steps)
    first_episode, envs = turn * setup.config.envs, setup.config.envs
    # A view: adding to it adds to the scores in the state tree.
    my_returns = returns[first_episode : first_episode + envs]
    if t == 0:
        crew.begin_(torch.arange(HELD_OUT + first_episode, HELD_OUT + first_episode + envs, device=setup.device))
        my_returns.zero_()
    my_returns.add_(crew.step_(player, noise_for(setup, run, player))["reward"])


def leave_alone_(setup: GrowSetup, run: GrowState, crew: GroupExecutor, number: int) -> None:
    """Take step `number` of as many episodes as are held out, on the first training seeds, in which nothing is grown.

    Args:
        setup: constants of the run.
        run: state tree; the record of hosts left alone (`envs.alone`) is updated.
        crew: computes the pool of hosts; begins episodes at a turn's first step.
        number: step, counted through all turns of E environments.
    """
    turn, t = divmod(number, setup.config.env.steps)
    first_seed, envs = turn * setup.config.envs, setup.config.envs
    if t == 0:
        crew.begin_(torch.arange(first_seed, first_seed + envs, device=setup.device))
    columns = crew.step_("wait", None)
    step = torch.full((envs,), t + 1, dtype=torch.int64, device=setup.device)
    note_alone_(run.envs.alone, columns["accuracy"], impaired=columns["impaired"], step=step)
