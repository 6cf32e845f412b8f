"""Formats of values, as texts that may come from a file: `{:.1%}`, `{agents} {agents:agent}`.

Python's own format strings can read a value's attributes (`{0.__class__}`) and fill the memory with blanks
(`{:1000000000}`). Forms name a value and the format of its number, or the noun that it counts, and nothing else.
"""

import re
from collections.abc import Mapping, Sequence
from string import Formatter

from flatwater_watch.sanitize import escape_controls, short_repr

MAXIMUM_FORM_LETTERS = 300
"""Maximum characters of a form."""
MAXIMUM_VALUE_LETTERS = 200
"""Maximum characters of a text that is filled in."""
_NOUN = re.compile(r"[a-z]{2,30}")
"""A noun, as in `{episodes} {split} {episodes:episode}`: `8 held-out episodes`, or `1 held-out episode`."""
_SPECIFICATION = re.compile(r"[<>=^+\- z#0,_]{0,6}\d{0,2}[,_]?(\.\d{1,2})?[bcdeEfFgGnosxX%]?")


def check_form(form: str, *, names: bool) -> None:
    """Check that a form is safe to fill in.

    Args:
        form: text with braces.
        names: whether braces name values, as in `{days}`; if not, `{}` stands for the only value.

    Raises:
        ValueError: the form is too long, or its braces hold something other than a name and a number's format.
    """
    if len(form) > MAXIMUM_FORM_LETTERS:
        raise ValueError(f"{short_repr(form)}: expected at most {MAXIMUM_FORM_LETTERS} characters, got {len(form)}")
    for _, name, specification, conversion in Formatter().parse(form):  # raises ValueError for a brace alone
        if name is None:
            continue
        number_format = specification or ""
        has_valid_name = name.isidentifier() if names else not name
        has_valid_format = is_specification(number_format) or (names and _NOUN.fullmatch(number_format))
        if conversion or not has_valid_name or not has_valid_format:
            examples = "{name}, {name:.1f} or {name:noun}" if names else "{} or {:.1f}"
            raise ValueError(f"{short_repr(form)}: expected braces as in {examples}, got {{{name}}}")


def is_specification(text: str) -> bool:
    """Return whether a text is the format of a number, such as `.2f`, and nothing else."""
    return _SPECIFICATION.fullmatch(text) is not None


def write_value(form: str, value: float | str) -> str:
    """Return a value written in a form that passed `check_form`, or as Python writes it if the type does not fit."""
    try:
        return form.format(value)
    except (ValueError, OverflowError):  # `{:d}` of 1.5
        return str(value)


def noun_form(count: float | str, noun: str) -> str:
    """Return the noun behind a count: in the plural for all counts but 1."""
    return noun if count == 1 else f"{noun}{'es' if noun.endswith(('s', 'ch')) else 's'}"


def count_phrase(count: int, noun: str) -> str:
    """Return a count with its noun: `1 agent`, `1,500 agents`."""
    return f"{count:,} {noun_form(count, noun)}"


def list_phrase(names: Sequence[str], maximum: int = 20) -> str:
    """Return the first names of a list, and how many more there are: `AAPL, GOOG and 3 more`."""
    ending = f" and {len(names) - maximum} more" if len(names) > maximum else ""
    return ", ".join(names[:maximum]) + ending


def fill_form(form: str, values: Mapping[str, object]) -> str:
    """Return the form with numbers and texts filled in by name; `?` stands for a missing value or one of another type.

    Raises:
        ValueError: `check_form` refuses the form.
    """
    check_form(form, names=True)
    parts = []
    for text, name, specification, _ in Formatter().parse(form):
        parts.append(text)
        if name is not None:
            value = _shown_value(values.get(name))
            is_noun = specification and _NOUN.fullmatch(specification)
            parts.append(
                noun_form(value, specification or "") if is_noun else write_value(f"{{:{specification}}}", value)
            )
    return escape_controls("".join(parts))


def _shown_value(value: object) -> float | str:
    if isinstance(value, int | float):
        return value
    return value[:MAXIMUM_VALUE_LETTERS] if isinstance(value, str) else "?"
