"""The reference of the commands: what each says with `--help`, as pages.

Nothing is written down a second time: the options and their sentences are read from the help itself. `plan` and `sweep`
take the settings of `train`, so their pages have only what they add.
"""

import contextlib
import io
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pages import escape_text

from flatwater.cli.main import EXIT_CODES, main
from flatwater.cli.table import commands

COLUMNS = "100"
"""Width for which the help is laid out before it is read."""
OPTION = re.compile(r"│ (-|\[?[A-Z]+\]? )")
Command = tuple[str, ...]


@dataclass
class OptionGroup:
    """Options that stand in one box of the help."""

    title: str
    said: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    """Option or positional argument as it is typed -> its help."""


@dataclass(frozen=True)
class Help:
    """The help of a command, in its parts."""

    usage: str
    description: tuple[str, ...]
    """Paragraphs above the options."""
    groups: tuple[OptionGroup, ...]

    def options(self) -> dict[str, str]:
        """Return the options of all groups."""
        return {name: said for group in self.groups for name, said in group.options.items()}


def pages() -> dict[str, str]:
    """Return the pages by their path on the site: one of all commands, and one for each."""
    helps = {command: parse_help(read_help(command)) for command in commands()}
    found = {f"commands/{'-'.join(command)}.md": command_page(command, helps) for command in commands()}
    return {"commands/index.md": index_page()} | found


def read_help(command: Command) -> str:
    """Return the output of `flatwater COMMAND --help`."""
    said, width = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), os.environ.get("COLUMNS")
    # The help is laid out by the environment's width: pages must not follow the terminal of whoever builds them.
    os.environ["COLUMNS"] = COLUMNS
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main([*command, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if width is not None:
            os.environ["COLUMNS"] = width
    said.seek(0)
    return said.read()


def parse_help(text: str) -> Help:
    """Take a help text apart."""
    head, *rest = text.split("╭─ ")
    usage, *paragraphs = (" ".join(part.split()) for part in head.split("\n\n"))
    return Help(usage.removeprefix("usage: "), tuple(filter(None, paragraphs)), tuple(map(parse_group, rest)))


def parse_group(box: str) -> OptionGroup:
    """Take a box of the help apart: a title, perhaps a sentence above a line, and the options."""
    heading, *lines = box.splitlines()
    found, name = OptionGroup(heading.partition(" ─")[0]), ""
    for line in lines:
        text = line.strip("│").strip()
        if line.startswith("╰"):
            break
        if text and set(text) <= {"─"}:
            continue
        if OPTION.match(line):
            name, _, beside = text.partition("  ")
            found.options[name] = beside.strip()
        elif name:
            found.options[name] = f"{found.options[name]} {text}".strip()
        else:
            found.said.append(text)
    return found


def command_page(command: Command, helps: Mapping[Command, Help]) -> str:
    """Return the page of a command."""
    help_, words = helps[command], " ".join(("flatwater", *command))
    parts = [f"# `{words}`", "\n\n".join(map(escape_text, help_.description)), f"```text\n{help_.usage}\n```"]
    base = base_command(command)
    known = helps[base].options() if base else {}
    for each in help_.groups:
        parts += group_lines(each, known)
    if base:
        train = " ".join(("flatwater", *base))
        parts.append(f"Besides these, every setting of [`{train}`]({'-'.join(base)}.md) can be given.")
    return "\n\n".join(parts) + "\n"


def base_command(command: Command) -> Command | None:
    """Return the command whose settings this one takes as well; None where there is none."""
    train = ("train", *command[1:])
    return train if len(command) > 1 and command != train and train in commands() else None


def group_lines(each: OptionGroup, known: Mapping[str, str]) -> Iterator[str]:
    """Yield a group's heading, sentence and options, without options that are `known` from another command."""
    own = {name: said for name, said in each.options.items() if name not in known and not name.startswith("-h")}
    if own:
        section = re.sub(r"^(\S+) options$", r"`[\1]`", each.title)
        yield f"## {section[0].upper()}{section[1:]}"
        if each.said:
            yield escape_text(" ".join(each.said))
        yield from (f"`{name}`\n: {escape_text(said)}" for name, said in own.items())


def index_page() -> str:
    """Return the page of all commands."""
    rows = [f"| [`{' '.join(c)}`]({'-'.join(c)}.md) | {escape_text(line)} |" for c, (_, line) in commands().items()]
    codes = EXIT_CODES.removeprefix("exit codes: ").replace("\n", " · ")
    listed = [
        f"| {code} | {escape_text(said)} |" for code, said in (line.split(maxsplit=1) for line in codes.split(" · "))
    ]
    return "\n".join(
        (
            "# Commands",
            "",
            "`flatwater COMMAND --help` says the same as these pages, which are made from it.",
            "",
            "| `flatwater` | does |",
            "|---|---|",
            *rows,
            "",
            "## Exit codes",
            "",
            "| code | means |",
            "|---|---|",
            *listed,
            "",
        )
    )
