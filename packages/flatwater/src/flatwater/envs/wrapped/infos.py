"""Infos of environments, which a step returns besides observation, reward and end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, overload, runtime_checkable

from flatwater.envs.world import World
from flatwater.envs.wrapped.own_world import OwnWorld


@runtime_checkable
class InformingWorld(Protocol):
    """A world whose environments say more of a step."""

    @property
    def infos(self) -> Sequence[Mapping[str, Any]]:
        """Infos of each environment's last step; in a world of several agents by agent, a dict for each."""


def find_informing(world: World) -> InformingWorld | None:
    """Return the world that has the infos, which is the inner one of a user's class; None if none has any."""
    source = world.inner if isinstance(world, OwnWorld) else world
    return source if isinstance(source, InformingWorld) else None


class InfosByNumber(Sequence[Mapping[str, Any]]):
    """Infos that are put together when one is read: at the end of an episode, and not in each step."""

    def __init__(self, envs: int, read: Callable[[int], Mapping[str, Any]]) -> None:
        """Keep the number of infos, and the function that returns the info of an environment by number."""
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
        numbers = range(self._envs)[env]
        return self._read(numbers) if isinstance(numbers, int) else [self._read(number) for number in numbers]
