"""MiniGrid's expert as a teacher: one bot for each environment, which plans again from the action that was executed."""

import numpy as np
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

from flatwater.envs.world import Array, World
from flatwater.envs.wrapped.gymnasium_world import NO_ACTION, GymnasiumWorld
from flatwater_watch.errors import ConfigError

REST_ACTION = "done"
"""Action where no bot finds one: it changes nothing in a level."""
BOT_ERRORS = (AssertionError, AttributeError, DisappearedBoxError, IndexError, KeyError, TypeError, ValueError)
"""Errors of a bot without a plan: its assertions, and those of a plan that no longer fits."""


class BabyAITeacher:
    """A `Teacher` for BabyAI's levels. It reads the level, of which it sees no more than the agent has seen.

    A bot that fails is replaced by a new bot, which knows only the part of the level in sight. If that fails as well,
    the action is `REST_ACTION`.
    """

    def __init__(self, world: World) -> None:
        """Look up the levels.

        Raises:
            ConfigError: the world has no such levels.
        """
        copies = world.copies if isinstance(world, GymnasiumWorld) else []
        if not isinstance(world, GymnasiumWorld) or not isinstance(copies[0].unwrapped, RoomGridLevel):
            raise ConfigError("the teacher `babyai` teaches in BabyAI's levels only, such as BabyAI-GoToRedBall-v0")
        # `executed` is the world's own array, which it writes at each step.
        self._levels, self._executed = copies, world.executed
        self._rest_action = world.spaces.actions.index(REST_ACTION)
        self._bots: list[BabyAIBot | None] = [None] * len(copies)
        self.failures = 0
        """Number of times that no bot found an action."""

    def begin_(self, which: Array) -> None:
        """Drop bots; the next step starts new bots, which read the new level's instructions."""
        for env in np.flatnonzero(which):
            self._bots[env] = None

    def step_batch(self, obs: Array, actions_out: Array) -> None:
        """Write each bot's advice."""
        for env in range(len(obs)):
            actions_out[env, 0] = self._advice_(env)

    def _advice_(self, env: int) -> int:
        """Return the bot's action for one copy; where even a new bot fails, an action that does nothing."""
        # The present bot; where it fails, one new bot.
        for bot in (self._bots[env], None):
            try:
                return self._ask_(env, bot)
            except BOT_ERRORS:
                self._bots[env] = None
        self.failures += 1
        return self._rest_action

    def _ask_(self, env: int, bot: BabyAIBot | None) -> int:
        """Return the bot's action. A new bot has not seen the last action, and is told of none."""
        if bot is None:
            bot = BabyAIBot(self._levels[env])  # type: ignore[no-untyped-call]
            last_action = None
        else:
            last_action = int(self._executed[env, 0])
        self._bots[env] = bot
        return int(bot.replan(None if last_action == NO_ACTION else last_action))  # type: ignore[no-untyped-call]
