"""A synthetic panel as a line of text, the value of `--panel`."""

import re
from collections.abc import Callable
from typing import get_type_hints

from flatwater_trading.panel.config import SyntheticConfig
from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr

_PREFIX = "synthetic:"
_PARSERS: dict[object, Callable[[str], int | float]] = {int: int, float: float}
"""Readers of numbers by type; a value of another type is text."""


def parse_synthetic(spec: str) -> SyntheticConfig:
    """Parse `synthetic:60x1500:signal=0.6:seed=3` to a configuration: instruments x days, then fields by name.

    Raises:
        ConfigError: the text is malformed, or a name in it is not a field of `SyntheticConfig`.
    """
    head, *settings = spec.removeprefix(_PREFIX).split(":")
    # At most 18 digits: Python refuses to read an int of more than 4,300 digits, with another error.
    size = re.fullmatch(r"(\d{1,18})x(\d{1,18})", head)
    type_by_field = get_type_hints(SyntheticConfig)
    remedy = f"Write synthetic:INSTRUMENTSxDAYS[:FIELD=VALUE ...] with fields {', '.join(type_by_field)}."
    if not is_synthetic(spec) or size is None:
        raise ConfigError(f"panel {short_repr(spec)} has no size. {remedy}")
    fields: dict[str, int | float | str] = {"instruments": int(size[1]), "days": int(size[2])}
    for setting in settings:
        name, _, text = setting.partition("=")
        if name not in type_by_field:
            raise ConfigError(f"panel {short_repr(spec)}: {short_repr(name)} is not a field. {remedy}")
        try:
            fields[name] = _PARSERS.get(type_by_field[name], str)(text)
        except ValueError as error:
            raise ConfigError(
                f"panel {short_repr(spec)}: {name} = {short_repr(text)} is not a number. {remedy}"
            ) from error
    return SyntheticConfig(**fields)  # type: ignore[arg-type]  # each value was converted to its own field's type


def is_synthetic(spec: str) -> bool:
    """Return whether the text is the specification of a synthetic panel rather than a file."""
    return spec.startswith(_PREFIX)
