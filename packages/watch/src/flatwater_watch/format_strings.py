"""Format strings that may come from a file: `{:.1%}`, `{agents} {agents:agent}`.

Those of Python can read a value's attributes (`{0.__class__}`) and fill the memory with blanks (`{:1000000000}`). These
name a value and the format of its number, or the noun that it counts, and nothing else.
"""

import re
from collections.abc import Mapping
from string import Formatter

from flatwater_watch.phrases import noun_form
from flatwater_watch.sanitize import escape_controls, short_repr

MAXIMUM_FORMAT_LETTERS = 300
"""Maximum characters of a format string."""
MAXIMUM_VALUE_LETTERS = 200
"""Maximum characters of a text that is filled in."""
_NOUN = re.compile(r"[a-z]{2,30}")
"""A noun, as in `{episodes} {split} {episodes:episode}`: `8 held-out episodes`, or `1 held-out episode`."""
_SPECIFICATION = re.compile(r"[<>=^+\- z#0,_]{0,6}\d{0,2}[,_]?(\.\d{1,2})?[bcdeEfFgGnosxX%]?")
"""The format of a number, as in `{:+.2f}`, `{:>8,d}` or `{:.1%}`: of at most 99 characters and 99 digits."""


def check_format(format_string: str, *, has_names: bool) -> None:
    """Check that a format string is safe to fill in.

    Args:
        format_string: text with braces.
        has_names: whether braces name values, as in `{days}`; if not, `{}` stands for the only value.

    Raises:
        ValueError: the format string is too long, or its braces hold something other than a name and a number's format.
    """
    if len(format_string) > MAXIMUM_FORMAT_LETTERS:
        beginning = short_repr(format_string)
        raise ValueError(f"{beginning}: expected at most {MAXIMUM_FORMAT_LETTERS} characters, got {len(format_string)}")
    for _, name, specification, conversion in Formatter().parse(format_string):  # raises ValueError for a brace alone
        if name is None:
            continue
        number_format = specification or ""
        # `{}` has an empty name, and `{days!r}` the conversion `r`.
        has_valid_name = name.isidentifier() if has_names else not name
        has_valid_format = is_specification(number_format) or (has_names and _NOUN.fullmatch(number_format))
        if conversion or not has_valid_name or not has_valid_format:
            examples = "{name}, {name:.1f} or {name:noun}" if has_names else "{} or {:.1f}"
            raise ValueError(f"{short_repr(format_string)}: expected braces as in {examples}, got {{{name}}}")


def is_specification(text: str) -> bool:
    """Return whether a text is the format of a number, such as `.2f`, and nothing else."""
    return _SPECIFICATION.fullmatch(text) is not None


def write_value(format_string: str, value: float | str) -> str:
    """Return a value in a format that passed `check_format`, or as Python writes it if the type does not fit."""
    try:
        return format_string.format(value)
    except (ValueError, OverflowError):  # `{:d}` of 1.5
        return str(value)


def fill_format(format_string: str, values: Mapping[str, object]) -> str:
    """Fill in numbers and texts by name; `?` stands for a missing value or one of another type.

    Raises:
        ValueError: `check_format` refuses the format string.
    """
    check_format(format_string, has_names=True)
    parts = []
    for text, name, specification, _ in Formatter().parse(format_string):
        parts.append(text)
        if name is not None:
            value = _shown_value(values.get(name))
            if specification and _NOUN.fullmatch(specification):  # `{episodes:episode}`: singular or plural
                parts.append(noun_form(value, specification))
            else:
                parts.append(write_value(f"{{:{specification}}}", value))
    return escape_controls("".join(parts))


def _shown_value(value: object) -> float | str:
    if isinstance(value, int | float):
        return value
    return value[:MAXIMUM_VALUE_LETTERS] if isinstance(value, str) else "?"
