"""`flatwater completion`: a script with which a shell completes commands and their options."""

import contextlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

Options = Mapping[tuple[str, ...], Sequence[str]]
"""Options of each command, with their dashes, by the words of the command."""

BASH_TEMPLATE = """\
# Completion of flatwater for {shell}. Load it with: {load}
_flatwater() {{
    local given="" known="" at
    for ((at = 1; at < COMP_CWORD; at++)); do given="$given${{given:+ }}${{COMP_WORDS[at]}}"; done
    case "$given" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$known" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _flatwater flatwater
"""
LOAD_COMMANDS = {
    "bash": 'eval "$(flatwater completion bash)"   (in ~/.bashrc)',
    "zsh": 'eval "$(flatwater completion zsh)"   (in ~/.zshrc, after compinit)',
    "fish": "flatwater completion fish | source   (in ~/.config/fish/config.fish)",
}
# Zsh can load completions of bash, which saves a third script.
ZSH_PREFIX = "autoload -U +X bashcompinit && bashcompinit\n"


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Print a script that completes flatwater's commands and their options; the shell completes files by itself.

    The script knows the options of this version: print it again after an update.
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """The shell that is to complete."""

    def __call__(self) -> int:
        """Ask every command for its options, and print the script."""
        import sys

        # From the help texts, so that no second list of options has to be kept.
        options = options_of_all()
        sys.stdout.write(fish_script(options) if self.shell == "fish" else bash_script(options, self.shell))
        return 0


def options_of_all() -> Options:
    """Return the options that the help of each command lists, by the words of the command."""
    from flatwater.cli.table import commands

    return {command: find_options(read_help(command)) for command in commands()}


def read_help(command: Sequence[str]) -> str:
    """Return the help text of a command."""
    from flatwater.cli.main import main

    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):  # help ends with an exit
        main([*command, "--help"])
    output.seek(0)
    return output.read()


def find_options(text: str) -> list[str]:
    """Return the long options that a help text explains, in their order."""
    # A row of rich's table: the option stands between the frame and two spaces, or the frame.
    rows = re.findall(r"^│ (-.*?)(?:  |│)", text, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"--[\w.-]+", row)]


def first_words(options: Options) -> list[str]:
    """Return the first words of all commands."""
    return sorted({command[0] for command in options})


def second_words(options: Options) -> dict[str, list[str]]:
    """Return the words that may follow a first word, for commands of two words."""
    words: dict[str, list[str]] = {}
    for first, *others in options:
        if others:
            words.setdefault(first, []).append(others[0])
    return words


def bash_script(options: Options, shell: str) -> str:
    """Return the script for bash, or for zsh, which loads bash's after one more line."""
    pairs = second_words(options)
    # What may follow no word, the first word of two, and a whole command with or without further words.
    cases = [f'        "") known="{" ".join(first_words(options))} --help --version" ;;']
    cases += [f'        "{first}") known="{" ".join(second)} --help" ;;' for first, second in pairs.items()]
    cases += [
        f'        "{" ".join(command)}"|"{" ".join(command)} "*) known="{" ".join(names)}" ;;'
        for command, names in options.items()
    ]
    script = BASH_TEMPLATE.format(shell=shell, load=LOAD_COMMANDS[shell], cases="\n".join(cases))
    return ZSH_PREFIX + script if shell == "zsh" else script


def fish_script(options: Options) -> str:
    """Return the script for fish."""
    lines = [f"# Completion of flatwater for fish. Load it with: {LOAD_COMMANDS['fish']}"]
    lines.append(f"complete -c flatwater -n __fish_use_subcommand -f -a '{' '.join(first_words(options))}'")
    for first, second in second_words(options).items():
        # The second word is completed until one of them was typed.
        before_second = f"__fish_seen_subcommand_from {first}; and not __fish_seen_subcommand_from {' '.join(second)}"
        lines.append(f"complete -c flatwater -n '{before_second}' -f -a '{' '.join(second)}'")
    for command, names in options.items():
        condition = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command)
        lines += [f"complete -c flatwater -n '{condition}' -l {name.removeprefix('--')}" for name in names]
    return "\n".join(lines) + "\n"
