"""A check that Optuna, which sweeps need, is installed."""

from flatwater_watch.errors import ConfigError


def require_optuna() -> None:
    """Refuse a sweep if Optuna, which draws the settings of trials and stores them, cannot be imported.

    Raises:
        ConfigError: Optuna is not installed, or a package that it needs is missing.
    """
    try:
        import optuna  # noqa: F401, PLC0415  (a second: only by commands that sweep)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"sweeps need the package {error.name}, which is not installed. Install it with: "
            "pip install 'flatwater[sweep]'"
        ) from error
