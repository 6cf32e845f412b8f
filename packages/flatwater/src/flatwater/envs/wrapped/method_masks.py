"""A Gymnasium wrapper for environments whose method `action_masks` tells what is legal, as sb3-contrib asks for it."""

from typing import Any

import gymnasium

from flatwater.envs.wrapped.masks import MASK_KEY

MASK_METHOD = "action_masks"
"""Method of an environment or of a wrapper around it, without arguments: 1 for each legal action, 0 for the others."""


class MethodMasks(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Puts what the method returns into the infos, where masks of legal actions are otherwise."""

    def reset(self, **given: Any) -> Any:  # noqa: ANN401  (of the environment)
        """Begin an episode."""
        return self._add_mask(self.env.reset(**given))

    def step(self, action: Any) -> Any:  # noqa: ANN401  (of the environment)
        """Step the environment."""
        return self._add_mask(self.env.step(action))

    def _add_mask(self, answer: Any) -> Any:  # noqa: ANN401  (of the environment)
        """Return the result of a reset or step with the mask in its info, the last part.

        A result without an info is returned unchanged: whoever called reports it.
        """
        if not (isinstance(answer, tuple) and answer and isinstance(answer[-1], dict)):
            return answer
        mask = self.env.get_wrapper_attr(MASK_METHOD)()
        # A mask that the info has already stays.
        return (*answer[:-1], {MASK_KEY: mask, **answer[-1]})


def has_mask_method(env: gymnasium.Env[Any, Any]) -> bool:
    """Return whether an environment whose actions are choices has the method `action_masks`."""
    # The method first: an environment may lack spaces, which is told later.
    return env.has_wrapper_attr(MASK_METHOD) and not isinstance(env.action_space, gymnasium.spaces.Box)


def with_method_masks(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Return the environment, wrapped so that its infos have the mask of its method `action_masks`, if it has one."""
    return MethodMasks(env) if has_mask_method(env) else env
