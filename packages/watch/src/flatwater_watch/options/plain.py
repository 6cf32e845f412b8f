"""Options that need no parser: each is a known name with a value of a plain type.

The parser takes a tenth of a second of CPU, which a command in front of each run of somebody's program should not cost.
All else, such as help or a mistake, is left to the parser.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from flatwater_watch.options.bounds import check_values

C = TypeVar("C")
HIDDEN_FIELD = {"hidden": True}
"""Metadata of a field that is not an option."""


def read_plain(interface: type[C], options: Sequence[str]) -> C | None:
    """Read the options into an instance of a command's dataclass; None if a word is not plain, so that tyro reads them.

    Raises:
        ConfigError: a value is out of bounds.
    """
    hints = get_type_hints(interface)
    # Fields with metadata are no options.
    types_by_option = {f"--{field.name}": hints[field.name] for field in fields(interface) if not field.metadata}  # type: ignore[arg-type]
    try:
        values = dict(_read_pairs(types_by_option, iter(options)))
    except ValueError:  # a word is not plain
        return None
    if len(values) < sum(word.startswith("--") for word in options):  # an option is given twice, which tyro refuses
        return None
    instance = interface(**values)
    check_values(interface, vars(instance), "")
    return instance


def _read_pairs(types_by_option: dict[str, Any], words: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Yield the options as pairs of field name and value.

    Args:
        types_by_option: type of the value of each option, by names such as `--fail_if_grows`.
        words: the command line, such as `--fail-if-grows=1MiB` or `--fail-if-grows 1MiB`.

    Raises:
        ValueError: a word is not plain, or the value of the last option is missing.
    """
    for word in words:
        name, equals, value = word.partition("=")
        field_name = name[2:].replace("-", "_")
        if not word.startswith("--") or f"--{field_name}" not in types_by_option:
            raise ValueError(word)
        kind = types_by_option[f"--{field_name}"]
        if kind is bool:  # a flag, which takes no value
            if equals:
                raise ValueError(word)
            yield field_name, True
            continue
        value_word = value if equals else next(words, None)
        if value_word is None:
            raise ValueError(word)
        yield field_name, _parse_value(kind, value_word, is_joined=bool(equals))


def _parse_value(kind: Any, word: str, *, is_joined: bool) -> Any:  # noqa: ANN401  (a type, and a value of it)
    """Convert a word to a value of a field's type.

    Args:
        kind: type of the field.
        word: the word.
        is_joined: whether the option and the word are joined by `=`: only then it may begin with a hyphen.

    Raises:
        ValueError: the word is not plain, and tyro must read it.
    """
    if not is_joined and word.startswith("-") and word != "-":  # `-` alone is a value, not an option
        raise ValueError(word)
    if get_origin(kind) is Literal:
        return get_args(kind)[get_args(kind).index(word)]  # ValueError for another word
    alternatives = [alternative for alternative in get_args(kind) if alternative is not NoneType]
    if len(alternatives) == 1:  # X | None
        return None if word == "None" else _parse_value(alternatives[0], word, is_joined=is_joined)
    # A URL is left to the parser, which refuses it: `s3://bucket` would become a folder with the name `s3:`.
    is_url = kind is Path and "://" in word
    if is_url or kind not in {str, int, float, Path}:
        raise ValueError(word)
    return kind(word)
