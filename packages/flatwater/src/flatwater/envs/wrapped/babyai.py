"""MiniGrid's expert as a teacher: a bot for each environment, which plans again after whatever action was executed."""

import numpy as np
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.utils.baby_ai_bot import BabyAIBot, DisappearedBoxError

from flatwater.envs.world import Array, World
from flatwater.envs.wrapped.gymnasium_world import NO_ACTION, GymnasiumWorld
from flatwater_watch.errors import ConfigError

REST_ACTION = "done"
"""Action where no bot finds any: it changes nothing in a level."""
BOT_ERRORS = (AssertionError, AttributeError, DisappearedBoxError, IndexError, KeyError, TypeError, ValueError)
"""Errors of a bot without a plan: its assertions, and those of a plan that no longer fits."""


class BabyAITeacher:
    """A `Teacher` for BabyAI's levels: a bot reads the level itself, but uses only the part that the agent has seen.

    A bot that fails is replaced by a new bot, which knows only the part of the level in sight. If that fails as well,
    the action is `REST_ACTION`.
    """

    def __init__(self, world: World) -> None:
        """Find the levels in a `GymnasiumWorld`; a bot is made at the first step of an episode.

        Raises:
            ConfigError: the world's environments are not BabyAI's levels.
        """
        if not isinstance(world, GymnasiumWorld) or not isinstance(world.copies[0].unwrapped, RoomGridLevel):
            raise ConfigError("the teacher `babyai` teaches in BabyAI's levels only, such as BabyAI-GoToRedBall-v0")
        # `executed` is the world's own array, which it writes at each step.
        self._levels, self._executed = world.copies, world.executed
        self._rest_action = world.spaces.actions.index(REST_ACTION)
        self._bots: list[BabyAIBot | None] = [None] * len(world.copies)
        self.failures = 0
        """Number of times that no bot found an action."""

    def begin_(self, env_mask: Array) -> None:
        """Drop the bots of the environments of `env_mask`; the next step makes bots that read the new instructions."""
        for env in np.flatnonzero(env_mask):
            self._bots[env] = None

    def step_batch(self, obs: Array, actions_out: Array) -> None:
        """Write the action that each environment's bot advises."""
        for env in range(len(obs)):
            actions_out[env, 0] = self._advised_action_(env)

    def _advised_action_(self, env: int) -> int:
        """Return the action of an environment's bot; if the bot fails, a new bot's action, or else `REST_ACTION`."""
        # None stands for a new bot, which is tried after the present one.
        for bot in (self._bots[env], None):
            try:
                return self._ask_bot_(env, bot)
            except BOT_ERRORS:
                self._bots[env] = None
        self.failures += 1
        return self._rest_action

    def _ask_bot_(self, env: int, bot: BabyAIBot | None) -> int:
        """Return the action that a bot advises, and keep the bot; None stands for a new bot.

        The bot may raise `BOT_ERRORS`.
        """
        last_action: int | None = int(self._executed[env, 0])
        # A new bot starts from the level as it is, so it is not told of the action that led there.
        if bot is None or last_action == NO_ACTION:
            last_action = None
        if bot is None:
            bot = BabyAIBot(self._levels[env])  # type: ignore[no-untyped-call]
        self._bots[env] = bot
        return int(bot.replan(last_action))  # type: ignore[no-untyped-call]
