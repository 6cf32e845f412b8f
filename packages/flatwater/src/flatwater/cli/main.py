"""The entry point: it finds the command, reads its options, and turns any exception into a message and an exit code."""

import errno
import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from signal import SIGINT
from typing import Any, Protocol, TextIO, cast, runtime_checkable

from flatwater.cli.table import RECIPE_COMMANDS, command_row, commands, match_command
from flatwater.named_imports import GIVEN_PERMIT, trust_code
from flatwater.plugins import group_faults, load_named_object, load_row
from flatwater.runs.signals import SIGNAL_EXIT_BASE, end_on_signals
from flatwater.user_code import user_code_line
from flatwater_watch.errors import ConfigError, FlatwaterError, MemoryLimitError, Terminated, UserCodeError
from flatwater_watch.masking import mask_secrets
from flatwater_watch.phrases import install_command
from flatwater_watch.sanitize import short_repr
from flatwater_watch.streams import error_stream, open_closed_descriptors, output_error, run_printing, surviving_stream

INTERRUPTED = 130
"""128 + SIGINT, as a shell has it."""
HELP = ("-h", "--help")
TRUST = "--trust"

EXIT_CODES = """\
exit codes: 0 done, or stopped by Ctrl-C with a checkpoint · 2 bad input, or an error in your code
            3 does not fit in memory · 4 stopped at its memory budget, with a checkpoint
            70 a fault of Flatwater, please report it · 130 second Ctrl-C
            129 SIGHUP, 138 SIGUSR1, 143 SIGTERM: training stopped with a checkpoint, other commands ended"""

MACHINE_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP}
    | {errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.EFBIG, errno.ENOMEM}
)
"""Error numbers of the system, such as a full disk, that are no fault of Flatwater."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command of the command line. Returns the exit code.

    Args:
        arguments: words after `flatwater`; None for those in `sys.argv`.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_closed_descriptors()  # else the next file that is opened would get a closed descriptor 0 to 2, and our output
    errors = surviving_stream(error_stream())
    # `run_printing` reports by itself that stdout cannot be written, say to a closed pipe.
    code = run_printing(lambda: run_to_end(words, errors), lambda message: print_error(errors, message))
    if arguments is None:  # the words are the process's own, and it ends now
        gc.freeze()  # a last search for garbage in all of torch would take 0.4 CPU s
    return code


def run_to_end(words: list[str], errors: TextIO) -> int:
    """Run the command, and report any exception that ends it, except faults of stdout. Returns the exit code."""
    try:
        return run_and_report(words, errors)
    except Exception as fault:
        if output_error(fault) is not None:  # a fault of stdout: `main` reports it
            raise
        return report_uncaught(errors, fault, words)
    # tyro raises SystemExit after it has printed help or an error; any other one is an exit() in the user's code.
    except SystemExit as exit_request:
        if user_code_line(exit_request) is None:
            raise
        return report_uncaught(errors, exit_request, words)


def run_and_report(words: list[str], errors: TextIO) -> int:
    """Run the command, and print errors that have a message for the user. Returns the exit code."""
    try:
        check_words(words)
        with end_on_signals():
            return dispatch(words, errors)
    except FlatwaterError as error:
        print_error(errors, message_with_traceback(error, words))
        return error.exit_code
    except Terminated as ending:
        print_error(errors, "interrupted" if ending.number == SIGINT else f"ended by {ending}", label="")
        return SIGNAL_EXIT_BASE + ending.number
    except KeyboardInterrupt:  # raised by a handler that the calling program has set
        print_error(errors, "interrupted", label="")
        return INTERRUPTED


def check_words(words: Sequence[str]) -> None:
    """Refuse words with a NUL character, which would end a path in the middle.

    Raises:
        ConfigError: a word holds a NUL character.
    """
    for word in words:
        if "\0" in word:
            raise ConfigError(f"{short_repr(word)}: has a NUL character. Leave it out.")


def message_with_traceback(fault: FlatwaterError, words: list[str]) -> str:
    """Return the error's message; for an error of the user's code, write its traceback to a file, and name the file."""
    if not isinstance(fault, UserCodeError) or fault.__cause__ is None:
        return str(fault)
    from flatwater.cli.fault import keep_traceback

    return f"{fault}. {keep_traceback(fault.__cause__, words)}"


def report_uncaught(errors: TextIO, fault: BaseException, words: list[str]) -> int:
    """Print an exception that nothing else has caught. Returns the exit code."""
    user_line = user_code_line(fault)
    # The user's code comes first, as any class of error below may have been raised in it. But the lack of memory is
    # rarely a mistake of the line at which it shows.
    if user_line is not None and not isinstance(fault, MemoryError):
        from flatwater.cli.fault import save_user_fault

        print_error(errors, save_user_fault(fault, user_line, words))
        return UserCodeError.exit_code
    if isinstance(fault, ModuleNotFoundError):
        print_error(errors, f"the package {fault.name} is missing. Install it with: {install_command(fault.name)}")
        return FlatwaterError.exit_code
    if isinstance(fault, MemoryError):
        print_error(
            errors, "the system has no more memory for this command. Make the run smaller, or close other programs."
        )
        return MemoryLimitError.exit_code
    if isinstance(fault, OSError) and fault.errno in MACHINE_ERRORS:
        file_part = f"{fault.filename}: " if fault.filename is not None else ""
        print_error(errors, f"{file_part}{fault.strerror}. The system refused the operation.")
        return FlatwaterError.exit_code
    from flatwater.cli.fault import FAULT_EXIT, save_fault

    print_error(errors, save_fault(fault, words))
    return FAULT_EXIT


def dispatch(words: Sequence[str], errors: TextIO) -> int:
    """Run the command that the words name, print help, or report an unknown command. Returns the exit code."""
    if not words or words[0] in HELP:
        sys.stdout.write(help_overview())
        return 0
    if words[0] == "--version":
        words = ["version", *words[1:]]
    command_words = find_command(words)
    if command_words is not None:
        return run_command(command_words, words[len(command_words) :])
    group = [command for command in commands() if command[0] == words[0]]  # `cluster` for `cluster check`
    if group and (len(words) == 1 or words[1] in HELP):
        sys.stdout.write(help_overview(group))
        return 0
    return _report_unknown(words, errors)


def print_error(errors: TextIO, message: str, label: str = "error: ") -> None:
    """Print a message, without secrets; a terminal breaks it between words, a log file has it on one line."""
    from rich.text import Text  # 0.05 CPU s, which a command that goes well need not pay

    from flatwater_watch.terminal import Terminal

    console = Terminal(file=errors)
    console.print(Text.assemble((label, "bold red"), mask_secrets(message)), soft_wrap=not console.is_terminal)


def find_command(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the command that the first words name: `train package.module:NAME`, or a known one; None without one."""
    if words[0] in RECIPE_COMMANDS and len(words) > 1 and ":" in words[1]:
        return words[0], words[1]
    return match_command(words)


def command_class(command: tuple[str, ...]) -> type[Any]:
    """Return the class whose fields are the command's options."""
    verb, *recipe = command
    if verb not in RECIPE_COMMANDS:
        import_path, _ = command_row(command)
        return cast("type[Any]", load_row("commands", " ".join(command), import_path))
    from flatwater.cli.settings import with_recipe_settings
    from flatwater.recipe import find_recipe

    import_path, _ = RECIPE_COMMANDS[verb]
    return with_recipe_settings(load_named_object(import_path), find_recipe(recipe[0], GIVEN_PERMIT))


def run_command(command: tuple[str, ...], options: Sequence[str]) -> int:
    """Read the options into an object of the command's class, and call it. Returns the exit code."""
    command, options = redirect_command(command, options)
    interface: object = command_class(command)
    program = " ".join(("flatwater", *command))
    read_options = interface.read if isinstance(interface, _SelfParsing) else _make_reader(interface)
    with trust_code(TRUST in options):  # needed before the options are parsed: their defaults may come from a folder
        call_command = read_options(program, options)
        return call_command()


def redirect_command(command: tuple[str, ...], options: Sequence[str]) -> tuple[tuple[str, ...], Sequence[str]]:
    """Return the command and options to run; if `--env` is for another recipe, the command of that recipe.

    `train erl --env X` becomes the command of the recipe for environments without trading.
    """
    if command[0] not in RECIPE_COMMANDS:
        return command, options
    from flatwater.recipe import find_recipe, recipe_in_env

    verb, recipe_name = command[0], command[1]
    if not find_recipe(recipe_name, GIVEN_PERMIT).recipe_in_other_envs:  # none replaces this recipe
        return command, options
    from flatwater.cli.settings import environment_option

    env, other_options = environment_option(options)
    name_in_env = recipe_in_env(recipe_name, env).name
    if name_in_env == recipe_name:  # the recipe's own environment, as if `--env` were left out
        return command, other_options
    return (verb, name_in_env), options


@runtime_checkable
class _SelfParsing(Protocol):
    """A command whose class reads its options itself."""

    def read(self, program: str, options: Sequence[str]) -> Callable[[], int]: ...


def _make_reader(interface: Any) -> Callable[[str, Sequence[str]], Callable[[], int]]:  # noqa: ANN401  (a dataclass)
    """Return a function that reads options into a command's dataclass."""
    from flatwater_watch.options.parsing import read_options

    return lambda program, options: read_options(interface, program, options)


def help_overview(group: Iterable[tuple[str, ...]] | None = None) -> str:
    """Return the help text with a line for each command of `group`; None stands for all commands."""
    if group is None:
        # By the words in front, so that the equal lines of `plan RECIPE` become one.
        lines = dict(map(_help_line, commands()))
    else:
        lines = {" ".join(command): commands()[command][1] for command in group}
    width = max(map(len, lines))
    rows = [f"  {name:<{width}}  {line}" for name, line in lines.items()]
    return "\n".join(
        (
            "usage: flatwater COMMAND [options]     flatwater COMMAND --help explains each option",
            "",
            "Train agents for days in constant memory, and see who owns every byte.",
            "",
            *rows,
            "",
            "start here: flatwater train ppo        (no options needed: CartPole, a minute on one core)",
            "",
            EXIT_CODES,
            "",
        )
    )


def _help_line(command: tuple[str, ...]) -> tuple[str, str]:
    """Return a command's words and its line of help.

    `plan` and `sweep` have the same line for all recipes, `plan RECIPE`; `train` has a line for each.
    """
    _, form = RECIPE_COMMANDS.get(command[0], ("", ""))
    if form:
        return f"{command[0]} RECIPE", form.format("a recipe")
    _, help_line = commands()[command]
    return " ".join(command), help_line


def _suggest_word(word: str, known_words: Iterable[str]) -> str:
    """Return ` Did you mean "x"?` with the most similar known word; empty if no word is similar."""
    from difflib import get_close_matches

    similar = get_close_matches(word, [*known_words], n=1)
    return f' Did you mean "{similar[0]}"?' if similar else ""


def _report_unknown(words: Sequence[str], errors: TextIO) -> int:
    """Print that there is no such command or recipe, and the nearest name. Returns the exit code."""
    if words[0] in RECIPE_COMMANDS and words[1:]:
        from flatwater.recipe import recipe_names

        recipes = recipe_names()
        line = (
            f"no recipe {short_repr(words[1])}: expected {', '.join(recipes)}, or package.module:NAME of your recipe."
        )
        print_error(errors, f"{line}{_suggest_word(words[1], recipes)}{group_faults('recipes')}")
        return FlatwaterError.exit_code
    # Commands with the same first word: if there are any, only the second word is unknown.
    siblings = [" ".join(command) for command in commands() if command[0] == words[0]]
    names = siblings or sorted(" ".join(command) for command in commands())
    typed_words = " ".join(words[:2] if siblings else words[:1])
    hint = _suggest_word(typed_words, [*names, *(command[0] for command in commands())])
    print_error(
        errors, f"no command {short_repr(typed_words)}: expected {', '.join(names)}.{hint}{group_faults('commands')}"
    )
    return FlatwaterError.exit_code
