"""A teacher that acts at random: the player whom each policy is compared with."""

import torch

from flatwater.envs.world import Array, World


class RandomTeacher:
    """A `Teacher` of any legal action, each as likely as the others; numbers are uniform within their bounds."""

    def __init__(self, world: World, rng: torch.Generator) -> None:
        self._lists, self._rng = world.spaces.lists, rng
        bounds = world.spaces.bounds
        self._bounds = None if bounds is None else torch.tensor(bounds).T

    def begin_(self, which: Array) -> None:
        """Do nothing: there is nothing to forget."""

    def step_batch(self, obs: Array, actions_out: Array, legal: Array | None = None) -> None:  # noqa: ARG002  (it does not look)
        """Draw from the teacher's generator, on the CPU."""
        # Shares the array's memory: whatever is drawn is written for the caller.
        actions = torch.from_numpy(actions_out)
        columns = actions.view(-1, len(self._lists)).unbind(1) if self._bounds is None else ()
        if legal is not None:
            clocks = torch.empty(legal.shape).exponential_(generator=self._rng)  # a race, as in `nets.actions`
            race = (torch.from_numpy(legal) / clocks).flatten(0, 1).split_with_sizes(self._lists, 1)
            for column, part in zip(columns, race, strict=True):
                column.copy_(part.argmax(1))
        elif self._bounds is None:
            for column, size in zip(columns, self._lists, strict=True):
                column.random_(size, generator=self._rng)
        else:
            low, high = self._bounds
            actions.uniform_(generator=self._rng).mul_(high - low).add_(low)
