"""The command line, read by tyro: the docstrings of fields are the help, and messages name the expected value."""

import contextlib
import inspect
import os
import re
import shlex
import shutil
import textwrap
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from flatwater_watch.errors import ConfigError
from flatwater_watch.options.bounds import bounds_of, check_values, declared_extras
from flatwater_watch.options.declare import WordOption, field_docs
from flatwater_watch.sanitize import short_repr
from flatwater_watch.streams import error_stream
from flatwater_watch.terminal import MINIMUM_COLUMNS, WIDTH, PrintableStream

C = TypeVar("C")
_HELP = frozenset({"-h", "--help"})
"""Options that ask for the help."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def read_options(
    interface: type[C],
    program: str,
    options: Sequence[str],
    default: C | None = None,
    *,
    epilog: str = "",
    last_fields: Collection[str] = (),
) -> C:
    """Read the options into an instance of the command's dataclass; for help or a mistake, print a text and exit.

    Args:
        interface: class of the command; its docstring and those of its fields are the help.
        program: name of the command, such as `flatwater resume`.
        options: words after the command.
        default: values of the fields that no option gives; None takes those of the class.
        epilog: help after the docstring of the class.
        last_fields: fields that the help shows after the others.
    """
    # The help names a word by its field, and takes no comment of the source for a text on a field.
    markers: list[Any] = [tyro.conf.PositionalMetavarFromFieldName, tyro.conf.HelptextFromCommentsOff]
    if default is None:
        # Without `--no-` flags: they turn off settings that a file has turned on, and here is no file.
        markers.append(tyro.conf.FlagCreatePairsOff)
    _refuse_extra_words(interface, program, options)
    # tyro repeats words that it does not know, so its messages pass through a stream that masks secrets.
    with contextlib.redirect_stderr(PrintableStream(error_stream())), _set_tyro_terminal():
        command = tyro.cli(
            interface,
            prog=program,
            args=options,
            description=_wrap_paragraphs(f"{inspect.getdoc(interface) or ''}\n\n{inspect.cleandoc(epilog)}".strip()),
            config=tuple(markers),
            registry=_type_registry(interface, last_fields, shows_help=not _HELP.isdisjoint(options)),
            default=tyro.MISSING_NONPROP if default is None else default,
        )
    check_values(type(command), vars(command), "")
    return command


def _refuse_extra_words(interface: type[Any], program: str, options: Sequence[str]) -> None:
    """Refuse words before the first option that the command has no place for, such as a value without its option.

    Raises:
        ConfigError: the message names the option that takes such a word (`WordOption`), if there is one.
    """
    all_hints = get_type_hints(interface, include_extras=True)
    hints = {field.name: all_hints[field.name] for field in fields(interface)}  # each command is a dataclass
    positional_hints = {name: hint for name, hint in hints.items() if _is_positional(hint)}
    # A field of a tuple type takes any number of words. The first argument of `Annotated` is the type itself.
    takes_many = any(get_origin(get_args(hint)[0]) is tuple for hint in positional_hints.values())
    words = list(takewhile(lambda word: not word.startswith("-"), options))
    # With `--help` any words are fine, as nothing is run.
    if takes_many or len(words) <= len(positional_hints) or not _HELP.isdisjoint(options):
        return
    extra_word, shown_names = words[len(positional_hints)], " and ".join(map(str.upper, positional_hints))
    option = next((name for name, hint in hints.items() if declared_extras(hint, WordOption)), "")
    raise ConfigError(
        f"{program}: expected {f'{shown_names} and then options' if shown_names else 'options'}, got "
        f"{short_repr(extra_word)}. "
        + (f"Give it as `--{option} {shlex.quote(extra_word)}`, or see" if option else "See")
        + f" {program} --help"
    )


def _is_positional(hint: Any) -> bool:  # noqa: ANN401  (a type)
    """Return whether a field of this type is given as a word without its name, such as RUN in `resume RUN`."""
    return get_origin(hint) is Annotated and tyro.conf.Positional in hint.__metadata__


@contextlib.contextmanager
def _set_tyro_terminal() -> Iterator[None]:
    """Set the environment variables by which tyro knows the terminal, and restore them after the block."""
    # tyro does not know NO_COLOR (no-color.org), only dumb terminals, and never ends in a terminal of two columns.
    previous_variables = {name: os.environ.get(name) for name in ("TERM", "COLUMNS")}
    if os.environ.get("NO_COLOR") and previous_variables["TERM"] is not None:
        os.environ["TERM"] = "dumb"
    os.environ["COLUMNS"] = str(max(MINIMUM_COLUMNS, shutil.get_terminal_size().columns))
    try:
        yield
    finally:
        for name, value in previous_variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _wrap_paragraphs(text: str) -> str:
    """Wrap paragraphs to the terminal, up to `WIDTH` columns, with commands to copy (`$ ...`) indented."""
    width = min(shutil.get_terminal_size().columns, WIDTH)
    wrapped_text = ""
    for paragraph in text.split("\n\n"):
        is_command = paragraph.startswith("$ ")
        indent = "  " if is_command else ""
        if wrapped_text:  # a command stands right below the paragraph that explains it
            wrapped_text += "\n" if is_command else "\n\n"
        # tyro joins lines again, but not lines that begin with a space.
        wrapped_text += textwrap.fill(paragraph, width, initial_indent=indent, subsequent_indent=f"{indent}  ")
    return wrapped_text


def _type_registry(interface: type[Any], last_fields: Collection[str], *, shows_help: bool) -> ConstructorRegistry:
    """Return the rules by which tyro reads our types; the help shows `last_fields` after the command's other fields.

    tyro asks each rule in turn; a rule returns None for a type that it does not describe.
    """
    registry = ConstructorRegistry()
    registry.struct_rule(lambda info: _dataclass_spec(info, interface, last_fields, shows_help=shows_help))
    registry.primitive_rule(_number_spec)
    registry.primitive_rule(_path_spec)
    registry.primitive_rule(_optional_spec)
    return registry


def _dataclass_spec(
    info: StructTypeInfo, interface: type[Any], last_fields: Collection[str], *, shows_help: bool
) -> StructConstructorSpec | None:
    """Describe a dataclass for tyro; return None for other types.

    Args:
        info: the dataclass, and the instance whose values are the defaults.
        interface: class of the command; any other dataclass is a table of settings within it.
        last_fields: fields of the command that the help shows after the others.
        shows_help: whether the help is asked for.
    """
    if not is_dataclass(info.type):
        return None
    hints = get_type_hints(info.type, include_extras=True)
    # tyro does not know bounds, which are extras of a hint: `check_values` checks them.
    hints |= {name: hint for name, hint in get_type_hints(info.type).items() if name in bounds_of(info.type)}
    is_in_table = info.type is not interface
    # False sorts before True: the last fields of the command come last.
    ordered_fields = sorted(fields(info.type), key=lambda field: not is_in_table and field.name in last_fields)
    specs = [
        _field_spec(field, info, hints[field.name], is_in_table=is_in_table, shows_help=shows_help)
        for field in ordered_fields
    ]
    return StructConstructorSpec(instantiate=info.type, fields=tuple(specs))


def _field_spec(
    field: Field[Any],
    info: StructTypeInfo,
    hint: Any,  # noqa: ANN401  (a type)
    *,
    is_in_table: bool,
    shows_help: bool,
) -> StructFieldSpec:
    """Describe a field of a dataclass for tyro: its type with tyro's markers, its default and its help.

    Args:
        field: the field.
        info: the dataclass, and the instance whose values are the defaults.
        hint: declared type of the field.
        is_in_table: whether the field is a setting, not a command's own option.
        shows_help: whether the help is asked for; else tables have none.
    """
    default = _field_default(field, info.type, info.default)
    # A file or an option may have brought a class with more settings than the declared one.
    value_type = type(default) if is_dataclass(default) else hint
    kind = _add_markers(value_type, field, default, is_in_table=is_in_table)
    # tyro always asks for the help of a table, which is slow: it is read from the source of the class.
    help_text = "" if is_dataclass(default) and not shows_help else partial(_help_text, info.type, field.name)
    return StructFieldSpec(name=field.name, type=kind, default=default, helptext=help_text)


def _add_markers(kind: Any, field: Field[Any], default: object, *, is_in_table: bool) -> Any:  # noqa: ANN401  (types)
    """Add the markers to the type of a field by which tyro hides it, or leaves out words of its help."""
    has_one_choice = get_origin(kind) is Literal and len(get_args(kind)) == 1
    if field.metadata or has_one_choice:  # a hidden field, see `plain.HIDDEN_FIELD`, or nothing to choose
        kind = Annotated[kind, tyro.conf.Suppress]
    if kind == bool | None and is_in_table:
        # In a table both of its flags exist; an option of a command is given as a word.
        kind = Annotated[kind, tyro.conf.DisallowNone]
    if default is None or default == ():
        # The help of a field that may be left out says what that means; "(default: None)" would not.
        kind = Annotated[kind, tyro.conf.arg(help_behavior_hint="")]
    return kind


def _help_text(declaring_class: type, name: str) -> str | None:
    """Return the help of a field as one paragraph; None for a field without, for which tyro takes its class's help."""
    return " ".join(field_docs(declaring_class).get(name, "").split()) or None


def _field_default(field: Field[Any], declaring_class: type, instance: object) -> object:
    """Return the default of a field: the value of an instance, else the default of the class, else tyro's MISSING."""
    if isinstance(instance, declaring_class):
        return getattr(instance, field.name)
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    return tyro.MISSING


_NUMBER_WORDS: dict[Any, str] = {int: "a whole number", float: "a number"}


def _number_spec(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Describe a number for tyro, with an error message for people; return None for other types."""
    if info.type not in _NUMBER_WORDS:
        return None
    return _one_word_spec(info.type.__name__.upper(), lambda word: _parse_number(info.type, word))


def _parse_number(kind: type[int] | type[float], word: str) -> float:
    """Convert a word to a number; the ValueError of any other word says what is expected."""
    try:
        return kind(word)
    except ValueError as error:
        raise ValueError(f"{short_repr(word)} is not {_NUMBER_WORDS[kind]}") from error


def _path_spec(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Describe a path on this machine for tyro; return None for other types."""
    # A URL is refused: `s3://bucket/run` would become a folder with the name `s3:`.
    return _one_word_spec("PATH", _parse_local_path) if info.type is Path else None


def _parse_local_path(word: str) -> Path:
    if _URL.match(word):
        raise ValueError(f"{short_repr(word)} is a URL: expected a path on this machine")
    return Path(word)


def _optional_spec(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Describe `X | None` for tyro, shown as `X`, where X is int, str or Path; return None for other types."""
    # The help shows no `None`, as a field's text says what its absence means; the word is understood all the same.
    alternatives = [alternative for alternative in get_args(info.type) if alternative is not types.NoneType]
    is_union = get_origin(info.type) in (Union, types.UnionType)
    if not is_union or len(alternatives) != 1 or alternatives[0] not in (int, str, Path):
        return None
    kind = alternatives[0]

    def parse(word: str) -> object:
        """Convert a word to a value of the type X, or to None."""
        if word == "None":
            return None
        if kind is int:
            return _parse_number(int, word)
        return _parse_local_path(word) if kind is Path else word

    return _one_word_spec(kind.__name__.upper(), parse)


def _one_word_spec(metavar: str, parse: Callable[[str], object]) -> PrimitiveConstructorSpec[Any]:
    """Describe a value of one word for tyro: `metavar` stands for it in the help, and `parse` reads the word."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: parse(words[0]),
        is_instance=lambda _: True,  # any default is taken as it is
        str_from_instance=lambda value: [str(value)],
    )
