"""A recipe: one kind of training, as a value. Every command learns of it here, and nowhere else.

`train`, `plan`, `sweep`, `resume`, `evaluate`, `report`, `runs` and `top` are made from this value alone. An installed
package names its recipes by an entry point (`plugins.py`); a recipe in a file is named `package.module:NAME`.

A recipe has light parts, which a list of runs needs (names, columns, numbers), and heavy parts, which import torch or
matplotlib; `lazy_function` names a heavy part by where it is, so that it is imported when it is called.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flatwater.metrics.jsonl import MAXIMUM_ROUNDS
from flatwater.named_imports import GIVEN_PERMIT, Permit, find_object
from flatwater.plugins import group_faults, group_rows, load_named_object, load_row
from flatwater_watch.errors import ConfigError
from flatwater_watch.format_strings import check_format, write_value
from flatwater_watch.sanitize import short_repr

if TYPE_CHECKING:  # `flatwater --help` imports this module, and must not wait for torch
    from flatwater.memory.planner import Plan
    from flatwater.metrics.table_layout import TableLayout
    from flatwater.rundir.layout import RunFolder
    from flatwater.runs.config import RunConfig
    from flatwater.runs.run import Run


def lazy_function(place: str) -> Callable[..., Any]:
    """Return a function that imports the function at `place` when it is called, and calls it.

    Args:
        place: `package.module:function`, of the package that the recipe is in.
    """

    def import_and_call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  (as the named function's)
        return load_named_object(place)(*args, **kwargs)

    return import_and_call


PICTURE, SECTIONS = (
    lazy_function(f"flatwater.reports.learning_charts:{name}") for name in ("course_picture", "course_sections")
)
"""The default picture and page sections, for recipes that define neither."""


@dataclass(frozen=True)
class Number:
    """One number of a result."""

    title: str
    key: str
    """Name of the number in result.json."""
    form: str
    """Format string by which it is written, such as `{:.2f}`."""

    def write(self, value: float) -> str:
        """Return the number as a text."""
        return write_value(self.form, value)


RETURN_NUMBERS = tuple(
    Number(title, key, "{:.2f}")
    for title, key in (("return", "return"), ("dev", "deviation"), ("worst", "worst"), ("best", "best"))
)
"""Numbers of the returns that players got in episodes."""


@dataclass(frozen=True)
class Headline(Number):
    """The one number that a result is judged by, in the row of the trained policy."""

    against: str
    """Name of the player, in result.json, whose number it is compared with."""
    comparison_form: str
    """Format string of that comparison, such as `against {:.2f}`: it gets that player's number."""


def check_formats(title: str, headline: Headline, numbers: Iterable[Number]) -> None:
    """Refuse format strings that have more than plain fields, or fields other than they get.

    The title gets the fields of result.json by name, `{days}`; every other format string gets one number, as `{}`.
    A run folder may be anybody's: in `str.format` a field such as {0.__class__} reaches into objects.

    Raises:
        ValueError: a format string does not fit.
    """
    check_format(title, has_names=True)
    for form in (headline.form, headline.comparison_form, *(number.form for number in numbers)):
        check_format(form, has_names=False)


@dataclass(frozen=True)
class ShownTable:
    """A table on the terminal, besides that of the result."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]


class NoDifferenceError(Exception):
    """Two runs cannot be compared; the message is the end of a sentence that says why."""


@dataclass(frozen=True)
class Difference:
    """Difference between the trained policies of two runs, and how sure it is."""

    values: Mapping[str, float]
    """Values for JSON: the difference and the ends of its interval."""
    count: int
    """Number of periods, or episodes, that both have played."""
    units: str
    """Name of the periods: days, weeks, episodes."""
    comparison_phrase: Callable[[str], str]
    """Function from the name of the other run to the end of a sentence that begins with the name of this run."""
    note: str = ""
    """Sentence on what the two runs do not have in common besides; empty if there is nothing to add."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One kind of training: its settings, its run, and how both are shown."""

    config: "type[RunConfig]"
    """Class of its settings: `RunConfig` and those of its trainer. The default of `trainer` is the recipe's name."""
    guide: str
    """The help of `flatwater train NAME`: the policy that it trains, and its time without options."""
    plan: "Callable[[Any], Plan]"
    """Function that returns the bytes that a run with these settings would hold; it allocates nothing."""
    compose: "Callable[[Any], Run]"
    """Function that returns a run with these settings, allocated whole."""
    prepare: Callable[[Any], Any] = lambda config: config
    """Function that returns the settings in the form in which they are kept, so that the run resumes from anywhere."""

    begun_on: Callable[[Any, Any, Mapping[str, Any]], Any] = lambda config, *_: config
    """A function that makes the settings of a resumed run from the given and the stored settings and the checkpoint's
    description of the data; it cuts grown data to the days the run began with. Default: the given settings."""

    layout: "TableLayout"
    """Layout of its rounds on the terminal."""
    curves: Mapping[str, str]
    """Title of a curve -> name of its metric, for lists and the live screen. A run is judged by the last curve."""
    journal: str
    """Name of the file with a line a round that only this recipe writes, without `.jsonl`: `lineage`."""

    players: str
    """The field of result.json with a row of numbers for each player: `traders`."""
    trained: str
    """The row of the trained policy."""
    title: str
    """Title above the table of a result, with fields of result.json in braces."""
    headline: Headline
    numbers: tuple[Number, ...]
    """Numbers of a row, the most important first."""
    context_fields: tuple[str, ...]
    """Fields of result.json that say on which data it was measured."""
    trained_on: Callable[[Mapping[str, Any]], str]
    """Function from the settings of a run to the data or environment that it learns from, in a few words."""
    picture: Callable[[Any], Sequence[Sequence[Any]]] = PICTURE
    """Function from the records of a finished run (`reports.records.RunRecords`) to the rows of charts of its
    `result.png` (`reports.chart`). Left out: its curves, and the rows of its result."""
    sections: Callable[[Any], Mapping[str, Iterable[Any]]] = SECTIONS
    """Function from a run's records to its own parts of the page: title -> blocks (`reports.blocks`,
    `reports.chart`). Left out: its curves, and the table of its result."""
    policy: "Callable[[Any, RunFolder], Any] | None" = None
    """Function from a restored run to its policy, for `flatwater.load`. Left out: it cannot be loaded."""
    rebuild: Callable[[Mapping[str, Any], Mapping[str, Any]], Any] | None = None
    """Function from the header and the tensors of a .safetensors file to that policy (`runs/policy_file.py`).
    Left out: its policy cannot be written to one."""
    recipe_in_other_envs: str = ""
    """The recipe that replaces this recipe if the setting `env` names an environment, as in `train erl --env X`. Left
    out: `env` is a setting of its own, or none."""
    home: str = ""
    """The name that `env` has for this recipe's own environment, as if it were left out."""
    difference: Callable[[Mapping[str, Any]], Any] | None = None
    """Function from the records of two runs, by letter, to the `Difference` between what they trained, with how sure it
    is; raises `NoDifferenceError`. Left out: no interval is told."""
    comparison: Callable[[Mapping[str, Any], Sequence[str]], Sequence[Any]] | None = None
    """Function from the records of runs, by letter, and their colours, to charts of a page that compares them. Left
    out: the curves alone."""
    tables: Callable[[Mapping[str, Sequence[float]]], Sequence[ShownTable]] = lambda _: ()
    """Function from the metrics of a finished run, of 500 of its rounds where it has more, to tables that the terminal
    shows below its result."""
    following_commands: Sequence[str] = ()
    """Commands of the recipe's package that take the folder of a finished run, such as `orders`: the end of a training
    names them. Left out: only those of all runs."""

    def __post_init__(self) -> None:
        """Refuse format strings that do not fit, and a recipe without curves, as no list could show its runs.

        Raises:
            ConfigError: a format string does not fit, or there are no curves.
        """
        try:
            check_formats(self.title, self.headline, self.numbers)
        except ValueError as error:
            raise ConfigError(f"recipe {short_repr(self.name)}: {error}") from error
        if not self.curves:
            raise ConfigError(f"recipe {short_repr(self.name)}: curves: expected one or more, got none")

    @cached_property
    def name(self) -> str:
        """Name as in `flatwater train NAME`, and in a run folder's config.toml."""
        return next(str(field.default) for field in fields(self.config) if field.name == "trainer")


def recipe_names() -> tuple[str, ...]:
    """Return the names of the recipes of installed packages."""
    return tuple(group_rows("recipes"))


def find_installed_recipe(name: str) -> Recipe | None:
    """Return an installed package's recipe by its name; None if no package has it.

    Commands that only read use this function alone: a name from a file is looked up among installed recipes, and never
    imported as code.

    Raises:
        ConfigError: the package that has the recipe is broken.
    """
    # The recipes that installed packages register: name -> import path, and further texts.
    recipe_rows = group_rows("recipes")
    if name not in recipe_rows:
        return None
    import_path = recipe_rows[name][0]
    return _check_recipe(name, load_row("recipes", name, import_path))


def _check_recipe(name: str, candidate: object) -> Recipe:
    """Return the object as the recipe of that name.

    Raises:
        ConfigError: the object is not a recipe, or has another name.
    """
    if not isinstance(candidate, Recipe):
        raise ConfigError(f"recipe {short_repr(name)}: expected a Recipe, got a {type(candidate).__name__}")
    if candidate.name != name:
        raise ConfigError(
            f"recipe {short_repr(name)} calls itself {short_repr(candidate.name)}: give the field `trainer` of "
            f"{candidate.config.__name__} the default {name!r}, which leads from a run to its recipe"
        )
    return candidate


def find_recipe(name: str, permit: Permit) -> Recipe:
    """Return the recipe of a name that the user has typed, or has permitted; its code is imported.

    Args:
        name: one of `recipe_names`, or `package.module:NAME`.
        permit: permit to import a recipe that is not installed: `GIVEN_PERMIT` for a name that the user gives now.

    Raises:
        ConfigError: there is no such recipe, it may not be imported, or its import fails.
    """
    if not isinstance(name, str):  # of a user's program
        raise ConfigError(f"recipe: expected the name of a recipe, got a {type(name).__name__}")
    if (installed_recipe := find_installed_recipe(name)) is not None:
        return installed_recipe
    expected = f"{', '.join(recipe_names())}, or package.module:NAME of your recipe"
    if ":" not in name:
        raise ConfigError(f"no recipe {short_repr(name)}: expected {expected}{group_faults('recipes')}")
    # Installed recipes need no permit: the user chose them when they were installed.
    if not permit.covers(name):
        raise ConfigError(
            f"recipe {short_repr(name)} is named in a file and is not imported: a command that reads runs no code"
        )
    return _check_recipe(name, find_object(name, setting=f"recipe {short_repr(name)}", expected="package.module:NAME"))


def recipe_of_config(config: "RunConfig") -> Recipe:
    """Return the recipe of settings that the user gave, or that `runs.trust` let through."""
    return find_recipe(config.trainer, GIVEN_PERMIT)


def recipe_in_env(name: str, env: object) -> Recipe:
    """Return the recipe `name`; if `env` names another environment than its own, its `recipe_in_other_envs`.

    Args:
        name: name of a recipe; see `find_recipe`.
        env: name of the environment; anything else stands for the recipe's own environment.
    """
    recipe = find_recipe(name, GIVEN_PERMIT)
    has_other_env = isinstance(env, str) and env != recipe.home
    if has_other_env and recipe.recipe_in_other_envs:
        return find_recipe(recipe.recipe_in_other_envs, GIVEN_PERMIT)
    return recipe


def recipe_name(settings: Mapping[str, Any], where: object) -> str:
    """Return the name of the recipe that a configuration file belongs to; `where` names the file in messages.

    Raises:
        ConfigError: the file names no recipe.
    """
    name = settings.get("trainer")
    if not isinstance(name, str):
        problem = f"trainer = {short_repr(name)}" if "trainer" in settings else "trainer is missing"
        raise ConfigError(f"{where}: {problem}: expected text, the name of a recipe")
    return name


def recipe_of_settings(settings: Mapping[str, Any], where: str, permit: Permit) -> Recipe:
    """Return the recipe that a configuration file belongs to; `where` names the file in messages.

    Raises:
        ConfigError: there is no such recipe, or it may not be imported.
    """
    name = recipe_name(settings, where)
    try:
        return find_recipe(name, permit)
    except ConfigError as error:
        raise ConfigError(f"{where}: trainer = {short_repr(name)}: {error}") from error


def read_rounds(settings: Mapping[str, Any], where: str) -> int:
    """Return the total number of rounds that a configuration file asks for; 0 if it has no setting `rounds`.

    Raises:
        ConfigError: `rounds` is not a whole number from 0 to `MAXIMUM_ROUNDS`.
    """
    rounds = settings.get("rounds", 0)
    if type(rounds) is not int or not 0 <= rounds <= MAXIMUM_ROUNDS:  # `type`: true is not a number of rounds
        raise ConfigError(f"{where}: rounds = {short_repr(rounds)}: expected a whole number")
    return rounds
