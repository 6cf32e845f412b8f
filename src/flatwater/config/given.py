"""Settings that another setting leaves without a reader are refused, and not passed over in silence."""

from dataclasses import fields
from typing import Any

from flatwater.errors import ConfigError
from flatwater.printable import shown


def refuse_given(config: Any, table: str, because: str) -> None:  # noqa: ANN401  (any settings)
    """Refuse a table in which something was set: a value that differs from its default counts as given.

    Args:
        config: the settings of a table that nobody reads.
        table: its dotted path.
        because: follows on "must be left at its default (...) ": under which other setting, and what to change.

    Raises:
        ConfigError: names the first setting that was given.
    """
    untouched = type(config)()  # settings have defaults
    for f in fields(config):
        given, default = getattr(config, f.name), getattr(untouched, f.name)
        if given != default:
            raise ConfigError(
                f"{table}.{f.name} = {shown(given)}: must be left at its default ({shown(default)}) {because}"
            )
