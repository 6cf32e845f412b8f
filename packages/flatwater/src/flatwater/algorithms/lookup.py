"""Finds a user's algorithm by its place (`package.module:NAME`), and checks its parts before anything is allocated."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from flatwater.named_imports import find_object
from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr


class NamedAlgorithm(Protocol):
    """A value that a configuration names."""

    @property
    def settings(self) -> type[Any]:
        """The class of its settings."""


A = TypeVar("A", bound=NamedAlgorithm)


def import_algorithm_of_kind(
    place: str, kind: type[A], *, functions: Sequence[str], base: type[Any], command: str
) -> A:
    """Import the algorithm at `package.module:NAME`, and check its parts.

    Args:
        place: `package.module:NAME`.
        kind: class that it must be of.
        functions: names of its parts that must be functions.
        base: class over which the class of its settings must be.
        command: command that trains algorithms of this kind, for messages.

    Raises:
        ConfigError: `place` names no such algorithm, it lacks a part, or its settings are not a config class.
    """
    subject = f"learner.algorithm = {short_repr(place)}"
    kind_text = f"an {kind.__name__}"
    algorithm: Any = find_object(place, setting=f"{subject}:", expected=f"package.module:NAME of {kind_text}")
    if not isinstance(algorithm, kind):
        type_name = type(algorithm).__name__
        raise ConfigError(f"{subject}: expected {kind_text}, which `{command}` trains, got a value of type {type_name}")
    for attribute in functions:
        if not callable(getattr(algorithm, attribute)):
            raise ConfigError(
                f"{subject}: {attribute}: expected a function, got {short_repr(getattr(algorithm, attribute))}"
            )
    settings: Any = algorithm.settings
    if not (isinstance(settings, type) and issubclass(settings, base)):
        expected = f"a @config class over {base.__module__}.{base.__name__}"
        raise ConfigError(f"{subject}: settings: expected {expected}, got {short_repr(settings)}")
    try:
        settings()
    except TypeError as error:
        raise ConfigError(f"{subject}: each of its settings needs a default: {error}") from error
    checked_algorithm: A = algorithm
    return checked_algorithm
