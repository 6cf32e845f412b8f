"""Episodes that nobody learns from: one in each environment of a world of its own, for each of its players."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from flatwater.envs.world import Array, Teacher, World, build_outcome, check_actions
from flatwater.state.tree import state
from flatwater.trainers.episodes import (
    Episodes,
    ask_teacher_,
    begin_,
    step_first_episodes_,
    view_episodes,
)


@state
class EvaluationEpisodes:
    """The part of a state tree that an evaluator's world writes into; recipes add what their players need."""

    episodes: Episodes
    obs: Tensor
    """Present observations, [B, *obs]."""
    done: Bool[Tensor, "E"]
    """Environments whose one episode has ended; later steps do not count."""


@dataclass(frozen=True)
class Player:
    """A player, and the tensor in which its returns are summed."""

    returns: Tensor
    """Return of each agent, [B], in the state tree."""
    act: Callable[[bool], Array] | None = None
    """Returns the actions [E, A, *action] on the present observations; its argument says whether they are the first of
    the episodes. None for a teacher."""
    teacher: Teacher | None = None
    """Teacher whose actions are played; None for a player with `act`."""


class EpisodeEvaluator:
    """A world of episodes for evaluation, and its players."""

    def __init__(
        self,
        world: World,
        played: EvaluationEpisodes,
        players: Mapping[str, Player],
        draw_seeds: Callable[[], Array],
        *,
        legal: Tensor | None = None,
    ) -> None:
        """Bind the arrays of the state tree that the world writes into; no episode begins yet.

        Args:
            world: the world of these episodes.
            played: part of the state tree for these episodes.
            players: all players by name, the trained player first.
            draw_seeds: returns the episodes' seeds [E], whenever a player begins.
            legal: mask of legal actions in the state tree, bool [B, R]; None in a world without masks.
        """
        self.world, self.played, self.players = world, played, players
        self._draw_seeds = draw_seeds
        spaces, grid = world.spaces, (world.spaces.envs, world.spaces.agents)
        # The state tree has a row for each agent of all environments; the world has an axis for each of the two.
        self.current_obs: Array = played.obs.view(*grid, *spaces.obs).numpy()
        self._legal = None if legal is None else legal.view(*grid, -1).numpy()
        self._teacher_choices = torch.zeros(*grid, *spaces.action_shape, dtype=spaces.action_dtype)
        self._outcome, self._arrays = build_outcome(*grid), view_episodes(played.episodes)
        self._is_done: Array = played.done.numpy()

    @property
    def steps(self) -> int:
        """Steps of one player's episodes."""
        return self.world.spaces.steps

    @property
    def is_over(self) -> bool:
        """Whether all episodes of the player that has played last have ended, so that its later steps do nothing."""
        return bool(self._is_done.all())

    def next_step(self, number: int) -> int:
        """Return the number of the step to take after step `number`.

        Steps are numbered through all players: the first player has the numbers below `steps`, the second those below
        2 x `steps`, and so on. Once all episodes of a player are over, the rest of its numbers is left out.
        """
        if self.is_over:
            return (number // self.steps + 1) * self.steps  # the next player's first
        return number + 1

    @property
    def scores(self) -> Mapping[str, Tensor]:
        """Returns by player, of each player's last episodes."""
        return {name: player.returns for name, player in self.players.items()}

    def play_(self, name: str, number: int, seeds: Array | None = None) -> None:
        """Take step `number` of a player's episodes.

        An environment whose episode has ended plays on, uncounted, until all have ended; `next_step` leaves out the
        player's later steps, which do nothing.

        Args:
            name: the player.
            number: number of the step; 0 begins the episodes.
            seeds: seeds of the episodes, [E]; None for the evaluator's own.
        """
        player, played = self.players[name], self.played
        if number == 0:
            episode_seeds = self._draw_seeds() if seeds is None else seeds
            self._begin_(np.ones_like(self._is_done), episode_seeds)
            self._is_done[...] = False
            player.returns.zero_()
        elif self.is_over:
            return
        action = self._act_(player, first=number == 0)
        if self._legal is not None:
            check_actions(self.world.spaces, self._legal, action, source=f"the {name}")
        step_arguments = self.world, self._arrays, action, self.current_obs, self._outcome
        has_ended = step_first_episodes_(
            *step_arguments, has_ended=played.done, return_sums=player.returns, legal=self._legal
        )
        # Begun again though uncounted, as a world steps all environments at once; not if no further step is played.
        if has_ended.any() and not self.is_over:
            # A copy, because `begin_` writes into the array that the seeds come from.
            same_seeds = played.episodes.seeds.numpy().copy()
            self._begin_(has_ended, same_seeds)

    def _act_(self, player: Player, *, first: bool) -> Array:
        """Return a player's actions [E, A, *action] on the present observations, from its teacher or its `act`.

        `first` says whether this is the first step of the episodes.
        """
        if player.teacher is not None:
            return ask_teacher_(player.teacher, self.current_obs, self._teacher_choices, legal=self._legal).numpy()
        assert player.act is not None  # noqa: S101  (for the type checker: a player without a teacher acts)
        return player.act(first)

    def _begin_(self, env_mask: Array, seeds: Array) -> None:
        """Begin episodes in the environments of the mask `env_mask`, in the world and for all teachers."""
        begin_(self.world, self.played.episodes, env_mask, seeds, self.current_obs, legal=self._legal)
        for player in self.players.values():
            if player.teacher is not None:
                player.teacher.begin_(env_mask)
