"""A teacher that acts at random: every policy is compared with it."""

import torch

from flatwater.envs.world import Array, World


class RandomTeacher:
    """A `Teacher` whose actions are random: each legal action is equally likely, numbers are uniform within bounds."""

    def __init__(self, world: World, rng: torch.Generator) -> None:
        self._list_sizes, self._rng = world.spaces.lists, rng
        spaces = world.spaces
        self._bounds = None if spaces.bounds is None else torch.from_numpy(spaces.agent_bounds)

    def begin_(self, env_mask: Array) -> None:
        """Do nothing: there is nothing to forget."""

    def step_batch(self, obs: Array, actions_out: Array, legal: Array | None = None) -> None:  # noqa: ARG002  (a random action does not depend on observations)
        """Write a random action for every agent, drawn from the teacher's generator."""
        # The tensor shares the array's memory, so that draws are written into `actions_out`.
        actions = torch.from_numpy(actions_out)
        # A column of choices for each list that an action chooses from; none if an action is numbers within bounds.
        columns = actions.view(-1, len(self._list_sizes)).unbind(1) if self._bounds is None else ()
        if legal is not None:
            # The legal action whose exponential clock rings first, as in `nets.actions`: each is equally likely.
            # Scores are 0 where illegal, and 1 / clock elsewhere: the largest is that of the first clock to ring.
            clocks = torch.empty(legal.shape).exponential_(generator=self._rng)
            scores = (torch.from_numpy(legal) / clocks).flatten(0, 1).split_with_sizes(self._list_sizes, 1)
            for column, list_scores in zip(columns, scores, strict=True):
                column.copy_(list_scores.argmax(1))
        elif self._bounds is None:
            for column, size in zip(columns, self._list_sizes, strict=True):
                column.random_(size, generator=self._rng)
        else:
            low, high = self._bounds
            actions.uniform_(generator=self._rng).mul_(high - low).add_(low)
