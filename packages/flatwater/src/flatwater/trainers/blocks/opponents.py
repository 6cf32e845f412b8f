"""Self-play: opponents in games in turns are earlier policies of the same run, kept in its state.

The first policy that is kept stays for good; newer policies replace the oldest of the others. The seed of an episode
encodes its opponents (`envs.wrapped.turns_world`), so a resumed run plays against the same. A policy is therefore
replaced only once no running episode is played against it, and until then no new episode begins against it.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.learner import Learner, named_weights
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, Spaces, World
from flatwater.envs.wrapped.turns_world import (
    OpponentTurns,
    TurnsWorld,
    learner_sides,
    opponent_numbers,
    replace_opponents,
)
from flatwater.nets.actor_critic import ActorCritic
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import derived_field, state
from flatwater.trainers.blocks.config import OpponentsConfig

EARLIER = "earlier"
"""The only key of `BlocksState.opponents`."""
FIRST = 1
"""Number of the opponents that the first policy plays, which is never replaced."""


@state
class EarlierPolicies:
    """Policies of earlier rounds, a row for each; the row of the opponents of number n is n - 1."""

    blocks: Float[Tensor, "K n"]
    """Weights."""
    statistics: dict[str, Tensor]
    """Statistics of observations and buffers of modules, where the policy reads them, [K, ...]."""
    every: int = derived_field()
    """Rounds between two policies that are taken; derived, so that a forked run takes its own setting."""
    taken_count: int = 0
    """Number of policies taken so far."""
    latest_round: int = 0
    """Round after which the newest was taken."""

    @property
    def count(self) -> int:
        """Number of policies that can be played against."""
        return min(self.taken_count, len(self.blocks))


def build_earlier(config: OpponentsConfig, learner: Learner) -> EarlierPolicies:
    """Return the earlier policies of a new run: zeros, until policies are taken.

    On the meta device they are shapes alone, for a memory plan.
    """

    def zero_rows(leaf: Tensor, *shape: int) -> Tensor:
        """Return zeros [K, *shape] of the type and on the device of `leaf`."""
        return filled_tensor(0, config.policies, *shape, dtype=leaf.dtype, device=leaf.device)

    return EarlierPolicies(
        blocks=zero_rows(learner.block, learner.block.shape[1]),
        statistics={name: zero_rows(leaf, *leaf.shape) for name, leaf in learner.statistics.items()},
        every=config.every,
    )


def take_policy_(earlier: EarlierPolicies, learner: Learner, round_: int, seeds: Array) -> None:
    """Copy the present policy to the earlier policies, if a copy is due and no running episode uses its row.

    Args:
        earlier: earlier policies, updated.
        learner: the present policy.
        round_: number of complete rounds.
        seeds: seeds of the running episodes.
    """
    row = _due_row(earlier, round_)
    if row is None or (opponent_numbers(seeds) == row + 1).any():  # opponent n plays the policy in row n - 1
        return
    earlier.blocks[row].copy_(learner.block[0])
    for name, leaf in learner.statistics.items():
        earlier.statistics[name][row].copy_(leaf)
    earlier.taken_count += 1
    earlier.latest_round = round_


def _due_row(earlier: EarlierPolicies, round_: int) -> int | None:
    """Return the row into which the present policy is to be copied after `round_` rounds; None if no copy is due."""
    if round_ - earlier.latest_round < earlier.every:
        return None
    rows = len(earlier.blocks)
    if earlier.taken_count < rows:  # a row is still empty
        return earlier.taken_count
    # Row 0 stays; the others take turns.
    return 1 + (earlier.taken_count - rows) % (rows - 1)


def deal_opponents(earlier: EarlierPolicies, seeds: Array, last_seeds: Array, *, sides: int, round_: int) -> Array:
    """Return seeds of new episodes that encode the learner's side and its opponents in each environment.

    The learner's side follows that of the episode before; opponents are random play (0) or a policy (1 ... K).

    Args:
        earlier: earlier policies.
        seeds: random numbers below `HELD_OUT`, int64 [E].
        last_seeds: seeds of the episodes before, [E].
        sides: number of sides of a game.
        round_: number of complete rounds.
    """
    numbers = np.arange(earlier.count + 1)  # opponents to draw from: 0 plays at random, n is the policy in row n - 1
    row = _due_row(earlier, round_)
    if row is not None:
        # No new episodes against the policy that will be replaced, so that its last ones come to an end.
        numbers = numbers[numbers != row + 1]
    next_sides = (learner_sides(last_seeds, sides) + 1) % sides
    # The remainder by `sides` encodes the learner's side, and the seed stays below `HELD_OUT`. The random seed also
    # draws the number of the opponents.
    own_seeds = seeds % (HELD_OUT // sides) * sides + next_sides
    return replace_opponents(own_seeds, numbers[seeds % len(numbers)])


class PolicyOpponents:
    """Earlier policies as the `Opponents` of a world; each draws its actions, and has a memory of each game."""

    def __init__(self, network: ActorCritic, earlier: EarlierPolicies, spaces: Spaces, sides: int) -> None:
        """Bind views of the earlier policies' weights, into which `take_policy_` writes newer policies.

        Args:
            network: the network of all policies.
            earlier: earlier policies.
            spaces: spaces of the world.
            sides: number of sides of a game.
        """
        self._network, self._is_masked = network, spaces.masked
        # Of each policy: its weights and its statistics of observations, by name.
        self._policies = [
            named_weights(network, earlier.blocks[row : row + 1])
            | {name: leaf[row] for name, leaf in earlier.statistics.items()}
            for row in range(len(earlier.blocks))
        ]
        device = network.device
        self._memory = torch.zeros(2, spaces.envs, sides, network.policy.cells, device=device)
        # All False: `begin_` clears the memory at an episode's begin.
        self._starts = torch.zeros(spaces.envs, dtype=torch.bool, device=device)
        self._noise = torch.zeros(spaces.envs, network.actions.noise)  # overwritten by `choose_`
        self._rows = torch.arange(spaces.envs)

    def begin_(self, env_mask: Array) -> None:
        """Clear the memory of the environments in the mask `env_mask`."""
        self._memory[:, torch.from_numpy(env_mask)] = 0

    @torch.no_grad()
    def choose_(self, env_mask: Array, turns: OpponentTurns, actions: Array) -> None:
        """Write the actions of the opponents whose turn it is into `actions`, in the environments of `env_mask`.

        Each policy computes the rows of all environments: a product of fewer rows may have other last bits, and a
        resumed run that replays its episodes asks for other environments at once.
        """
        network, device = self._network, self._network.device
        for env in np.flatnonzero(env_mask).tolist():
            network.actions.noise_(self._noise[env], turns.generators[env])
        obs, noise = torch.from_numpy(turns.obs).to(device), self._noise.to(device)
        sides = torch.from_numpy(turns.sides)
        legal = torch.from_numpy(turns.legal).to(device) if self._is_masked else None
        memory = self._memory[:, self._rows, sides]  # in each environment that of the side whose turn it is
        # Number n stands for policy n - 1, as 0 is random play.
        for number in np.unique(turns.opponents[env_mask]).tolist():
            output = network.run_step(self._policies[number - 1], obs, memory, self._starts)
            choices = network.actions.distribution(output.logits, legal).sample(noise).cpu().numpy()
            rows = np.flatnonzero(env_mask & (turns.opponents == number))
            actions[rows] = choices[rows]
            self._memory[:, rows, sides[rows]] = output.memory[:, rows]


def bind_opponents_(world: World, network: ActorCritic, earlier: EarlierPolicies) -> None:
    """Let earlier policies play the other sides of a world's games."""
    assert isinstance(world, TurnsWorld)  # noqa: S101  (for the type checker)
    world.opponents = PolicyOpponents(network, earlier, world.spaces, world.sides)
