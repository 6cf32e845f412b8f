"""Infos of environments: the dicts that a step returns besides observation, reward and end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, overload, runtime_checkable

from flatwater.envs.world import World
from flatwater.envs.wrapped.own_world import OwnWorld


@runtime_checkable
class InformingWorld(Protocol):
    """A world whose environments return infos."""

    @property
    def infos(self) -> Sequence[Mapping[str, Any]]:
        """Info of each environment's last step; in a world of several agents, a dict of infos by agent."""


def find_infos_world(world: World) -> InformingWorld | None:
    """Return the world that has the infos: `world` itself, or the user's world within it; None if there are none."""
    inner_world = world.inner if isinstance(world, OwnWorld) else world
    return inner_world if isinstance(inner_world, InformingWorld) else None


class InfosByNumber(Sequence[Mapping[str, Any]]):
    """A sequence of infos, each of which is made only when it is read: at an episode's end, and not in each step."""

    def __init__(self, envs: int, read: Callable[[int], Mapping[str, Any]]) -> None:
        """Keep the number of environments, and the function that returns the info of an environment."""
        self._envs, self._read = envs, read

    def __len__(self) -> int:
        """Return the number of environments."""
        return self._envs

    @overload
    def __getitem__(self, env: int) -> Mapping[str, Any]: ...

    @overload
    def __getitem__(self, env: slice) -> Sequence[Mapping[str, Any]]: ...

    def __getitem__(self, env: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        """Return the info of an environment, or of several."""
        # Indexing a range gives an int for an index and a range for a slice, both within the number of environments.
        numbers = range(self._envs)[env]
        return self._read(numbers) if isinstance(numbers, int) else [self._read(number) for number in numbers]
