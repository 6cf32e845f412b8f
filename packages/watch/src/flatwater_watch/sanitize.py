"""Text that others have chosen, made safe to show: no terminal obeys it, and no value fills the screen.

Others choose class names, file names, TOML keys, column names and the words of a store. A terminal takes control
characters in them as orders: to move the cursor, to set its title, to answer as if the user had typed.
"""

import re

MAXIMUM_LETTERS = 200
"""Maximum characters of a value in a message."""

# C0 without line break and tab, DEL, C1, line ends, characters that turn the direction of text around, and surrogates,
# which stand for bytes of a file name that are not UTF-8 and which no stream takes.
_CONTROL_CHARACTERS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape_controls(text: str) -> str:
    r"""Return the text with an escape such as `\x1b` for each character that a terminal would obey."""
    return _CONTROL_CHARACTERS.sub(_escape_code, text)


def _escape_code(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004  (of one byte)


def short_repr(value: object) -> str:
    """Return a value as Python writes it, without secrets, and without its middle if it is long."""
    from flatwater_watch.masking import mask_secrets  # noqa: PLC0415  (5 ms of patterns, and each watched program loads this module)

    try:
        text = repr(value)
    except ValueError:  # a whole number of more digits than Python converts
        return "a number of thousands of digits"
    except RecursionError:
        return "values nested too deeply to be shown"
    text = mask_secrets(text)
    if len(text) <= MAXIMUM_LETTERS:
        return text
    # The beginning takes half of the allowed characters, and the end a quarter.
    return f"{text[: MAXIMUM_LETTERS // 2]} … {text[-MAXIMUM_LETTERS // 4 :]} ({len(text):,} characters)"
