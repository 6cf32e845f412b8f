"""Parts that commands share: a run's configuration as options on top of a file, and options for the output."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from flatwater.algorithms.config import AlgorithmConfig, custom_algorithm_place
from flatwater.algorithms.on_policy_config import BlockAlgorithmConfig
from flatwater.config.mappings import from_mapping
from flatwater.config.toml import read_toml
from flatwater.recipe import Recipe
from flatwater_watch.errors import ConfigError
from flatwater_watch.options.declare import absent_settings
from flatwater_watch.options.parsing import read_options


class FileSettings:
    """A command that has all fields of a configuration, and fields of its own that have defaults."""

    config_type: ClassVar[type[Any]]
    """Class of the configuration, a dataclass."""
    help_more: ClassVar[str] = ""
    """Help after the first paragraphs, equal for every recipe."""

    @classmethod
    def read(cls, program: str, options: Sequence[str]) -> Self:
        """Read the options: they win over the settings in the file of `--config`, and these over those of a preset."""
        return cls.read_with_base(program, options, _base_settings(cls.config_type, options))

    @classmethod
    def read_with_base(cls, program: str, options: Sequence[str], base: Any, **own_fields: Any) -> Self:  # noqa: ANN401  (a RunConfig of any recipe)
        """Return the command with the settings of `base`, changed by the options.

        Args:
            program: name of the command.
            options: words after it.
            base: the settings, of `config_type`.
            own_fields: values of the command's own fields.

        Raises:
            ConfigError: an option does not fit; the message names it.
        """
        # A setting that the recipe lacks is refused with the reason, not as an unknown option.
        absent = absent_settings(cls.config_type)
        # `--learner.lr=1` belongs to the setting `learner`.
        for option in (word.partition("=")[0] for word in options if word.startswith("--")):
            setting_name = option[2:].partition(".")[0].replace("-", "_")
            if reason := absent.get(setting_name):
                raise ConfigError(f"{option}: {reason}")
        settings = {field.name: getattr(base, field.name) for field in fields(cls.config_type)}
        learner = settings.get("learner")
        algorithm = option_value("--learner.algorithm", options)
        if isinstance(learner, AlgorithmConfig | BlockAlgorithmConfig) and algorithm is not None:
            # The settings of a custom algorithm become options, so it must be chosen before options are parsed.
            is_custom = any(custom_algorithm_place(name) for name in (algorithm, learner.algorithm))
            if is_custom:
                settings["learner"] = learner.with_algorithm(algorithm)
                _refuse_lost_settings(learner, settings["learner"], options)
        # The help lists the command's own options before the settings.
        return read_options(
            cls, program, options, cls(**settings, **own_fields), epilog=cls.help_more, last_fields=settings
        )

    def settings(self) -> Any:  # noqa: ANN401  (of `config_type`)
        """Return the configuration without the command's own fields."""
        return self.config_type(**{field.name: getattr(self, field.name) for field in fields(self.config_type)})


def _refuse_lost_settings(recipe_learner: Any, chosen_learner: Any, options: Sequence[str]) -> None:  # noqa: ANN401  (of an algorithm's class)
    """Refuse options for settings of the recipe's algorithm, in whose place another is chosen.

    Args:
        recipe_learner: settings of the learner with the recipe's algorithm.
        chosen_learner: settings with the chosen algorithm.
        options: words after the command.

    Raises:
        ConfigError: the message names the settings that the chosen algorithm has.
    """
    lost_names = {f"learner.{f.name}" for f in fields(recipe_learner)} - {
        f"learner.{f.name}" for f in fields(chosen_learner)
    }
    for name in sorted(named_settings(options)):
        # Two parts alone, as `lost_names` has them: a setting may have settings of its own.
        if ".".join(name.split(".")[:2]) in lost_names:
            table = "learner.own" if custom_algorithm_place(chosen_learner.algorithm) else "learner"
            own_names = ", ".join(f"--{table}.{f.name}".replace("_", "-") for f in fields(chosen_learner.own))
            raise ConfigError(
                f"--{name.replace('_', '-')}: learner.algorithm = {chosen_learner.algorithm!r} has no such setting. "
                f"Leave it out; it has {own_names}"
            )


def _base_settings(config_type: type[Any], options: Sequence[str]) -> Any:  # noqa: ANN401  (of the class)
    """Return the settings below the options: those of `--preset`, and above them those of the file of `--config`.

    Code that the file names is not checked where an option replaces it.
    """
    names, file = named_settings(options), config_option(options)
    if file is None and "preset" not in names:
        return config_type()
    from flatwater.presets.lookup import preset_settings
    from flatwater.runs.trust import load_settings

    # Only to choose the preset: so it does not matter that values of options are texts here.
    given_settings = {} if file is None else read_toml(file)
    given_settings |= {name: option_value(f"--{name.replace('_', '-')}", options) for name in names}
    if given_settings.get("preset") == "None":  # as tyro reads the word
        given_settings["preset"] = None
    preset = preset_settings(config_type, given_settings)
    if file is not None:
        return load_settings(config_type, file, preset, replaced_names=names)
    return from_mapping(config_type, preset, f"the preset {given_settings['preset']}")


def named_settings(options: Sequence[str]) -> set[str]:
    """Return the names of the settings that options give: `env_workers` for `--env-workers=2`."""
    return {word[2:].partition("=")[0].replace("-", "_") for word in options if word.startswith("--")}


class RecipeSettings(FileSettings):
    """A command for any recipe: `flatwater train erl`."""

    about: ClassVar[str]
    """First paragraphs of its help; `{name}` and `{guide}` stand for those of the recipe."""

    def settings(self) -> Any:  # noqa: ANN401  (of `config_type`)
        """Return the configuration, after a check of its environments' names, which needs no import of torch."""
        from flatwater.envs.names import check_env_names

        settings = super().settings()
        check_env_names(settings)
        return settings


def with_recipe_settings(command: type[RecipeSettings], recipe: Recipe) -> type[Any]:
    """Return a class of the command that has the settings of a recipe as options, besides its own options."""
    text = command.about.format(name=recipe.name, guide=recipe.guide)
    namespace = {"__doc__": text, "__module__": command.__module__, "config_type": recipe.config}
    # Command first: its fields stand first in the help.
    return dataclass(frozen=True, kw_only=True)(type(f"{command.__name__}Recipe", (command, recipe.config), namespace))


def config_option(options: Sequence[str]) -> Path | None:
    """Return the value of `--config`."""
    file = option_value("--config", options)
    return None if file is None else Path(file)


def option_value(name: str, options: Sequence[str]) -> str | None:
    """Return the value of `--name VALUE` or `--name=VALUE`, before all options are read; None if it is not given."""
    for index, word in enumerate(options):
        if word == name and index + 1 < len(options):
            return options[index + 1]
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return None


def add_config_of_folder(options: Sequence[str], settings_file: str) -> list[str]:
    """Return the options, with `--config RUN/base.toml` before them if `--run` names a sweep or study to go on with.

    If the options have a `--config`, they stay as they are.

    Args:
        options: words after the command.
        settings_file: name of a file that each folder of this kind has, by which it is recognised.
    """
    run = option_value("--run", options)
    if run is None or config_option(options) is not None or not (Path(run) / settings_file).is_file():
        return [*options]
    return ["--config", str(Path(run) / "base.toml"), *options]


def environment_option(options: Sequence[str]) -> tuple[object, list[str]]:
    """Return the environment of `--env`, or of `env` in the file of `--config`, and the options without `--env`."""
    env = option_value("--env", options)
    file = config_option(options)
    if env is None:
        return (None if file is None else read_toml(file).get("env")), [*options]
    index = next(n for n, word in enumerate(options) if word == "--env" or word.startswith("--env="))
    word_count = 2 if options[index] == "--env" else 1  # `--env X`, or `--env=X`
    return env, [*options[:index], *options[index + word_count :]]


@dataclass(frozen=True, kw_only=True)
class WithTrust:
    """Option of a command that composes a run from a folder, whoever began it; `cli.main` looks for it by its name."""

    trust: bool = False
    """Run the code that the run names (recipe, environment, teacher, host, algorithm; at a resume also trackers and the
    command for events), though there is no record that you began it on this machine."""


@dataclass(frozen=True, kw_only=True)
class WithBudget:
    """Options of a command whose memory is planned before it allocates any, as that of a run is."""

    budget: str | None = None
    """Memory that the command may take, such as 2GiB: what would need more is refused. Left out: 90 % of what the
    machine, the container and the shell allow."""
    plan: bool = False
    """Tell what the command would hold, and whether it fits; do nothing else."""


@dataclass(frozen=True, kw_only=True)
class WithDisplay:
    """Options of a command that trains."""

    quiet: bool = False
    """Print nothing but errors; what the run says stands in its run.log."""
    json: bool = False
    """Print each event as a JSON object on a line of its own instead of the table: start, round with all its numbers,
    alarm, finding, saved, signal, budget, note, end, failure."""
    profile: str | None = None
    """Record these rounds with torch's profiler: rounds=3 or rounds=3-5. Traces of each phase, of a bounded size, are
    written to profile/ in the run's folder, for Perfetto and Chrome; the numbers of the run stay the same."""
