"""Masks of legal actions that environments give in an observation or an info: found, split off, checked and copied."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces as gym

from flatwater.envs.world import Array
from flatwater.envs.wrapped.spaces import ObservationReader
from flatwater_watch.errors import RunError

MASK_KEY = "action_mask"
"""Key of a mask of legal actions, in an info or in an observation that is a Dict: 1 for each legal action, 0 for the
others; for several lists of actions, an array for each list, or one array with all in a row."""
OBSERVATION_KEY = "observation"
"""Key of the observation proper, where a Dict has it and the mask, as in PettingZoo and RLlib."""


def find_mask(observation: Any, info: Mapping[str, Any]) -> Any:  # noqa: ANN401  (whatever the space holds)
    """Return the mask of legal actions in a Dict observation, else that in the info; None if neither has one."""
    holder = observation if _contains_mask(observation) else info
    return holder.get(MASK_KEY)


def split_mask(observation: Any) -> tuple[Any, Any]:  # noqa: ANN401  (whatever the space holds)
    """Return the observation without its mask of legal actions, and the mask; None if it has no mask."""
    if not _contains_mask(observation):
        return observation, None
    return _drop_mask(observation), observation[MASK_KEY]


def _contains_mask(observation: Any) -> bool:  # noqa: ANN401  (whatever the space holds)
    return isinstance(observation, Mapping) and MASK_KEY in observation


def _drop_mask(parts: Mapping[str, Any]) -> Any:  # noqa: ANN401  (whatever the space holds)
    """Return a Dict's parts without the mask; if `OBSERVATION_KEY` alone is left, return its part itself.

    {"observation": x, "action_mask": m} becomes x, and {"camera": x, "action_mask": m} becomes {"camera": x}.
    """
    other_parts = {key: part for key, part in parts.items() if key != MASK_KEY}
    return other_parts[OBSERVATION_KEY] if other_parts.keys() == {OBSERVATION_KEY} else other_parts


def split_mask_space(observation: gym.Space[Any], action: gym.Space[Any]) -> tuple[gym.Space[Any], bool]:
    """Return the space of observations without their mask of legal actions, and whether they have one."""
    # Actions of a Box are no choices: then a key of this name is a part like any other.
    if isinstance(action, gym.Box) or not isinstance(observation, gym.Dict) or MASK_KEY not in observation.spaces:
        return observation, False
    bare_spaces = _drop_mask(observation.spaces)
    if isinstance(bare_spaces, dict):
        # Pairs and not a dict, whose keys Gymnasium would sort.
        return gym.Dict([*bare_spaces.items()]), True
    return bare_spaces, True  # the space of the only other part


def masked_reader(reader: ObservationReader) -> ObservationReader:
    """Return a reader of observations that have a mask next to the observation proper, which `reader` reads."""

    def write(observation: Any, out: Array) -> None:  # noqa: ANN401  (whatever the space holds)
        """Write the observation proper.

        Raises:
            TypeError: the observation is not a dict.
        """
        if not isinstance(observation, Mapping):
            raise TypeError(f"the observation is a {type(observation).__name__}: expected a dict")
        reader.write(split_mask(observation)[0], out)

    return reader._replace(write=write)


def refuse_late_mask(infos: Any, name: str) -> None:  # noqa: ANN401  (whatever an environment gives)
    """Refuse an environment that gives a mask of legal actions in a step, though its reset gave none.

    A run decides by the reset whether there are masks; it would take illegal actions.

    Args:
        infos: info of a step, or infos of several agents or environments; anything but a dict has no mask.
        name: name of the environment, for the message.

    Raises:
        RunError: there is a mask.
    """
    if isinstance(infos, Mapping) and MASK_KEY in infos:
        raise RunError(
            f"{name}: info[{MASK_KEY!r}]: expected a mask of legal actions at each reset and step, or none at all, got "
            "none from reset and one from step. Add it to the info that reset returns"
        )


def mask_flags(mask: Any) -> Array:  # noqa: ANN401  (one array, or an array for each list)
    """Return the flags of a mask in one row: an array for each list of actions is joined to the next.

    Without a mask (None) the row is an array that holds None alone.
    """
    list_masks = mask if isinstance(mask, tuple | list) else (mask,)
    return np.concatenate([np.ravel(list_mask) for list_mask in list_masks])


def sample_mask(space: gym.Discrete | gym.MultiDiscrete, flags: Array) -> Any:  # noqa: ANN401  (as the space has it)
    """Return the flags of a mask as `sample` of the space takes them: one row, or a tuple with a row for each list."""
    flags = flags.astype(np.int8)
    return flags if isinstance(space, gym.Discrete) else tuple(np.split(flags, np.cumsum(space.nvec)[:-1]))


def write_mask(observation: Any, info: Mapping[str, Any], legal: Array, name: str, *, truncated: bool = False) -> None:  # noqa: ANN401  (whatever the space holds)
    """Copy the mask of legal actions into an agent's row of a world's masks.

    Args:
        observation: observation of a reset or step, which may have the mask.
        info: info of the same, in which the mask is otherwise; it is one array, or an array for each list.
        legal: bool [R], overwritten.
        name: name of the environment, for the message.
        truncated: whether the step has truncated the episode; a missing or empty mask then makes all actions legal.

    Raises:
        RunError: the mask is missing, of another length than `legal`, or has other numbers than 0 and 1.
    """
    mask = find_mask(observation, info)
    row = mask_flags(mask)
    # A step that truncates an episode may leave the mask out, as nobody acts after it.
    if truncated and (mask is None or not row.any()):
        legal[:] = True
        return
    is_valid = mask is not None and len(row) == len(legal)
    if is_valid:
        legal[:] = row
    # A number other than 0 and 1 has become 1 in `legal`, and so differs from it.
    if not is_valid or (legal != row).any():
        actual = "none" if mask is None else f"{len(row)} numbers{', others than 0 and 1' if is_valid else ''}"
        place = "observation" if _contains_mask(observation) else "info"
        raise RunError(
            f"{name}: {place}[{MASK_KEY!r}]: expected {len(legal)} numbers, 1 for each legal action and 0 for the "
            f"others, at each reset and step, got {actual}"
        )
