"""How values are written, as texts that may come from a file: `{:.1%}`, `{agents} {agents:agent}`.

Python's own forms can ask a value for its attributes (`{0.__class__}`) and fill the memory with blanks
(`{:1000000000}`). Those here name a value and say how its number is written, or what is counted, and nothing else.
"""

import re
from collections.abc import Mapping
from string import Formatter

from flatwater_watch.sanitize import escape_controls, short_repr

MOST = 300
"""Characters of a form."""
MOST_VALUE = 200
"""Characters of a text that is filled in."""
_NOUN = re.compile(r"[a-z]{2,30}")
"""`{episodes} {split} {episodes:episode}` is `8 held-out episodes`, or `1 held-out episode`."""
_SPECIFICATION = re.compile(r"[<>=^+\- z#0,_]{0,6}\d{0,2}[,_]?(\.\d{1,2})?[bcdeEfFgGnosxX%]?")


def check_form(form: str, *, names: bool) -> None:
    """That nothing can happen when the form is filled in.

    Args:
        form: with braces.
        names: whether values are named in them, `{days}`; else `{}` stands for the one value.

    Raises:
        ValueError: it is too long, or its braces hold something else than a name and how a number is written.
    """
    if len(form) > MOST:
        raise ValueError(f"{short_repr(form)}: expected at most {MOST} characters, got {len(form)}")
    for _, name, specification, conversion in Formatter().parse(form):  # raises ValueError for a brace alone
        if name is None:
            continue
        fits = name.isidentifier() if names else not name
        said = specification or ""
        if not fits or conversion or not (is_specification(said) or (names and _NOUN.fullmatch(said))):
            wanted = "{name}, {name:.1f} or {name:noun}" if names else "{} or {:.1f}"
            raise ValueError(f"{short_repr(form)}: expected braces as in {wanted}, got {{{name}}}")


def is_specification(text: str) -> bool:
    """Whether a text says how a number is written, as `.2f` does, and nothing else."""
    return _SPECIFICATION.fullmatch(text) is not None


def write_value(form: str, value: float | str) -> str:
    """A value in a form that `check_form` has passed; as Python writes it where the form is for another kind."""
    try:
        return form.format(value)
    except (ValueError, OverflowError):  # `{:d}` of 1.5
        return str(value)


def noun_form(count: float | str, noun: str) -> str:
    """The noun as it stands behind a count: in the plural for all but one."""
    return noun if count == 1 else f"{noun}{'es' if noun.endswith(('s', 'ch')) else 's'}"


def count_phrase(count: int, noun: str) -> str:
    """`1 agent`, `1,500 agents`."""
    return f"{count:,} {noun_form(count, noun)}"


def fill_form(form: str, values: Mapping[str, object]) -> str:
    """The form with numbers and texts by name; a question mark stands for what is missing or neither.

    Raises:
        ValueError: `check_form` refuses the form.
    """
    check_form(form, names=True)
    parts = []
    for text, name, specification, _ in Formatter().parse(form):
        parts.append(text)
        if name is not None:
            value = values.get(name)
            known = value if isinstance(value, int | float) else value[:MOST_VALUE] if isinstance(value, str) else "?"
            counts = specification and _NOUN.fullmatch(specification)
            parts.append(
                noun_form(known, specification or "") if counts else write_value(f"{{:{specification}}}", known)
            )
    return escape_controls("".join(parts))
