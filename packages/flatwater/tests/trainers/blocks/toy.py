"""A world of cues, and its teacher: what an agent is shown in the first step is what it must answer ever after.

Episodes take 3 to 6 steps, by their seed; of some, the second agent is over after two. An answer pays 1.
"""

from dataclasses import replace

import numpy as np

from flatwater.envs.world import PADDING, Array, Spaces

CUE, AGE = 1, 2
"""Features of the tokens."""
STEPS = 6


class CueWorld:
    """A `World` of two agents, or one; `form` chooses tokens or vectors."""

    def __init__(self, envs: int, agents: int = 2, form: str = "tokens") -> None:
        shape = (3, 3) if form == "tokens" else (3,)
        assert form in {"tokens", "vector"}
        self.spaces = Spaces(envs, agents, form, shape, ("left", "right", "wait"), STEPS)  # type: ignore[arg-type]
        self.seeds = np.full(envs, -1, np.int64)
        self.age = np.zeros(envs, np.int64)

    def begin_(self, which: Array, seeds: Array, obs: Array) -> None:
        self.seeds[which], self.age[which] = seeds[which], 0
        for env in np.flatnonzero(which):
            self._show(env, obs)

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        assert (self.seeds >= 0).all()
        assert actions.min() >= 0
        assert actions.max() <= 2
        for env in range(self.spaces.envs):
            over = self._over(env)
            self.age[env] += 1
            reward[env] = np.where(over, 0, actions[env] == self.cue(env))
            terminated[env] = self._over(env)
            truncated[env] = ~terminated[env] & (self.age[env] >= 3 + self.seeds[env] % 4)
            self._show(env, obs)

    def cue(self, env: int) -> int:
        return int(self.seeds[env] // 7 % 2)

    def _over(self, env: int) -> Array:
        agents = np.arange(self.spaces.agents)
        return (agents == 1) & (self.seeds[env] % 3 == 0) & (self.age[env] >= 2)

    def _show(self, env: int, obs: Array) -> None:
        cue = self.cue(env) if self.age[env] == 0 else 2
        if self.spaces.form == "vector":
            obs[env] = (cue == 0, cue == 1, self.age[env])
        else:
            obs[env] = [(0, CUE, cue), (1, AGE, self.age[env]), (PADDING,) * 3]
        obs[env][self._over(env)] = PADDING if self.spaces.form == "tokens" else 0

    def close(self) -> None:
        self.seeds[:] = -1


class CueTeacher:
    """Remembers the cue of each environment's episode."""

    def __init__(self, world: CueWorld, *, forgets: bool = True) -> None:
        self._tokens, self._forgets = world.spaces.form == "tokens", forgets
        self._cue = np.full(world.spaces.envs, 2, np.int64)

    def begin_(self, which: Array) -> None:
        if self._forgets:
            self._cue[which] = 2

    def step_batch(self, obs: Array, actions_out: Array) -> None:
        first = obs[:, 0, 0, 2] if self._tokens else np.where(obs[:, 0, 0] > 0, 0, np.where(obs[:, 0, 1] > 0, 1, 2))
        unknown = self._cue == 2
        self._cue[unknown] = first[unknown]
        actions_out[...] = self._cue[:, None]


class DoorWorld(CueWorld):
    """One agent whose cues are of no use: at each step another action is illegal, by the seed and the age."""

    def __init__(self, envs: int) -> None:
        super().__init__(envs, 1, "vector")
        self.spaces = replace(self.spaces, masked=True)

    def begin_(self, which: Array, seeds: Array, obs: Array, legal: Array) -> None:  # type: ignore[override]
        super().begin_(which, seeds, obs)
        legal[which] = self.mask()[which]

    def step_(  # type: ignore[override]
        self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array, legal: Array
    ) -> None:
        assert np.take_along_axis(self.mask(), actions[..., None], -1).all(), "illegal"
        super().step_(actions, obs, reward, terminated, truncated)
        legal[...] = self.mask()

    def mask(self) -> Array:
        found: Array = (np.arange(3) != (self.seeds + self.age)[:, None] % 3)[:, None]
        return found
