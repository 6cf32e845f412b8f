"""Values of settings in messages, as TOML writes them: `true` and `2020-01-01`, where Python has other words."""

import datetime as dt

from flatwater_watch.sanitize import short_repr


class _TomlValue:
    """A value whose `repr` is the text of TOML."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        return _toml_text(self._value)


def short_setting(value: object) -> str:
    """Return a setting's value as TOML writes it, without secrets, and without its middle if it is long."""
    return short_repr(_TomlValue(value))


def _toml_text(value: object) -> str:
    """Return a value as TOML writes it, or as Python writes it where TOML has no such value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {_toml_text(item)}' for name, item in value.items())}}}"
    return repr(value)
