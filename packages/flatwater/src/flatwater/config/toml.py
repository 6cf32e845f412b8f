"""Configurations from TOML and to TOML.

`dumps_config` writes each key below the sentence that documents its field, and a field without a value as a comment.
`load_config(cls, file) == config` for every configuration that was dumped.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from flatwater.config.convert import to_plain
from flatwater.config.mappings import field_values, from_mapping
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.directory import expand_home
from flatwater_watch.files.regular_files import TEXT_BYTES, read_regular
from flatwater_watch.options.declare import field_docs
from flatwater_watch.sanitize import short_repr

C = TypeVar("C")
MAXIMUM_DOTS = 100
"""Most dots in a key. Settings are at most three tables deep, so a hundred is generous."""


def load_config(cls: type[C], path: Path) -> C:
    """Return the configuration in the file; fields that it leaves out keep their defaults."""
    return from_mapping(cls, read_toml(path), str(path))


def read_toml(path: Path, maximum: int = TEXT_BYTES, *, follow_links: bool = True) -> dict[str, Any]:
    """Return the file's tables and values, unchecked.

    Args:
        path: path of the file.
        maximum: largest size of the file, in bytes.
        follow_links: whether the path may be a symbolic link.

    Raises:
        ConfigError: the file is missing, no regular file, unreadable, not UTF-8, or not TOML, with line and column.
    """
    text = ""  # for the messages of errors: empty until the file was decoded
    try:
        content = read_regular(expand_home(path), maximum, follow_links=follow_links)
        kind = next((kind for begin, kind in _FOREIGN_MARKS.items() if content.startswith(begin)), "")
        if kind:
            raise ConfigError(f"{path}: expected a text file in UTF-8, got {kind}.")
        text = content.decode("utf-8-sig")  # editors on Windows begin with a byte order mark
        _require_short_keys(text)  # before tomllib would spend hours on a long key
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply. Settings are at most three tables deep.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file in UTF-8 (byte {error.start}). Save it as UTF-8.") from error
    except ValueError as error:  # of tomllib, of a long key, or of a number with more digits than Python converts
        raise ConfigError(
            f"{path}: not valid TOML: {error}.{_faulty_line(text, str(error))} {_SYNTAX_ADVICE}"
        ) from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}. Give the path of a TOML file.") from error


_FOREIGN_MARKS = {
    b"\xff\xfe": "text in UTF-16. Save the file as UTF-8",
    b"\xfe\xff": "text in UTF-16. Save the file as UTF-8",
    b"\x1f\x8b": "a gzip file. Unpack it first: gunzip FILE",
    b"PK\x03\x04": "a zip archive. Unpack it first: unzip FILE",
    b"BZh": "a bzip2 file. Unpack it first: bunzip2 FILE",
    b"\xfd7zXZ": "an xz file. Unpack it first: unxz FILE",
    b"\x28\xb5\x2f\xfd": "a zstd file. Unpack it first: unzstd FILE",
}
"""First bytes of other kinds of files, and words for them."""


def _require_short_keys(text: str) -> None:
    """Refuse a key of hundreds of parts: the time that tomllib takes grows with their square, to hours.

    Raises:
        ValueError: a key has more parts.
    """
    # Stretches without a comma, an equals sign, a bracket, a comment or a line's end: keys, and values as well.
    for stretch in re.finditer(r"[^,=\[\]{}\n#]+", text):
        if stretch[0].count(".") > MAXIMUM_DOTS:
            raise ValueError(f"{short_repr(stretch[0])}: more than {MAXIMUM_DOTS} dots")


def _faulty_line(text: str, fault: str) -> str:
    """Return a sentence that quotes the line of `text` that tomllib's message `fault` names; empty if it names none."""
    match = re.search(r"at line (\d+)", fault)
    if match is None:
        return ""
    line = text.split("\n")[int(match[1]) - 1]  # lines are counted from 1
    return f" The line is {short_repr(line)}."


_SYNTAX_ADVICE = "Write NAME = VALUE, each name once, text in quotes, and tables as [NAME]."


def dumps_config(config: object) -> str:
    """Return the configuration as TOML, with the field documentation as comments."""
    return "\n".join(_toml_lines(config, "")).strip("\n") + "\n"


def _toml_lines(config: object, table: str) -> Iterator[str]:
    """Yield the lines of a configuration as TOML, each setting below its documentation; `table` is its dotted name."""
    cls: Any = type(config)
    field_texts = field_docs(cls)
    nested_tables: list[tuple[str, object]] = []
    for name, value in field_values(config):
        if is_dataclass(value):
            nested_tables.append((name, value))
            continue
        yield from _toml_comment(field_texts.get(name, ""))
        yield f"# {name} =" if value is None else f"{name} = {_toml_literal(to_plain(value))}"
    # Tables last: in TOML a key behind a table's head would belong to that table.
    for name, value in nested_tables:
        dotted_name = f"{table}.{name}" if table else name
        yield ""
        yield from _toml_comment(field_texts.get(name, ""))
        yield f"[{dotted_name}]"
        yield from _toml_lines(value, dotted_name)


def _toml_comment(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield f"# {line}".rstrip()


def _toml_literal(value: object) -> str:
    """Return a bool, number, list or text as TOML.

    Raises:
        TypeError: no setting may have a value of this type.
    """
    if isinstance(value, bool):  # before int, whose subclass bool is
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)  # the shortest text that reads back as the same number
    if isinstance(value, list):
        return "[" + ", ".join(_toml_literal(item) for item in value) + "]"
    if isinstance(value, str):
        escaped_text = value.replace("\\", "\\\\").replace('"', '\\"')
        # Control characters as `\u0007`: TOML refuses them as they are.
        return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda match: f"\\u{ord(match[0]):04x}", escaped_text) + '"'
    raise TypeError(f"a configuration cannot hold a {type(value).__name__}")
